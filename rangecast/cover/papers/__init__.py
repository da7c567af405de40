"""The covering indexes of paper 000: the k-d tree and the Z-curve."""
