"""Matching as an answerer: all subscriptions of each event, in order of arrival."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from rangecast.kernels.arrays import F64
from rangecast.match.choose import Index, build, choose
from rangecast.match.ordered import stream_ordered
from rangecast.model.answers import Answers, Choice
from rangecast.model.boxes import Boxes


@dataclass(frozen=True)
class MatchAnswerer:
    """Answers with the column `subscription`."""

    index: Index
    ids: pa.Array
    choice: Choice
    threads: int = 1

    @classmethod
    def of(cls, boxes: Boxes, index: str = "auto", threads: int = 1) -> MatchAnswerer:
        """Build the structure of this name over some subscriptions."""
        choice = choose(boxes, index)
        return cls(build(boxes, choice.name), boxes.ids, choice, threads)

    @property
    def memory(self) -> int:
        """Bytes of the structure."""
        return self.index.memory

    @property
    def schema(self) -> pa.Schema:
        """The columns of its answers."""
        return pa.schema([("subscription", self.ids.type)])

    def answers(self, points: F64) -> Iterator[Answers]:
        """Yield the answers to events (n, d), in pieces of whole events."""
        for first, found in stream_ordered(self.index, points, self.threads):
            subscriptions = self.ids.take(pa.array(found.rows))
            yield Answers(first, found.offsets, {"subscription": subscriptions})
