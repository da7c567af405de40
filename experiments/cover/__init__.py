"""Paper 000: covering."""
