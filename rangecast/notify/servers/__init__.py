"""Objects spread over many servers that share nothing, with the messages of a single board."""
