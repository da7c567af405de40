"""The structures of the paper as rankers: a tree an attribute, exact by `exact`, relaxed by TA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rangecast.kernels.arrays import F64, I64
from rangecast.kernels.bundle import Bundle
from rangecast.model.boxes import Boxes
from rangecast.rank.liveness import ALL, Liveness
from rangecast.rank.papers.cursor import Shape, Walk, fetch_rounds
from rangecast.rank.papers.exact import best_exact
from rangecast.rank.papers.source import Source
from rangecast.rank.papers.threshold import best_relaxed, lookup_of, new_seen
from rangecast.rank.result import Best, Work, checked, new_best, new_counters
from rangecast.rank.scores.combine import number_of

Build = Callable[..., Source]


class Trees:
    """A set of subscriptions, ranked by a one-dimensional structure on each attribute."""

    def __init__(
        self,
        name: str,
        build: Build,
        boxes: Boxes,
        *,
        relaxed: bool = False,
        combine: str = "sum",
        **options: Any,
    ):
        self.name = name
        self.boxes = boxes
        self._combine = number_of(combine)
        self.source = Bundle(build(boxes, relaxed=relaxed, **options))
        self._shape = Shape.of(self.source)
        self._lookup = lookup_of(boxes) if relaxed else None

    @property
    def rows(self) -> int:
        """Number of subscriptions."""
        return self.boxes.rows

    @property
    def memory(self) -> int:
        """Bytes of the trees and, to look boxes up by, of the terms; the boxes aren't counted."""
        arrays = self.source.arrays
        held = self.source.memory - arrays.owner.nbytes - arrays.worth.nbytes
        return held + (self._lookup.memory if self._lookup else 0)

    def walk(self, axis: int, value: float) -> Walk:
        """Return the iterator over the boxes of an attribute that hold a value, best first."""
        return Walk(self.source, self._shape, axis, value)

    def fetch(self, points: F64, rounds: I64) -> Work:
        """Call getnext alone: as many rounds over all attributes as are given for each event.

        It is what relaxed ranking does but look subscriptions up, so that both can be timed.
        """
        counters = new_counters()
        cursor = self._shape.cursor(self.boxes.dimensions)
        events = checked(points, self.boxes.dimensions, 1)
        fetch_rounds(self.source.table, events, rounds, cursor.table, counters)
        return Work.of(counters)

    def best(self, points: F64, k: int, *, liveness: Liveness = ALL) -> Best:
        """Return the k best of each event."""
        events = checked(points, self.boxes.dimensions, k)
        k = min(k, self.rows)
        rows, scores, counts = new_best(len(events), k)
        counters = new_counters()
        cursor = self._shape.cursor(self.boxes.dimensions)
        arguments = events, *liveness, cursor.table
        if self._lookup is None:
            best_exact(self.source.table, *arguments, rows, scores, counts, counters)
        else:
            seen = new_seen(self.rows, self.boxes.dimensions)
            tables = self.source.table, self._lookup.table, self._combine
            best_relaxed(*tables, *arguments, seen.table, rows, scores, counts, counters)  # type: ignore[arg-type]
        return Best(rows, scores, counts, Work.of(counters))
