"""Shared parts of structures that find candidates and check them.

The exact test of one candidate, how a subscription of several boxes is reported once, which boxes
need no such look, and which attributes tell subscriptions apart best.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, Bool
from rangecast.kernels.grid import MAX, SortedBounds
from rangecast.kernels.jit import jit
from rangecast.model.boxes import Boxes

_SAMPLE = 500
_SIBLINGS = 64


@jit
def holds(lo: F64, hi: F64, box: int, point: F64) -> bool:
    """Return whether a box contains a point."""
    for axis in range(len(point)):  # noqa: SIM110 - numba has no quicker way
        if not (lo[box, axis] <= point[axis] <= hi[box, axis]):
            return False
    return True


@jit
def held_before(lo: F64, hi: F64, earlier: I32, box: int, point: F64) -> tuple[bool, int]:
    """Return whether an earlier box of the same subscription contains a point, and boxes compared.

    If so, that box has reported the subscription, or will: so it is reported once, whatever order
    the boxes come in, and without a memory of earlier reports.
    """
    if len(earlier) == 0:
        return False, 0
    compared, other = 0, earlier[box]
    while other >= 0:
        compared += 1
        if holds(lo, hi, other, point):
            return True, compared
        other = earlier[other]
    return False, compared


def earlier_boxes(boxes: Boxes, order: I64) -> I32:
    """Return where the box before it of the same subscription lies, -1 if there is none.

    Places are those of the boxes in an order. Empty if all subscriptions have one box.
    """
    if len(boxes.lo) == boxes.rows:
        return np.zeros(0, np.int32)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    before = np.full(len(order), -1, np.int32)
    same = np.flatnonzero(np.diff(boxes.owner) == 0)
    before[same + 1] = rank[same]
    return before[order]


@jit
def mark_disjoint(lo: F64, hi: F64, owner: I32, out: Bool) -> None:
    """Write whether each box meets no other box of its subscription, so that both never hold.

    A subscription of very many boxes isn't looked into: its boxes count as meeting.
    """
    start = 0
    while start < len(owner):
        end = start + 1
        while end < len(owner) and owner[end] == owner[start]:
            end += 1
        for box in range(start, end):
            out[box] = end - start <= _SIBLINGS
        if end - start <= _SIBLINGS:
            for a in range(start, end):
                for b in range(start, a):
                    meet = True
                    for j in range(lo.shape[1]):
                        meet = meet and lo[a, j] <= hi[b, j] and lo[b, j] <= hi[a, j]
                    if meet:
                        out[a] = out[b] = False
        start = end


def edges_at_bounds(lo: F64, hi: F64, cells: int) -> F64:
    """Return edges for at most `cells` cells, at the bounds of ranges, lower and upper alike.

    An event on an edge is inside every range that starts or ends there. So if events lie on edges,
    no comparison is needed, and one edge per bound is enough instead of two.
    """
    return bounds_as_starts(lo, hi).edges(cells)


def bounds_as_starts(lo: F64, hi: F64) -> SortedBounds:
    """Return the bounds that `edges_at_bounds` takes edges from."""
    return SortedBounds.of(np.concatenate([lo, hi[hi < MAX]]), np.empty(0))


class Sample:
    """Some boxes, and events placed where boxes are, to weigh one layout against another.

    Each event lies at the lower or upper end of one of the boxes; where that box doesn't mention
    an attribute, at an end of one that does. `surviving[j]` (events, boxes) says which boxes hold
    which events on attribute j.
    """

    def __init__(self, boxes: Boxes, size: int = _SAMPLE):
        rng = np.random.default_rng(0)
        chosen = np.arange(len(boxes.lo))
        if len(chosen) > size:
            chosen = np.sort(rng.choice(len(chosen), size, replace=False))
        self.boxes = chosen
        self.scale = len(boxes.lo) / max(1, len(chosen))
        self.lo, self.hi = boxes.lo[chosen], boxes.hi[chosen]
        ends = np.where(rng.random(self.lo.shape) < 0.5, self.lo, self.hi)
        ends = np.where(ends == -np.inf, self.hi, ends)
        mentioned = boxes.mentions[chosen]
        for j in range(boxes.dimensions):
            known = np.flatnonzero(mentioned[:, j])
            free = np.flatnonzero(~mentioned[:, j])
            if len(known):
                ends[free, j] = ends[rng.choice(known, len(free)), j]
        self.events = ends[rng.permutation(len(ends))[: size // 2]]
        self.surviving = [
            (self.lo[:, j] <= self.events[:, j, None]) & (self.events[:, j, None] <= self.hi[:, j])
            for j in range(boxes.dimensions)
        ]

    def matches(self, axes: Sequence[int]) -> float:
        """Return how many boxes contain an event on these attributes, on average."""
        left = np.ones((len(self.events), len(self.lo)), np.bool_)
        for axis in axes:
            left &= self.surviving[axis]
        return float(np.count_nonzero(left)) / max(1, len(left)) * self.scale

    def axes(self, most: int) -> tuple[int, ...]:
        """Return at most `most` attributes, each the one that leaves the fewest candidates."""
        chosen: list[int] = []
        left = np.ones((len(self.events), len(self.lo)), np.bool_)
        while len(chosen) < min(most, len(self.surviving)):
            others = [j for j in range(len(self.surviving)) if j not in chosen]
            counts = [int(np.count_nonzero(left & self.surviving[j])) for j in others]
            best = int(np.argmin(counts))
            if chosen and counts[best] > 0.98 * np.count_nonzero(left):
                break
            chosen.append(others[best])
            left &= self.surviving[others[best]]
        return tuple(chosen)
