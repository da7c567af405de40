"""Shapes: circles, polygons and corridors, verified exactly on the candidates of an index.

text of a filter -> syntax -> geometry -> cover (boxes for the index)
                                     \\-> verification (flat arrays) -> exact (predicates)
"""
