"""A board over one range of numbers: objects on a line, interests as points (l, r)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.model.boxes import closed_range
from rangecast.model.io.rejected import RejectedTarget, collecting_rejected
from rangecast.model.sets.members import Id
from rangecast.model.snapshot import Arrays
from rangecast.model.validation.arguments import finite, whole
from rangecast.notify.board import Board
from rangecast.notify.interest_set import NewInterests, Regions, checked_boxes
from rangecast.notify.line.interests import Interests
from rangecast.notify.line.objects import BoardObjects, Object, Objects
from rangecast.notify.line.painter import Painter, groups_of
from rangecast.notify.line.sketch import Ranges
from rangecast.notify.messages import Messages, Outbox, Work
from rangecast.notify.plan import Places
from rangecast.notify.subscriber import Entry, Interest, Lists
from rangecast.notify.tables import LARGEST_K, as_changes, as_interests, as_objects

_OPTIONS = ("epsilon", "sketch")
_NOTHING: dict[str, list[Any]] = {"id": [], "position": [], "value": []}


class LineBoard(Board):
    """A board without a space."""

    def _prepare(self) -> None:
        if self.upper_bound_attribute is not None:
            raise UsageError(
                f"upper_bound_attribute={self.upper_bound_attribute!r} is an attribute of a space, "
                "and there is no space\n"
                "  hint: give the space, or leave out upper_bound_attribute"
            )
        if self.sketch is not None and self.algorithm != "sparse":
            raise UsageError("a sketch is for 'sparse' alone: 'dense' doesn't look at interests")
        groups = groups_of(self.epsilon, self.k)
        self._painter = Painter(self.k, groups, uses_interests=self.algorithm == "sparse")
        self._before: Objects | None = None
        """The objects as they were before the last batch, once there was one."""
        self._watch(Interests())

    # ---- interests

    def __getitem__(self, interest: Id) -> Interest:
        """Return an interest with its list as it is now, ready to receive what comes next."""
        row = self._members.row(interest)
        lo, hi = self.tree.of(row)
        return Interest(
            lo,
            hi,
            self._wanted.get(row, self.k),
            keeps=self.k,
            entries=self.best(lo, hi),
            seq=self.seq - 1,
            descending=self.descending,
        )

    def _watch(self, tree: Interests) -> None:
        """Take these interests in place of all others; with a sketch, their ends alone are kept."""
        self.tree: Interests | Ranges = tree
        """All interests."""
        self.index = tree
        """What is looked at: all of them, or a sketch."""
        if self.sketch is not None:
            row, lo, hi = tree.columns()
            order = np.argsort(row)
            self.tree, self.index = Ranges(lo[order], hi[order]), tree.sketch(self.sketch)

    def _region(self, interest: Id, where: tuple[Any, ...]) -> F64:
        lo, hi = _range(where)
        if lo > hi:
            given = f"{where[0]!r} is above {where[1]!r}"
            raise UsageError(f"interest {interest!r} is empty: {given}")
        return np.array([[lo, hi]])

    def _given(self, interests: Any, rejected: RejectedTarget) -> NewInterests:
        with collecting_rejected(rejected) as bad:
            return as_interests(interests, self.k, bad)

    def _add_region(self, region: F64) -> int:
        lo, hi = region[0].tolist()
        row = self.tree.add(lo, hi)
        if self.sketch is not None:
            self.index.add(lo, hi)
            if self.index.count > 2 * self.sketch:
                self.index = self.index.sketch(self.sketch)
        return row

    def bounds(self, interest: Id) -> F64:
        """Return lo and hi of an interest, in a row."""
        return np.array([self.tree.of(self._members.row(interest))])

    def _add_regions(self, regions: Regions) -> range | list[int]:
        lo, hi = regions.points.T.copy()
        if not self.tree.count:
            self._watch(Interests(lo, hi))
            return range(self.tree.count)
        rows: list[int] = self.tree.add_many(lo, hi).tolist()
        if self.sketch is not None:
            self.index = self.tree.sketch(self.sketch)
        return rows

    def _rows_reached(self, messages: Messages) -> list[int]:
        index = self.tree.index() if isinstance(self.tree, Ranges) else self.tree
        found = [index.within(l0, l1, r0, r1) for l0, r0, l1, r1 in messages.bounds.tolist()]
        return [row for rows in found for row in rows.tolist()]

    def _remove_region(self, row: int) -> None:
        self.tree.remove(row)

    # ---- lists

    def best(self, *where: Any, k: int | None = None) -> list[Entry]:
        """Return the k best objects of a range, the best first; without bounds where None."""
        low, high = _range(where)
        most = self.k if k is None else whole("k", k, most=LARGEST_K)
        entries = []
        for slot in self.line.best(low, high, most).tolist():
            x, y, arrival = self.line.of(slot)
            entries.append(Entry(self._signed(y), arrival, self._names[slot], x))
        return entries

    def lists(self, points: F64 | None = None) -> Lists:
        """Return the lists of all interests as they are now, or those of other ranges."""
        if points is not None:
            index = Interests(*checked_boxes(points, 1).T.copy())
        else:
            index = self.tree.index() if isinstance(self.tree, Ranges) else self.tree
        return Lists.now(self.line, index, self.k)

    def mismatches(self, lists: Lists) -> I32:
        """Return the rows of the lists that differ from a recomputation."""
        return lists.mismatches(self.line)

    def _lists_of(self, rows: list[int]) -> tuple[I64, F64]:
        lists = self.lists()
        return lists.arrivals[rows], lists.ys[rows]

    def _arrivals_of(self, slots: I64) -> I64:
        return self.line.columns(slots)[3]

    # ---- objects

    @property
    def objects(self) -> BoardObjects:
        """The objects, by id."""
        return BoardObjects(self._objects, self._object)

    def _object(self, one: Id, slot: int) -> Object:
        x, y, _ = self.line.of(slot)
        return Object(one, x, self._signed(y))

    def table(self, ids: Iterable[Id] | None = None) -> pa.Table:
        """Return all objects, as a board takes them: id, position, value and arrival.

        With ids, only those of them that there are.
        """
        some = None
        if ids is not None:
            there = [one for one in self._objects.listed(ids) if one in self._objects]
            some = np.array([self._objects.row(one) for one in there], int)
        slots, xs, ys, arrivals = self.line.columns(some)
        names = pa.array(self._names[slots].tolist())
        return pa.table(
            {"id": names, "position": xs, "value": self._signed(ys), "arrival": arrivals}
        )

    def _load_objects(self, objects: Any) -> None:
        ids, xs, ys, arrivals = as_objects(_NOTHING if objects is None else objects)
        self._name(ids)
        self.line = Objects(xs, self._signed(ys), arrivals)

    def _places(self) -> Places:
        return Places(
            lambda slot: self.line.of(slot)[0],
            lambda _, x: finite("position", x),
            as_changes,
            ("position",),
            "a position and a value",
            self._value,
        )

    def _key(self, slot: int) -> tuple[float, int]:
        _, y, arrival = self.line.of(slot)
        return y, arrival

    def _place(self, place: float, arrival: int | None) -> int:
        slot = self.line.add(place, math.inf, arrival)
        if self._before is not None:
            self._before.add(place, math.inf, arrival)
        return slot

    def _leave(self, slot: int) -> None:
        self.line.remove(slot)
        if self._before is not None:
            self._before.remove(slot)

    # ---- messages

    def _painted(self, slots: Sequence[int], ys: Sequence[float]) -> Messages:
        messages = self._messages(self._painter.paint(self.line, self.index, slots, ys))
        if self._before is not None:
            self._before.change_many(slots, ys)
        return messages

    def _begin_batch(self) -> None:
        if self._before is None:
            self._before = self.line.copy()

    def _painted_batch(self, old: dict[int, float], new: dict[int, float]) -> Messages:
        assert self._before is not None
        slots = np.array(list(new), np.int32)
        ys = np.array(list(new.values()), np.float64)
        olds = np.array([old[slot] for slot in new], np.float64)
        painted = self._painter.paint_batch(self.line, self._before, self.index, slots, olds, ys)
        messages = self._messages(painted)
        self._before.change_many(slots, ys)
        return messages

    def _messages(self, painted: Outbox) -> Messages:
        return Messages(
            painted.event + self.seq,
            painted.position,
            self._names[painted.slot],
            painted.slot,
            painted.arrival,
            painted.x,
            self._signed(painted.y),
            painted.tile,
            self.descending,
        )

    @property
    def plan(self) -> tuple[str, str]:
        """How changes become messages, and why: a name and a reason."""
        return "line", "there is one attribute, the position: staircases of at most k steps"

    @property
    def work(self) -> Work:
        """Calls of each kind so far."""
        return self._painter.work

    @property
    def memory(self) -> int:
        """Bytes of the objects and of the interests; ids are not counted."""
        sketch = 0 if self.index is self.tree else self.index.memory
        before = 0 if self._before is None else self._before.memory
        return self.line.memory + before + self.tree.memory + sketch

    # ---- snapshots

    def _object_arrays(self, slots: Any) -> Arrays:
        _, xs, ys, arrivals = self.line.columns(slots)
        return {"x": xs, "y": ys, "arrival": arrivals}

    def _take_objects(self, ids: pa.Array, arrays: Mapping[str, Any], arrivals: int) -> None:
        self._name(ids)
        self.line = Objects(arrays["x"], arrays["y"], arrays["arrival"])
        self.line.arrivals = arrivals

    def _interest_arrays(self, rows: list[int]) -> Arrays:
        row, lo, hi = self.tree.columns()
        place = np.empty(self.tree.rows, np.int64)
        place[row] = np.arange(len(row))
        order = place[np.array(rows, np.int64)]
        return {"lo": lo[order], "hi": hi[order]}

    def _regions_of(self, arrays: Mapping[str, Any]) -> Regions:
        ends = np.stack([arrays["lo"], arrays["hi"]], axis=1)
        return Regions(ends, np.ones(len(ends), np.int64))

    def _meta(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _OPTIONS} | {"arrivals": self.line.arrivals}

    @classmethod
    def _options(cls, meta: Mapping[str, Any]) -> dict[str, Any]:
        return {name: meta[name] for name in _OPTIONS}


def _range(where: tuple[Any, ...]) -> tuple[float, float]:
    """Return lo and hi, without a bound where they are None or left out."""
    if len(where) > 2:
        raise UsageError(f"a range is lo and hi; given: {', '.join(map(repr, where))}")
    lo, hi = (*where, None, None)[:2]
    low = -math.inf if lo is None else finite("lo", lo)
    high = math.inf if hi is None else finite("hi", hi)
    low, high = closed_range(low, high)
    return float(low), float(high)
