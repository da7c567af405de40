"""The network by zones: the space of interests, split into zones with one broker each."""
