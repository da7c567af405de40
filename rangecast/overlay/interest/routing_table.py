"""A routing table: the events needed behind a link, or at this broker.

Small tables are compared in a plain loop, which for a few boxes and one event is quicker than any
index; past that an `Engine` answers. Ranges are looked up on the curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rangecast.engine import Engine
from rangecast.kernels.arrays import F64, Bool
from rangecast.merge.ranges import Ranges, union
from rangecast.model.boxes import Boxes
from rangecast.model.filters.regions import Box
from rangecast.model.sets.members import Id
from rangecast.model.space import Space
from rangecast.overlay.interest.items import Batch
from rangecast.overlay.interest.range_line import Curve, Words
from rangecast.overlay.wire.frames import RangeItem
from rangecast.overlay.wire.packing import unpack, unpack_many

_SMALL = 200
"""Maximum filters of a table that is scanned."""
_FEW = 2000
"""Maximum comparisons of boxes with events made one by one."""


class Table:
    """Filters and ranges by name."""

    def __init__(self, space: Space, curve: Curve | None = None, *, is_verified: bool = False):
        """Create an empty table; `is_verified`: filters may have shapes, which are verified."""
        self._space = space
        self._curve = curve
        self._small: dict[Id, tuple[Box, ...]] | None = None if is_verified else {}
        """All filters; `None`: there are too many, or they are verified: the engine has them."""
        self._ranges: dict[Id, RangeItem] = {}
        self._union: Ranges | None = None
        """Union of all ranges; computed on demand."""
        self._engine = Engine(space)
        self._late: dict[Id, bytes] = {}
        """Items not yet added to the engine."""
        self._gone: dict[Id, None] = {}
        """Items to remove from the engine first; some may have been added again since."""

    def change(self, added: Mapping[Id, bytes], removed: Sequence[Id] = ()) -> None:
        """Add packed filters by name, replacing those of the same name; remove others."""
        self._late |= added
        small = self._small
        if small is not None:
            if len(small) + len(added) - len(removed) > _SMALL:
                self._small = None
            else:
                small |= {name: unpack(packed) for name, packed in added.items()}
                for name in removed:
                    del small[name]
        for name in removed:
            self._late.pop(name, None)
            if name in self._engine:
                self._gone[name] = None

    def change_items(self, added: Batch, removed: Sequence[int]) -> None:
        """Add items that don't exist, remove others that do."""
        self.change(
            {wanted.item.name: wanted.boxes for wanted in added if wanted.boxes is not None},
            [name for name in removed if name not in self._ranges] if self._ranges else removed,
        )
        if added.ranges or self._ranges:
            self._ranges |= {item.name: item for item in added.ranges}
            for name in removed:
                self._ranges.pop(name, None)
            self._union = None

    def holds(self, points: F64, words: Words | None = None) -> Bool:
        """Return whether each event, (n, d), may match.

        words    values of string attributes, if the curve has a stretch for each
        """
        small = self._filters_to_scan(len(points))
        if small is not None:
            listed = [*small.values()]
            held = np.array(
                [any(_holds(boxes, point) for boxes in listed) for point in points.tolist()],
                np.bool_,
            )
        else:
            held = np.diff(self._indexed().match_points(points).matches.offsets) > 0
        if self._ranges and self._curve is not None and not held.all():
            held = held | self._all_ranges().contains_cells(self._curve.places(points, words))
        return held

    def matches(self, points: F64) -> Sequence[list[Id]]:
        """Return the names of the filters that match each event, (n, d), in order of arrival."""
        small = self._filters_to_scan(len(points))
        if small is None:
            matches = self._indexed().match_points(points)
            return matches if len(matches.matches.rows) else []
        held = [
            [name for name, boxes in small.items() if _holds(boxes, point)]
            for point in points.tolist()
        ]
        return held if any(held) else []

    def _filters_to_scan(self, events: int) -> dict[Id, tuple[Box, ...]] | None:
        """Return all filters if they are few enough to be scanned."""
        small = self._small
        return None if small is None or len(small) * events > _FEW else small

    def _all_ranges(self) -> Ranges:
        if self._union is None:
            first = np.array([ranges.first for ranges in self._ranges.values()], np.uint64)
            last = np.array([ranges.last for ranges in self._ranges.values()], np.uint64)
            self._union = union(first, last)
        return self._union

    def _indexed(self) -> Engine:
        """Return an engine with all filters."""
        engine, added, gone = self._engine, self._late, self._gone
        if gone:
            self._gone = {}
            engine.unsubscribe_many(gone)
        if not added:
            return engine
        self._late = {}
        known: dict[Id, bytes] = {}
        if len(engine):
            known = {name: packed for name, packed in added.items() if name in engine}
        if known:
            engine.replace_many(self._boxes(known))
            added = {name: packed for name, packed in added.items() if name not in known}
        if added:
            engine.subscribe_many(self._boxes(added))
        return engine

    def _boxes(self, packed: Mapping[Id, bytes]) -> Boxes:
        lo, hi, owner = unpack_many([*packed.values()], len(self._space))
        return Boxes.of(lo, hi, owner=owner, ids=[*packed], space=self._space)


def _holds(boxes: tuple[Box, ...], point: list[float]) -> bool:
    for box in boxes:
        for axis, lo, hi in box:
            if not lo <= point[axis] <= hi:
                break
        else:
            return True
    return False
