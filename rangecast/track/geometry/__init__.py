"""Filters beyond single points: wider by a margin, met by a path, and known to some accuracy.

boxes of a subscription -> forms (without the bounds that shapes imply)
path or radius of an event -> extents (candidates by their boxes) -> paths, accuracy (exactly)
"""
