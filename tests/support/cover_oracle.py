"""Covering and advertising in plain NumPy: the oracle for every index and every graph.

It knows nothing of points, edges or roots: it compares all boxes with all boxes once, and then
keeps to the definitions, a set at a time.
"""

from __future__ import annotations

import numpy as np

from rangecast.model.boxes import Boxes


def cover_matrix(boxes: Boxes) -> np.ndarray:
    """[a, b]: whether each box of subscription b lies inside a single box of a."""
    lo, hi = boxes.lo, boxes.hi
    inside = np.ones((len(lo), len(lo)), np.bool_)  # [outer, inner]
    for j in range(lo.shape[1]):
        inside &= (lo[:, None, j] <= lo[None, :, j]) & (hi[None, :, j] <= hi[:, None, j])
    if not len(lo):
        return inside
    first = boxes.box_offsets[:-1]
    in_some = np.logical_or.reduceat(inside, first, axis=0)
    return np.logical_and.reduceat(in_some, first, axis=1)


class Neighbourhood:
    """Subscriptions of a pool that come and go; what is forwarded, by the definition."""

    def __init__(self, boxes: Boxes):
        self.covers = cover_matrix(boxes)
        self.arrival: dict[int, int] = {}
        self.clock = 0
        self.advertised: set[int] = set()

    def above(self, row: int) -> set[int]:
        """The live ones that cover a row; of equals only those that arrived before it."""
        found = set()
        for other in self.arrival:
            if other != row and self.covers[other, row]:
                earlier = row not in self.arrival or self.arrival[other] < self.arrival[row]
                if earlier or not self.covers[row, other]:
                    found.add(other)
        return found

    def uncovered(self) -> list[int]:
        """Rows that nothing is above, in order of arrival."""
        rows = np.array(sorted(self.arrival, key=self.arrival.get), np.int64)
        covers = self.covers[np.ix_(rows, rows)]  # [outer, inner], both in order of arrival
        above = covers & (np.tri(len(rows), k=-1, dtype=np.bool_).T | ~covers.T)
        np.fill_diagonal(above, val=False)
        found: list[int] = rows[~above.any(axis=0)].tolist()
        return found

    def subscribe(self, row: int) -> tuple[list[int], list[int]]:
        """Return what to advertise and withdraw when a subscription is added."""
        self.arrival[row] = self.clock
        self.clock += 1
        return self._sent_if_uncovered(row), []

    def unsubscribe(self, row: int) -> tuple[list[int], list[int]]:
        """Return what to advertise and withdraw when a subscription is removed."""
        del self.arrival[row]
        exposed = [r for r in self.uncovered() if r not in self.advertised]
        self.advertised.update(exposed)
        known = row in self.advertised
        self.advertised.discard(row)
        return exposed, [row] if known else []

    def replace(self, old: int, new: int) -> tuple[list[int], list[int]]:
        """The same when one takes the place of another: it comes, then the other one leaves."""
        if self.covers[old, new] and self.covers[new, old]:
            self.arrival[new] = self.arrival.pop(old)
            self.advertised |= {new} if old in self.advertised else set()
            self.advertised.discard(old)
            return [], []
        self.arrival[new] = self.arrival[old]
        self._sent_if_uncovered(new)
        exposed, withdrawn = self.unsubscribe(old)
        sent = [row for row in exposed if row != new]
        return ([*sent, new], []) if new in self.advertised else (sent, withdrawn)

    def _sent_if_uncovered(self, row: int) -> list[int]:
        if self.above(row):
            return []
        self.advertised.add(row)
        return [row]

    def nearest(self, row: int) -> set[int]:
        """Those above a row with nothing between: the edges of the strict poset."""
        above = self.above(row)
        return {a for a in above if not any(a in self.above(b) for b in above if b != a)}


def earliest_uncovered(boxes: Boxes) -> list[int]:
    """For each row the uncovered one that covers it and came first, -1 if it is uncovered
    itself.
    """
    everything = Neighbourhood(boxes)
    for row in range(boxes.rows):
        everything.subscribe(row)
    kept = set(everything.uncovered())
    return [min(everything.above(row) & kept, default=-1) for row in range(boxes.rows)]
