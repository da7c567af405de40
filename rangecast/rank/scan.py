"""The oracle of ranking: score every subscription of every event, sort, keep k.

Exact: all attributes hold; by score. Relaxed: at least one attribute that a box mentions holds;
by the sum of the weights of those that do, in attribute order; of several boxes the best counts.
Ties go to the subscription that arrived first, which is the lower row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.model.boxes import Boxes, Floats


class Ranked(NamedTuple):
    """The best subscriptions of one event, best first."""

    rows: npt.NDArray[np.int64]
    scores: Floats


class Scan:
    """The k best subscriptions of an event by scoring all of them."""

    name = "scan"

    def __init__(self, boxes: Boxes):
        self.boxes = boxes
        self.first = boxes.first
        self.mentioned = boxes.mentioned

    def exact(self, point: Floats, k: int) -> Ranked:
        """Return the k best of those that hold the event."""
        holds = (self.boxes.lo <= point) & (point <= self.boxes.hi)
        return self._best(
            np.logical_and.reduce(holds, axis=1), self.boxes.scores[self.boxes.owner], k
        )

    def relaxed(self, point: Floats, k: int) -> Ranked:
        """Return the k best of those of which some mentioned attribute holds the event."""
        holds = (self.boxes.lo <= point) & (point <= self.boxes.hi) & self.mentioned
        total = np.zeros(len(holds))
        for j in range(holds.shape[1]):
            weight = 1.0 if self.boxes.weights is None else self.boxes.weights[self.boxes.owner, j]
            total += np.where(holds[:, j], weight, 0.0)
        return self._best(np.logical_or.reduce(holds, axis=1), total, k)

    def _best(self, qualified: npt.NDArray[np.bool_], total: Floats, k: int) -> Ranked:
        """Rank subscriptions by their best qualified box."""
        if not self.boxes.rows:
            return Ranked(np.zeros(0, np.int64), np.zeros(0))
        best = np.maximum.reduceat(np.where(qualified, total, -np.inf), self.first[:-1])
        order = np.lexsort((np.arange(len(best)), -best))[:k]
        order = order[best[order] > -np.inf]
        return Ranked(order, best[order])

    def rank(self, points: Floats, k: int, *, relaxed: bool = False) -> Iterator[Ranked]:
        """Yield the k best of each event."""
        for point in points:
            yield self.relaxed(point, k) if relaxed else self.exact(point, k)
