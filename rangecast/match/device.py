"""Matching index on a GPU, for `--device cuda`.

See `rangecast.device` and its kernels for the algorithm, the layout and the cost: boxes stay in row
order, and the events of a batch are sorted instead. It is meant for batches of thousands of events;
a single event costs as much as hundreds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from rangecast.device.devices import check_device
from rangecast.device.live import DeviceSet
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.match.result import BUFFER, MatchRows, joined
from rangecast.model.boxes import Boxes, as_points
from rangecast.model.sets.rowstore import append, no_rows

NO_MATCHES = MatchRows(np.zeros(1, np.int64), np.zeros(0, np.int32))


class OnDevice:
    """Matching index on a device."""

    def __init__(self, boxes: Boxes, device: str = "cuda"):
        """Create the index; the device is opened lazily, in the process of the first query."""
        check_device(device)
        self.name = device
        self.boxes = boxes
        self.rows = boxes.rows
        self._arrays = append(no_rows(), 0, boxes, np.arange(boxes.rows))

    @cached_property
    def set(self) -> DeviceSet:
        """Subscriptions on the device."""
        held = DeviceSet(self.name, self.boxes.dimensions)
        held.lay_out(self._arrays, np.flatnonzero(self._arrays.died[: self.rows] > 0))
        return held

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without device memory: a copy allocates its own, and doesn't include edits."""
        return OnDevice, (self.boxes, self.name)

    def apply(self, added: Boxes, removed: I64) -> None:
        """Apply one edit: append subscriptions after the last row, and remove rows."""
        arrays = append(self._arrays, self.rows, added, np.arange(added.rows) + self.rows)
        new = np.arange(self.rows, self.rows + added.rows)
        self._arrays = arrays
        self.rows += added.rows
        arrays.died[removed] = 0
        if "set" in self.__dict__ and not self.set.apply(arrays, new, removed):
            self.set.lay_out(arrays, np.flatnonzero(arrays.died[: self.rows] > 0))

    @property
    def memory(self) -> int:
        """Size in bytes: on the device after the first query, plus the boxes on the host."""
        held = self.set.memory if "set" in self.__dict__ else 0
        return held + self._arrays.memory

    def stream(self, points: F64, buffer: int = BUFFER) -> Iterator[tuple[int, MatchRows]]:
        """Yield (first event, matches) in chunks of at most `buffer` rows."""
        for first, offsets, rows in self.set.matches(as_points(points, self.boxes.dimensions)):
            event, at, events = 0, 0, len(offsets) - 1
            while event < events:
                end = min(at + buffer, int(offsets[-1]))
                whole = int(np.searchsorted(offsets, end, side="right")) - 1
                last = whole + (offsets[whole] < end)  # with one that goes on in the next piece
                own = np.clip(offsets[event : last + 1], at, end) - at
                yield first + event, MatchRows(own, rows[at:end])
                event, at = whole, end

    def match(self, points: F64) -> MatchRows:
        """Return all matches of all events."""
        return joined(self.pieces(points))

    def pieces(self, points: F64) -> tuple[MatchRows, ...]:
        """Return all matches of all events in chunks of consecutive events."""
        return pieces_on_device(self.set, as_points(points, self.boxes.dimensions))

    def match_one(self, point: F64) -> I32:
        """Return the rows that match one event."""
        return self.match(as_points(point, self.boxes.dimensions, one=True)[None]).rows

    def count(self, points: F64) -> I64:
        """Return the number of matching subscriptions per event."""
        return self.set.counts(as_points(points, self.boxes.dimensions))


def pieces_on_device(held: DeviceSet, points: F64) -> tuple[MatchRows, ...]:
    """Return the matches of events in the chunks that the device returns, at least one.

    The device rejects NaN.
    """
    pieces = tuple(MatchRows(offsets, rows) for _, offsets, rows in held.matches(points))
    return pieces or (NO_MATCHES,)
