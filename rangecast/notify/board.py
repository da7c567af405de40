"""A board of objects, and the messages that keep every subscriber's top-k list right.

    board = Board(3, objects={"id": [...], "position": [...], "value": [...]},
                  interests={"id": [...], "position_lo": [...], "position_hi": [...]})
    for message in board.set_value("a", 0.5):
        ...                              # each interest that message.reaches() applies it

`set_value`, `add`, `remove` and `move` are one change of an object each. `update_many` is many, one
after the other; `update_batch` is many at once: subscribers end up right, without what happened in
between.

The server knows objects and where interests lie, but nobody's list. Interests may want fewer than
k objects each; the board serves k, and the subscriber shows what it wants. One thread at a time.

There is one class for users and three engines inside: `line_board.py` for one range of numbers,
`boxes/board.py` for the attributes of a space, and `half/board.py` for two attributes of which one
has upper bounds alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError, near
from rangecast.kernels.arrays import F64, I64
from rangecast.model.boxes import id_array
from rangecast.model.display import ROWS, counted, html_table
from rangecast.model.sets.members import Id, Members
from rangecast.model.snapshot import (
    Arrays,
    id_buffers,
    ids_of_buffers,
    load_arrays,
    save_arrays,
    with_prefix,
    without_prefix,
)
from rangecast.model.space import Space
from rangecast.model.validation.arguments import finite, whole
from rangecast.model.validation.flags import flag
from rangecast.notify.interest_set import InterestSet, NewInterests, Regions
from rangecast.notify.messages import Messages
from rangecast.notify.plan import Places, Step, planned
from rangecast.notify.tables import LARGEST_K, SAME, Change

ALGORITHMS = ("dense", "sparse")
_KIND = "board"


class Board(InterestSet):
    """Objects and interests, and what subscribers must hear when an object changes.

    The board is a set of interests: len, `in`, iteration and `board[id]` are about them.
    `board.objects` are its objects.
    """

    def __new__(
        cls,
        *_: Any,
        space: Space | None = None,
        upper_bound_attribute: str | None = None,
        **__: Any,
    ) -> Any:
        """Return a board of the engine that fits: over a line, or over a space."""
        engine = (
            _engine(space is not None, upper_bound_attribute is not None) if cls is Board else cls
        )
        return object.__new__(engine)

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
        """Make a board of objects and interests.

        Objects have id, position and value; interests id, position_lo, position_hi and perhaps k.

        k            objects in a list
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
            raise UsageError(f"no algorithm {algorithm!r}: {near(str(algorithm), ALGORITHMS)}")
        super().__init__(whole("k", k, most=LARGEST_K))
        self.space = space
        self.upper_bound_attribute = upper_bound_attribute
        self.algorithm = algorithm
        self.epsilon = epsilon
        self.sketch = None if sketch is None else whole("sketch", sketch)
        self.descending = flag("descending", descending)
        self.seq = 0
        """The number of the next update or batch."""
        self._prepare()
        self._load_objects(objects)
        if interests is not None:
            self.subscribe_many(interests)

    def __repr__(self) -> str:
        return f"<{self._said()}>"

    def _repr_html_(self) -> str:
        """Return the first interests and their lists as a table, for notebooks."""
        rows = (
            (one, interest._where(), [entry.object for entry in interest.best])
            for one in islice(self, ROWS)
            for interest in [self[one]]
        )
        return html_table(self._said(), ("interest", "where", "best"), rows, len(self))

    def _said(self) -> str:
        objects, interests = counted(len(self._objects), "object"), counted(len(self), "interest")
        over = "" if self.space is None else f" over {self.space}"
        return f"Board: {objects}, {interests} in the {self.k} best{over}"

    def __copy__(self) -> Self:
        """Return a board of its own."""
        memo: dict[int, Any] = {id(self.space): self.space}
        return copy.deepcopy(self, memo)

    def bounds(self, interest: Id) -> F64:
        """Return a row for each box of an interest: lower, then upper bounds, as coordinates."""
        raise NotImplementedError

    # ---- lists

    def best(self, *where: Any, k: int | None = None) -> list[Any]:
        """Return the k best objects, the best first, of a range or filter as `subscribe` takes."""
        raise NotImplementedError

    def lists(self, points: F64 | None = None) -> Any:
        """Return the lists of all interests as they are now, to check or to measure.

        With points, those of boxes that needn't be interests: bounds as `bounds` returns them.
        """
        raise NotImplementedError

    def mismatches(self, lists: Any) -> Any:
        """Return the rows of the lists that differ from a recomputation."""
        raise NotImplementedError

    def list_table(self) -> pa.Table:
        """Return the current lists of all interests: interest, rank (from 1), object, value."""
        rows = list(self._members.rows())
        arrivals, ys = self._lists_of(rows)
        wanted = np.array([self._wanted.get(row, self.k) for row in rows], np.int64)
        shown = (np.arange(self.k) < wanted[:, None]) & (arrivals >= 0)
        places, ranks = np.nonzero(shown)
        slots = np.fromiter(self._objects.rows(), np.int64, len(self._objects))
        came = self._arrivals_of(slots)
        order = np.argsort(came)
        found = order[np.searchsorted(came[order], arrivals[shown])]
        return pa.table(
            {
                "interest": id_array(list(self)).take(pa.array(places)),
                "rank": pa.array((ranks + 1).astype(np.int32)),
                "object": id_array(list(self._objects)).take(pa.array(found)),
                "value": self._signed(ys[shown]),
            }
        )

    # ---- objects, one change at a time

    @property
    def objects(self) -> Mapping[Id, Any]:
        """The objects, by id."""
        raise NotImplementedError

    def table(self, ids: Iterable[Id] | None = None) -> pa.Table:
        """Return all objects, as a board takes them, with their arrival.

        With ids, only those of them that there are.
        """
        raise NotImplementedError

    def set_value(self, object_id: Id, value: float) -> Messages:
        """Give an object a new value."""
        slot = self._objects.row(object_id)
        return self._changed([slot], [self._signed(finite("value", value))])

    def add(self, object_id: Id, position: Any, value: float) -> Messages:
        """Add an object; its id must be new. Over a space, a position is a dict of values."""
        new = self._objects.new(object_id, "use set_value() or move()")
        place = self._places().moved(None, position)
        return self.update_many([Change(new, finite("value", value), place)])

    def remove(self, object_id: Id) -> Messages:
        """Remove an object."""
        self._objects.row(object_id)
        return self.update_many([Change(object_id, None)])

    def move(self, object_id: Id, position: Any, value: float | None = None) -> Messages:
        """Give an object a new position, and a new value too unless it is None.

        Over a space, a position is a dict of the values that change; None takes one away.
        """
        places, slot = self._places(), self._objects.row(object_id)
        places.moved(places.of(slot), position)  # refuses what is no position, None too
        return self.update_many([Change(object_id, SAME if value is None else value, position)])

    def update_many(self, changes: Any) -> Messages:
        """Apply changes one after the other, each with a number of its own; all of them or none.

        A change is (id, value) or (id, value, position), see `Change`, or a dict with `id`, `value`
        and `position` or the attributes: what isn't in it stays as it is, None takes it away. In a
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
                arrival = self._key(slot)[1]
                parts.append(self._painted([slot], [math.inf]))
                ordinal = len(parts[-1])
                self._leave(slot)
            if step.kind == "remove":
                self._objects.release(step.id)
            else:
                part = self._painted([self._enter(step, arrival)], [step.y])
                part.ordinal[:] += ordinal
                parts.append(part)
            self.seq += 1
        flush()
        return Messages.joined(parts)

    def update_batch(self, changes: Any) -> Messages:
        """Apply changes as one batch, with one number; messages say what it comes to.

        Changes are given as in `update_many`.
        """
        steps = self._planned(changes)
        self._begin_batch()
        old, new, gone = self._coalesced(steps)
        messages = self._painted_batch(old, new)
        for slot in gone:
            self._leave(slot)
        self.seq += 1
        return messages

    @property
    def plan(self) -> tuple[str, str]:
        """How changes become messages, and why: a name and a reason."""
        raise NotImplementedError

    @property
    def work(self) -> Any:
        """What changes took so far, counted."""
        raise NotImplementedError

    @property
    def memory(self) -> int:
        """Bytes of the objects and of the interests; ids are not counted."""
        raise NotImplementedError

    # ---- snapshots

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write objects, interests and options as a snapshot folder; `open` goes on from there.

        One that already exists is refused, or replaced with `overwrite`.
        """
        slots = np.fromiter(self._objects.rows(), np.int64, len(self._objects))
        arrays = with_prefix("object.", self._object_arrays(slots))
        arrays |= with_prefix("object.", id_buffers(id_array(list(self._objects))))
        members = list(self._members.rows())
        interests = self._interest_arrays(members) | id_buffers(id_array(list(self)))
        interests["k"] = np.array([self._wanted.get(row, 0) for row in members], np.int64)
        arrays |= with_prefix("interest.", interests)
        meta = self._meta() | {"k": self.k, "seq": self.seq, "descending": self.descending}
        meta["algorithm"] = self.algorithm
        save_arrays(path, _KIND, arrays, meta, overwrite=overwrite)

    @classmethod
    def open(cls, path: str | Path, **options: Any) -> Self:
        """Return the board of a snapshot; `options` are those of a board, as saved or other ones.

        `descending` and `space` stay as they were: values would mean something else. `k` may be
        another one, but not below what an interest wants; `upper_bound_attribute` another one that
        fits them.
        """
        arrays, meta = load_arrays(path, _KIND)
        if options.get("descending", meta["descending"]) != meta["descending"]:
            raise UsageError(f"the board was saved with descending={meta['descending']}")
        if "space" in options:
            raise UsageError("a board is opened over the space that it was saved with")
        upper = options.get("upper_bound_attribute", meta.get("upper_bound_attribute"))
        saved_epsilon = meta.get("epsilon") if meta.get("upper_bound_attribute") else None
        if upper is None and saved_epsilon is not None and "epsilon" not in options:
            raise UsageError(
                f"the board was saved with epsilon={saved_epsilon}, which needs "
                "upper_bound_attribute\n"
                "  hint: give epsilon=None as well"
            )
        engine = _engine("space" in meta, upper is not None)
        saved = {name: meta[name] for name in ("k", "algorithm", "descending")}
        board: Any = engine(**saved | engine._options(meta) | options)
        interests = without_prefix("interest.", arrays)
        largest = int(interests["k"].max(initial=0))
        if largest > board.k:
            raise UsageError(f"an interest wants {largest} objects; given: k={board.k}")
        wanted = {at: k for at, k in enumerate(interests["k"].tolist()) if k}
        regions = board._regions_of(interests)
        board.subscribe_many(NewInterests(ids_of_buffers(interests), regions, wanted))
        things = without_prefix("object.", arrays)
        board._take_objects(ids_of_buffers(things), things, meta["arrivals"])
        board.seq = meta["seq"]
        opened: Self = board
        return opened

    # ---- inside

    def _signed(self, y: Any) -> Any:
        """Return values as kernels take them, the lowest first; and back."""
        return 0.0 - y if self.descending else y

    def _planned(self, changes: Any) -> list[Step]:
        return planned(changes, self._objects, self._places(), descending=self.descending)

    def _name(self, ids: pa.Array) -> None:
        """Take these objects, by slot."""
        self._objects = Members.of(ids, "object")
        self._names = np.array([*ids.to_pylist(), None], object)
        """What the user calls the object of each slot."""

    def _enter(self, step: Step, arrival: int | None) -> int:
        """Give an object a slot, at y = inf; it comes last unless it has an arrival."""
        slot = self._place(step.place, arrival)
        if slot == len(self._names):
            self._names = np.append(self._names, np.full(slot, None))
        self._names[slot] = step.id
        self._objects.bind(step.id, slot)
        return slot

    def _changed(self, slots: Sequence[int], ys: Sequence[float]) -> Messages:
        """Paint changes of value, each with a number of its own."""
        messages = self._painted(slots, ys)
        self.seq += len(slots)
        return messages

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
                y, arrival = self._key(slot)
                old.setdefault(slot, y)
                new[slot] = math.inf
                gone.append(slot)
            if step.kind == "remove":
                self._objects.release(step.id)
                continue
            enters = step.kind != "set"
            slot = self._enter(step, arrival) if enters else self._objects.row(step.id)
            old.setdefault(slot, self._key(slot)[0])
            new[slot] = step.y
        return old, new, gone

    # ---- what an engine says

    def _prepare(self) -> None:
        """Check the options and make what is needed beside objects."""
        raise NotImplementedError

    def _load_objects(self, objects: Any) -> None:
        """Take what a caller gives as objects; None: there are none."""
        raise NotImplementedError

    def _take_objects(self, ids: pa.Array, arrays: Mapping[str, Any], arrivals: int) -> None:
        """Take the objects of a snapshot; `arrivals` is the next one."""
        raise NotImplementedError

    def _object_arrays(self, slots: Any) -> Arrays:
        """Return the objects of these slots as a snapshot has them."""
        raise NotImplementedError

    def _interest_arrays(self, rows: list[int]) -> Arrays:
        """Return the interests of these rows as a snapshot has them."""
        raise NotImplementedError

    def _regions_of(self, arrays: Mapping[str, Any]) -> Regions:
        """Return the regions of a snapshot, as `_add_regions` takes them."""
        raise NotImplementedError

    def _meta(self) -> dict[str, Any]:
        """Return `arrivals` and the engine's own options for a snapshot."""
        raise NotImplementedError

    @classmethod
    def _options(cls, meta: Mapping[str, Any]) -> dict[str, Any]:
        """Return the engine's own options of a snapshot."""
        raise NotImplementedError

    def _lists_of(self, rows: list[int]) -> tuple[I64, F64]:
        """Return arrivals and values of the lists of interests, the best first, -1: nobody."""
        raise NotImplementedError

    def _arrivals_of(self, slots: I64) -> I64:
        """Return the arrivals of objects."""
        raise NotImplementedError

    def _value(self, slot: int) -> float:
        value: float = self._signed(self._key(slot)[0])
        return value

    def _places(self) -> Places:
        """Return what a place is."""
        raise NotImplementedError

    def _key(self, slot: int) -> tuple[float, int]:
        """Return y and arrival of an object."""
        raise NotImplementedError

    def _place(self, place: Any, arrival: int | None) -> int:
        """Return a slot for an object at a place, with y = inf."""
        raise NotImplementedError

    def _leave(self, slot: int) -> None:
        """Let a slot be used again."""
        raise NotImplementedError

    def _painted(self, slots: Sequence[int], ys: Sequence[float]) -> Messages:
        """Change values one after the other; return the messages."""
        raise NotImplementedError

    def _begin_batch(self) -> None:
        """Make ready for a batch, before objects enter."""
        raise NotImplementedError

    def _painted_batch(self, old: dict[int, float], new: dict[int, float]) -> Messages:
        """Change values at once; return the messages."""
        raise NotImplementedError


def _engine(has_space: bool, has_upper: bool) -> type[Board]:
    """Return the class of a board; they derive from `Board`, so they load when they are needed."""
    if has_space and has_upper:
        from rangecast.notify.upper_bound.engine import UpperBoundBoard

        return UpperBoundBoard
    if has_space:
        from rangecast.notify.boxes.engine import BoxBoard

        return BoxBoard
    from rangecast.notify.line.engine import LineBoard

    return LineBoard
