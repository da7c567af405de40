"""The network by zones: the space of interests, cut into zones with a broker each."""
