"""Levels on the curve as breakpoints: a counted tree in flat arrays."""
