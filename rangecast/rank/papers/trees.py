"""The structures of the paper as rankers: a tree an attribute, exact by `exact`, relaxed by TA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64
from rangecast.model.boxes import Boxes, frozen
from rangecast.rank.life import ALL, Life
from rangecast.rank.papers.cursor import Shape, Walk
from rangecast.rank.papers.exact import best_exact
from rangecast.rank.papers.source import Source
from rangecast.rank.papers.threshold import (
    Combine,
    Lookup,
    best_combined,
    best_relaxed,
    levels_of,
    new_seen,
)
from rangecast.rank.result import Best, Work, checked, new_best, new_counters
from rangecast.rank.terms import terms_of

Build = Callable[..., Source]


class Trees:
    """A set of subscriptions, ranked by a one-dimensional structure on each attribute."""

    def __init__(
        self, name: str, build: Build, boxes: Boxes, *, relaxed: bool = False, **options: Any
    ):
        self.name = name
        self.boxes = boxes
        self.relaxed = relaxed
        self.source = build(boxes, relaxed=relaxed, **options)
        self._shape = Shape.of(self.source)
        self._lookup = lookup_of(boxes) if relaxed else None

    @property
    def memory(self) -> int:
        """Bytes of the trees and, to look boxes up by, of the terms; the boxes aren't counted."""
        held: list[Any] = [*self.source[: Source._fields.index("owner")]]
        if self._lookup is not None:
            held += [*self._lookup.terms, self._lookup.first_box, self._lookup.last_box]
        return int(sum(array.nbytes for array in held))

    def walk(self, axis: int, value: float) -> Walk:
        """Return the iterator over the boxes of an attribute that hold a value, best first."""
        return Walk(self.source, self._shape, axis, value)

    def best(
        self, points: F64, k: int, *, life: Life = ALL, combine: Combine | None = None
    ) -> Best:
        """Return the k best of each event; `combine` is another combination than the sum."""
        events = checked(points, self.boxes.dimensions, k)
        k = min(k, self.boxes.rows)
        if combine is not None:
            if not self.relaxed:
                raise UsageError("weights are combined in relaxed ranking only; give relaxed=True")
            cursor = self._shape.cursor(self.boxes.dimensions)
            return best_combined(self.source, self.boxes, events, k, combine, cursor)
        return ranked(self.source, self._shape, self._lookup, self.boxes.rows, events, k, life)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        lookup = self._lookup or ()
        for part in (self.source, lookup, *lookup[:1]):
            for array in part:
                if isinstance(array, np.ndarray):
                    array.flags.writeable = False


def lookup_of(boxes: Boxes) -> Lookup:
    """Return how to look the subscriptions of some boxes up."""
    terms = terms_of(boxes)
    first, last = frozen(boxes.box_offsets[:-1], np.int64), frozen(boxes.box_offsets[1:], np.int64)
    most = int((terms.last - terms.first).max(initial=1))
    return Lookup(terms, first, last, most, levels_of(boxes.weights))


def ranked(
    source: Source,
    shape: Shape,
    lookup: Lookup | None,
    size: int,
    events: F64,
    k: int,
    life: Life,
) -> Best:
    """Return the k best of each event; relaxed if there is something to look rows up in."""
    rows, scores, counts = new_best(len(events), k)
    counters = new_counters()
    cursor = shape.cursor(events.shape[1])
    if lookup is None:
        best_exact(source, events, life, cursor, rows, scores, counts, counters)
    else:
        seen = new_seen(size, events.shape[1])
        best_relaxed(source, lookup, events, life, cursor, seen, rows, scores, counts, counters)
    return Best(rows, scores, counts, Work.of(counters))
