"""A live set of subscriptions, with those that another single subscription makes redundant.

    cover = CoverSet(space)
    cover.subscribe("all", "price < 100")    # Forward(subscribe=["all"], unsubscribe=[])
    cover.subscribe("some", "price < 50")    # nothing to forward: "all" covers it
    cover.unsubscribe("all")                 # Forward(subscribe=["some"], unsubscribe=["all"])

`k` says which covering graph is kept: a number for G_k, "all" for G*, "poset" for the strict poset
(`graph`). It changes the cost of a command and what `covered_by` lists, never a message.

One thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from rangecast.cover.choose import choose
from rangecast.cover.graph import EVERY, POSET, covers_row
from rangecast.cover.live import Live
from rangecast.cover.store import KINDS, NEXT_IN, NONE, SOURCE, boxes_of
from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64, AnyArray, Bool, grown
from rangecast.model.attributes.residuals import Pair
from rangecast.model.boxes import Boxes, id_array
from rangecast.model.commands import as_commands
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.formatting import text_of_bounds
from rangecast.model.forward import Forward, Forwards
from rangecast.model.io.rejected import RejectedTarget
from rangecast.model.sets.base import Subscription, SubscriptionSet
from rangecast.model.sets.members import Id
from rangecast.model.shapes.nesting import Nesting, with_nested
from rangecast.model.snapshot import (
    id_buffers,
    ids_of_buffers,
    load_arrays,
    save_arrays,
    space_meta,
    space_of_meta,
)
from rangecast.model.space import Space
from rangecast.model.validation.inputs import as_boxes, as_filter

_KIND = "cover set"


class Cost(NamedTuple):
    """Cost of one kind of index query so far."""

    calls: int
    nodes: int
    comparisons: int


class Work(NamedTuple):
    """Index queries so far, by cause.

    `subscribe` and `unsubscribe` are the paper's cov() calls: for a new subscription, and for one
    that never was advertised and lost its last coverer. `late` looks for roots that a new one
    covers, `rejoin` for another coverer of one that had been advertised before it was covered.
    """

    subscribe: Cost
    unsubscribe: Cost
    late: Cost
    rejoin: Cost


class CoverSet(SubscriptionSet):
    """Subscriptions in a covering graph over one covering index.

    Every command returns what to advertise to neighbours, a `Forward`; a command on many returns
    one per subscription.
    """

    def __init__(self, space: Space, *, index: str = "auto", k: int | str = 1):
        super().__init__(space)
        self.k = k
        number, plan, d = _checked_k(k), choose(index), len(self.space)
        roots_only = plan.roots_only and number == 1
        self._live = Live(plan.build(d), d, number, roots_only=roots_only)
        self._index = plan.name
        self._ids: AnyArray = np.empty(0, object)
        """Ids by row."""
        self._nesting = Nesting(self.space)
        self._own: dict[int, int] = {}
        """Number of boxes of a row's filter, if it has extra ones (`model.shapes.nesting`)."""

    # ---- commands

    def subscribe(self, subscription: Id, filter: Any) -> Forward:  # noqa: A002
        """Add a subscription: a filter, its text, or bounds (lo, hi). Its id must be new."""
        new = self._members.new(subscription)
        row = self._new_row(as_filter(filter, self.space))
        self._name([row], [new])
        sent, _ = self._live.do_one(row, comes=True)
        self._members.bind(new, row)
        return Forward([new] if sent else [], [])

    def unsubscribe(self, subscription: Id) -> Forward:
        """Remove a subscription; those that it exposes are advertised before it is withdrawn."""
        row = self._members.row(subscription)
        exposed, withdraws = self._live.do_one(row, comes=False)
        self._members.release(subscription)
        return Forward([self._ids[id_] for id_ in exposed], [self._ids[row]] if withdraws else [])

    def replace(self, subscription: Id, filter: Any) -> Forward:  # noqa: A002
        """Replace the filter of a subscription; it keeps its position in the order of arrival.

        The new filter is added before the old one is removed, so that neighbours miss nothing. If
        it is advertised, it replaces the one that they know.
        """
        known = self._ids[self._members.row(subscription)]
        row = self._new_row(as_filter(filter, self.space))
        return self._run(["replace"], [known], [row])._item(0)

    def upsert(self, subscription: Id, filter: Any) -> Forward:  # noqa: A002
        """Add a subscription, or replace the one with this id."""
        change = self.replace if subscription in self else self.subscribe
        return change(subscription, filter)

    def subscribe_many(self, subscriptions: Any, *, rejected: RejectedTarget = None) -> Forwards:
        """Add subscriptions one after the other: a file, a table, a DataFrame, dicts or `Boxes`.

        rejected   a list that receives the rejected rows, or the path of a file for them; by
                   default, the first rejected row raises an error, and nothing is added
        """
        boxes = as_boxes(subscriptions, self.space, rejected)
        ids = self._members.new_many(boxes.ids)
        rows = self._new_rows(boxes)
        self._name(rows, ids)
        sent = self._live.do(rows, np.ones(len(rows), np.uint8))
        self._members.bind_many(ids, rows.tolist())
        return Forwards(len(rows), sent.command, self._ids[sent.row].tolist(), sent.withdraws)

    def unsubscribe_many(self, subscriptions: Iterable[Id]) -> Forwards:
        """Remove subscriptions one after the other; an id given twice counts once."""
        rows = np.array(self._members.release_many(subscriptions), np.int32)
        sent = self._live.do(rows, np.zeros(len(rows), np.uint8))
        return Forwards(len(rows), sent.command, self._ids[sent.row].tolist(), sent.withdraws)

    def replace_many(self, subscriptions: Any, *, rejected: RejectedTarget = None) -> Forwards:
        """Replace the filters of subscriptions, one after the other; see `replace`."""
        boxes = as_boxes(subscriptions, self.space, rejected)
        ids, _ = self._members.known_many(boxes.ids.to_pylist())
        return self._run(["replace"] * len(ids), ids, self._new_rows(boxes).tolist())

    def upsert_many(self, subscriptions: Any, *, rejected: RejectedTarget = None) -> Forwards:
        """Add or replace subscriptions, one after the other; see `upsert`."""
        boxes = as_boxes(subscriptions, self.space, rejected)
        ids, rows = self._members.either_many(boxes.ids)
        words = ["subscribe" if row is None else "replace" for row in rows]
        return self._run(words, ids, self._new_rows(boxes).tolist())

    def update_many(self, commands: Any) -> Forwards:
        """Apply a table or file of commands in order, all or none.

        Columns: `command` (subscribe, unsubscribe or replace), `id`, and `filter` or <attribute>_lo
        and <attribute>_hi. An id may be subscribed again after it was unsubscribed.
        """
        todo = as_commands(commands, self.space, self._members.kind)
        if todo.words:
            self._members.check_kind(todo.ids[0].as_py())
        todo.check(self._members)
        return self._run(todo.words, todo.ids.to_pylist(), self._new_rows(todo.boxes).tolist())

    # ---- questions

    def __getitem__(self, subscription: Id) -> Subscription:
        """Return a subscription's id and the text of its filter."""
        row = self._members.row(subscription)
        store = self._live.store.arrays
        points = store.points[boxes_of(store, np.array([row]))][: self._own.get(row)]
        text = text_of_bounds(self.space, -points[:, 0::2], points[:, 1::2])
        return Subscription(self._ids[row], text)

    def covers(self, subscription: Id, other: Id) -> bool:
        """Return whether each box of `other` lies inside a single box of `subscription`.

        Shapes are compared with each other, as far as that can be decided, and so are texts.
        """
        above, below = self._members.row(subscription), self._members.row(other)
        return covers_row(self._live.store.table, above, below)

    def covered_by(self, subscription: Id) -> list[Id]:
        """Return the coverers stored in the graph, in order of arrival; none if it is uncovered."""
        store, rows = self._live.store.arrays, []
        edge = int(store.inward[self._members.row(subscription)])
        while edge != NONE:
            rows.append(int(store.edges[edge, SOURCE]))
            edge = int(store.edges[edge, NEXT_IN])
        return self._named(self._live.by_arrival(np.array(rows, np.int64)))

    def uncovered(self) -> list[Id]:
        """Return the subscriptions that no live one covers, in order of arrival."""
        return self._named(self._live.roots())

    def advertised(self) -> list[Id]:
        """Return the live subscriptions that neighbours know, in order of arrival.

        These are the uncovered ones, and those advertised before their coverer arrived.
        """
        rows = self._rows()
        return self._named(rows[self._live.store.arrays.advertised[rows] == 1])

    def edges(self) -> list[tuple[Id, Id]]:
        """Return all edges, (coverer, covered), in order of arrival of both."""
        return [(above, id_) for id_ in self for above in self.covered_by(id_)]

    @property
    def index(self) -> str:
        """The covering index: its name, and its options as they were given."""
        return self._index

    @property
    def work(self) -> Work:
        """Index queries so far, by kind, with their cost."""
        return Work(*(Cost(*row) for row in self._live.store.arrays.work[:KINDS].tolist()))

    @property
    def memory(self) -> int:
        """Bytes of all arrays, without the ids."""
        return self._live.memory

    # ---- snapshots

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write everything as a snapshot folder; `open` restores it.

        An existing folder is rejected, or replaced with `overwrite`.
        """
        ids = id_buffers(id_array(list(self)))
        own = np.array([*self._own.items()], np.int64).reshape(-1, 2)
        arrays = {**self._live.arrays(), "members": self._rows(), "own": own, **ids}
        options = {"index": self.index, "k": self.k}
        meta = space_meta(self.space) | options
        save_arrays(path, _KIND, arrays, meta, overwrite=overwrite)

    @classmethod
    def open(cls, path: str | Path, *, index: str | None = None) -> Self:
        """Open a snapshot, with its saved index unless another one is given."""
        arrays, meta = load_arrays(path, _KIND)
        opened = cls(space_of_meta(meta), index=index or meta["index"], k=meta["k"])
        opened._live.restore(arrays)
        ids, rows = ids_of_buffers(arrays).to_pylist(), arrays["members"]
        opened._name(rows, ids)
        opened._members.bind_many(ids, rows.tolist())
        opened._own = dict(arrays["own"].tolist()) if "own" in arrays else {}
        opened._learn_words(rows)
        return opened

    # ---- inside

    def _rows(self) -> I64:
        """Return the rows of all subscriptions, in order of arrival."""
        return np.fromiter(self._members.rows(), np.int64, len(self))

    def _named(self, rows: AnyArray) -> list[Id]:
        ids: list[Id] = self._ids[rows].tolist()
        return ids

    def _name(self, rows: Any, ids: Sequence[Id]) -> None:
        self._ids = grown(self._ids, self._live.rows)
        self._ids[rows] = ids

    def _new_row(self, filter: Filter) -> int:  # noqa: A002
        """Store a subscription as a new row, which is not live yet."""
        if self._nesting.is_needed:
            lo, hi = filter.arrays()
            if self._nesting.has_words(lo):
                owner = np.zeros(len(lo), np.int32)
                return int(self._new_rows(Boxes.of(lo, hi, owner=owner, space=self.space))[0])
        row = self._live.new_row(filter.boxes)
        self._own.pop(row, None)
        return row

    def _new_rows(self, boxes: Boxes) -> I32:
        """Store subscriptions as new rows, which are not live yet."""
        nested, counts = boxes, np.diff(boxes.box_offsets)
        if self._nesting.has_words(boxes.lo):
            pairs = self._nesting.add(boxes.lo, boxes.hi)
            if pairs and len(self):
                self._add_nested(pairs)
            nested = with_nested(boxes, self._nesting)
        rows = self._live.new_rows(nested.lo, nested.hi, nested.owner, nested.rows)
        if nested is not boxes or self._own:
            self._own.update(zip(rows.tolist(), counts.tolist(), strict=True))
        return rows

    def _learn_words(self, rows: I64) -> None:
        """Add the words of all boxes of rows to the nesting, including those inside others."""
        store = self._live.store.arrays
        points = store.points[boxes_of(store, rows)]
        self._nesting.add(-points[:, 0::2], points[:, 1::2])

    def _add_nested(self, pairs: list[Pair]) -> None:
        """Add boxes to live rows for new words that lie inside theirs."""
        lo, hi, owner = self._nesting.more_boxes(*self._bounds(self._rows()), pairs)
        if len(owner):
            for row in np.unique(owner).tolist():
                own = len(boxes_of(self._live.store.arrays, np.array([row])))
                self._own.setdefault(row, own)
            self._live.add_boxes(owner, lo, hi)

    def _bounds(self, rows: I64) -> tuple[F64, F64, I32]:
        """Return the boxes of the filters of rows, and the row of each."""
        store = self._live.store.arrays
        boxes = boxes_of(store, rows)
        live = set(rows.tolist())
        self._own = {row: own for row, own in self._own.items() if row in live}
        more = [boxes_of(store, np.array([row]))[own:] for row, own in self._own.items()]
        if more:
            boxes = np.setdiff1d(boxes, np.concatenate(more))
        points = store.points[boxes]
        return -points[:, 0::2], points[:, 1::2], store.owner[boxes]

    def _run(self, words: Sequence[str], ids: Sequence[Id], fresh: Sequence[int]) -> Forwards:
        """Apply checked commands in order; new subscriptions are stored in the rows `fresh`."""
        both = [*zip(words, ids, strict=True)]
        self._name(fresh, [edit for word, edit in both if word != "unsubscribe"])
        store, new_rows = self._live.store.arrays, iter(fresh)
        now: dict[Id, int] = {}
        """The row of each id while the commands are applied."""
        done: list[tuple[int, int, bool]] = []
        """Command, row, whether it is added."""
        same: list[int] = []
        replaced = np.full(len(words), NONE, np.int32)
        for at, (word, edit) in enumerate(both):
            new = old = NONE
            if word != "subscribe":
                old = now[edit] if edit in now else self._members.row(edit)
            if word != "unsubscribe":
                new = next(new_rows)
            if old >= 0 and new >= 0:
                table = self._live.store.table
                if covers_row(table, old, new) and covers_row(table, new, old):
                    same.append(new)  # the filters mean the same: nothing changes
                    continue
                store.arrival[new] = store.arrival[old]
                replaced[at] = new
            now[edit] = new
            done += [(at, row, row == new) for row in (new, old) if row >= 0]
        command, rows, comes = np.array(done, np.int64).reshape(-1, 3).T
        sent = self._live.do(rows.astype(np.int32), comes.astype(np.uint8))
        self._live.free(np.array(same, np.int32))
        for word, edit in both:
            if word == "unsubscribe":
                self._members.release(edit)
            elif edit in now:
                self._members.bind(edit, now[edit])
        return self._forwards(replaced, command[sent.command], sent.row, sent.withdraws)

    def _forwards(self, replaced: I32, command: I64, rows: I32, withdraws: Bool) -> Forwards:
        """Return the messages by command; `replaced` has the new row of each replace command.

        A neighbour that receives a filter for a known id replaces the old one. So the replacement
        is sent after the subscriptions that it exposes, and nothing has to be withdrawn.
        """
        takes_over = rows == replaced[command]
        withdraws_old = withdraws & np.isin(command, command[takes_over])
        order = np.lexsort((self._live.store.arrays.arrival[rows], takes_over, withdraws, command))
        order = order[~withdraws_old[order]]
        ids = self._named(rows[order])
        return Forwards(len(replaced), command[order], ids, withdraws[order])


def _checked_k(k: int | str) -> int:
    if isinstance(k, int) and not isinstance(k, bool) and k >= 1:
        return k
    if k in ("all", "poset"):
        return EVERY if k == "all" else POSET
    raise UsageError(f"k must be a number, at least 1, 'all' (G*) or 'poset'; given: {k!r}")
