"""A live set of subscriptions, and which of them are redundant one by one.

    graph = Graph(space)
    graph.add("all", "price < 100")          # True: forward it
    graph.add("some", "price < 50")          # False: "all" covers it
    graph.remove("all")                      # exposed ["some"], and forward the removal

`k` says which relation graph is kept: a number for G_k, "all" for G*, "poset" for the strict poset
(`relations`). It changes the cost of a command and what `covered_by` lists, never a message. The
messages of a removal go out in the order in which they are given: first the subscriptions that it
exposes, then the removal itself; else a neighbour would miss events in between.

One thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.cover.choose import choose
from rangecast.cover.index import Index
from rangecast.cover.relations import (
    EVERY,
    IS_STALE,
    NEEDS_EDGES,
    NEEDS_LOG,
    NEEDS_ROOM,
    POSET,
    Commands,
    Log,
    covers_row,
    run,
    run_one,
)
from rangecast.cover.store import (
    NEXT_IN,
    NONE,
    SOURCE,
    USED_EDGES,
    Bytes,
    Ints,
    Longs,
    empty,
    grown,
    longer,
    points_of,
)
from rangecast.errors import UsageError, near
from rangecast.model.attributes import INT64_MAX, INT64_MIN
from rangecast.model.boxes import Boxes, Floats
from rangecast.model.filters import Filter, boxes_of, parse
from rangecast.model.space import Space
from rangecast.model.subscriptions import encode_subscriptions

Id = str | int
Box = str | Filter | tuple[npt.ArrayLike, npt.ArrayLike]
"""A filter or its text; or `lo` and `hi`, (d,) or (boxes, d)."""


class Removal(NamedTuple):
    """What to tell neighbours when a subscription leaves, in this order."""

    exposed: list[Any]
    """Subscriptions to forward first, in order of arrival."""
    forward: bool
    """Whether to forward the removal then: whether they ever heard of it."""


class Messages(NamedTuple):
    """What to tell neighbours, in this order."""

    command: Longs
    """The place of the command that causes a message."""
    ids: list[Any]
    withdraws: npt.NDArray[np.bool_]
    """Whether a message is a removal; else it is a subscription."""


class Cost(NamedTuple):
    """What one kind of question to the index took so far."""

    calls: int
    nodes: int
    comparisons: int


class Work(NamedTuple):
    """All questions to the index so far, by cause.

    `subscribe` and `unsubscribe` are the paper's cov() calls: for a new subscription, and for one
    that never was forwarded and lost its last coverer. `late` looks for roots that a new one
    covers, `rejoin` for another coverer of one that had been forwarded before it was covered.
    """

    subscribe: Cost
    unsubscribe: Cost
    late: Cost
    rejoin: Cost


class Graph:
    """A relation graph over one covering index."""

    def __init__(self, space: Space, index: str = "auto", k: int | str = 1):
        self.space = space
        self._k = _checked_k(k)
        self.k = k
        plan = choose(index, len(space))
        self._index: Index = plan.build(len(space))
        self._roots_only = plan.roots_only and self._k == 1
        self._store = empty(len(space))
        self._log = Log(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.uint8))
        self._row_of: dict[Id, int] = {}
        self._ids: npt.NDArray[Any] = np.empty(0, object)
        self._live = np.empty(0, np.bool_)
        self._free_rows: list[int] = []
        self._free_boxes: list[int] = []
        self._rows = self._boxes = 0  # rows and boxes ever used
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, subscription: Id) -> bool:
        return subscription in self._row_of

    # ---- commands

    def add(self, subscription: Id, box: Box) -> bool:
        """Add a subscription; return whether to forward it: whether nothing live covers it."""
        _check_id(subscription)
        if subscription in self._row_of:
            raise UsageError(f"subscription {subscription!r} is there already; remove it first")
        lo, hi = self._bounds(box)
        row = self._new_rows(lo, hi, np.zeros(len(lo), np.int32), [subscription])[0]
        self._row_of[subscription] = int(row)
        return len(self._do(np.array([row], np.int32), np.ones(1, np.uint8)).ids) == 1

    def remove(self, subscription: Id) -> Removal:
        """Remove a subscription; return what to forward: first what it exposes, then itself."""
        row = self._row(subscription)
        del self._row_of[subscription]
        told = self._do(np.array([row], np.int32), np.zeros(1, np.uint8))
        forward = bool(told.withdraws.any())
        return Removal(told.ids[: len(told.ids) - forward], forward)

    def add_many(self, subscriptions: Boxes | pa.Table) -> npt.NDArray[np.bool_]:
        """Add all, one after the other; return for each whether to forward it."""
        boxes = self._many(subscriptions)
        ids = boxes.ids.to_pylist()
        self._check_new(ids)
        rows = self._new_rows(boxes.lo, boxes.hi, boxes.owner, ids)
        self._row_of.update(zip(ids, rows.tolist(), strict=True))
        told = self._do(rows, np.ones(len(rows), np.uint8))
        forwarded = np.zeros(len(rows), np.bool_)
        forwarded[told.command] = True
        return forwarded

    def remove_many(self, subscriptions: Iterable[Id]) -> Messages:
        """Remove all of these, one after the other; return what to forward, in order."""
        ids = list(subscriptions)
        if len(set(ids)) < len(ids):
            raise UsageError("a subscription is to be removed twice; nothing was removed")
        rows = np.array([self._row(one) for one in ids], np.int32)
        for one in ids:
            del self._row_of[one]
        return self._do(rows, np.zeros(len(rows), np.uint8))

    def apply(self, commands: pa.Table) -> Messages:
        """Do a table of commands in its order; return what to forward, in order.

        Its columns: `command` is subscribe or unsubscribe, `id`, and what subscriptions have:
        `filter`, or <attribute>_lo and <attribute>_hi. An id may come again after it has left.
        """
        missing = [name for name in ("command", "id") if name not in commands.column_names]
        if missing:
            given = ", ".join(commands.column_names)
            raise UsageError(f"commands need the columns 'command' and 'id'; given: {given}")
        words = commands["command"].to_numpy()
        comes = words == "subscribe"
        wrong = np.flatnonzero(~comes & (words != "unsubscribe"))
        if len(wrong):
            raise UsageError(
                f"command {wrong[0]} is {words[wrong[0]]!r}; expected subscribe or unsubscribe"
            )
        ids = commands["id"].to_pylist()
        self._check_history(ids, comes)
        dropped = [n for n in ("command", "id", "seq") if n in commands.column_names]
        wanted = commands.filter(pa.array(comes)).drop_columns(dropped)
        boxes = self._many(wanted.append_column("id", pa.array(np.arange(len(wanted)))))
        named = [one for one, new in zip(ids, comes, strict=True) if new]
        fresh = iter(self._new_rows(boxes.lo, boxes.hi, boxes.owner, named).tolist())
        rows = np.empty(len(ids), np.int32)
        for at, (one, new) in enumerate(zip(ids, comes.tolist(), strict=True)):
            if new:
                rows[at] = self._row_of[one] = next(fresh)
            else:
                rows[at] = self._row_of.pop(one)
        return self._do(rows, comes.astype(np.uint8))

    # ---- questions

    def covers(self, subscription: Id, other: Id) -> bool:
        """Whether each box of `other` lies inside a single box of `subscription`."""
        return covers_row(self._store, self._row(subscription), self._row(other))

    def covered_by(self, subscription: Id) -> list[Any]:
        """Return the coverers that the graph knows of, in order of arrival; none: it is a root."""
        rows = []
        edge = int(self._store.inward[self._row(subscription)])
        while edge != NONE:
            rows.append(int(self._store.edges[edge, SOURCE]))
            edge = int(self._store.edges[edge, NEXT_IN])
        return self._named(np.array(rows, np.int64))

    def roots(self) -> list[Any]:
        """Return the subscriptions to be kept, in order of arrival: nothing live covers them."""
        used = slice(self._rows)
        return self._named(np.flatnonzero(self._live[used] & (self._store.coverers[used] == 0)))

    def forwarded(self) -> list[Any]:
        """Return what neighbours were told of, in order of arrival."""
        used = slice(self._rows)
        return self._named(np.flatnonzero(self._live[used] & (self._store.forwarded[used] == 1)))

    def edges(self) -> list[tuple[Any, Any]]:
        """Return all edges, (coverer, covered), by arrival of the covered one."""
        return [(by, one) for one in self._in_order() for by in self.covered_by(one)]

    @property
    def index(self) -> str:
        """The name of the covering index."""
        return self._index.name

    @property
    def work(self) -> Work:
        """What the index was asked so far, and what that took."""
        return Work(*(Cost(*row) for row in self._store.work.tolist()))

    @property
    def memory(self) -> int:
        """Bytes of all arrays; ids are not counted."""
        return sum(array.nbytes for array in self._store) + self._index.memory

    # ---- inside

    def _in_order(self) -> list[Any]:
        return self._named(np.flatnonzero(self._live[: self._rows]))

    def _named(self, rows: Longs) -> list[Any]:
        order = np.argsort(self._store.arrival[rows], kind="stable")
        found: list[Any] = self._ids[rows[order]].tolist()
        return found

    def _bounds(self, box: Box) -> tuple[Floats, Floats]:
        if isinstance(box, str):
            box = parse(self.space, box)
        if not isinstance(box, Filter):
            box = Filter.from_boxes(self.space, *box)
        lo, hi, _ = boxes_of(self.space, [box])
        return lo, hi

    def _many(self, given: Boxes | pa.Table) -> Boxes:
        boxes = given if isinstance(given, Boxes) else encode_subscriptions(self.space, given)
        if boxes.dimensions != len(self.space):
            raise UsageError(
                f"boxes of {boxes.dimensions} attributes don't fit a space of {len(self.space)}"
            )
        return boxes

    def _check_new(self, ids: Sequence[Id]) -> None:
        twice = next((one for one in ids if one in self._row_of), None)
        if twice is None and len(set(ids)) < len(ids):
            seen: set[Id] = set()
            twice = next(one for one in ids if one in seen or seen.add(one))  # type: ignore[func-returns-value]
        if twice is not None:
            raise UsageError(f"subscription {twice!r} is there already; nothing was added")

    def _check_history(self, ids: Sequence[Id], comes: npt.NDArray[np.bool_]) -> None:
        """Refuse commands of which one would fail, before any is done."""
        live: dict[Id, bool] = {}
        for at, (one, new) in enumerate(zip(ids, comes.tolist(), strict=True)):
            if live.get(one, one in self._row_of) == new:
                wrong = "is there already" if new else "isn't there"
                raise UsageError(f"command {at}: subscription {one!r} {wrong}; nothing was done")
            live[one] = new

    def _row(self, subscription: Id) -> int:
        try:
            return self._row_of[subscription]
        except KeyError:
            hint = near(str(subscription), [str(one) for one in self._row_of])
            raise UsageError(f"no subscription {subscription!r}: {hint}") from None

    def _new_rows(self, lo: Floats, hi: Floats, owner: Ints, ids: Sequence[Id]) -> Ints:
        """Store boxes as new rows, which are not live yet; `owner` is the place in `ids`."""
        rows = _taken(self._free_rows, self._rows, len(ids))
        boxes = _taken(self._free_boxes, self._boxes, len(lo))
        self._rows = max(self._rows, int(rows.max(initial=-1)) + 1)
        self._boxes = max(self._boxes, int(boxes.max(initial=-1)) + 1)
        self._grow(self._rows, self._boxes, 0)
        store = self._store
        store.points[boxes] = points_of(lo, hi)
        store.owner[boxes] = rows[owner]
        last = np.diff(owner, append=len(ids)) != 0
        store.following[boxes] = np.where(last, NONE, np.roll(boxes, -1))
        first = np.diff(owner, prepend=-1) != 0
        store.first[rows] = boxes[first]
        store.arrival[rows] = np.arange(self._arrivals, self._arrivals + len(ids))
        store.forwarded[rows] = store.coverers[rows] = 0
        store.inward[rows] = store.outward[rows] = NONE
        self._arrivals += len(ids)
        self._ids[rows] = ids
        return rows

    def _grow(self, rows: int, boxes: int, edges: int) -> None:
        self._store = grown(self._store, rows=rows, boxes=boxes, edges=edges)
        self._index.reserve(len(self._store.owner))
        self._ids = longer(self._ids, rows)
        self._live = longer(self._live, rows)

    def _do(self, rows: Ints, comes: Bytes) -> Messages:
        """Do commands; the boxes of rows that come are stored already."""
        commands = Commands(rows, comes)
        kernel = run_one if len(rows) == 1 else run
        if len(self._log.row) < len(rows):
            self._lengthen_log(len(rows))
        told = []
        at = 0
        while at < len(rows):
            at, logged, reason, lacking = kernel(
                self._index.state, self._store, commands, at, self._k, self._roots_only, self._log
            )
            told.append([column[:logged].copy() for column in self._log])
            if reason == NEEDS_EDGES:
                used = int(self._store.notes[USED_EDGES])
                self._grow(self._rows, self._boxes, used + lacking)
            elif reason == NEEDS_ROOM:
                self._index.make_room(lacking)
            elif reason == IS_STALE:
                self._index.rebuild(self._store)
            elif reason == NEEDS_LOG and lacking > len(self._log.row):
                self._lengthen_log(lacking)
        messages = self._messages(told)
        self._live[rows] = comes == 1
        self._free(rows[comes == 0])
        return messages

    def _lengthen_log(self, size: int) -> None:
        self._log = Log(*(longer(column, size) for column in self._log))

    def _messages(self, told: list[list[Any]]) -> Messages:
        command, row, withdraws = (np.concatenate(column) for column in zip(*told, strict=True))
        if len(row) > 1:
            order = np.lexsort((self._store.arrival[row], withdraws, command))
            command, row, withdraws = command[order], row[order], withdraws[order]
        return Messages(command, self._ids[row].tolist(), withdraws == 1)

    def _free(self, rows: Ints) -> None:
        """Let rows that left, and their boxes, be used again."""
        self._live[rows] = False
        self._ids[rows] = None
        self._free_rows += rows.tolist()
        boxes = self._store.first[rows]
        while len(boxes):
            self._free_boxes += boxes.tolist()
            boxes = self._store.following[boxes]
            boxes = boxes[boxes != NONE]


def _taken(free: list[int], used: int, count: int) -> Ints:
    """Return numbers to use: free ones first, those that were freed last; then new ones."""
    reused = min(len(free), count)
    numbers = free[len(free) - reused :]
    del free[len(free) - reused :]
    return np.array([*numbers, *range(used, used + count - reused)], np.int32)


def _checked_k(k: int | str) -> int:
    if isinstance(k, int) and not isinstance(k, bool) and k >= 1:
        return k
    if k in ("all", "poset"):
        return EVERY if k == "all" else POSET
    raise UsageError(f"k is a number from 1, 'all' (G*) or 'poset'; given: {k!r}")


def _check_id(subscription: Id) -> None:
    if isinstance(subscription, bool) or not isinstance(subscription, str | int):
        raise UsageError(f"an id is an integer or a text; given: {subscription!r}")
    if isinstance(subscription, int) and not INT64_MIN <= subscription <= INT64_MAX:
        raise UsageError(f"an integer id has at most 64 bits; given: {subscription}")
