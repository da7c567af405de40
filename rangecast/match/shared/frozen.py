"""Shared parts of structures that are one bundle of frozen arrays: `rtree`, `tiles`, `values`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import Bundle
from rangecast.match.result import BUFFER, MatchRows, Step, collect, stream
from rangecast.model.boxes import as_points


class FrozenIndex:
    """A structure that is one bundle, with a kernel for batches and one for a single event."""

    _batch: ClassVar[Callable[..., tuple[int, int, int, int, int]]]
    _single: ClassVar[Callable[..., tuple[int, int]]]

    def __init__(self, bundle: Bundle[Any], dimensions: int):
        self.bundle = bundle
        self.dimensions = dimensions

    @property
    def memory(self) -> int:
        """Bytes of all arrays held."""
        return self.bundle.memory

    def match(self, points: F64) -> MatchRows:
        """Return all matches of all events at once."""
        return collect(self._step(points), len(points))

    def stream(self, points: F64, buffer: int = BUFFER) -> Iterator[tuple[int, MatchRows]]:
        """Yield (first event, matches) in pieces of at most `buffer` rows."""
        return stream(self._step(points), len(points), buffer)

    def match_one(self, point: F64) -> I32:
        """Return the rows of one event (d,)."""
        table, point = self.bundle.table, as_points(point, self.dimensions, one=True)
        rows = np.empty(1024, np.int32)
        cursor, filled = self._single(table, point, 0, rows)
        while cursor >= 0:
            rows = np.concatenate([rows, np.empty(len(rows), np.int32)])
            cursor, more = self._single(table, point, cursor, rows[filled:])
            filled += more
        return rows[:filled]

    def _step(self, points: F64) -> Step:
        events = as_points(points, self.dimensions)

        def step(event: int, cursor: int, rows: I32, counts: I64) -> tuple[int, int, int, int, int]:
            return self._batch(self.bundle.table, events, event, cursor, rows, counts)

        return step
