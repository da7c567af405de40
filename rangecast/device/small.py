"""Small batches: their launches are captured once per shape, and replayed for later batches.

The launches of a small batch take as long as its search. A batch whose shape was seen before is
replayed as a graph: one call launches everything. Events are read from pinned memory by the first
kernel, and ids are written to the host by the last one, so nothing else is copied. The number of
matches isn't waited for: there is room for more than expected, and a batch with still more is
searched again in the usual way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rangecast.device.flight import HAS_NAN, HEADER, Flight, Slot
from rangecast.device.runtime import DeviceArray
from rangecast.device.stages import Stages
from rangecast.kernels.arrays import F64, I32, I64

_MAX_SHAPES = 64
"""Shapes that are remembered."""


class _Batch(NamedTuple):
    """A batch whose launches can be repeated."""

    flight: Flight
    ids: DeviceArray
    """Room for ids on the device."""
    offsets: DeviceArray | None
    """Their offsets, where ids are there and each subscription of an event once."""
    replay: Callable[[], None] | None
    """None: the launches were not captured yet."""


class SmallBatches:
    """Matches small batches on one stream."""

    def __init__(self, stages: Stages, slot: Slot):
        self._stages = stages
        self._slot = slot
        self._batches: dict[tuple[Any, ...], _Batch] = {}
        """By shape, the least recent first."""
        self._version = 0
        """Version of the buffers that they use."""

    def match(
        self, points: F64, splits: int, room: int, limit: int
    ) -> tuple[Flight, tuple[I64, I32] | None]:
        """Return the finished search, with offsets and rows unless there was too little room.

        room    capacity of a list
        limit   capacity for matches, a power of two
        """
        slot, runtime = self._slot, self._slot.runtime
        staged = slot.pinned("points", points.shape, np.float64)
        np.copyto(staged, points)
        slot.pinned("header", HEADER, np.uint64)[HAS_NAN] = 0
        self._forget()
        key = self._key(points, room, limit)
        batch = self._batches.pop(key, None)
        with slot.stream:
            if batch is None:
                batch = self._launched(staged, splits, room, limit)
            else:
                again = partial(self._launched, staged, splits, room, limit)
                replay = batch.replay or runtime.capture(slot.stream, again)
                batch = batch._replace(replay=replay)
                replay()
            rows = runtime.pinned(limit, np.int32)
            if batch.offsets is None:
                self._stages.sort_and_deliver(batch.flight, batch.ids, limit, rows)
            else:
                self._stages.deliver(batch.flight, batch.ids, batch.offsets, rows)
        self._forget()
        self._batches[key] = batch
        slot.stream.synchronize()
        flight = batch.flight
        flight.check()
        if not flight.has_room or flight.total > limit:
            return flight, None
        assert flight.copy is not None
        return flight, (flight.copy.copy(), rows[: flight.total_unique])

    def _key(self, points: F64, room: int, limit: int) -> tuple[Any, ...]:
        """Return everything that the launches depend on."""
        boxes = self._stages.boxes
        kind = boxes.count, boxes.has_several_boxes, boxes.is_plain
        return points.shape, room, limit, kind

    def _forget(self) -> None:
        """Forget batches that use replaced buffers, and the least recent one of too many."""
        if self._version != self._slot.version:
            self._batches.clear()
            self._version = self._slot.version
        if len(self._batches) >= _MAX_SHAPES:
            del self._batches[next(iter(self._batches))]

    def _launched(self, staged: F64, splits: int, room: int, limit: int) -> _Batch:
        """Launch the search of a batch; if rows have several boxes, up to ids in order."""
        stages, slot = self._stages, self._slot
        flight = stages.code(slot, 0, staged, splits, room, with_offsets=True)
        stages.order(flight)
        stages.search(flight, flight.found, None)
        stages.compute_offsets(flight)
        ids = slot.array("small ids", limit, np.int32)
        if not stages.boxes.has_several_boxes:
            return _Batch(flight, ids, None, None)
        stages.sort(flight, flight.found, None, ids, limit)
        fewer = slot.array("small unique ids", limit, np.int32)
        return _Batch(flight, fewer, stages.unique(flight, ids, fewer, limit), None)
