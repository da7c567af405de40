"""Ranking index on a GPU, by score, for `rank --device cuda`.

It finds matches as `match.device` does. They stay on the device: only the top k of each event are
copied to the host. Scores and ties are bit-identical to those of `rank.scan`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from rangecast.device.devices import check_device
from rangecast.device.live import DeviceSet
from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64
from rangecast.model.boxes import Boxes
from rangecast.model.sets.rowstore import append, no_rows
from rangecast.rank.liveness import ALL, Liveness
from rangecast.rank.result import Best, checked

NOT_ON_A_DEVICE = (
    "a device only ranks by score, without relaxed ranking, spans, shapes or texts\n"
    "  hint: leave the device out"
)


class OnDevice:
    """Ranking index on a device: the top k matches by score."""

    def __init__(self, boxes: Boxes, device: str = "cuda", *, relaxed: bool = False):
        """Create the index; the device is opened lazily, in the process of the first query."""
        check_device(device)
        if relaxed:
            raise UsageError(NOT_ON_A_DEVICE)
        self.name = device
        self.boxes = boxes
        self._arrays = append(no_rows(), 0, boxes, np.arange(boxes.rows))
        self._living: list[tuple[Liveness, DeviceSet]] = []
        """At most one: the set without rows that were dead, and which these were."""

    @cached_property
    def _set(self) -> DeviceSet:
        return self._laid_out(np.arange(self.boxes.rows))

    def _laid_out(self, rows: I64) -> DeviceSet:
        held = DeviceSet(self.name, self.boxes.dimensions)
        held.lay_out(self._arrays, rows)
        return held

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without device memory: a copy allocates its own."""
        return OnDevice, (self.boxes, self.name)

    @property
    def memory(self) -> int:
        """Size in bytes: on the device after the first query, plus the boxes on the host."""
        held = self._set.memory if "_set" in self.__dict__ else 0
        return self._arrays.memory + held + sum(each.memory for _, each in self._living)

    def best(self, points: F64, k: int, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of each event, best first."""
        points = checked(points, self.boxes.dimensions, k)
        return best_of(self._at(liveness), points, min(k, max(1, self.boxes.rows)))

    def _at(self, liveness: Liveness) -> DeviceSet:
        """Return the device set without the dead rows."""
        if not len(liveness.died):
            return self._set
        if not (self._living and self._living[0][0] is liveness):
            rows = np.arange(self.boxes.rows)
            set_rows = liveness.set_rows if len(liveness.set_rows) else rows
            held = self._laid_out(rows[liveness.died[set_rows] > liveness.edit])
            self._living[:] = [(liveness, held)]
        return self._living[0][1]


def best_of(held: DeviceSet, points: F64, k: int) -> Best:
    """Return the top k of each event, found on a device."""
    return Best(*held.best(points, k))
