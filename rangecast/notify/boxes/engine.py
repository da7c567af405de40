"""A board over the attributes of a space: objects as points, interests as points in 2d dimensions.

A change of a single object is painted (`sparse.py`, `dense.py`), or the lists around it are
worked out one by one where that is less: `plan` says when. Interests of several boxes have a row
per box: the first one is theirs, and `_more` has the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError, shown
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.model.encoding.columns import decode
from rangecast.model.encoding.events import encode_event
from rangecast.model.filters.filter import Filter
from rangecast.model.io.rejected import RejectedTarget, collecting_rejected
from rangecast.model.sets.members import Id
from rangecast.model.snapshot import Arrays, space_meta, space_of_meta
from rangecast.model.space import Space
from rangecast.model.validation.arguments import whole
from rangecast.model.validation.inputs import as_filter, as_space
from rangecast.notify.board import Board
from rangecast.notify.boxes.messages import BoxMessages, BoxWork, values_of
from rangecast.notify.boxes.painter import MOST_DENSE, BoxPainter
from rangecast.notify.boxes.points import Points
from rangecast.notify.boxes.subscriber import BoxInterest, BoxLists
from rangecast.notify.boxes.tables import PlacedColumns, SpaceTables
from rangecast.notify.interest_set import NewInterests, Regions, checked_boxes
from rangecast.notify.line.objects import BoardObjects, Object
from rangecast.notify.plan import Places
from rangecast.notify.subscriber import Entry, merged
from rangecast.notify.tables import LARGEST_K

_SAMPLED = 100
"""Objects that are looked at to say what changes take."""


class BoxBoard(Board):
    """A board over a space."""

    space: Space

    def _prepare(self) -> None:
        as_space(self.space)
        self._d = len(self.space)
        self._tables, self._painter = self._tools()
        self._before: Points | None = None
        """The objects as they were before the last batch, once there was one."""
        self.tree = Points(np.zeros((0, 2 * self._d)))
        self._more: dict[int, list[int]] = {}
        """By row, the other rows of interests of several boxes."""

    def _tools(self) -> tuple[SpaceTables, BoxPainter]:
        """Check the options; return what reads tables and what writes tiles."""
        if self.epsilon is not None or self.sketch is not None:
            raise UsageError("epsilon and sketch are for boards without a space")
        painter = BoxPainter(self.k, self._d, dense=self.algorithm == "dense")
        return SpaceTables(self.space), painter

    # ---- interests

    def __getitem__(self, interest: Id) -> BoxInterest:
        """Return an interest with its list as it is now, ready to receive what comes next."""
        row = self._members.row(interest)
        points = self._points_of(row)
        lo, hi = points[:, : self._d], points[:, self._d :]
        return BoxInterest(
            Filter.from_boxes(self.space, lo, hi),
            self._wanted.get(row, self.k),
            keeps=self.k,
            entries=self._best(points, self.k),
            seq=self.seq - 1,
            descending=self.descending,
        )

    def bounds(self, interest: Id) -> F64:
        """Return a row for each box of an interest: lower, then upper bounds, as coordinates."""
        return self._points_of(self._members.row(interest))

    def _points_of(self, row: int) -> F64:
        return self.tree.tree.at[[self.tree.entry(one) for one in self._rows_of(row)]]

    def _region(self, interest: Id, where: tuple[Any, ...]) -> F64:
        return self._boxes_of(where)

    def _boxes_of(self, where: tuple[Any, ...]) -> F64:
        if not where:
            where = ("true",)
        given = where[0] if len(where) == 1 else where
        return np.concatenate(as_filter(given, self.space).arrays(), axis=1)

    def _given(self, interests: Any, rejected: RejectedTarget) -> NewInterests:
        source = self._tables.rows(interests, "interests")
        with collecting_rejected(rejected) as bad:
            return self._tables.read_interests(source, bad, most=self.k)

    def _add_region(self, region: F64) -> int:
        first, *others = [self.tree.add(point) for point in region]
        if others:
            self._more[first] = others
        return first

    def _add_regions(self, regions: Regions) -> range | list[int]:
        if not self.tree.count:
            self.tree = Points(regions.points)
            rows = np.arange(len(regions.points), dtype=np.int32)
            if len(regions.sizes) == len(rows):
                return range(len(rows))
        else:
            rows = self.tree.add_many(regions.points)
        parts = np.split(rows, np.cumsum(regions.sizes)[:-1]) if len(regions.sizes) else []
        self._more |= {int(part[0]): part[1:].tolist() for part in parts if len(part) > 1}
        return [int(part[0]) for part in parts]

    def _rows_of(self, row: int) -> list[int]:
        return [row, *self._more.get(row, ())]

    def _rows_reached(self, messages: BoxMessages) -> list[int]:
        rows: list[int] = self.tree.within_any(messages.tile).tolist()
        return rows

    def _remove_region(self, row: int) -> None:
        for one in self._rows_of(row):
            self.tree.remove(one)
        self._more.pop(row, None)

    # ---- lists

    def best(self, *where: Any, k: int | None = None) -> list[Entry]:
        """Return the k best objects of a filter, the best first; of all without one."""
        most = self.k if k is None else whole("k", k, most=LARGEST_K)
        lists = self._best(self._boxes_of(where), most)
        return merged(lists, lambda entry: (self._signed(entry.value), entry.arrival))[:most]

    def _best(self, points: F64, k: int) -> list[list[Entry]]:
        """Return the k best objects of each box."""
        lists = []
        for point in points:
            slots = self.field.best(point[: self._d].copy(), point[self._d :].copy(), k)
            at, ys, arrivals = self.field.of(slots)
            lists.append(
                [
                    Entry(self._signed(y), arrival, self._names[slot], values_of(self.space, place))
                    for slot, place, y, arrival in zip(
                        slots.tolist(), at.tolist(), ys.tolist(), arrivals.tolist(), strict=True
                    )
                ]
            )
        return lists

    def lists(self, points: F64 | None = None) -> BoxLists:
        """Return the lists of all boxes of interests as they are now, or those of other boxes."""
        boxes = self.tree if points is None else Points(checked_boxes(points, len(self.space)))
        return BoxLists.now(self.field, boxes, self.k)

    def mismatches(self, lists: BoxLists) -> I32:
        """Return the rows of the lists that differ from a recomputation."""
        return lists.mismatches(self.field)

    def _lists_of(self, rows: list[int]) -> tuple[I64, F64]:
        lists = self.lists()
        arrivals, ys = lists.arrivals[rows], lists.ys[rows]
        for at, row in enumerate(rows if self._more else ()):
            if row in self._more:
                mine = [row, *self._more[row]]
                keys = zip(lists.ys[mine].flat, lists.arrivals[mine].flat, strict=True)
                best = sorted({key for key in keys if key[1] >= 0})[: self.k]
                arrivals[at], ys[at] = -1, math.inf
                for place, (y, arrival) in enumerate(best):
                    arrivals[at, place], ys[at, place] = arrival, y
        return arrivals, ys

    def _arrivals_of(self, slots: I64) -> I64:
        return self.field.of(slots)[2]

    # ---- objects

    @property
    def objects(self) -> BoardObjects:
        """The objects, by id."""
        return BoardObjects(self._objects, self._object)

    def _object(self, one: Id, slot: int) -> Object:
        at, ys, _ = self.field.of([slot])
        return Object(one, values_of(self.space, at[0].tolist()), self._signed(float(ys[0])))

    def table(self, ids: Iterable[Id] | None = None) -> pa.Table:
        """Return all objects, as a board takes them: id, the attributes, value and arrival.

        With ids, only those of them that there are.
        """
        some: Iterable[Id] = self._objects
        if ids is not None:
            some = [one for one in self._objects.listed(ids) if one in self._objects]
        slots = [self._objects.row(one) for one in some]
        at, ys, arrivals = self.field.of(slots)
        names = pa.array(self._names[slots].tolist())
        columns = {one.name: decode(one, at[:, axis]) for axis, one in enumerate(self.space)}
        return pa.table({"id": names, **columns, "value": self._signed(ys), "arrival": arrivals})

    def _load_objects(self, objects: Any) -> None:
        if objects is None:
            objects = {"id": [], "value": [], **{name: [] for name in self.space.names}}
        if not isinstance(objects, PlacedColumns):
            objects = self._tables.read_objects(self._tables.rows(objects, "objects"))
        ids, at, ys, arrivals = objects
        came = np.arange(len(ys)) if arrivals is None else arrivals
        self._take(ids, at, self._signed(ys), came, int(came.max(initial=-1)) + 1)

    def _take(self, ids: pa.Array, at: F64, ys: F64, came: I64, arrivals: int) -> None:
        self._name(ids)
        self.field = Points(at, ys, came)
        self._arrivals = arrivals

    def _places(self) -> Places:
        return Places(
            lambda slot: tuple(self.field.of([slot])[0][0].tolist()),
            self._moved,
            self._tables.as_changes,
            self.space.names,
            "its attributes and a value",
            self._value,
        )

    def _moved(self, place: tuple[float, ...] | None, given: Any) -> tuple[float, ...]:
        """Return where an object lies: a dict of values, or coordinates where they are known."""
        here = place or (math.inf,) * self._d
        if isinstance(given, tuple):
            return tuple(
                new if new < math.inf else old for new, old in zip(given, here, strict=True)
            )
        if not isinstance(given, Mapping):
            raise UsageError(
                f"a place is a dict of values by attribute; given: {shown(given)}\n"
                f"  hint: give {{{self.space.names[0]!r}: ...}}"
            )
        point = encode_event(given, self.space, by_name=True).tolist()
        return tuple(
            new if name in given else old
            for name, new, old in zip(self.space.names, point, here, strict=True)
        )

    def _key(self, slot: int) -> tuple[float, int]:
        _, ys, arrivals = self.field.of([slot])
        return float(ys[0]), int(arrivals[0])

    def _place(self, place: tuple[float, ...], arrival: int | None) -> int:
        if arrival is None:
            arrival, self._arrivals = self._arrivals, self._arrivals + 1
        slot = self.field.add(np.array(place), math.inf, arrival)
        if self._before is not None:
            self._before.add(np.array(place), math.inf, arrival)
        return slot

    def _leave(self, slot: int) -> None:
        self.field.remove(slot)
        if self._before is not None:
            self._before.remove(slot)

    # ---- messages

    def _painted(self, slots: Sequence[int], ys: Sequence[float]) -> BoxMessages:
        parts = []
        known = dict(zip(slots, self.field.of(slots)[1].tolist(), strict=True))
        for event, (slot, y) in enumerate(zip(slots, ys, strict=True)):
            if y == known[slot]:
                continue
            known[slot] = y
            who, tiles = self._painter.paint(self.field, self.tree, slot, y)
            self.field.change(slot, y)
            if self._before is not None:
                self._before.change(slot, y)
            if len(who):
                parts.append(self._sent(self.seq + event, np.where(who < 0, slot, who), tiles))
        return self._joined(parts)

    def _begin_batch(self) -> None:
        if self._before is None:
            self._before = self.field.copy()

    def _painted_batch(self, old: dict[int, float], new: dict[int, float]) -> BoxMessages:
        assert self._before is not None
        painter, before = self._painter, self._before
        old = {slot: y for slot, y in old.items() if y != new[slot]}
        new = {slot: new[slot] for slot in old}
        concerned = [painter.concerned(before, self.tree, slot, y) for slot, y in old.items()]
        for slot, y in new.items():
            self.field.change(slot, y)
        concerned += [painter.concerned(self.field, self.tree, slot, y) for slot, y in new.items()]
        entries = np.unique(np.concatenate([np.zeros(0, np.int32), *concerned]))
        olds = np.full(len(self._names), np.nan)
        olds[list(old)] = list(old.values())
        slots, tiles = painter.paint_batch(self.field, before, self.tree, entries, olds)
        for slot, y in new.items():
            before.change(slot, y)
        return self._sent(self.seq, slots, tiles)

    def _sent(self, seq: int, slots: I32, tiles: F64) -> BoxMessages:
        at, ys, arrivals = self.field.of(slots)
        return BoxMessages(
            np.full(len(slots), seq, np.int64),
            np.arange(len(slots)),
            self._names[slots],
            slots.astype(np.int32),
            arrivals,
            at,
            self._signed(ys),
            tiles,
            self.descending,
            self.space,
        )

    def _joined(self, parts: list[BoxMessages]) -> BoxMessages:
        nothing = self._sent(self.seq, np.zeros(0, np.int32), np.zeros((0, 4 * self._d)))
        joined = BoxMessages.joined([nothing, *parts])
        assert isinstance(joined, BoxMessages)
        return joined

    @property
    def plan(self) -> tuple[str, str]:
        """How changes become messages, and why: a name and a reason."""
        if self.algorithm == "dense":
            return "dense", f"from the objects alone; beyond {MOST_DENSE:,} boxes, like sparse"
        slots = list(self._objects.rows())
        some = self.field.of(slots[:: max(1, len(slots) // _SAMPLED)])[0]
        near = sum(self._painter.near(self.tree, place) for place in some) / max(1, len(some))
        few = self._painter.few
        why = f"an object lies in {near:,.0f} interests, as {len(some):,} objects say"
        if near > few:
            return "regions", f"{why}; the lists of up to {few:,} would be worked out one by one"
        return "lists", f"{why}; from {few + 1:,} on they would be walked as regions"

    @property
    def work(self) -> Any:
        """What changes took so far."""
        return BoxWork(*self._painter.work.tolist())

    @property
    def memory(self) -> int:
        """Bytes of the objects and of the interests; ids are not counted."""
        before = 0 if self._before is None else self._before.memory
        return self.field.memory + before + self.tree.memory

    # ---- snapshots

    def _object_arrays(self, slots: Any) -> Arrays:
        at, ys, arrivals = self.field.of(slots)
        return {"at": at, "y": ys, "arrival": arrivals}

    def _take_objects(self, ids: pa.Array, arrays: Mapping[str, Any], arrivals: int) -> None:
        self._take(ids, arrays["at"], arrays["y"], arrays["arrival"], arrivals)

    def _interest_arrays(self, rows: list[int]) -> Arrays:
        points = [self._points_of(row) for row in rows]
        sizes = np.array([len(one) for one in points], np.int64)
        return {"points": np.concatenate([np.zeros((0, 2 * self._d)), *points]), "boxes": sizes}

    def _regions_of(self, arrays: Mapping[str, Any]) -> Regions:
        return Regions(arrays["points"], arrays["boxes"])

    def _meta(self) -> dict[str, Any]:
        return space_meta(self.space) | {"arrivals": self._arrivals}

    @classmethod
    def _options(cls, meta: Mapping[str, Any]) -> dict[str, Any]:
        return {"space": space_of_meta(meta)}
