"""The structures of the paper as rankers: a tree an attribute, exact by `exact`, relaxed by TA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes, Floats
from rangecast.rank.cursor import Shape, Walk
from rangecast.rank.exact import best_exact
from rangecast.rank.life import ALL, Life
from rangecast.rank.result import Best, Work, checked, new_best, new_counters
from rangecast.rank.source import Source
from rangecast.rank.terms import terms_of
from rangecast.rank.threshold import Combine, best_combined, best_relaxed, new_seen

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
        if relaxed:
            self._terms, self._first = terms_of(boxes), boxes.first
            self._first.flags.writeable = False
            self._most = int(np.diff(self._terms.first).max(initial=1))

    @property
    def memory(self) -> int:
        """Bytes of the trees and, to look boxes up by, of the terms; the boxes aren't counted."""
        held: list[Any] = [*self.source[: Source._fields.index("owner")]]
        held += [*self._terms, self._first] if self.relaxed else []
        return int(sum(array.nbytes for array in held))

    def walk(self, axis: int, value: float) -> Walk:
        """Return the iterator over the boxes of an attribute that hold a value, best first."""
        return Walk(self.source, self._shape, axis, value)

    def best(
        self, points: Floats, k: int, *, life: Life = ALL, combine: Combine | None = None
    ) -> Best:
        """Return the k best of each event; `combine` is another combination than the sum."""
        events = checked(points, self.boxes.dimensions, k)
        k = min(k, self.boxes.rows)
        cursor = self._shape.cursor(self.boxes.dimensions)
        if combine is not None:
            if not self.relaxed:
                raise UsageError("weights are combined in relaxed ranking only; give relaxed=True")
            return best_combined(self.source, self.boxes, events, k, combine, cursor)
        rows, scores, counts = new_best(len(events), k)
        counters = new_counters()
        if self.relaxed:
            seen = new_seen(self.boxes.rows, self.boxes.dimensions)
            best_relaxed(
                self.source,
                self._terms,
                self._first,
                self._most,
                events,
                life,
                cursor,
                seen,
                rows,
                scores,
                counts,
                counters,
            )
        else:
            best_exact(self.source, events, life, cursor, rows, scores, counts, counters)
        return Best(rows, scores, counts, Work.of(counters))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for part in (state["source"], state.get("_terms", ()), [state.get("_first")]):
            for array in part:
                if isinstance(array, np.ndarray):
                    array.flags.writeable = False
