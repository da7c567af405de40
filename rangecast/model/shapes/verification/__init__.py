"""Verification: the words of places as programs, and the candidates of an index against them.

places -> programs -> candidates
"""
