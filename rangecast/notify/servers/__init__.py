"""Objects spread over many servers: the messages of one board, from servers that share nothing."""
