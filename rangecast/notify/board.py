"""A board of objects, and the messages that keep every subscriber's top-k list right.

    board = Board(3, objects={"id": [...], "x": [...], "y": [...]},
                  interests={"id": [...], "x_lo": [...], "x_hi": [...]})
    for message in board.update("a", 0.5):
        ...                              # each interest that message.reaches() applies it

`update`, `put`, `remove` and `move` are one change of an object each. `update_many` is many, one
after the other; `update_batch` is many at once: subscribers end up right, without what happened in
between.

The server knows objects and where interests lie, but nobody's list. Interests may want fewer than
k objects each; the board serves k, and the subscriber shows what it wants. One thread at a time.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError, near
from rangecast.kernels.arrays import I32
from rangecast.model.arguments import finite, whole
from rangecast.model.boxes import id_array
from rangecast.model.members import Id, Members
from rangecast.model.numbers import MAX
from rangecast.model.snapshot import (
    id_buffers,
    ids_of_buffers,
    load_arrays,
    save_arrays,
    with_prefix,
    without_prefix,
)
from rangecast.notify.interestset import InterestSet
from rangecast.notify.messages import Messages, Outbox, Work
from rangecast.notify.objects import BoardObjects, Objects
from rangecast.notify.painter import Painter, groups_of
from rangecast.notify.plan import Step, planned
from rangecast.notify.subscriber import Entry, Interest, Lists
from rangecast.notify.tables import LARGEST_K, Change, as_objects

ALGORITHMS = ("dense", "sparse")
_KIND = "board"
_OPTIONS = ("algorithm", "epsilon", "sketch", "descending")


class Board(InterestSet):
    """Objects and interests, and what subscribers must hear when an object changes.

    The board is a set of interests: len, `in`, iteration and `board[id]` are about them.
    `board.objects` are its objects.
    """

    def __init__(
        self,
        k: int,
        *,
        objects: Any = None,
        interests: Any = None,
        algorithm: str = "sparse",
        epsilon: float | None = None,
        sketch: int | None = None,
        descending: bool = False,
    ):
        """Make a board of objects (id, x, y) and interests (id, x_lo, x_hi and perhaps k).

        k            objects in a list
        objects      a path, a table, a DataFrame, a list of dicts or a dict of columns
        interests    the same; null is unbounded
        algorithm    "sparse" knows where interests lie, "dense" doesn't
        epsilon      above 0 and at most 1: fewer messages, a few of them unnecessary
        sketch       approximate the interests by this many rectangles
        descending   the highest y ranks first
        """
        if algorithm not in ALGORITHMS:
            raise UsageError(f"no algorithm {algorithm!r}: {near(str(algorithm), ALGORITHMS)}")
        if sketch is not None and algorithm != "sparse":
            raise UsageError("a sketch is for 'sparse' alone: 'dense' doesn't look at interests")
        rectangles = None if sketch is None else whole("sketch", sketch)
        super().__init__(whole("k", k, most=LARGEST_K), rectangles)
        self.algorithm = algorithm
        self.epsilon = epsilon
        self.descending = descending
        self.seq = 0
        """The number of the next update or batch."""
        groups = groups_of(epsilon, self.k)
        self._painter = Painter(self.k, groups, uses_interests=algorithm == "sparse")
        self._load_objects({"id": [], "x": [], "y": []} if objects is None else objects)
        if interests is not None:
            self.subscribe_many(interests)

    def _load_objects(self, objects: Any) -> None:
        ids, xs, ys, arrivals = as_objects(objects)
        self._objects = Members.of(ids, "object")
        self._names = np.array([*ids.to_pylist(), None], object)
        """What the user calls the object of each slot."""
        self.line = Objects(xs, self._signed(ys), arrivals)
        self._before: Objects | None = None

    def __repr__(self) -> str:
        objects, interests = len(self._objects), len(self)
        return (
            f"<Board: {objects:,} object{'s'[: objects != 1]}, "
            f"{interests:,} interest{'s'[: interests != 1]} in the {self.k} best>"
        )

    def __copy__(self) -> Self:
        """Return a board of its own."""
        return copy.deepcopy(self)

    # ---- lists

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

    def best(
        self, lo: float | None = None, hi: float | None = None, k: int | None = None
    ) -> list[Entry]:
        """Return the k best objects of a range, the best first; without bounds where None."""
        low = -MAX if lo is None else finite("lo", lo)
        high = MAX if hi is None else finite("hi", hi)
        most = self.k if k is None else whole("k", k, most=LARGEST_K)
        entries = []
        for slot in self.line.best(low, high, most).tolist():
            x, y, arrival = self.line.of(slot)
            entries.append(Entry(self._signed(y), arrival, self._names[slot], x))
        return entries

    def lists(self) -> Lists:
        """Return the lists of all interests as they are now, to check or to measure."""
        return Lists.now(self.line, self.tree, self.k)

    def wrong(self, lists: Lists) -> I32:
        """Return the rows of the lists that differ from a recomputation."""
        return lists.wrong(self.line)

    # ---- objects, one change at a time

    @property
    def objects(self) -> BoardObjects:
        """The objects, by id."""
        return BoardObjects(self._objects, self.line, descending=self.descending)

    def table(self, ids: Iterable[Id] | None = None) -> pa.Table:
        """Return all objects, as a board takes them: id, x, y and arrival.

        With ids, only those of them that there are.
        """
        some = None
        if ids is not None:
            some = np.array([self._objects.row(one) for one in ids if one in self._objects], int)
        slots, xs, ys, arrivals = self.line.columns(some)
        names = pa.array(self._names[slots].tolist())
        return pa.table({"id": names, "x": xs, "y": self._signed(ys), "arrival": arrivals})

    def update(self, one: Id, y: float) -> Messages:
        """Give an object a new value."""
        return self._changed([self._objects.row(one)], [self._signed(finite("y", y))])

    def put(self, one: Id, x: float, y: float) -> Messages:
        """Add an object; its id must be new."""
        new = self._objects.new(one, "use update() or move()")
        return self.update_many([Change(new, finite("y", y), finite("x", x))])

    def remove(self, one: Id) -> Messages:
        """Remove an object."""
        self._objects.row(one)
        return self.update_many([Change(one, None)])

    def move(self, one: Id, x: float, y: float | None = None) -> Messages:
        """Give an object a new place, and a new value too unless y is None."""
        value = self.objects[one].y if y is None else y
        return self.update_many([Change(one, value, finite("x", x))])

    def update_many(self, changes: Any) -> Messages:
        """Apply changes one after the other, each with a number of its own; all of them or none.

        A change is (id, y) or (id, y, x), as `Change` says; or they are a table of these columns.
        """
        parts: list[Messages] = []
        slots: list[int] = []
        ys: list[float] = []

        def flush() -> None:
            parts.append(self._changed(slots, ys))
            slots.clear()
            ys.clear()

        for step in self._planned(changes):
            if step.kind == "update":
                slots.append(self._objects.row(step.id))
                ys.append(step.y)
                continue
            flush()
            position, arrival = 0, None
            if step.kind != "put":
                slot = self._objects.row(step.id)
                arrival = self.line.of(slot)[2]
                parts.append(self._painted([slot], [math.inf]))
                position = len(parts[-1])
                self._leave(slot)
            if step.kind == "remove":
                self._objects.release(step.id)
            else:
                part = self._painted([self._enter(step, arrival)], [step.y])
                part.position[:] += position
                parts.append(part)
            self.seq += 1
        flush()
        return Messages.joined(parts)

    def update_batch(self, changes: Any) -> Messages:
        """Apply changes as one batch, with one number; messages say what it comes to.

        Changes are given as in `update_many`.
        """
        steps = self._planned(changes)
        if self._before is None:
            self._before = self.line.copy()
        old, new, gone = self._coalesced(steps)
        slots = np.array(list(new), np.int32)
        ys = np.array(list(new.values()), np.float64)
        olds = np.array([old[slot] for slot in new], np.float64)
        painted = self._painter.paint_batch(self.line, self._before, self._known, slots, olds, ys)
        messages = self._messages(painted)
        self._before.change_many(slots, ys)
        for slot in gone:
            self._leave(slot)
        self.seq += 1
        return messages

    @property
    def work(self) -> Work:
        """Calls of each kind so far."""
        return self._painter.work

    @property
    def memory(self) -> int:
        """Bytes of the objects and of the interests; ids are not counted."""
        sketch = 0 if self._known is self.tree else self._known.memory
        before = 0 if self._before is None else self._before.memory
        return self.line.memory + before + self.tree.memory + sketch

    # ---- snapshots

    def save(self, path: str | Path) -> None:
        """Write objects, interests and options as a snapshot folder; `open` goes on from there."""
        slots, xs, ys, arrivals = self.line.columns()
        place = np.empty(len(self._names), np.int64)
        place[slots] = np.arange(len(slots))
        order = place[np.fromiter(self._objects.rows(), np.int64, len(slots))]
        things = id_buffers(id_array(list(self._objects)))
        things |= {"x": xs[order], "y": ys[order], "arrival": arrivals[order]}
        arrays = with_prefix("object.", things)
        arrays |= with_prefix("interest.", self._interest_arrays())
        meta = {"k": self.k, "seq": self.seq, "arrivals": self.line.arrivals}
        meta |= {name: getattr(self, name) for name in _OPTIONS}
        save_arrays(path, _KIND, arrays, meta)

    @classmethod
    def open(cls, path: str | Path, **options: Any) -> Self:
        """Return the board of a snapshot; `options` are those of a board, as saved or other ones.

        `descending` stays as it was: values would mean something else. `k` may be another one, but
        not below what an interest wants.
        """
        arrays, meta = load_arrays(path, _KIND)
        if options.get("descending", meta["descending"]) != meta["descending"]:
            raise UsageError(f"the board was saved with descending={meta['descending']}")
        board = cls(**{name: meta[name] for name in ("k", *_OPTIONS)} | options)
        board._take_interests(without_prefix("interest.", arrays))
        things = without_prefix("object.", arrays)
        ids = ids_of_buffers(things)
        board._objects = Members.of(ids, "object")
        board._names = np.array([*ids.to_pylist(), None], object)
        board.line = Objects(things["x"], things["y"], things["arrival"])
        board.line.arrivals, board.seq = meta["arrivals"], meta["seq"]
        return board

    # ---- inside

    def _signed(self, y: Any) -> Any:
        """Return values as kernels take them, the lowest first; and back."""
        return 0.0 - y if self.descending else y

    def _planned(self, changes: Any) -> list[Step]:
        return planned(changes, self._objects, self.line, descending=self.descending)

    def _enter(self, step: Step, arrival: int | None) -> int:
        """Give an object a slot, at y = inf; it comes last unless it has an arrival."""
        slot = self.line.add(step.x, math.inf, arrival)
        if self._before is not None:
            self._before.add(step.x, math.inf, arrival)
        if slot == len(self._names):
            self._names = np.append(self._names, np.full(slot, None))
        self._names[slot] = step.id
        self._objects.bind(step.id, slot)
        return slot

    def _leave(self, slot: int) -> None:
        """Let a slot be used again."""
        self.line.remove(slot)
        if self._before is not None:
            self._before.remove(slot)

    def _changed(self, slots: Sequence[int], ys: Sequence[float]) -> Messages:
        """Paint changes of value, each with a number of its own."""
        messages = self._painted(slots, ys)
        self.seq += len(slots)
        return messages

    def _painted(self, slots: Sequence[int], ys: Sequence[float]) -> Messages:
        messages = self._messages(self._painter.paint(self.line, self._known, slots, ys))
        if self._before is not None:
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

    def _coalesced(self, steps: list[Step]) -> tuple[dict[int, float], dict[int, float], list[int]]:
        """Return first and last values by slot, and the slots that are empty in the end.

        Objects that enter have a slot from now on, at y = inf. One that moves leaves its slot and
        enters another one.
        """
        old: dict[int, float] = {}
        new: dict[int, float] = {}
        gone: list[int] = []
        for step in steps:
            arrival = None
            if step.kind in ("move", "remove"):
                slot = self._objects.row(step.id)
                old.setdefault(slot, self.line.of(slot)[1])
                new[slot] = math.inf
                gone.append(slot)
                arrival = self.line.of(slot)[2]
            if step.kind == "remove":
                self._objects.release(step.id)
                continue
            enters = step.kind != "update"
            slot = self._enter(step, arrival) if enters else self._objects.row(step.id)
            old.setdefault(slot, self.line.of(slot)[1])
            new[slot] = step.y
        return old, new, gone
