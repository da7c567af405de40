"""The objects of a board: `line.py` has the idea; here its arrays are owned and slots given out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.model.members import Id, Members, as_id
from rangecast.notify.line import BLOCK, NOBODY, Line, best_of, change, enter, fill, leave


def _empty(blocks: int, slots: int) -> Line:
    places = BLOCK * blocks
    return Line(
        np.zeros(places),
        np.zeros(places),
        np.zeros(places, np.int64),
        np.zeros(places, np.int32),
        np.zeros(blocks, np.int32),
        np.full(blocks, np.inf),
        np.full(2 * blocks, np.inf),
        np.full(2 * blocks, NOBODY, np.int64),
        np.full(max(slots, 1), -1, np.int64),
    )


class Objects:
    """The objects of a board, by slot: a small number that is used again after an object left."""

    def __init__(
        self,
        x: npt.ArrayLike = (),
        y: npt.ArrayLike = (),
        arrival: npt.ArrayLike | None = None,
    ):
        xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
        self.count = len(xs)
        self._free: list[int] = []
        came = np.arange(self.count) if arrival is None else np.asarray(arrival, np.int64)
        self.arrivals = int(came.max(initial=-1)) + 1
        self._lay_out(np.arange(self.count), xs, ys, came, self.count)

    def _lay_out(self, slot: Any, x: F64, y: F64, arrival: I64, slots: int) -> None:
        blocks = 1
        while 0.5 * BLOCK * blocks < len(x):
            blocks *= 2
        self.line = _empty(blocks, slots)
        order = np.argsort(x, kind="stable")
        fill(self.line, order, x, y, arrival, np.asarray(slot, np.int32))
        self.arrays: tuple[Any, ...] = tuple(self.line)

    def _places(self) -> I64:
        """Return the places of all objects, in order of x."""
        blocks = np.repeat(np.arange(len(self.line.held)), self.line.held)
        first = np.repeat(np.cumsum(self.line.held) - self.line.held, self.line.held)
        return BLOCK * blocks + np.arange(len(blocks)) - first

    def add(self, x: float, y: float, arrival: int | None = None) -> int:
        """Let an object enter and return its slot; it comes last unless an arrival is given."""
        if arrival is None:
            arrival, self.arrivals = self.arrivals, self.arrivals + 1
        slot = self._free.pop() if self._free else self.count
        if slot >= len(self.line.place):
            more = np.full(2 * len(self.line.place), -1, np.int64)
            more[: len(self.line.place)] = self.line.place
            self.line = self.line._replace(place=more)
            self.arrays = tuple(self.line)
        if not enter(self.line, slot, x, y, arrival):
            at = self._places()
            self._lay_out(
                np.append(self.line.slot[at], np.int32(slot)),
                np.append(self.line.x[at], x),
                np.append(self.line.y[at], y),
                np.append(self.line.arrival[at], arrival),
                len(self.line.place),
            )
        self.count += 1
        return slot

    def copy(self) -> Objects:
        """Return the same objects in the same slots."""
        twin = Objects()
        twin.count, twin.arrivals, twin._free = self.count, self.arrivals, [*self._free]
        twin.line = Line(*(array.copy() for array in self.arrays))
        twin.arrays = tuple(twin.line)
        return twin

    def remove(self, slot: int) -> None:
        """Let an object leave."""
        leave(self.line, slot)
        self._free.append(slot)
        self.count -= 1

    def change(self, slot: int, y: float) -> None:
        """Give an object a new value."""
        change(self.line, slot, y)

    def of(self, slot: int) -> tuple[float, float, int]:
        """Return x, y and arrival of an object."""
        p = self.line.place[slot]
        return float(self.line.x[p]), float(self.line.y[p]), int(self.line.arrival[p])

    def columns(self, slots: I64 | None = None) -> tuple[I32, F64, F64, I64]:
        """Return slot, x, y and arrival of all objects, in order of x, or of those in slots."""
        at = self._places() if slots is None else self.line.place[slots]
        line = self.line
        return line.slot[at], line.x[at], line.y[at], line.arrival[at]

    def best(self, lo: float, hi: float, k: int) -> I32:
        """Return the slots of the k best objects of a range, the best first."""
        slots = np.empty(k, np.int32)
        n = best_of(self.line, lo, hi, k, slots, np.empty(k), np.empty(k, np.int64))
        return slots[:n]

    @property
    def memory(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.line)


class Object(NamedTuple):
    """An object of a board."""

    id: Id
    x: float
    y: float


class BoardObjects(Mapping[Id, Object]):
    """The objects of a board by id, in order of arrival."""

    def __init__(self, members: Members, objects: Objects, *, descending: bool):
        self._members = members
        self._objects = objects
        self._descending = descending

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Id]:
        return iter(self._members)

    def __contains__(self, one: object) -> bool:
        return one in self._members

    def __getitem__(self, one: Id) -> Object:
        x, y, _ = self._objects.of(self._members.row(one))
        return Object(as_id(one), x, 0.0 - y if self._descending else y)
