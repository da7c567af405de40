"""The zone of a server: a range of positions, its objects, and the interests that overlap it.

A message about an object goes to interests that contain its position, so a server needs only the
interests that overlap its zone. `LineZone` has a number per object and a range per interest,
`BoxZone` (`box_zone.py`) a point and boxes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np

from rangecast.kernels.arrays import F64, I32
from rangecast.model.sets.members import Id
from rangecast.notify.line.interests import Interests
from rangecast.notify.line.objects import Objects
from rangecast.notify.servers.wire import EAST, Range, WireObject


class Zone(ABC):
    """Positions from `lo` up to but excluding `hi`; may be empty."""

    def __init__(self, lo: float, hi: float, things: Sequence[WireObject]):
        self.lo, self.hi = lo, hi
        self._names: dict[int, Id] = {slot: thing.object for slot, thing in enumerate(things)}
        self._slots: dict[Id, int] = {thing.object: slot for slot, thing in enumerate(things)}

    def __len__(self) -> int:
        return len(self._slots)

    def holds(self, position: float) -> bool:
        """Return whether a position lies in the zone."""
        return self.lo <= position < self.hi

    # ---- objects

    def __getitem__(self, object_id: Id) -> WireObject:
        return self._wire_object(self._slots[object_id])

    def __contains__(self, object_id: Id) -> bool:
        return object_id in self._slots

    @abstractmethod
    def _wire_object(self, slot: int) -> WireObject: ...

    @abstractmethod
    def _insert(self, thing: WireObject) -> int:
        """Add an object to the index; return its slot."""

    @abstractmethod
    def _delete(self, slot: int) -> None:
        """Remove an object from the index."""

    @abstractmethod
    def _set_y(self, slot: int, y: float) -> None: ...

    @abstractmethod
    def _ordered(self) -> tuple[I32, F64]:
        """Return slot and position of all objects, from west to east."""

    def add(self, thing: WireObject) -> None:
        """Add an object."""
        slot = self._insert(thing)
        self._names[slot], self._slots[thing.object] = thing.object, slot

    def change(self, object_id: Id, y: float) -> None:
        """Set the value of an object."""
        self._set_y(self._slots[object_id], y)

    def remove(self, object_id: Id) -> WireObject:
        """Remove an object, and return it."""
        slot = self._slots.pop(object_id)
        thing = self._wire_object(slot)
        del self._names[slot]
        self._delete(slot)
        return thing

    # ---- interests

    def meets(self, interest: Range) -> bool:
        """Return whether an interest overlaps the zone."""
        return self.lo < self.hi and interest.lo < self.hi and interest.hi >= self.lo

    @abstractmethod
    def watch(self, ranges: Iterable[Range]) -> None:
        """Add the interests that overlap the zone and aren't known."""

    @abstractmethod
    def ignore(self, interest: Id) -> None:
        """Remove an interest, if it is known."""

    @abstractmethod
    def _meeting(self, lo: float, hi: float) -> list[Range]:
        """Return the interests with a position from `lo` up to but excluding `hi`."""

    # ---- runs

    def cut(self, side: int, least: int) -> float | None:
        """Return the border that cuts off at least this many objects on a side, if that leaves any.

        Objects at one position stay together. If that would cut off all objects, fewer are cut off.
        `None`: all objects are at one position.
        """
        xs = self._ordered()[1]
        last = xs[-least] if side == EAST else xs[least - 1]
        # the west side of a cut has the objects below it, so its own place is the first one east
        first, end = np.searchsorted(xs, last, "left"), np.searchsorted(xs, last, "right")
        near, far = (first, end) if side == EAST else (end, first)
        at = near if 0 < near < len(xs) else far
        return float(xs[at]) if 0 < at < len(xs) else None

    def give(self, side: int, border: float) -> tuple[tuple[WireObject, ...], tuple[Range, ...]]:
        """Cut off everything on one side of a border, and return it with the interests there."""
        slots, xs = self._ordered()
        lo, hi = (border, self.hi) if side == EAST else (self.lo, border)
        gone = slots[(xs >= lo) & (xs < hi)].tolist()
        things = tuple(self.remove(self._names[slot]) for slot in gone)
        met = self._meeting(lo, hi)
        self.lo, self.hi = (self.lo, border) if side == EAST else (border, self.hi)
        for interest in met:
            if not self.meets(interest):
                self.ignore(interest.interest)
        return things, tuple(met)

    def gain(
        self, towards: int, border: float, things: Iterable[WireObject], ranges: Iterable[Range]
    ) -> None:
        """Add objects handed over by a neighbour, and the interests that overlap them."""
        self.lo, self.hi = (border, self.hi) if towards == EAST else (self.lo, border)
        for thing in things:
            self.add(thing)
        self.watch(ranges)


class LineZone(Zone):
    """A zone whose objects have one number each, and interests a range."""

    def __init__(self, lo: float, hi: float, things: Sequence[WireObject]):
        super().__init__(lo, hi, things)
        columns = zip(*((thing.x, thing.y, thing.arrival) for thing in things), strict=True)
        self._objects = Objects(*columns) if things else Objects()
        self.index = Interests()
        self._ids: dict[int, Id] = {}
        self._rows: dict[Id, int] = {}

    def _wire_object(self, slot: int) -> WireObject:
        x, y, arrival = self._objects.of(slot)
        return WireObject(y, arrival, x, self._names[slot])

    def _insert(self, thing: WireObject) -> int:
        return self._objects.add(thing.x, thing.y, thing.arrival)

    def _delete(self, slot: int) -> None:
        self._objects.remove(slot)

    def _set_y(self, slot: int, y: float) -> None:
        self._objects.change_many([slot], [y])

    def _ordered(self) -> tuple[I32, F64]:
        slots, xs, _, _ = self._objects.columns()
        return slots, xs

    def nearest(self, x: float, y: float, arrival: int, k: int, *, east: bool) -> tuple[float, ...]:
        """Return the positions of the nearest k objects from x on with keys below this one."""
        return self._objects.nearest(x, y, arrival, k, east=east)

    def next_best(
        self, lo: float, hi: float, key: tuple[float, int], limit: tuple[float, int]
    ) -> WireObject | None:
        """Return the object of a range with the lowest key above a key and below a limit."""
        slot = self._objects.next_best(lo, hi, key, limit)
        return None if slot is None else self._wire_object(slot)

    def watch(self, ranges: Iterable[Range]) -> None:
        """Add the interests that overlap the zone and aren't known."""
        new = [
            range_ for range_ in ranges if range_.interest not in self._rows and self.meets(range_)
        ]
        ends = np.array([(range_.lo, range_.hi) for range_ in new]).reshape(-1, 2)
        rows = self.index.add_many(ends[:, 0].copy(), ends[:, 1].copy())
        for row, range_ in zip(rows.tolist(), new, strict=True):
            self._rows[range_.interest], self._ids[row] = row, range_.interest

    def ignore(self, interest: Id) -> None:
        """Remove an interest, if it is known."""
        row = self._rows.pop(interest, None)
        if row is not None:
            del self._ids[row]
            self.index.remove(row)

    def _meeting(self, lo: float, hi: float) -> list[Range]:
        rows = self.index.within(-math.inf, math.nextafter(hi, -math.inf), lo, math.inf)
        return [Range(self._ids[row], *self.index.of(row)) for row in sorted(rows.tolist())]
