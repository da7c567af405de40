"""The oracle of ranking: score every subscription of every event, sort, keep k.

Exact: all attributes hold; by score. Relaxed: at least one attribute that a box mentions holds;
by the sum of the weights of those that do, in attribute order, or by another combination of them;
of several boxes the best counts.
Ties go to the subscription that arrived first, which is the lower row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.model.boxes import Boxes
from rangecast.rank.liveness import ALL, Liveness
from rangecast.rank.result import Best, Work, checked, new_best


class Ranked(NamedTuple):
    """The best subscriptions of one event, best first."""

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
"""What there is before the first weight, and how to add one."""


class Scan:
    """The k best subscriptions of an event by scoring all of them."""

    name = "scan"

    def __init__(self, boxes: Boxes, *, relaxed: bool = False, combine: str = "sum"):
        self.boxes = boxes
        self.is_relaxed = relaxed
        self.combine = combine

    @property
    def memory(self) -> int:
        """Bytes of the boxes: there is nothing else."""
        return self.boxes.lo.nbytes + self.boxes.hi.nbytes + self.boxes.owner.nbytes

    def best(self, points: F64, k: int, *, liveness: Liveness = ALL) -> Best:
        """Return the k best of each event."""
        events = checked(points, self.boxes.dimensions, k)
        k = min(k, self.boxes.rows)
        rows, scores, counts = new_best(len(events), k)
        everyone = np.arange(self.boxes.rows)
        set_rows = liveness.set_rows if len(liveness.set_rows) else everyone
        alive = liveness.died[set_rows] > liveness.edit if len(liveness.died) else everyone >= 0
        for event, ranked in enumerate(self.rank(events, self.boxes.rows, relaxed=self.is_relaxed)):
            kept = np.flatnonzero(alive[ranked.rows])[:k]
            counts[event] = len(kept)
            rows[event, : len(kept)] = ranked.rows[kept]
            scores[event, : len(kept)] = ranked.scores[kept]
        return Best(rows, scores, counts, Work(tested=len(events) * len(self.boxes.lo)))

    def exact(self, point: F64, k: int) -> Ranked:
        """Return the k best of those that hold the event."""
        holds = (self.boxes.lo <= point) & (point <= self.boxes.hi)
        return self._best(
            np.logical_and.reduce(holds, axis=1), self.boxes.scores[self.boxes.owner], k
        )

    def relaxed(self, point: F64, k: int) -> Ranked:
        """Return the k best of those of which some mentioned attribute holds the event."""
        holds = (self.boxes.lo <= point) & (point <= self.boxes.hi) & self.boxes.mentions
        weights = np.ones(holds.shape)
        if self.boxes.weights is not None:
            weights = self.boxes.weights[self.boxes.owner]
        return self._best(np.logical_or.reduce(holds, axis=1), self._total(holds, weights), k)

    def _total(self, holds: Bool, weights: F64) -> F64:
        """Return the combination of the weights of each box that hold."""
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
        """Yield the k best of each event."""
        for point in points:
            yield self.relaxed(point, k) if relaxed else self.exact(point, k)
