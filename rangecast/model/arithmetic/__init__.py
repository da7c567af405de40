"""Arithmetic in filters: `x + y <= 10`, verified exactly on the candidates of an index.

text of a filter -> syntax -> comparisons -> programs (for a stack machine, and the kernel)
                                        \\-> intervals (bounds of the attributes, for the index)
"""
