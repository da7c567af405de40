"""A set of subscriptions on a device: laid out once, then edited in place.

A live set applies edits lazily: before each query, it applies those since the last one. There are
no parts and no rebuilds, and readers wait only for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from rangecast.device.boxes import DeviceBoxes, terms_of_rows
from rangecast.device.devices import open_device
from rangecast.device.search import Best, Found, Search, Seen
from rangecast.kernels.arrays import F64, I64
from rangecast.model.sets.live_view import LiveView
from rangecast.model.sets.rowstore import RowArrays


class DeviceSet:
    """Rows of a set on a device."""

    def __init__(self, device: str, dimensions: int, free: frozenset[int] = frozenset()):
        """Open a device; `free` attributes aren't compared: candidates are verified elsewhere."""
        self.runtime = open_device(device)
        self.dimensions = dimensions
        self.free = free
        self.lock = threading.RLock()
        """Lock: one query or edit at a time."""
        self._boxes: DeviceBoxes | None = None
        self._arrays: RowArrays | None = None
        self._seen = Seen()
        self._idle: list[Search] = []
        self._stream = self.runtime.new_stream()
        self._last_view: tuple[int, int, int] = (-1, 0, 0)
        """Lineage, rows and dead rows of the last view."""

    @property
    def memory(self) -> int:
        """Device memory of the boxes, in bytes."""
        return 0 if self._boxes is None else self._boxes.memory

    # ---- edits

    def lay_out(self, arrays: RowArrays, rows: I64) -> None:
        """Replace all rows on the device with these, ascending."""
        with self.lock, self._working():
            self._boxes = None
            self._idle.clear()  # their buffers are for the previous boxes
            terms = terms_of_rows(arrays, rows, self.free)
            self._boxes = DeviceBoxes(self.runtime, self.dimensions, terms)
            self._arrays = arrays
            self._seen = Seen()

    def apply(self, arrays: RowArrays, added: I64, removed: I64) -> bool:
        """Append rows and remove others; return False, changing nothing, if there is no room."""
        assert self._boxes is not None
        with self.lock, self._working():
            terms = terms_of_rows(arrays, added, self.free)
            if not self._boxes.has_room(terms):
                return False
            self._boxes.append(terms)
            self._boxes.kill(removed)
            self._arrays = arrays
        return True

    def show(self, view: LiveView[Any, Any]) -> None:
        """Update to the rows of a view, by the edits since the previous view."""
        lineage, count, dead = self._last_view
        now = view.lineage, view.count, view.dead
        if now == self._last_view:
            return
        with self.lock:
            follows = view.lineage == lineage and view.count >= count and view.dead >= dead
            added = np.arange(count, view.count)
            if follows:
                removed = view.rows.deaths[dead : view.dead].astype(np.int64)
                follows = self.apply(view.rows, added, removed)
            if not follows:
                living = np.flatnonzero(view.rows.died[: view.count] > view.edit)
                self.lay_out(view.rows, living)
            self._last_view = now

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Run work on a separate stream, and wait for it."""
        with self.runtime.device():
            with self._stream:
                yield
            self._stream.synchronize()

    # ---- questions

    @contextmanager
    def _searching(self) -> Iterator[Search]:
        """Yield a search with buffers that no other search uses."""
        assert self._boxes is not None
        boxes = self._boxes
        search = self._idle.pop() if self._idle else Search(boxes, self._seen)
        with self.runtime.device():
            try:
                yield search
            except BaseException:  # its buffers are freed: nothing may still write to them
                search.wait()
                raise
        if self._boxes is boxes:
            self._idle.append(search)

    def matches(self, points: F64) -> Iterator[Found]:
        """Yield (first event, offsets, rows) piece by piece; rows ascend."""
        with self._searching() as search:
            yield from search.matches(points)

    def counts(self, points: F64) -> I64:
        """Return how many subscriptions match each event."""
        with self._searching() as search:
            return search.counts(points)

    def best(self, points: F64, k: int) -> Best:
        """Return the top k of each event."""
        assert self._boxes is not None
        assert self._arrays is not None
        with self.lock, self._working():
            self._boxes.set_scores(self._arrays.scores, self._arrays.arrival)
        with self._searching() as search:
            return search.best(points, k)
