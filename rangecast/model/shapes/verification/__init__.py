"""Verification of candidates: conjunctions compiled to programs, and their evaluation.

places -> programs -> candidates
"""
