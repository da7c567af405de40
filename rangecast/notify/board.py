"""A board of objects, and the messages that keep every subscriber's top-k list right.

    board = Board(3, objects={"id": [...], "position": [...], "value": [...]},
                  interests={"id": [...], "position_lo": [...], "position_hi": [...]})
    for message in board.set_value("a", 0.5):
        ...                              # each interest that message.reaches() applies it

`set_value`, `add`, `remove` and `move` are one change of an object each. `update_many` applies
changes one after the other; `update_batch` applies them at once: lists end up the same, and
messages describe the net effect alone.

The board knows objects and where interests lie, but no lists. Interests may want fewer than k
objects each; the board serves k, and the subscriber shows its own number. One thread at a time.

A board has ids, numbers of updates and options; its engine has positions: `line/engine.py` for one
range of numbers, `boxes/engine.py` for the attributes of a space, and `upper_bound/engine.py` for
two attributes of which one has upper bounds alone. `base.py` describes an engine.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError, did_you_mean
from rangecast.kernels.arrays import F64, I32
from rangecast.kernels.progress import report_compiling
from rangecast.model.boxes import id_array
from rangecast.model.display import ROWS, counted, html_table
from rangecast.model.sets.members import Id, Members
from rangecast.model.snapshot import (
    id_buffers,
    ids_of_buffers,
    load_arrays,
    save_arrays,
    space_meta,
    space_of_meta,
    with_prefix,
    without_prefix,
)
from rangecast.model.space import Space
from rangecast.model.validation.arguments import check_finite, check_integer
from rangecast.model.validation.flags import flag
from rangecast.notify.base import BoardOptions, MessageColumns
from rangecast.notify.choose import board_engine
from rangecast.notify.interest_set import InterestSet
from rangecast.notify.messages import Messages
from rangecast.notify.new_interests import NewInterests, Regions
from rangecast.notify.objects import BoardObjects, Object
from rangecast.notify.plan import Places, Step, planned
from rangecast.notify.subscriber import Entry, merged
from rangecast.notify.tables import MAX_K, SAME, Change, ObjectColumns

ALGORITHMS = ("dense", "sparse")
_KIND = "board"
_SAVED = ("k", "algorithm", "epsilon", "sketch", "descending", "upper_bound_attribute")
"""Options in a snapshot."""


class Board(InterestSet):
    """Objects and interests; a change of an object returns the messages for subscribers.

    The board is a set of interests: len, `in`, iteration and `board[id]` are about them.
    `board.objects` are its objects.
    """

    def __init__(
        self,
        k: int,
        *,
        space: Space | None = None,
        upper_bound_attribute: str | None = None,
        objects: Any = None,
        interests: Any = None,
        algorithm: str = "sparse",
        epsilon: float | None = None,
        sketch: int | None = None,
        descending: bool = False,
    ):
        """Create a board of objects and interests.

        Objects have id, position and value; interests id, position_lo, position_hi and optionally
        k.

        k            length of a list
        space        the attributes of objects and interests, if they have others than a position.
                     Objects are (id, a column per attribute, value) then, and interests
                     (id, filter) or (id, <attribute>_lo, <attribute>_hi, ...)
        upper_bound_attribute   the one of two attributes of the space on which interests have no
                     lower bound: messages are found faster, and `epsilon` may be given
        objects      a path, a table, a DataFrame, a list of dicts or a dict of columns
        interests    the same; null is unbounded
        algorithm    "sparse" knows where interests lie, "dense" doesn't
        epsilon      above 0 and at most 1: fewer messages, a few of them unnecessary
        sketch       approximate the interests by this many rectangles
        descending   the highest value ranks first

        `epsilon` and `sketch` are for boards without a space, `epsilon` for those with
        `upper_bound_attribute` too.
        """
        if algorithm not in ALGORITHMS:
            raise UsageError(
                f"no algorithm {algorithm!r}: {did_you_mean(str(algorithm), ALGORITHMS)}"
            )
        sketch = None if sketch is None else check_integer("sketch", sketch)
        options = BoardOptions(
            check_integer("k", k, max_value=MAX_K),
            space,
            upper_bound_attribute,
            algorithm,
            epsilon,
            sketch,
        )
        report_compiling()
        super().__init__(board_engine(options))
        self.space = space
        self.upper_bound_attribute = upper_bound_attribute
        self.algorithm = algorithm
        self.epsilon = epsilon
        self.sketch = sketch
        self.descending = flag("descending", descending)
        self.seq = 0
        """Number of the next update or batch."""
        self._load(self.engine.tables.as_objects(objects))
        if interests is not None:
            self.subscribe_many(interests)

    def __repr__(self) -> str:
        return f"<{self._summary_text()}>"

    def _repr_html_(self) -> str:
        """Return the first interests and their lists as a table, for notebooks."""
        rows = (
            (member, interest._where(), [entry.object for entry in interest.best])
            for member in islice(self, ROWS)
            for interest in [self[member]]
        )
        return html_table(self._summary_text(), ("interest", "where", "best"), rows, len(self))

    def _summary_text(self) -> str:
        objects, interests = counted(len(self._objects), "object"), counted(len(self), "interest")
        over = "" if self.space is None else f" over {self.space}"
        return f"Board: {objects}, {interests} in the {self.k} best{over}"

    def __copy__(self) -> Self:
        """Return an independent board."""
        memo: dict[int, Any] = {id(self.space): self.space}
        return copy.deepcopy(self, memo)

    def __getitem__(self, interest: Id) -> Any:
        """Return an interest with its current list, ready to receive messages."""
        row = self._members.row(interest)
        bounds = self.engine.bounds(row)
        return self.engine.interest(
            bounds,
            self._wanted.get(row, self.k),
            lists=self._best(bounds, self.k),
            keeps=self.k,
            seq=self.seq - 1,
            descending=self.descending,
        )

    def bounds(self, interest: Id) -> F64:
        """Return a row for each box of an interest: lower, then upper bounds, as coordinates."""
        return self.engine.bounds(self._members.row(interest))

    # ---- lists

    def best(self, *where: Any, k: int | None = None) -> list[Entry]:
        """Return the top k objects, the best first, of a range or filter as `subscribe` takes."""
        most = self.k if k is None else check_integer("k", k, max_value=MAX_K)
        lists = [self._entries(slots) for slots in self.engine.best_where(where, most)]
        return merged(lists, lambda entry: (self._signed(entry.value), entry.arrival))[:most]

    def _best(self, boxes: F64, k: int) -> list[list[Entry]]:
        """Return the top k objects of each box."""
        return [self._entries(self.engine.best(box, k)) for box in boxes]

    def _entries(self, slots: I32) -> list[Entry]:
        at, ys, arrivals = self.engine.columns(slots)
        columns = self._signed(ys).tolist(), arrivals.tolist(), self._names[slots]
        return list(map(Entry, *columns, self.engine.positions(at)))

    def lists(self, points: F64 | None = None) -> Any:
        """Return the current lists of all interests, to verify or to measure.

        With points, the lists of these boxes instead, given as `bounds` returns them.
        """
        return self.engine.lists(points)

    def mismatches(self, lists: Any) -> I32:
        """Return the rows of the lists that differ from a recomputation."""
        return self.engine.mismatches(lists)

    def list_table(self) -> pa.Table:
        """Return the current lists of all interests: interest, rank (from 1), object, value."""
        rows = list(self._members.rows())
        arrivals, ys = self.engine.lists_of(rows)
        wanted = np.array([self._wanted.get(row, self.k) for row in rows], np.int64)
        shown = (np.arange(self.k) < wanted[:, None]) & (arrivals >= 0)
        interests, ranks = np.nonzero(shown)
        _, _, came = self.engine.columns(self._slots())
        order = np.argsort(came)
        objects = order[np.searchsorted(came[order], arrivals[shown])]
        return pa.table(
            {
                "interest": id_array(list(self)).take(pa.array(interests)),
                "rank": pa.array((ranks + 1).astype(np.int32)),
                "object": id_array(list(self._objects)).take(pa.array(objects)),
                "value": self._signed(ys[shown]),
            }
        )

    # ---- objects, one change at a time

    @property
    def objects(self) -> BoardObjects:
        """The objects, by id."""
        return BoardObjects(self._objects, self._object)

    def _object(self, name: Id, slot: int) -> Object:
        at, ys, _ = self.engine.columns([slot])
        return Object(name, self.engine.positions(at)[0], self._signed(float(ys[0])))

    def quiet_range(self, object_id: Id) -> tuple[float, float]:
        """Return the widest range of values around an object's that changes no list.

        Both ends belong to it. It holds until another object or an interest changes.
        """
        ends = self.engine.quiet_range(self._objects.row(object_id))
        lo, hi = sorted(map(self._signed, ends))
        return lo, hi

    def table(self, ids: Iterable[Id] | None = None) -> pa.Table:
        """Return all objects, in the format of the constructor: id, position or attributes, value,
        arrival.

        With ids, only these, as far as they exist.
        """
        names: Iterable[Id] = self._objects
        if ids is not None:
            names = [name for name in self._objects.listed(ids) if name in self._objects]
        slots = np.array([self._objects.row(name) for name in names], np.int64)
        at, ys, arrivals = self.engine.columns(slots)
        columns = {"id": pa.array(self._names[slots].tolist())}
        columns |= self.engine.tables.position_columns(at)
        return pa.table({**columns, "value": self._signed(ys), "arrival": arrivals})

    def set_value(self, object_id: Id, value: float) -> Messages:
        """Set the value of an object."""
        slot = self._objects.row(object_id)
        return self._changed([slot], [self._signed(check_finite("value", value))])

    def add(self, object_id: Id, position: Any, value: float) -> Messages:
        """Add an object; its id must be new. Over a space, a position is a dict of values."""
        new = self._objects.new(object_id, "use set_value() or move()")
        point = self._places().moved(None, position)
        return self.update_many([Change(new, check_finite("value", value), point)])

    def remove(self, object_id: Id) -> Messages:
        """Remove an object."""
        self._objects.row(object_id)
        return self.update_many([Change(object_id, None)])

    def move(self, object_id: Id, position: Any, value: float | None = None) -> Messages:
        """Set the position of an object, and its value unless that is None.

        Over a space, a position is a dict of the values that change; None takes one away.
        """
        places, slot = self._places(), self._objects.row(object_id)
        places.moved(places.of(slot), position)  # rejects None and values that aren't positions
        return self.update_many([Change(object_id, SAME if value is None else value, position)])

    def update_many(self, changes: Any) -> Messages:
        """Apply changes one after the other, each with its own number; all or none.

        A change is (id, value) or (id, value, position), see `Change`, or a dict with `id`, `value`
        and `position` or the attributes: missing fields stay unchanged, None removes a value. In a
        table with these columns, where a row has all of them, null is as before; without a value
        the object is removed.
        """
        parts: list[Messages] = []
        slots: list[int] = []
        ys: list[float] = []

        def flush() -> None:
            parts.append(self._changed(slots, ys))
            slots.clear()
            ys.clear()

        for step in self._planned(changes):
            if step.kind == "set":
                slots.append(self._objects.row(step.id))
                ys.append(step.y)
                continue
            flush()
            ordinal, arrival = 0, None
            if step.kind != "add":
                slot = self._objects.row(step.id)
                arrival = self.engine.key(slot)[1]
                parts.append(self._messages(self.engine.paint([slot], [math.inf])))
                ordinal = len(parts[-1])
                self.engine.leave(slot)
            if step.kind == "remove":
                self._objects.release(step.id)
            else:
                slot = self._enter(step, arrival)
                part = self._messages(self.engine.paint([slot], [step.y]))
                part.ordinal[:] += ordinal
                parts.append(part)
            self.seq += 1
        flush()
        return Messages.joined(parts)

    def update_batch(self, changes: Any) -> Messages:
        """Apply changes as one batch, with one number; messages describe its net effect.

        Takes changes as `update_many` does.
        """
        steps = self._planned(changes)
        self.engine.begin_batch()
        old, new, gone = self._coalesced(steps)
        messages = self._messages(self.engine.paint_batch(old, new))
        for slot in gone:
            self.engine.leave(slot)
        self.seq += 1
        return messages

    @property
    def plan(self) -> tuple[str, str]:
        """Method by which changes become messages, and the reason."""
        return self.engine.plan(list(self._objects.rows()))

    @property
    def work(self) -> Any:
        """Counted work of all changes so far."""
        return self.engine.work

    @property
    def memory(self) -> int:
        """Bytes of the objects and of the interests, without the ids."""
        return self.engine.memory

    # ---- snapshots

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write objects, interests and options as a snapshot folder; `open` restores it.

        An existing folder is rejected, or replaced with `overwrite`.
        """
        at, ys, arrivals = self.engine.columns(self._slots())
        objects = {"at": at, "y": ys, "arrival": arrivals}
        rows = list(self._members.rows())
        regions = self.engine.regions(rows)
        interests = {"points": regions.points, "boxes": regions.sizes}
        interests["k"] = np.array([self._wanted.get(row, 0) for row in rows], np.int64)
        arrays = with_prefix("object.", objects | id_buffers(id_array(list(self._objects))))
        arrays |= with_prefix("interest.", interests | id_buffers(id_array(list(self))))
        meta = {name: getattr(self, name) for name in _SAVED}
        meta |= {"seq": self.seq, "arrivals": self._arrivals}
        meta |= {} if self.space is None else space_meta(self.space)
        save_arrays(path, _KIND, arrays, meta, overwrite=overwrite)

    @classmethod
    def open(cls, path: str | Path, **options: Any) -> Self:
        """Return the board of a snapshot; `options` replace the saved ones.

        `descending` and `space` stay as they were: values would mean something else. `k` may be
        another one, but not below what an interest wants; `upper_bound_attribute` another one that
        fits them.
        """
        arrays, meta = load_arrays(path, _KIND)
        if options.get("descending", meta["descending"]) != meta["descending"]:
            raise UsageError(f"the board was saved with descending={meta['descending']}")
        if "space" in options:
            raise UsageError("a board must be opened with the space that it was saved with")
        saved = {name: meta[name] for name in _SAVED}
        saved["space"] = space_of_meta(meta) if "space" in meta else None
        attribute = options.get("upper_bound_attribute", saved["upper_bound_attribute"])
        needs_attribute = saved["space"] is not None and saved["epsilon"] is not None
        if attribute is None and needs_attribute and "epsilon" not in options:
            raise UsageError(
                f"the board was saved with epsilon={saved['epsilon']}, which needs "
                "upper_bound_attribute\n  hint: give epsilon=None as well"
            )
        board = cls(**saved | options)
        interests = without_prefix("interest.", arrays)
        largest = int(interests["k"].max(initial=0))
        if largest > board.k:
            raise UsageError(f"an interest wants {largest} objects; given: k={board.k}")
        wanted = {at: k for at, k in enumerate(interests["k"].tolist()) if k}
        regions = Regions(interests["points"], interests["boxes"])
        board.subscribe_many(NewInterests(ids_of_buffers(interests), regions, wanted))
        objects = without_prefix("object.", arrays)
        columns = objects["at"], board._signed(objects["y"]), objects["arrival"]
        board._load(ObjectColumns(ids_of_buffers(objects), *columns))
        board._arrivals, board.seq = meta["arrivals"], meta["seq"]
        return board

    # ---- inside

    def _load(self, columns: ObjectColumns) -> None:
        """Load objects, by slot; without arrivals they arrive in their order."""
        arrival = columns.arrival
        if arrival is None:
            arrival = np.arange(len(columns.y))
        self._arrivals = int(arrival.max(initial=-1)) + 1
        """Arrival number of the next object."""
        self._objects = Members.of(columns.ids, "object")
        self._names = np.array([*columns.ids.to_pylist(), None], object)
        """Id of the object of each slot."""
        self.engine.load(columns._replace(y=self._signed(columns.y), arrival=arrival))

    def _slots(self) -> Any:
        """Return the slots of all objects."""
        return np.fromiter(self._objects.rows(), np.int64, len(self._objects))

    def _signed(self, y: Any) -> Any:
        """Return values in the order of engines, the lowest first; also the inverse."""
        return 0.0 - y if self.descending else y

    def _value(self, slot: int) -> float:
        value: float = self._signed(self.engine.key(slot)[0])
        return value

    def _places(self) -> Places:
        engine = self.engine
        tables = engine.tables
        return Places(
            engine.place, engine.moved, tables.as_changes, tables.names, tables.needs, self._value
        )

    def _planned(self, changes: Any) -> list[Step]:
        return planned(changes, self._objects, self._places(), descending=self.descending)

    def _enter(self, step: Step, arrival: int | None) -> int:
        """Add an object with y = inf, after all others unless it has an arrival number."""
        if arrival is None:
            arrival, self._arrivals = self._arrivals, self._arrivals + 1
        slot = self.engine.enter(step.place, arrival)
        if slot == len(self._names):
            self._names = np.append(self._names, np.full(slot, None))
        self._names[slot] = step.id
        self._objects.bind(step.id, slot)
        return slot

    def _changed(self, slots: Sequence[int], ys: Sequence[float]) -> Messages:
        """Paint changes of values, each with its own number."""
        messages = self._messages(self.engine.paint(slots, ys))
        self.seq += len(slots)
        return messages

    def _messages(self, painted: MessageColumns) -> Messages:
        """Return messages with the ids, numbers and values of users."""
        messages: Messages = self.engine.message_type(
            painted.event + self.seq,
            painted.ordinal,
            self._names[painted.slot],
            painted.slot,
            painted.arrival,
            painted.position,
            self._signed(painted.y),
            painted.tile,
            self.descending,
            self.space,
        )
        return messages

    def _coalesced(self, steps: list[Step]) -> tuple[dict[int, float], dict[int, float], list[int]]:
        """Return first and last values by slot, and the slots that are empty at the end.

        New objects get a slot with y = inf. An object that moves leaves its slot and gets another
        one.
        """
        old: dict[int, float] = {}
        new: dict[int, float] = {}
        gone: list[int] = []
        for step in steps:
            arrival = None
            if step.kind in ("move", "remove"):
                slot = self._objects.row(step.id)
                y, arrival = self.engine.key(slot)
                old.setdefault(slot, y)
                new[slot] = math.inf
                gone.append(slot)
            if step.kind == "remove":
                self._objects.release(step.id)
                continue
            enters = step.kind != "set"
            slot = self._enter(step, arrival) if enters else self._objects.row(step.id)
            old.setdefault(slot, self.engine.key(slot)[0])
            new[slot] = step.y
        return old, new, gone
