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
from rangecast.cover.live import Live
from rangecast.cover.relations import EVERY, POSET, covers_row
from rangecast.cover.store import KINDS, NEXT_IN, NONE, SOURCE, longer
from rangecast.errors import UsageError, near
from rangecast.kernels.arrays import I32, I64, U8, AnyArray, Bool
from rangecast.model.attributes import INT64_MAX, INT64_MIN
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Box as SparseBox
from rangecast.model.filters.filter import Filter
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

    command: I64
    """The place of the command that causes a message."""
    ids: list[Any]
    withdraws: Bool
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
        self.k = k
        number = _checked_k(k)
        plan = choose(index)
        self._live = Live(
            plan.build(len(space)), len(space), number, roots_only=plan.roots_only and number == 1
        )
        self._row_of: dict[Id, int] = {}
        self._ids: AnyArray = np.empty(0, object)

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
        row = self._live.new_row(self._boxes_of(box))
        self._ids = longer(self._ids, self._live.rows)
        self._ids[row] = subscription
        self._row_of[subscription] = row
        forwarded, _ = self._live.do_one(row, comes=True)
        return len(forwarded) == 1

    def remove(self, subscription: Id) -> Removal:
        """Remove a subscription; return what to forward: first what it exposes, then itself."""
        row = self._row(subscription)
        del self._row_of[subscription]
        exposed, forward = self._live.do_one(row, comes=False)
        return Removal([self._ids[one] for one in exposed], forward)

    def add_many(self, subscriptions: Boxes | pa.Table) -> Bool:
        """Add all, one after the other; return for each whether to forward it."""
        boxes = self._many(subscriptions)
        ids = boxes.ids.to_pylist()
        self._check_new(ids)
        rows = self._new_rows(boxes, ids)
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
        fresh = iter(self._new_rows(boxes, named).tolist())
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
        return covers_row(self._live.store, self._row(subscription), self._row(other))

    def covered_by(self, subscription: Id) -> list[Any]:
        """Return the coverers that the graph knows of, in order of arrival; none: it is a root."""
        store, rows = self._live.store, []
        edge = int(store.inward[self._row(subscription)])
        while edge != NONE:
            rows.append(int(store.edges[edge, SOURCE]))
            edge = int(store.edges[edge, NEXT_IN])
        return self._named(self._live.by_arrival(np.array(rows, np.int64)))

    def roots(self) -> list[Any]:
        """Return the subscriptions to be kept, in order of arrival: nothing live covers them."""
        return self._named(self._live.roots())

    def forwarded(self) -> list[Any]:
        """Return the live subscriptions that neighbours were told of, in order of arrival."""
        rows = np.fromiter(self._row_of.values(), np.int64, len(self))
        return self._named(self._live.by_arrival(rows[self._live.store.forwarded[rows] == 1]))

    def edges(self) -> list[tuple[Any, Any]]:
        """Return all edges, (coverer, covered), in order of arrival of both."""
        rows = self._live.by_arrival(np.fromiter(self._row_of.values(), np.int64, len(self)))
        return [(above, one) for one in self._named(rows) for above in self.covered_by(one)]

    @property
    def index(self) -> str:
        """The name of the covering index."""
        return self._live.index.name

    @property
    def work(self) -> Work:
        """What the index was asked so far, and what that took."""
        return Work(*(Cost(*row) for row in self._live.store.work[:KINDS].tolist()))

    @property
    def memory(self) -> int:
        """Bytes of all arrays; ids are not counted."""
        return self._live.memory

    # ---- inside

    def _named(self, rows: I64) -> list[Any]:
        found: list[Any] = self._ids[rows].tolist()
        return found

    def _boxes_of(self, box: Box) -> Sequence[SparseBox]:
        if isinstance(box, str):
            return Filter.parse(box, self.space).boxes
        if not isinstance(box, Filter):
            return Filter.from_boxes(self.space, *box).boxes
        if box.space is not self.space and box.space != self.space:
            raise UsageError(f"the filter is of another space, {box.space}; use {self.space}")
        return box.boxes

    def _many(self, given: Boxes | pa.Table) -> Boxes:
        boxes = given if isinstance(given, Boxes) else encode_subscriptions(given, self.space)
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

    def _check_history(self, ids: Sequence[Id], comes: Bool) -> None:
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

    def _new_rows(self, boxes: Boxes, ids: Sequence[Id]) -> I32:
        """Store subscriptions as new rows, which are not live yet."""
        rows = self._live.new_rows(boxes.lo, boxes.hi, boxes.owner, boxes.rows)
        self._ids = longer(self._ids, self._live.rows)
        self._ids[rows] = ids
        return rows

    def _do(self, rows: I32, comes: U8) -> Messages:
        """Do commands; the boxes of rows that come are stored already."""
        told = self._live.do(rows, comes)
        return Messages(told.command, self._ids[told.row].tolist(), told.withdraws)


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
