"""Verification of matches that came from elsewhere."""
