"""Owner of the objects of a board by slot; see `objects_line.py`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import Bundle
from rangecast.notify.line.objects_line import (
    BLOCK,
    NO_ARRIVAL,
    Line,
    best_in,
    change_all,
    enter,
    fill,
    leave,
    nearest,
    next_in,
)


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
        np.full(2 * blocks, NO_ARRIVAL, np.int64),
        np.full(max(slots, 1), -1, np.int64),
    )


class Objects:
    """The objects of a board by slot, a small number that is reused."""

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
        self._bundle = Bundle(_empty(blocks, slots))
        order = np.argsort(x, kind="stable")
        fill(self.table, order, x, y, arrival, np.asarray(slot, np.int32))

    @property
    def line(self) -> Line:
        """The arrays, in the layout of `objects_line.py`."""
        return self._bundle.arrays

    @property
    def table(self) -> I64:
        """The line in the form that kernels take."""
        return self._bundle.table

    def _places(self) -> I64:
        """Return the entries of all objects, in order of x."""
        blocks = np.repeat(np.arange(len(self.line.held)), self.line.held)
        first = np.repeat(np.cumsum(self.line.held) - self.line.held, self.line.held)
        return BLOCK * blocks + np.arange(len(blocks)) - first

    def add(self, x: float, y: float, arrival: int | None = None) -> int:
        """Add an object and return its slot; it comes last unless an arrival number is given."""
        if arrival is None:
            arrival, self.arrivals = self.arrivals, self.arrivals + 1
        slot = self._free.pop() if self._free else self.count
        if slot >= len(self.line.place):
            self._bundle = self._bundle.grown(place=slot + 1, fill=-1)
        if not enter(self.table, slot, x, y, arrival):
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
        twin._bundle = Bundle(Line._make(array.copy() for array in self.line))
        return twin

    def remove(self, slot: int) -> None:
        """Remove an object."""
        leave(self.table, slot)
        self._free.append(slot)
        self.count -= 1

    def change_many(self, slots: npt.ArrayLike, ys: npt.ArrayLike) -> None:
        """Set the values of objects."""
        change_all(self.table, np.asarray(slots, np.int32), np.asarray(ys, np.float64))

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
        """Return the slots of the top k objects of a range, the best first."""
        slots = np.empty(k, np.int32)
        n = best_in(self.table, lo, hi, slots, np.empty(k), np.empty(k, np.int64))
        return slots[:n]

    def nearest(self, x: float, y: float, arrival: int, k: int, *, east: bool) -> tuple[float, ...]:
        """Return the positions of the nearest k objects with a key below this one, from near to
        far.

        Objects at x count on either side.
        """
        values = np.empty(k + 1)
        start = math.nextafter(x, -math.inf) if east else x
        n = nearest(self.table, start, y, arrival, east, values)
        return tuple(values[1 : n + 1].tolist())

    def next_best(
        self, lo: float, hi: float, key: tuple[float, int], limit: tuple[float, int]
    ) -> int | None:
        """Return the slot of the object of a range with the lowest key above a key and below a
        limit.
        """
        slot = next_in(self.table, lo, hi, *key, *limit)
        return None if slot < 0 else slot

    @property
    def memory(self) -> int:
        """Bytes of all arrays."""
        return self._bundle.memory
