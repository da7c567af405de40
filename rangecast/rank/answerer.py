"""Ranking as an answerer: the k best subscriptions of each event, best first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import F64
from rangecast.model.answers import Answers, Choice
from rangecast.model.boxes import Boxes
from rangecast.rank.choose import Index, build, choose
from rangecast.rank.shed import WINDOW, seconds_of

PIECE = 10_000
"""Events that are answered at a time."""


@dataclass(frozen=True)
class RankAnswerer:
    """Answers with the columns `rank`, `subscription` and `score`, and perhaps `WINDOW`."""

    index: Index
    ids: pa.Array
    choice: Choice
    relaxed: bool = False
    combine: str = "sum"
    k: int = 10
    clock: int | None = None
    """The axis of a timestamp: its second is the window of an answer."""

    @classmethod
    def of(
        cls,
        boxes: Boxes,
        index: str = "auto",
        *,
        relaxed: bool = False,
        combine: str = "sum",
        k: int = 10,
        clock: int | None = None,
    ) -> RankAnswerer:
        """Build the structure of this name over some subscriptions."""
        choice = choose(boxes, index, relaxed=relaxed)
        built = build(boxes, choice.name, relaxed=relaxed, combine=combine)
        return cls(built, boxes.ids, choice, relaxed, combine, k, clock)

    @property
    def memory(self) -> int:
        """Bytes of the structure."""
        return self.index.memory

    @property
    def schema(self) -> pa.Schema:
        """The columns of its answers."""
        columns = [("rank", pa.int64()), ("subscription", self.ids.type), ("score", pa.float64())]
        return pa.schema(columns + [(WINDOW, pa.int64())] * (self.clock is not None))

    def answers(self, points: F64) -> Iterator[Answers]:
        """Yield the answers to events (n, d), in pieces of whole events."""
        for first in range(0, len(points), PIECE):
            some = points[first : first + PIECE]
            best = self.index.best(some, self.k)
            event, rank, rows, scores = best.pairs()
            columns = {
                "rank": pa.array(rank),
                "subscription": self.ids.take(pa.array(rows)),
                "score": pa.array(scores),
            }
            if self.clock is not None:
                columns[WINDOW] = pa.array(seconds_of(some[event, self.clock]))
            yield Answers(first, np.concatenate([[0], np.cumsum(best.counts)]), columns)
