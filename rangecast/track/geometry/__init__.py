"""Filters beyond single points: widened by a margin, crossed by a path, of limited accuracy.

boxes of a subscription -> forms (without the bounds that shapes imply) path or radius of an event
-> extents (candidates by their boxes) -> paths, accuracy (exact)
"""
