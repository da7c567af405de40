"""Conditions on texts: patterns, words, long lists, addresses, verified on candidates.

text of a filter -> conditions (literals in one canonical form) -> programs (and the kernel)
                                                           \\-> ranges (bounds, for an index)
text of an event -> a handle of the store -> forms (unchanged, folded, words, address) -> the kernel
"""
