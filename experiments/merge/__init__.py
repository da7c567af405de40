"""Paper 004: merging on the Hilbert curve."""
