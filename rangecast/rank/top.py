"""Bounded list of the best rows so far, by score, then by row."""

from __future__ import annotations

from rangecast.kernels.arrays import F64, I32
from rangecast.kernels.jit import jit


@jit
def insert(rows: I32, scores: F64, filled: int, row: int, score: float) -> int:
    """Insert a row into a list sorted by score, then by row; return the new length.

    A full list drops its last entry, or ignores the new row if that is worse.
    """
    k = len(rows)
    if filled == k:
        if scores[k - 1] > score or (scores[k - 1] == score and rows[k - 1] < row):
            return k
        filled -= 1
    slot = filled
    while slot and (
        scores[slot - 1] < score or (scores[slot - 1] == score and rows[slot - 1] > row)
    ):
        rows[slot], scores[slot] = rows[slot - 1], scores[slot - 1]
        slot -= 1
    rows[slot], scores[slot] = row, score
    return filled + 1


@jit
def insert_once(rows: I32, scores: F64, filled: int, row: int, score: float) -> int:
    """Insert like `insert`, but keep only the better entry if the row is already present."""
    for slot in range(filled):
        if rows[slot] == row:
            if scores[slot] >= score:
                return filled
            for after in range(slot + 1, filled):
                rows[after - 1], scores[after - 1] = rows[after], scores[after]
            return insert(rows, scores, filled - 1, row, score)
    return insert(rows, scores, filled, row, score)
