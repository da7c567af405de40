"""A routing table: which events somebody behind a link, or at this broker, wants.

Small tables are compared in a plain loop, which for a few boxes and one event is quicker than any
index; past that an `Engine` answers. Ranges are looked up on the curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rangecast.engine import Engine
from rangecast.kernels.arrays import F64, Bool
from rangecast.merge.cells import Cells
from rangecast.merge.ranges import Ranges, union
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Box, Filter, boxes_of
from rangecast.model.members import Id
from rangecast.model.space import Space
from rangecast.overlay.messages import Item, RangeItem

_FEW = 2000
"""Comparisons of a box with an event that are made one by one."""


class Table:
    """Filters and ranges by name."""

    def __init__(self, space: Space, cells: Cells | None = None):
        self._space = space
        self._cells = cells
        self._filters: dict[Id, Filter] = {}
        self._ranges: dict[Id, RangeItem] = {}
        self._union: Ranges | None = None
        """Of all ranges; made when it is needed."""
        self._engine: Engine | None = None
        self._late: dict[Id, None] = {}
        """What the engine doesn't know of yet."""

    def __len__(self) -> int:
        return len(self._filters) + len(self._ranges)

    def change(self, come: Mapping[Id, Filter | Item], go: Sequence[Id] = ()) -> None:
        """Add filters and ranges by name, in place of what has the same name; remove others."""
        for name, what in come.items():
            if isinstance(what, Filter):
                self._filters[name] = what
                self._late[name] = None
            elif isinstance(what, RangeItem):
                self._ranges[name] = what
                self._union = None
        for name in go:
            if self._filters.pop(name, None) is not None:
                if self._engine is not None and name in self._engine:
                    self._late[name] = None
                else:
                    self._late.pop(name, None)
            elif self._ranges.pop(name, None) is not None:
                self._union = None

    def holds(self, points: F64) -> Bool:
        """Return whether each event, (n, d), is wanted."""
        if self._is_small(len(points)):
            held = np.array([self._holds_one(point) for point in points.tolist()], np.bool_)
        else:
            held = np.diff(self._indexed().match_points(points).matches.offsets) > 0
        if self._ranges and self._cells is not None and not held.all():
            held = held | self._all_ranges().hold(self._cells.places(points))
        return held

    def matches(self, points: F64) -> list[list[Id]]:
        """Return the names of the filters that hold each event, (n, d), in order of arrival."""
        if not self._is_small(len(points)):
            return list(self._indexed().match_points(points))
        return [
            [name for name, one in self._filters.items() if _holds(one.boxes, point)]
            for point in points.tolist()
        ]

    def _is_small(self, events: int) -> bool:
        return len(self._filters) * events <= _FEW

    def _holds_one(self, point: list[float]) -> bool:
        return any(_holds(one.boxes, point) for one in self._filters.values())

    def _all_ranges(self) -> Ranges:
        if self._union is None:
            first = np.array([one.first for one in self._ranges.values()], np.uint64)
            last = np.array([one.last for one in self._ranges.values()], np.uint64)
            self._union = union(first, last)
        return self._union

    def _indexed(self) -> Engine:
        """Return an engine that knows all filters."""
        engine = self._engine
        if engine is None:
            engine = self._engine = Engine(self._space)
        come = [name for name in self._late if name in self._filters]
        known = [name for name in come if name in engine]
        gone = [name for name in self._late if name not in self._filters and name in engine]
        self._late.clear()
        if gone:
            engine.unsubscribe_many(gone)
        if known:
            engine.replace_many(self._boxes(known))
        fresh = [name for name in come if name not in engine]
        if fresh:
            engine.subscribe_many(self._boxes(fresh))
        return engine

    def _boxes(self, names: list[Id]) -> Boxes:
        lo, hi, owner = boxes_of(self._space, [self._filters[name] for name in names])
        return Boxes.of(lo, hi, owner=owner, ids=names, space=self._space)


def _holds(boxes: tuple[Box, ...], point: list[float]) -> bool:
    for box in boxes:
        for axis, lo, hi in box:
            if not lo <= point[axis] <= hi:
                break
        else:
            return True
    return False
