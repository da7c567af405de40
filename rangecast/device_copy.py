"""Copies of engines on a device, for large batches; the engines themselves stay on the CPU."""

from __future__ import annotations

import logging
import threading
from weakref import WeakKeyDictionary

from rangecast.device.devices import open_device
from rangecast.device.live import DeviceSet
from rangecast.engine import Engine
from rangecast.kernels.arrays import F64
from rangecast.match.live import match_on_device
from rangecast.results import Matches

MIN_EVENTS = 64
"""Events of a batch from which a device pays, also for sets that the CPU matches in microseconds
(docs/how-to/gpu.md)."""

logger = logging.getLogger("rangecast")


class DeviceCopies:
    """Matches batches of at least `MIN_EVENTS` events on a device, and all others on the CPU.

    The first batch of an engine copies its subscriptions to the device, later ones only the edits
    since. After an error of the device, the CPU matches everything.
    """

    def __init__(self, device: str):
        """Open the device; the error names a missing library or driver."""
        open_device(device)
        self.device = device
        self.events = 0
        """Events matched on the device."""
        self.failure: Exception | None = None
        """Error after which the device isn't used any more."""
        self._sets: WeakKeyDictionary[Engine, DeviceSet] = WeakKeyDictionary()
        self._one_set = threading.Lock()

    def match_points(self, engine: Engine, points: F64) -> Matches:
        """Return the subscriptions that match each encoded event, (events, d)."""
        if len(points) < MIN_EVENTS or self.failure is not None:
            return engine.match_points(points)
        try:
            matches = self._match(engine, points)
        except Exception as error:  # whatever a driver raises: out of memory, a device that is lost
            logger.exception("the device %r failed; the CPU matches from now on", self.device)
            self.failure = error
            self._sets.clear()
            return engine.match_points(points)
        self.events += len(points)
        return matches

    def _match(self, engine: Engine, points: F64) -> Matches:
        held = self._set_of(engine)
        with held.lock:
            view = engine._view  # not before: a device that has shown a later one starts again
            return Matches(match_on_device(view, held, points), None, None, view.lists)

    def _set_of(self, engine: Engine) -> DeviceSet:
        with self._one_set:
            held = self._sets.get(engine)
            if held is None:
                verifier = engine._view.verifier
                free = frozenset(() if verifier is None else verifier.places.axes)
                held = self._sets[engine] = DeviceSet(self.device, len(engine.space), free)
            return held
