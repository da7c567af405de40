"""The engine of a board on a line: objects at x, interests as points (l, r)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.model.boxes import closed_range
from rangecast.model.sets.members import Id
from rangecast.model.validation.arguments import check_finite
from rangecast.notify.base import BoardEngine, BoardOptions, MessageColumns
from rangecast.notify.line.interests import Interests
from rangecast.notify.line.lists import Lists
from rangecast.notify.line.objects import Objects
from rangecast.notify.line.painter import Painter
from rangecast.notify.line.sketch import Ranges
from rangecast.notify.line.tables import LineTables
from rangecast.notify.messages import Messages, Work
from rangecast.notify.new_interests import Regions, checked_boxes
from rangecast.notify.subscriber import Interest
from rangecast.notify.tables import ObjectColumns

_TIGHTENED = 4
"""A sketch is rebuilt when a quarter as many interests left as there are: log m work each."""


class LineEngine(BoardEngine):
    """Engine of a board without a space."""

    objects: Objects

    def __init__(self, options: BoardOptions):
        super().__init__(options)
        if options.upper_bound_attribute is not None:
            raise UsageError(
                f"upper_bound_attribute={options.upper_bound_attribute!r} is an attribute of a "
                "space, but there is no space\n"
                "  hint: give the space, or leave out upper_bound_attribute"
            )
        if options.sketch is not None and options.is_dense:
            raise UsageError("a sketch is only for 'sparse': 'dense' doesn't use interests")
        self.tables = LineTables()
        self._painter = Painter(options.k, options.groups, uses_interests=not options.is_dense)
        self.watch(Interests())

    # ---- interests

    def watch(self, tree: Interests) -> None:
        """Replace all interests; with a sketch, only their ends are stored."""
        self._removed = 0
        """Interests that left since the sketch was made."""
        self.tree: Interests | Ranges = tree
        """All interests."""
        self.index = tree
        """The interests used for painting: all of them, or a sketch."""
        if self.options.sketch is not None:
            row, lo, hi = tree.columns()
            order = np.argsort(row)
            self.tree, self.index = Ranges(lo[order], hi[order]), tree.sketch(self.options.sketch)

    def boxes(self, where: tuple[Any, ...]) -> F64:
        """Return lo and hi; None or missing is unbounded."""
        if len(where) > 2:
            raise UsageError(f"a range must be lo and hi; given: {', '.join(map(repr, where))}")
        lo, hi = (*where, None, None)[:2]
        low = -math.inf if lo is None else check_finite("lo", lo)
        high = math.inf if hi is None else check_finite("hi", hi)
        return np.array([closed_range(low, high)], np.float64)

    def region(self, interest: Id, where: tuple[Any, ...]) -> F64:
        """Return the range of an interest; reject an empty one."""
        region = self.boxes(where)
        if region[0, 0] > region[0, 1]:
            shown = f"{where[0]!r} is above {where[1]!r}"
            raise UsageError(f"interest {interest!r} is empty: {shown}")
        return region

    def add_region(self, region: F64) -> int:
        lo, hi = region[0].tolist()
        row = self.tree.add(lo, hi)
        if self.options.sketch is not None:
            self.index.add(lo, hi)
            if self.index.count > 2 * self.options.sketch:
                self.index = self.index.sketch(self.options.sketch)
        return row

    def add_regions(self, regions: Regions) -> range | list[int]:
        lo, hi = regions.points.T.copy()
        if not self.tree.count:
            self.watch(Interests(lo, hi))
            return range(self.tree.count)
        rows: list[int] = self.tree.add_many(lo, hi).tolist()
        if self.options.sketch is not None:
            self._rebuild_sketch()
        return rows

    def remove_region(self, row: int) -> None:
        self.tree.remove(row)
        if self.options.sketch is not None:
            self._removed += 1
            if self._removed >= max(self.options.sketch, self.tree.count // _TIGHTENED):
                self._rebuild_sketch()

    def _rebuild_sketch(self) -> None:
        """Make the sketch from all interests that there are, so that it covers no more."""
        assert self.options.sketch is not None
        self.index, self._removed = self.tree.sketch(self.options.sketch), 0

    def bounds(self, row: int) -> F64:
        return np.array([self.tree.of(row)])

    def regions(self, rows: list[int]) -> Regions:
        row, lo, hi = self.tree.columns()
        index = np.empty(self.tree.rows, np.int64)
        index[row] = np.arange(len(row))
        order = index[np.array(rows, np.int64)]
        return Regions(np.stack([lo[order], hi[order]], axis=1), np.ones(len(rows), np.int64))

    def rows_reached(self, messages: Messages) -> list[int]:
        within = self._all_interests.within
        reached = [within(l0, l1, r0, r1) for l0, r0, l1, r1 in messages.bounds.tolist()]
        return [row for rows in reached for row in rows.tolist()]

    @property
    def _all_interests(self) -> Interests:
        return self.tree.index() if isinstance(self.tree, Ranges) else self.tree

    def interest(self, bounds: F64, k: int, *, lists: list[list[Any]], **options: Any) -> Interest:
        """Return an interest that can receive messages, with its list."""
        lo, hi = bounds[0].tolist()
        return Interest(lo, hi, k, entries=lists[0], **options)

    # ---- lists

    def best(self, box: F64, k: int) -> I32:
        return self.objects.best(float(box[0]), float(box[1]), k)

    def lists(self, boxes: F64 | None = None) -> Lists:
        index = self._all_interests
        if boxes is not None:
            index = Interests(*checked_boxes(boxes, 1).T.copy())
        return self._recomputed(index)

    def _recomputed(self, interests: Interests) -> Lists:
        return Lists.now(self.objects, interests, self.options.k)

    # ---- objects

    def load(self, columns: ObjectColumns) -> None:
        self.objects = Objects(columns.at[:, 0], columns.y, columns.arrival)

    def columns(self, slots: Any) -> tuple[F64, F64, I64]:
        _, xs, ys, arrivals = self.objects.columns(slots)
        return xs[:, None], ys, arrivals

    def positions(self, at: F64) -> list[float]:
        positions: list[float] = at[:, 0].tolist()
        return positions

    def place(self, slot: int) -> float:
        return self.objects.of(slot)[0]

    def moved(self, point: float | None, position: Any) -> float:
        """Return x of an object after a change."""
        return check_finite("position", position)

    def key(self, slot: int) -> tuple[float, int]:
        _, y, arrival = self.objects.of(slot)
        return y, arrival

    # ---- changes

    def _paint(self, slots: Sequence[int], ys: Sequence[float]) -> MessageColumns:
        return MessageColumns(*self._painter.paint(self.objects, self.index, slots, ys))

    def _paint_batch(
        self, before: Objects, old: dict[int, float], new: dict[int, float]
    ) -> MessageColumns:
        slots = np.array(list(new), np.int32)
        ys = np.array(list(new.values()), np.float64)
        olds = np.array([old[slot] for slot in new], np.float64)
        painter, index = self._painter, self.index
        return MessageColumns(*painter.paint_batch(self.objects, before, index, slots, olds, ys))

    def quiet_range(self, slot: int) -> tuple[float, float]:
        y, _ = self.key(slot)
        least = self._painter.quiet_from(self.objects, self.index, slot)
        return (y, y) if math.isnan(least) else (least, math.inf)

    def plan(self, slots: list[int]) -> tuple[str, str]:
        return "line", "there is one attribute, the position: staircases of at most k steps"

    @property
    def work(self) -> Work:
        return self._painter.work

    @property
    def _interest_memory(self) -> int:
        sketch = 0 if self.index is self.tree else self.index.memory
        return self.tree.memory + sketch
