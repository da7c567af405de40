"""Levels on the curve as steps: a counted tree in flat arrays."""
