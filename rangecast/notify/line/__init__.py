"""Boards over one range of numbers: objects on a line, interests as points (l, r)."""
