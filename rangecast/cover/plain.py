"""Coverers of each subscription of a set, in plain NumPy: used until kernels are compiled.

A box is a point of 2d coordinates, and lies inside those whose points dominate its own (`store`).
Ranked column by column, a point that dominates another one has the larger sum of ranks, unless they
are equal. So in order of the largest sum of a subscription, then of arrival, whatever covers one
comes before it, and it is enough to compare it with those that were kept so far; but for
subscriptions of several boxes with the same largest sum, which are compared once more.

Time: subscriptions x kept ones, most of them on a few coordinates only.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rangecast.cover.store import NONE, points_of
from rangecast.kernels.arrays import F64, I32, I64, Bool
from rangecast.model.boxes import Boxes
from rangecast.model.shapes.nesting import with_nested

_ROWS, _OTHERS = 256, 1024
"""Number of subscriptions compared at a time, and with how many others."""
_FEW = 32
"""If at most one pair in this many is left, only these pairs are compared on the other
coordinates.
"""


def covered_plainly(boxes: Boxes) -> I32:
    """Return the result of `batch.covered_by`."""
    coverers = np.full(boxes.rows, NONE, np.int32)
    if boxes.rows == 0:
        return coverers
    boxes = with_nested(boxes)
    points, starts = points_of(boxes.lo, boxes.hi), boxes.box_offsets
    kept = np.sort(_kept(points, starts))
    rows = np.setdiff1d(np.arange(boxes.rows), kept, assume_unique=True)
    for by in _in_pieces(kept, _OTHERS):  # the earliest first
        for piece in _in_pieces(rows, _ROWS):
            covered = _covered(points, starts, piece, by)
            coverers[piece] = np.where(covered.any(axis=1), by[covered.argmax(axis=1)], NONE)
        rows = rows[coverers[rows] == NONE]
    return coverers


def _kept(points: F64, starts: I64) -> I64:
    """Return the rows that no other one covers; of those that cover each other, the first."""
    total = np.zeros(len(points), np.int64)
    for column in points.T:
        total += np.unique(column, return_inverse=True)[1]
    largest = np.maximum.reduceat(total, starts[:-1])
    kept = np.empty(0, np.int64)
    for rows in _in_pieces(np.argsort(-largest, kind="stable"), _ROWS):
        left = _uncovered(points, starts, rows, kept)
        by_earlier = np.tril(_covered(points, starts, left, left), -1)
        kept = np.concatenate([kept, left[~by_earlier.any(axis=1)]])
    if len(points) == len(largest):
        return kept
    level = np.bincount(largest[kept])[largest[kept]] > 1
    tied = kept[level]
    return np.concatenate([kept[~level], _uncovered(points, starts, tied, tied)])


def _uncovered(points: F64, starts: I64, rows: I64, others: I64) -> I64:
    """Return the rows that none of the others covers, apart from themselves."""
    uncovered = []
    for piece in _in_pieces(rows, _ROWS):
        left = piece
        for by in _in_pieces(others, _OTHERS):
            covered = _covered(points, starts, left, by) & (left[:, None] != by)
            left = left[~covered.any(axis=1)]
        uncovered.append(left)
    return np.concatenate([rows[:0], *uncovered])


def _covered(points: F64, starts: I64, rows: I64, by: I64) -> Bool:
    """Return a mask (rows, by): whether each row of `rows` is covered by each row of `by`."""
    if not len(rows) or not len(by):
        return np.zeros((len(rows), len(by)), np.bool_)
    if len(points) == len(starts) - 1:
        return _dominated(points[rows], points[by])
    covered, covering = _RowBoxes(starts, rows), _RowBoxes(starts, by)
    inside = _dominated(points[covered.boxes], points[covering.boxes])
    in_one = covering.folded(inside.T, np.logical_or).T
    return covered.folded(in_one, np.logical_and)


class _RowBoxes:
    """Boxes of some rows, grouped by row."""

    def __init__(self, starts: I64, rows: I64):
        self.counts = starts[rows + 1] - starts[rows]
        self.begin = np.cumsum(self.counts) - self.counts
        self.boxes = np.repeat(starts[rows] - self.begin, self.counts) + np.arange(
            self.counts.sum()
        )

    def folded(self, values: Bool, join: np.ufunc) -> Bool:
        """Combine the values of each row's boxes, (boxes, n), into one per row, (rows, n)."""
        result: Bool = values[self.begin]
        for step in range(1, int(self.counts.max())):  # most rows have one box: quicker than
            more = np.flatnonzero(self.counts > step)  # `reduceat`
            result[more] = join(result[more], values[self.begin[more] + step])
        return result


def _dominated(points: F64, by: F64) -> Bool:
    """Return whether each point is dominated by each of some others, (points, others)."""
    dominated = np.ones((len(points), len(by)), np.bool_)
    axes = iter(range(points.shape[1]))
    for axis in axes:
        dominated &= points[:, axis, None] <= by[:, axis]
        if np.count_nonzero(dominated) * _FEW < dominated.size:
            break
    below, above = np.nonzero(dominated)
    for axis in axes:
        holds = points[below, axis] <= by[above, axis]
        dominated[below[~holds], above[~holds]] = False
        below, above = below[holds], above[holds]
    return dominated


def _in_pieces(rows: I64, size: int) -> Iterator[I64]:
    """Yield rows in pieces of `size`."""
    for first in range(0, len(rows), size):
        yield rows[first : first + size]
