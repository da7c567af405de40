"""The engine of a board over a space: objects are points, interests points in 2d dimensions.

A change of a single object is painted (`sparse.py`, `dense.py`), or the lists around it are worked
out one by one where that is less: `plan` says when. Boxes with a shape or arithmetic have lists of
their own (`verified.py`), which painters don't see.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, Bool
from rangecast.model.display import counted
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.tentative import TentativeSpace
from rangecast.model.space import Space
from rangecast.model.validation.inputs import as_filter, as_space
from rangecast.notify.base import BoardEngine, BoardOptions, MessageColumns, empty_painted
from rangecast.notify.boxes.messages import BoxMessages, BoxWork, values_of
from rangecast.notify.boxes.painter import MAX_DENSE, BoxPainter
from rangecast.notify.boxes.points import Points
from rangecast.notify.boxes.subscriber import BoxInterest, BoxLists
from rangecast.notify.boxes.tables import SpaceTables, coordinates_after
from rangecast.notify.boxes.verified import VerifiedBoxes
from rangecast.notify.messages import Messages
from rangecast.notify.new_interests import Regions, checked_boxes
from rangecast.notify.tables import ObjectColumns

_UNBOUNDED = (-math.inf, math.inf)
_SAMPLED = 100
"""Number of sampled objects for predicting the work of changes."""


class BoxEngine(BoardEngine):
    """The engine of a board over a space."""

    objects: Points
    message_type = BoxMessages
    tables: SpaceTables

    def __init__(self, options: BoardOptions):
        super().__init__(options)
        self.space = as_space(options.space)
        self._d = len(self.space)
        self.tables, self._painter = self._tools()
        self.tree = Points(np.zeros((0, 2 * self._d)))
        """k-d tree of all boxes of interests."""
        self.verified = VerifiedBoxes(self.space, options.k)
        """Boxes in which objects are verified."""

    def _tools(self) -> tuple[SpaceTables, BoxPainter]:
        """Check the options; return the table reader and the painter."""
        options = self.options
        if options.epsilon is not None or options.sketch is not None:
            raise UsageError("epsilon and sketch are only for boards without a space")
        return SpaceTables(self.space), BoxPainter(options.k, self._d, dense=options.is_dense)

    # ---- interests

    def boxes(self, where: tuple[Any, ...]) -> F64:
        """Return the boxes of a filter; without one, the whole space."""
        if not where:
            where = ("true",)
        shown = where[0] if len(where) == 1 else where
        return np.concatenate(as_filter(shown, self.space).arrays(), axis=1)

    def add_region(self, region: F64) -> int:
        first, *others = rows = [self.tree.add(point) for point in region]
        self.verified.add(np.array(rows, np.int32), region)
        if others:
            self._more[first] = others
        return first

    def add_regions(self, regions: Regions) -> range | list[int]:
        if not self.tree.count:
            self.tree = Points(regions.points)
            rows = np.arange(len(regions.points), dtype=np.int32)
            self.verified.add(rows, regions.points)
            if len(regions.sizes) == len(rows):
                return range(len(rows))
        else:
            rows = self.tree.add_many(regions.points)
            self.verified.add(rows, regions.points)
        parts = np.split(rows, np.cumsum(regions.sizes)[:-1]) if len(regions.sizes) else []
        self._more |= {int(part[0]): part[1:].tolist() for part in parts if len(part) > 1}
        return [int(part[0]) for part in parts]

    def remove_region(self, row: int) -> None:
        for row_ in self.rows_of(row):
            self.tree.remove(row_)
            self.verified.remove(row_)
        self._more.pop(row, None)

    def bounds(self, row: int) -> F64:
        return self.tree.tree.at[[self.tree.entry(row_) for row_ in self.rows_of(row)]]

    def regions(self, rows: list[int]) -> Regions:
        boxes = [self.bounds(row) for row in rows]
        sizes = np.array([len(box) for box in boxes], np.int64)
        return Regions(np.concatenate([np.zeros((0, 2 * self._d)), *boxes]), sizes)

    def rows_reached(self, messages: Messages) -> list[int]:
        rows: list[int] = self.tree.within_any(messages.tile).tolist()
        return rows

    def interest(
        self, bounds: F64, k: int, *, lists: list[list[Any]], **options: Any
    ) -> BoxInterest:
        sides = bounds.reshape(-1, 2, self._d).transpose(0, 2, 1).tolist()
        boxes = tuple(
            tuple((axis, lo, hi) for axis, (lo, hi) in enumerate(box) if (lo, hi) != _UNBOUNDED)
            for box in sides
        )
        return BoxInterest(Filter(self.space, boxes), k, entries=lists, **options)

    # ---- lists

    def best(self, box: F64, k: int) -> I32:
        return self.verified.best(self.objects, box, k)

    def best_where(self, where: tuple[Any, ...], k: int) -> list[I32]:
        text = where[0] if len(where) == 1 else None
        is_text = isinstance(text, str) or (isinstance(text, Filter) and text.space == self.space)
        if not self.verified.axes or not is_text:
            return super().best_where(where, k)
        space, verified = TentativeSpace(self.space), self.verified
        filter_ = Filter.parse(str(text), space)
        if space.has_news:  # a query doesn't add its conditions to those of the space
            fresh = Space.from_definition(self.space.definition())
            filter_, verified = Filter.parse(str(text), fresh), VerifiedBoxes(fresh, k)
        boxes = np.concatenate(filter_.arrays(), axis=1)
        return [verified.best(self.objects, box, k) for box in boxes]

    def contain(self, boxes: F64, places: F64) -> Bool:
        inside = [self.verified.contains(box, places) for box in boxes]
        return np.asarray(np.array(inside).any(axis=0))

    def lists(self, boxes: F64 | None = None) -> BoxLists:
        tree = self.tree if boxes is None else Points(checked_boxes(boxes, self._d))
        return self._recomputed(tree)

    def _recomputed(self, interests: Points) -> BoxLists:
        k = self.options.k
        lists = BoxLists.now(self.objects, interests, k)
        rows, boxes, _, _ = interests.columns()
        words = np.flatnonzero(self.verified.have_words(boxes))
        for row, box in zip(rows[words].tolist(), boxes[words], strict=True):
            slots = self.verified.best(self.objects, box, k)
            _, lists.ys[row, : len(slots)], lists.arrivals[row, : len(slots)] = self.columns(slots)
        return lists

    # ---- objects

    def load(self, columns: ObjectColumns) -> None:
        self.objects = Points(columns.at, columns.y, columns.arrival)
        self.verified.forget()

    def columns(self, slots: Any) -> tuple[F64, F64, I64]:
        return self.objects.of(slots)

    def positions(self, at: F64) -> list[dict[str, Any]]:
        return [values_of(self.space, position) for position in at.tolist()]

    def place(self, slot: int) -> tuple[float, ...]:
        return tuple(self.objects.of([slot])[0][0].tolist())

    def moved(self, before: tuple[float, ...] | None, position: Any) -> tuple[float, ...]:
        """Return the coordinates of an object after a change: a dict of values, or coordinates."""
        return coordinates_after(self.space, before, position)

    def key(self, slot: int) -> tuple[float, int]:
        _, ys, arrivals = self.objects.of([slot])
        return float(ys[0]), int(arrivals[0])

    # ---- changes

    def _paint(self, slots: Sequence[int], ys: Sequence[float]) -> MessageColumns:
        parts = []
        known = dict(zip(slots, self.objects.of(slots)[1].tolist(), strict=True))
        for event, (slot, y) in enumerate(zip(slots, ys, strict=True)):
            if y == known[slot]:
                continue
            changed, tiles = self._painter.paint(self.objects, self.tree, slot, y)
            sent = np.where(changed < 0, slot, changed)
            if len(self.verified):
                more, more_tiles = self._paint_verified(slot, known[slot], y)
                sent, tiles = np.concatenate([sent, more]), np.concatenate([tiles, more_tiles])
            else:
                self.objects.change(slot, y)
            known[slot] = y
            if len(sent):
                parts.append(self._painted(event, sent, tiles))
        if len(parts) == 1:
            return parts[0]
        parts.append(empty_painted(self._d, 4 * self._d))
        return MessageColumns(*map(np.concatenate, zip(*parts, strict=True)))

    def _paint_verified(self, slot: int, old: float, y: float) -> tuple[I32, F64]:
        """Apply a change; return its messages for boxes that objects are verified in."""
        touched = self.verified.touch(self.objects, np.array([slot], np.int32))
        self.objects.change(slot, y)
        whose, what = self._entries(*self.verified.settle(self.objects, touched, {slot: old}))
        rank = np.where(what == slot, -1, what).astype(np.int64)
        return self._painter.tiles_of_pairs(self.tree, whose, what, rank)

    def _entries(self, rows: I32, slots: I32) -> tuple[I32, I32]:
        """Return pairs of a row and an object with the entries of the rows."""
        return np.array([self.tree.entry(row) for row in rows.tolist()], np.int32), slots

    def _paint_batch(
        self, before: Points, old: dict[int, float], new: dict[int, float]
    ) -> MessageColumns:
        painter, objects, tree = self._painter, self.objects, self.tree
        old = {slot: y for slot, y in old.items() if y != new[slot]}
        new = {slot: new[slot] for slot in old}
        concerned = [painter.concerned(before, tree, slot, y) for slot, y in old.items()]
        touched = self.verified.touch(objects, np.array(list(new), np.int32))
        objects.change_many(list(new), list(new.values()))
        verified = self._entries(*self.verified.settle(objects, touched, old))
        concerned += [painter.concerned(objects, tree, slot, y) for slot, y in new.items()]
        entries = np.unique(np.concatenate([np.zeros(0, np.int32), *concerned]))
        olds = np.full(objects.rows, np.nan)
        olds[list(old)] = list(old.values())
        messages = painter.paint_batch(objects, before, tree, entries, olds, verified)
        return self._painted(0, *messages)

    def _painted(self, event: int, slots: I32, tiles: F64) -> MessageColumns:
        at, ys, arrivals = self.objects.of(slots)
        events, ordinals = np.full(len(slots), event, np.int64), np.arange(len(slots))
        return MessageColumns(events, ordinals, slots.astype(np.int32), arrivals, at, ys, tiles)

    def plan(self, slots: list[int]) -> tuple[str, str]:
        if self.options.is_dense:
            return "dense", f"uses only the objects; beyond {MAX_DENSE:,} boxes, like sparse"
        sample = self.objects.of(slots[:: max(1, len(slots) // _SAMPLED)])[0]
        near = sum(self._painter.near(self.tree, index) for index in sample) / max(1, len(sample))
        few = self._painter.few
        why = f"an object lies in {near:,.0f} interests, on average of {len(sample):,} objects"
        if len(self.verified):
            verified = counted(len(self.verified), "box", "boxes")
            why = f"apart from {verified} with shapes or arithmetic, {why}"
        if near > few:
            return "regions", f"{why}; the lists of up to {few:,} would be computed one by one"
        return "lists", f"{why}; from {few + 1:,} on, they would be traversed as regions"

    @property
    def work(self) -> Any:
        return BoxWork(*self._painter.work.tolist(), *self.verified.work.tolist())

    @property
    def _interest_memory(self) -> int:
        return self.tree.memory + self.verified.memory
