"""A board of objects, and the messages that keep every subscriber's top-k list right.

    board = Board(k=3, objects={"id": [...], "x": [...], "y": [...]},
                  interests={"id": [...], "x_lo": [...], "x_hi": [...]})
    for message in board.update("a", 0.5):
        ...                              # each interest that message.reaches() applies it

`update`, `insert`, `delete` and `move` are one change each, `run` is many, one after the other,
and `apply` is a batch: subscribers end up right, without what happened in between.

The server knows objects and where interests lie, but nobody's list. Interests may want fewer than
k objects each; the board serves k, and the subscriber shows what it wants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError, near
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.notify import given
from rangecast.notify.batch import BETTER, ROOM, SAME, WORSE, change_all, paint_batch, sweep_all
from rangecast.notify.dense import EVENT, paint_dense
from rangecast.notify.given import MAX, Change
from rangecast.notify.interests import Interests
from rangecast.notify.messages import Messages, Outbox, Work
from rangecast.notify.objects import Objects
from rangecast.notify.sparse import paint_sparse
from rangecast.notify.staircase import Desk
from rangecast.notify.subscriber import Entry, Interest
from rangecast.notify.tree import Front

ALGORITHMS = ("dense", "sparse")
_BUFFER = 1 << 12
_LARGEST_K = 1 << 16


class Board:
    """Objects, interests, and the algorithm that tells the ones of the others."""

    def __init__(
        self,
        k: int,
        objects: Any = None,
        interests: Any = None,
        *,
        algorithm: str = "sparse",
        epsilon: float | None = None,
        sketch: int | None = None,
    ):
        if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= _LARGEST_K:
            raise UsageError(f"k is a whole number from 1 to {_LARGEST_K}; given: {k!r}")
        if algorithm not in ALGORITHMS:
            raise UsageError(f"no algorithm {algorithm!r}: {near(algorithm, ALGORITHMS)}")
        self.k = k
        self.aware = algorithm == "sparse"
        self.groups = given.groups_of(epsilon, k)
        self.seq = 0
        """The number of the next update or batch."""
        columns = given.columns(objects, ("id", "x", "y"), "objects", ["arrival"])
        self._slots = given.distinct(columns["id"].to_pylist(), "objects")
        self._names = np.array([*self._slots, None], object)
        """What the user calls the object of each slot."""
        xs = given.numbers(columns["x"], "x of an object")
        ys = given.numbers(columns["y"], "y of an object")
        self.objects = Objects(xs, ys, given.arrivals(columns.get("arrival")))
        self._before: Objects | None = None
        self._load_interests(interests)
        if sketch is not None and (not self.aware or sketch < 1):
            raise UsageError("a sketch is of at least 1 rectangle, and only for 'sparse'")
        self._sketch_size = sketch
        self._known = self.interests if sketch is None else self.interests.sketch(sketch)
        self._desk = tuple(Desk.of(k))
        self._front = tuple(Front.empty())
        self._out = Outbox.of(max(_BUFFER, 4 * k + 2 * ROOM))
        self._out_arrays = tuple(self._out)
        self._course, self._level = np.zeros(4, np.int64), np.zeros(5)
        self._work = np.zeros(4, np.int64)
        self._one_slot, self._one_y = np.zeros(1, np.int32), np.zeros(1)

    def _load_interests(self, interests: Any) -> None:
        self._wanted: dict[int, int] = {}
        if isinstance(interests, Interests):  # they may be shared by several boards
            self._given_ids, self.interests = pa.array(np.arange(interests.rows)), interests
            return
        columns = given.columns(interests, ("id", "x_lo", "x_hi"), "interests", ["k"])
        lo = given.numbers(columns["x_lo"], "x_lo of an interest", -MAX)
        hi = given.numbers(columns["x_hi"], "x_hi of an interest", MAX)
        empty = np.flatnonzero(lo > hi)
        if len(empty):
            raise UsageError(f"interest {columns['id'][empty[0]]} is empty: x_lo above x_hi")
        self._given_ids = columns["id"]
        if "k" in columns:
            for row, wanted in enumerate(columns["k"].to_pylist()):
                if wanted is not None:
                    self._wanted[row] = self._checked_k(wanted)
        self.interests = Interests(lo, hi)

    def _checked_k(self, k: Any) -> int:
        if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= self.k:
            raise UsageError(f"an interest's k is from 1 to the board's {self.k}; given: {k!r}")
        return k

    def has(self, name: Any) -> bool:
        """Whether there is such an object."""
        return name in self._slots

    def table(self) -> pa.Table:
        """Return all objects, as a board takes them: id, x, y and arrival."""
        slots, xs, ys, arrivals = self.objects.columns()
        names = pa.array(self._names[slots].tolist())
        return pa.table({"id": names, "x": xs, "y": ys, "arrival": arrivals})

    # Subscribers.

    def subscribe(
        self,
        name: Any,
        lo: float | None = None,
        hi: float | None = None,
        k: int | None = None,
    ) -> Interest:
        """Add an interest in [lo, hi], without bounds where None; return it with its list."""
        rows = self._row_of
        if name in rows:
            raise UsageError(f"interest {name!r} is there already; unsubscribe it first")
        low = -MAX if lo is None else given.number(lo, "lo")
        high = MAX if hi is None else given.number(hi, "hi")
        if not low <= high:
            raise UsageError(f"interest {name!r} is empty: {lo!r} is above {hi!r}")
        wanted = self.k if k is None else self._checked_k(k)
        row = rows[name] = self.interests.add(low, high)
        if k is not None:
            self._wanted[row] = wanted
        if self._sketch_size is None:
            self._known = self.interests
        else:
            self._known.add(low, high)
            if self._known.count > 2 * self._sketch_size:
                self._known = self._known.sketch(self._sketch_size)
        return self.interest(name)

    def unsubscribe(self, name: Any) -> None:
        """Take an interest away. (A sketch stays as it is: it may cover too much.)"""
        row = self._known_row(name)
        self.interests.remove(row)
        del self._row_of[name]
        self._wanted.pop(row, None)

    def interest(self, name: Any) -> Interest:
        """Return an interest with its list as it is now, ready to receive what comes next."""
        row = self._known_row(name)
        lo, hi = self.interests.of(row)
        wanted = self._wanted.get(row, self.k)
        return Interest(lo, hi, wanted, keeps=self.k, entries=self.best(lo, hi), seq=self.seq - 1)

    def best(self, lo: float, hi: float, k: int | None = None) -> list[Entry]:
        """Return the k best objects of a range, the best first."""
        entries = []
        for slot in self.objects.best(lo, hi, k or self.k).tolist():
            x, y, arrival = self.objects.of(slot)
            entries.append(Entry(y, arrival, self._names[slot], x))
        return entries

    @cached_property
    def _row_of(self) -> dict[Any, int]:
        """The row of each interest: millions of ids are only looked at if one is asked for."""
        return given.distinct(self._given_ids.to_pylist(), "interests")

    def _known_row(self, name: Any) -> int:
        if name not in self._row_of:
            raise UsageError(f"no interest {name!r}: {near(str(name), [*map(str, self._row_of)])}")
        return self._row_of[name]

    # Changes, one at a time.

    def update(self, name: Any, y: float) -> Messages:
        """Give an object a new value."""
        return self._changed([self._slot_of(name)], [given.number(y, "y")])

    def insert(self, name: Any, x: float, y: float) -> Messages:
        """Add an object."""
        return self.run([Change(name, y, x)], "insert")

    def delete(self, name: Any) -> Messages:
        """Take an object away."""
        return self.run([Change(name, None)])

    def move(self, name: Any, x: float, y: float | None = None) -> Messages:
        """Give an object a new place, and a new value too unless y is None."""
        slot = self._slot_of(name)
        return self.run([Change(name, self.objects.of(slot)[1] if y is None else y, x)])

    def run(self, changes: Iterable[Any], only: str = "") -> Messages:
        """Apply changes one after the other, each with a number of its own.

        A change is (id, y) or (id, y, x), as `Change` says. Nothing is done if one can't be.
        """
        plan = self._plan(changes, only)
        parts: list[Messages] = []
        slots: list[int] = []
        ys: list[float] = []

        def flush() -> None:
            parts.append(self._changed(slots, ys))
            slots.clear()
            ys.clear()

        for change, kind in plan:
            if kind == "update":
                slots.append(self._slots[change.id])
                ys.append(change.y)
                continue
            flush()
            position = 0
            if kind in ("move", "delete"):
                slot = self._slots.pop(change.id)
                arrival = self.objects.of(slot)[2]
                parts.append(self._painted([slot], [math.inf]))
                position = len(parts[-1])
                self._remove(slot)
            if kind in ("move", "insert"):
                slot = self._add(change.id, change.x, arrival if kind == "move" else None)
                part = self._painted([slot], [change.y])
                part.position[:] += position
                parts.append(part)
            self.seq += 1
        flush()
        return Messages.joined(parts)

    def _plan(self, changes: Iterable[Any], only: str) -> list[tuple[Any, str]]:
        """Return each change with what it does; refuse all of them if one can't be."""
        places: dict[Any, float | None] = {}
        plan = []
        for row in changes:
            change = Change(*row)
            if change.id not in places:
                slot = self._slots.get(change.id)
                places[change.id] = None if slot is None else self.objects.of(slot)[0]
            place = places[change.id]
            known = place is not None
            for value, name in ((change.y, "y"), (change.x, "x")):
                if value is not None:
                    given.number(value, name)
            if not known and (change.x is None or change.y is None):
                raise UsageError(
                    f"no object {change.id!r}: {near(str(change.id), [*map(str, self._slots)])}\n"
                    "  to do: give x and y to insert it"
                )
            if known and only == "insert":
                raise UsageError(f"object {change.id!r} is there already; update or move it")
            if not known:
                kind = "insert"
            elif change.y is None:
                kind = "delete"
            else:
                kind = "update" if change.x is None or change.x == place else "move"
            if kind == "delete":
                places[change.id] = None
            elif change.x is not None:
                places[change.id] = change.x
            plan.append((change, kind))
        return plan

    def _slot_of(self, name: Any) -> int:
        if name not in self._slots:
            raise UsageError(f"no object {name!r}: {near(str(name), [*map(str, self._slots)])}")
        return self._slots[name]

    def _add(self, name: Any, x: float, arrival: int | None) -> int:
        slot = self.objects.add(float(x), math.inf, arrival)
        if self._before is not None:
            self._before.add(float(x), math.inf, arrival)
        if slot == len(self._names):
            self._names = np.append(self._names, np.full(slot, None))
        self._names[slot] = name
        self._slots[name] = slot
        return slot

    def _remove(self, slot: int) -> None:
        self.objects.remove(slot)
        if self._before is not None:
            self._before.remove(slot)

    def _changed(self, slots: Sequence[int], ys: Sequence[float]) -> Messages:
        """Paint changes of value, each with a number of its own."""
        messages = self._painted(slots, ys)
        self.seq += len(slots)
        return messages

    def _painted(self, slots: Sequence[int], ys: Sequence[float]) -> Messages:
        if len(slots) == 1:
            self._one_slot[0], self._one_y[0] = slots[0], ys[0]
            which, values = self._one_slot, self._one_y
        else:
            which, values = np.array(slots, np.int32), np.array(ys, np.float64)
        self._course[:] = 0

        def paint() -> int:
            common = (which, values, self.k, self.groups, self._desk)
            rest = (self._out_arrays, self._course, self._level, self._work)
            if self.aware:
                known = self._known.arrays
                return paint_sparse(self.objects.arrays, known, *common, self._front, *rest)
            return paint_dense(self.objects.arrays, *common, *rest)

        messages = self._drained(paint, len(which))
        if self._before is not None:
            change_all(self._before.arrays, which, values)
        return messages

    def _drained(self, paint: Callable[[], int], end: int) -> Messages:
        """Call a kernel until it is done, and take its messages out of the outbox each time."""
        pieces: list[list[Any]] = []
        while self._course[EVENT] < end:
            n = paint()
            if n:
                pieces.append([column[:n].copy() for column in self._out])
        if not pieces:
            columns: list[Any] = [column[:0] for column in self._out]
        elif len(pieces) == 1:
            columns = pieces[0]
        else:
            columns = [np.concatenate(column) for column in zip(*pieces, strict=True)]
        return self._messages(*columns)

    def _messages(
        self,
        event: I64,
        position: I64,
        slot: I32,
        arrival: I64,
        x: F64,
        y: F64,
        tile: F64,
    ) -> Messages:
        names = self._names[slot]
        return Messages(event + self.seq, position, names, slot, arrival, x, y, tile)

    # Changes, a batch at a time.

    def apply(self, changes: Iterable[Any]) -> Messages:
        """Apply changes as one batch; messages tell what it comes to, with one number for all."""
        plan = self._plan(changes, "")
        if self._before is None:
            self._before = self.objects.copy()
        old, new, gone = self._coalesced(plan)
        slots = np.array(list(new), np.int32)
        ys = np.array(list(new.values()), np.float64)
        olds = np.array([old[slot] for slot in new], np.float64)
        arrivals = np.array([self.objects.of(slot)[2] for slot in new], np.int64)
        worse, better = np.flatnonzero(ys > olds), np.flatnonzero(ys < olds)
        worse = worse[np.lexsort((arrivals[worse], ys[worse]))[::-1]]
        change_all(self.objects.arrays, slots[better], ys[better])
        marks = np.zeros(len(self.objects.line.place), np.int8)
        marks[slots[worse]] = marks[slots[better]] = 1
        found = np.zeros(len(marks), np.int32)
        exposed = sweep_all(
            self.objects.arrays,
            self._known.arrays,
            slots[worse],
            ys[worse],
            self.k,
            self.aware,
            self._desk,
            self._front,
            self._level,
            marks,
            found,
            self._work,
        )
        order = np.concatenate([slots[worse], found[:exposed], slots[better]])
        sizes = [len(worse), exposed, len(better)]
        kinds = np.repeat(np.array([WORSE, SAME, BETTER], np.int8), sizes)
        self._course[:] = 0
        before = self._before

        def paint() -> int:
            return paint_batch(
                self.objects.arrays,
                before.arrays,
                self._known.arrays,
                order,
                kinds,
                self.k,
                self.groups,
                self.aware,
                0,
                self._desk,
                self._front,
                self._out_arrays,
                self._course,
                self._level,
                self._work,
            )

        messages = self._drained(paint, len(order))
        change_all(before.arrays, slots, ys)
        for slot in gone:
            self._remove(slot)
        self.seq += 1
        return messages

    def _coalesced(
        self, plan: list[tuple[Any, str]]
    ) -> tuple[dict[int, float], dict[int, float], list[int]]:
        """Return first and last values by slot, and the slots that are empty in the end.

        Objects that enter have a slot from now on, at y = inf. One that moves leaves its slot and
        enters another one, but for a move within the batch of what entered in it.
        """
        old: dict[int, float] = {}
        new: dict[int, float] = {}
        gone: list[int] = []
        for change, kind in plan:
            arrival = None
            if kind in ("move", "delete"):
                slot = self._slots.pop(change.id)
                arrival = self.objects.of(slot)[2] if kind == "move" else None
                old.setdefault(slot, self.objects.of(slot)[1])
                new[slot] = math.inf
                gone.append(slot)
            if kind in ("move", "insert"):
                self._add(change.id, change.x, arrival)
            if change.y is not None:
                slot = self._slots[change.id]
                old.setdefault(slot, self.objects.of(slot)[1])
                new[slot] = change.y
        return old, new, gone

    # What it took.

    @property
    def work(self) -> Work:
        """Calls of each kind so far."""
        return Work(*self._work.tolist())
