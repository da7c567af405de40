"""VCR, virtual construct rectangles: paper 002."""
