"""Space-filling curves: positions of cells, ranges of boxes, and their weights."""
