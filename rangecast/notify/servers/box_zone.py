"""The zone of a server over a space: the objects between two values of one attribute.

Zones divide the space along one attribute, as they divide the diagonal of Appendix C, and servers
stand in a row as there. A missing value lies beyond all others: a zone has it at the largest
number, so that positions of zones are finite.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import numpy as np

from rangecast.kernels.arrays import F64, I32
from rangecast.model.sets.members import Id
from rangecast.notify.boxes.points import Points
from rangecast.notify.servers.wire import Range, WireObject
from rangecast.notify.servers.zone import Zone

LARGEST = sys.float_info.max


def position_of(coordinate: float) -> float:
    """Return the position of a coordinate among zones: the finite number nearest to it."""
    return min(max(coordinate, -LARGEST), LARGEST)


class BoxZone(Zone):
    """A zone whose objects have a point each, and interests boxes."""

    def __init__(
        self, lo: float, hi: float, things: Sequence[WireObject], *, d: int, axis: int
    ) -> None:
        super().__init__(lo, hi, things)
        self._d, self._axis = d, axis
        self.objects = Points(
            np.array([thing.at for thing in things]).reshape(-1, d),
            np.array([thing.y for thing in things]),
            np.array([thing.arrival for thing in things], np.int64),
        )
        self.interests = Points(np.zeros((0, 2 * d)))
        """The boxes of interests, as points: lower, then upper bounds."""
        self._ranges: dict[Id, Range] = {}
        self._rows: dict[Id, list[int]] = {}

    # ---- objects

    def _wire_object(self, slot: int) -> WireObject:
        return self.wire_objects([slot])[0]

    def wire_objects(self, slots: Sequence[int]) -> list[WireObject]:
        """Return objects by slot."""
        at, ys, arrivals = self.objects.of(slots)
        return [
            WireObject(y, arrival, position_of(point[self._axis]), self._names[slot], tuple(point))
            for slot, point, y, arrival in zip(
                slots, at.tolist(), ys.tolist(), arrivals.tolist(), strict=True
            )
        ]

    def slot(self, object_id: Id) -> int:
        """Return the slot of an object, -1 if it is not in the zone."""
        return self._slots.get(object_id, -1)

    def _insert(self, thing: WireObject) -> int:
        return self.objects.add(thing.at, thing.y, thing.arrival)

    def _delete(self, slot: int) -> None:
        self.objects.remove(slot)

    def _set_y(self, slot: int, y: float) -> None:
        self.objects.change(slot, y)

    def _ordered(self) -> tuple[I32, F64]:
        slots, at, _, _ = self.objects.columns()
        xs = np.clip(at[:, self._axis], -LARGEST, LARGEST)
        order = np.lexsort((slots, xs))
        return slots[order], xs[order]

    # ---- interests

    def watch(self, ranges: Iterable[Range]) -> None:
        """Add the interests that overlap the zone and aren't known."""
        new = [
            range_
            for range_ in ranges
            if range_.interest not in self._ranges and self.meets(range_)
        ]
        if not new:
            return
        rows = self.interests.add_many(np.array([box for range_ in new for box in range_.boxes]))
        begin = 0
        for range_ in new:
            end = begin + len(range_.boxes)
            self._ranges[range_.interest] = range_
            self._rows[range_.interest] = rows[begin:end].tolist()
            begin = end

    def ignore(self, interest: Id) -> None:
        """Remove an interest, if it is known."""
        if self._ranges.pop(interest, None) is not None:
            for row in self._rows.pop(interest):
                self.interests.remove(row)

    def _meeting(self, lo: float, hi: float) -> list[Range]:
        return [range_ for range_ in self._ranges.values() if range_.lo < hi and range_.hi >= lo]
