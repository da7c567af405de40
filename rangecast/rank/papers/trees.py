"""The structures of the paper as rankers: a tree an attribute, exact by `exact`, relaxed by TA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I64, readonly
from rangecast.kernels.bundle import Bundle
from rangecast.model.boxes import Boxes
from rangecast.rank.liveness import ALL, Liveness
from rangecast.rank.papers.cursor import Shape, Walk, fetch_rounds
from rangecast.rank.papers.exact import best_exact
from rangecast.rank.papers.source import Source
from rangecast.rank.papers.threshold import best_relaxed, lookup_of, new_seen
from rangecast.rank.result import (
    Best,
    Span,
    Work,
    checked,
    ends_of,
    new_best,
    new_counters,
    not_exact,
)
from rangecast.rank.scores.combine import number_of

Build = Callable[..., Source]
_NOT_LOOKED_UP = readonly(np.empty((0, 1)))


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
        """Return the iterator over the boxes of an attribute that contain a value, best first."""
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
        """Return the top k of each event."""
        events = checked(points, self.boxes.dimensions, k)
        if self._lookup is None:
            return self._exact(events, events, k, liveness, self._shape)
        k = min(k, self.rows)
        rows, scores, counts = new_best(len(events), k)
        counters = new_counters()
        cursor = self._shape.cursor(self.boxes.dimensions)
        seen = new_seen(self.rows, self.boxes.dimensions)
        tables = self.source.table, self._lookup.table, self._combine
        arguments = events, *liveness, cursor.table
        best_relaxed(*tables, *arguments, seen.table, rows, scores, counts, counters)  # type: ignore[arg-type]
        return Best(rows, scores, counts, Work.of(counters))

    def best_spans(self, lo: F64, hi: F64, k: int, span: Span, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of events that are spans, (events, d) from lo to hi, both included.

        span   `overlap`: a subscription must meet the span; `contain`: hold all of it.
        """
        if self._lookup is not None:
            raise not_exact()
        above, below = ends_of(lo, hi, self.boxes.dimensions, k, span)
        if span == "overlap":
            shape = self._shape.overlapping(self.source, above, below)
            return self._exact(above, below, k, liveness, shape)
        arrays = self.source.arrays
        tells = len(arrays.lo) and not len(arrays.ends)
        upper = _NOT_LOOKED_UP if tells else self.boxes.hi
        return self._exact(above, below, k, liveness, self._shape, upper)

    def _exact(
        self,
        above: F64,
        below: F64,
        k: int,
        liveness: Liveness,
        shape: Shape,
        upper: F64 = _NOT_LOOKED_UP,
    ) -> Best:
        rows, scores, counts = new_best(len(above), min(k, self.rows))
        counters = new_counters()
        cursor = shape.cursor(self.boxes.dimensions)
        arguments = above, below, upper, *liveness, cursor.table
        best_exact(self.source.table, *arguments, rows, scores, counts, counters)
        return Best(rows, scores, counts, Work.of(counters))
