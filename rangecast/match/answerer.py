"""Answerer for matching: all matching subscriptions of each event, in order of arrival."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from rangecast.kernels.arrays import F64, I64, Bool, offsets_of
from rangecast.match.choose import Index, build, choose
from rangecast.match.ordered import stream_ordered
from rangecast.match.warmup import begin
from rangecast.model.answers.answerer import Answers, Choice
from rangecast.model.answers.merge_parts import ARRIVAL, arrivals_of, dead_rows
from rangecast.model.boxes import Boxes
from rangecast.model.threads import Threads, number_of_threads


@dataclass(frozen=True)
class MatchAnswerer:
    """Answerer that returns the column `subscription` and, for parts of a set, `ARRIVAL`."""

    index: Index
    ids: pa.Array
    choice: Choice
    threads: Threads = 1
    arrival: I64 | None = None
    """When each subscription of a part of a set arrived, ascending; `None`: as they are counted."""
    is_part: bool = False
    """Whether answers say when their subscriptions arrived, so that they can be merged."""
    dead: Bool | None = None
    """Subscriptions that no longer answer."""
    is_ordered: bool = True
    """Whether the answers to an event are in order of arrival, and in one chunk."""

    @classmethod
    def of(
        cls,
        boxes: Boxes,
        index: str = "auto",
        threads: Threads = 1,
        *,
        at_once: bool = False,
        device: str | None = None,
        memory: int | None = None,
    ) -> MatchAnswerer:
        """Build the index with this name over the given subscriptions.

        at_once   allow a plain scan to answer until the kernels are compiled
        device    device to match on; `None`: the CPU
        memory    maximum bytes of the index that `auto` chooses
        """
        if device is not None:
            choice = choose(boxes, index, device=device)
            return cls(build(boxes, index, device=device), boxes.ids, choice)
        if at_once:
            structure, choice = begin(boxes, index)
            return cls(structure, boxes.ids, choice, threads)
        choice = choose(boxes, index, memory)
        return cls(build(boxes, choice.name), boxes.ids, choice, threads)

    def as_part(self, gone: I64, *, is_merged: bool = True) -> MatchAnswerer:
        """Return this answerer as a part of a set, without the arrival numbers in `gone`."""
        dead = dead_rows(self.arrival, len(self.ids), gone)
        return replace(self, is_part=is_merged, is_ordered=is_merged, dead=dead)

    @property
    def best(self) -> None:
        """`None`: the number of answers per event is unlimited."""
        return

    @property
    def only_holders(self) -> bool:
        """Whether every answer is a subscription that matches the event."""
        return True

    @property
    def memory(self) -> int:
        """Size of the index in bytes."""
        return self.index.memory

    @property
    def schema(self) -> pa.Schema:
        """Schema of the answers."""
        return pa.schema([("subscription", self.ids.type)])

    def answers(self, points: F64) -> Iterator[Answers]:
        """Yield the answers for events (n, d) in chunks.

        Ordered ones never split an event; others come from one thread.
        """
        threads = number_of_threads(self.threads, len(points))
        if self.is_ordered:
            found = stream_ordered(self.index, points, threads)
        else:
            found = self.index.stream(points)
        for first, matches in found:
            offsets, rows = matches.offsets, matches.rows
            if self.dead is not None:
                lives = ~self.dead[rows]
                offsets, rows = offsets_of(lives)[offsets], rows[lives]
            columns = {"subscription": self.ids.take(pa.array(rows))}
            if self.is_part:
                columns[ARRIVAL] = arrivals_of(self.arrival, rows)
            yield Answers(first, offsets, columns)
