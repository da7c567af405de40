"""Oracle for ranking: score every subscription for every event, sort, keep k.

Exact: all attributes match; ordered by score. Relaxed: at least one mentioned attribute matches;
ordered by the sum of the weights of those that match, in attribute order, or by another
combination of them; if a subscription has several boxes, the best one counts. With a tolerance, an
attribute near its range counts a share of its weight.
Ties go to the subscription that arrived first, which is the lower row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.model.boxes import Boxes
from rangecast.rank.liveness import ALL, Liveness
from rangecast.rank.result import Best, Span, Work, checked, ends_of, new_best, not_exact
from rangecast.rank.scores.tolerances import NO_TOLERANCES


class Ranked(NamedTuple):
    """Top subscriptions of one event, best first."""

    rows: I64
    scores: F64


def _times(total: F64, weight: F64) -> F64:
    with np.errstate(over="ignore"):
        return np.minimum(total * weight, np.finfo(np.float64).max)


_JOIN: dict[str, tuple[float, Callable[[F64, F64], F64]]] = {
    "sum": (0.0, np.add),
    "min": (np.inf, np.minimum),
    "max": (0.0, np.maximum),
    "product": (1.0, _times),
}
"""Neutral element of a combination, and its operation."""


_BLOCK_BYTES = 1 << 22
"""Maximum bytes of scores that are compared at a time."""


def _are_among(best: F64, k: int) -> Bool:
    """Return a mask of the top k entries per row; ties go to the first ones."""
    last = np.partition(best, -k, axis=1)[:, -k, None]
    above = best > last
    level = (best == last) & (last > -np.inf)
    room = k - above.sum(axis=1, keepdims=True)
    chosen: Bool = above | (level & (np.cumsum(level, axis=1) <= room))
    return chosen


def _shares(lo: F64, hi: F64, value: F64, tolerance: float) -> F64:
    """Return the share of its weight that each range counts for each value; 0: it is too far."""
    inside = (lo <= value) & (value <= hi)
    with np.errstate(over="ignore", invalid="ignore"):
        gap = np.where(value < lo, lo - value, value - hi)
        shares: F64 = np.where(inside, 1.0, np.maximum(1.0 - gap / tolerance, 0.0))
    return shares


class Scan:
    """Ranking by scoring all subscriptions."""

    name = "scan"

    def __init__(self, boxes: Boxes, *, relaxed: bool = False, combine: str = "sum"):
        self.boxes = boxes
        self.is_relaxed = relaxed
        self.combine = combine

    @property
    def memory(self) -> int:
        """Size of the boxes in bytes; the scan has no other data."""
        return self.boxes.lo.nbytes + self.boxes.hi.nbytes + self.boxes.owner.nbytes

    def best(self, points: F64, k: int, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of each event, as `rank` does, but in blocks of events."""
        return self.best_near(points, k, NO_TOLERANCES, liveness=liveness)

    def best_near(self, points: F64, k: int, tolerances: F64, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of each event, with a tolerance per attribute in relaxed ranking."""
        events = checked(points, self.boxes.dimensions, k)
        return self._best_held(events, events, k, tolerances, liveness)

    def best_spans(self, lo: F64, hi: F64, k: int, span: Span, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of events that are spans, (events, d) from lo to hi, both included."""
        if self.is_relaxed:
            raise not_exact()
        ends = ends_of(lo, hi, self.boxes.dimensions, k, span)
        return self._best_held(*ends, k, NO_TOLERANCES, liveness)

    def _best_held(
        self, above: F64, below: F64, k: int, tolerances: F64, liveness: Liveness
    ) -> Best:
        """Return the top k of each event, which a box holds if lo <= above and below <= hi."""
        k = min(k, self.boxes.rows)
        rows, scores, counts = new_best(len(above), k)
        everyone = np.arange(self.boxes.rows)
        set_rows = liveness.set_rows if len(liveness.set_rows) else everyone
        alive = liveness.died[set_rows] > liveness.edit if len(liveness.died) else everyone >= 0
        block = max(1, _BLOCK_BYTES // max(8, 8 * len(self.boxes.lo)))
        for first in range(0, len(above) if k else 0, block):
            piece = slice(first, first + block)
            best = np.where(alive, self._scores(above[piece], below[piece], tolerances), -np.inf)
            event, row = np.nonzero(_are_among(best, k))
            order = np.lexsort((row, -best[event, row], event))
            event, row = event[order], row[order]
            counts[piece] = np.bincount(event, minlength=len(best))
            rank = np.arange(len(event)) - np.searchsorted(event, event)
            rows[piece][event, rank] = row
            scores[piece][event, rank] = best[event, row]
        return Best(rows, scores, counts, Work(tested=len(above) * len(self.boxes.lo)))

    def _scores(self, above: F64, below: F64, tolerances: F64) -> F64:
        """Return the score of each subscription for each event, -inf if it doesn't qualify."""
        boxes = self.boxes
        nothing, join = _JOIN[self.combine]
        shape = len(above), len(boxes.lo)
        qualified = np.full(shape, not self.is_relaxed)
        total = np.full(shape, nothing) if self.is_relaxed else boxes.scores[boxes.owner]
        for axis in range(boxes.dimensions):
            value = above[:, axis, None]
            holds = (boxes.lo[:, axis] <= value) & (below[:, axis, None] <= boxes.hi[:, axis])
            if not self.is_relaxed:
                qualified &= holds
                continue
            weight = np.ones(1) if boxes.weights is None else boxes.weights[boxes.owner, axis]
            if len(tolerances) and tolerances[axis]:
                share = _shares(boxes.lo[:, axis], boxes.hi[:, axis], value, tolerances[axis])
                holds, weight = share > 0, weight * share
            holds &= boxes.mentions[:, axis]
            qualified |= holds
            total = np.where(holds, join(total, weight), total)
        best = np.where(qualified, total, -np.inf)
        if len(boxes.lo) == boxes.rows:
            return best
        of_each: F64 = np.maximum.reduceat(best, boxes.box_offsets[:-1], axis=1)
        return of_each

    def exact(self, point: F64, k: int) -> Ranked:
        """Return the top k of the subscriptions that match the event."""
        holds = (self.boxes.lo <= point) & (point <= self.boxes.hi)
        return self._best(
            np.logical_and.reduce(holds, axis=1), self.boxes.scores[self.boxes.owner], k
        )

    def relaxed(self, point: F64, k: int) -> Ranked:
        """Return the top k of the subscriptions with at least one matching attribute."""
        holds = (self.boxes.lo <= point) & (point <= self.boxes.hi) & self.boxes.mentions
        weights = np.ones(holds.shape)
        if self.boxes.weights is not None:
            weights = self.boxes.weights[self.boxes.owner]
        return self._best(np.logical_or.reduce(holds, axis=1), self._total(holds, weights), k)

    def _total(self, holds: Bool, weights: F64) -> F64:
        """Combine the weights of the matching attributes of each box."""
        nothing, join = _JOIN[self.combine]
        total = np.full(len(holds), nothing)
        for held, weight in zip(holds.T, weights.T, strict=True):
            total[held] = join(total[held], weight[held])
        return total

    def _best(self, qualified: Bool, total: F64, k: int) -> Ranked:
        """Rank subscriptions by their best qualified box."""
        if not self.boxes.rows:
            return Ranked(np.zeros(0, np.int64), np.zeros(0))
        best = np.maximum.reduceat(np.where(qualified, total, -np.inf), self.boxes.box_offsets[:-1])
        order = np.lexsort((np.arange(len(best)), -best))[:k]
        order = order[best[order] > -np.inf]
        return Ranked(order, best[order])

    def rank(self, points: F64, k: int, *, relaxed: bool = False) -> Iterator[Ranked]:
        """Yield the top k of each event."""
        for point in points:
            yield self.relaxed(point, k) if relaxed else self.exact(point, k)
