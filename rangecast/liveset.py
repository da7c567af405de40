"""The live set under an engine: its rows, its edits, and what keeps it fast.

How it stays right while it changes. An answer reads one immutable `State`: some static structures
(`parts`), the newest rows which are compared one by one, and the number of the last edit. An edit
fills columns (`model.rows`), then publishes a new state by one assignment; so an answer sees all of
an edit or none of it. A removed row is marked with the number of the edit that removed it, and is
left out of answers from that edit on.

How it stays fast. Past `RECENT` new rows they become a part of their own; `FAN` small parts become
one. When a quarter of the set is new or dead, all that lives is built anew in a background thread;
then the edits made meanwhile are carried over and the new state takes the place of the old.

Edits take a lock and follow one another.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rangecast.errors import UsageError, near
from rangecast.kernels.arrays import I32, I64
from rangecast.match.choose import Index, build, check_index
from rangecast.model.arguments import score_of, weights_of
from rangecast.model.attributes import INT64_MAX, INT64_MIN
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.text import text_of
from rangecast.model.inputs import as_space
from rangecast.model.rowstore import Columns, RowStore, terms_of
from rangecast.model.rowstore import boxes_of as boxes_of_rows
from rangecast.model.space import Space
from rangecast.model.subscriptions import encode_subscriptions, read_subscriptions
from rangecast.rank.choose import check_index as check_rank_index
from rangecast.rank.live import RankedPart, ranked_part

RECENT = 512
"""New rows that are compared one by one; more become a part."""
FAN = 4
"""Small parts of about one size that become one."""
SMALL = 1 << 18
"""A part beyond this is joined with others only in the background."""
_DICT_PIECE = 10_000

Id = str | int


@dataclass(frozen=True, slots=True)
class Part:
    """A static structure over the rows `start` to before `end` that lived when it was built."""

    index: Index
    names: I32
    """The set's row of each of its own rows."""
    start: int
    end: int
    rankings: dict[bool, RankedPart] = field(default_factory=dict)
    """Structures that rank its rows, relaxed or not: built when first asked, by readers, without a
    lock. So whoever goes through them takes a copy first."""

    @property
    def is_whole(self) -> bool:
        """Whether its rows are the set's own: nothing to renumber."""
        return self.start == 0 and self.end == len(self.names)


@dataclass(frozen=True, slots=True)
class State:
    """All that an answer reads."""

    edit: int
    columns: Columns
    count: int
    dead: int
    parts: tuple[Part, ...]

    def live(self) -> I64:
        """Return the rows that live, in order of arrival."""
        rows = np.flatnonzero(self.columns.died[: self.count] > self.edit)
        return rows[np.argsort(self.columns.arrival[rows], kind="stable")]

    @property
    def indexed(self) -> int:
        """Rows before this one are in parts; the others are recent."""
        return self.parts[-1].end if self.parts else 0


class Subscription(NamedTuple):
    """A subscription of a live set, for a person to read."""

    id: Id
    filter: str
    """A text that means the same as the one that was given."""
    score: float
    weights: dict[str, float]
    """By attribute; one that isn't there is 1."""


class LiveSet:
    """Subscriptions that come and go; what answers events about them builds on it (`Engine`)."""

    def __init__(self, space: Space, *, index: str = "auto", rank_index: str = "auto"):
        check_index(index)
        check_rank_index(rank_index)
        self.space = as_space(space)
        self.index = index
        self.rank_index = rank_index
        self._edits = threading.RLock()
        self._store = RowStore(len(space))
        self._row_of: dict[Id, int] = {}
        self._arrivals = 0
        self._rebuilding: threading.Thread | None = None
        self._rebuilt_to = 0
        self._failure: Exception | None = None
        self.rebuilds = 0
        self._state = State(0, self._store.columns, 0, 0, ())

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, subscription: Id) -> bool:
        return subscription in self._row_of

    def __iter__(self) -> Iterator[Id]:
        """Go through the ids, in order of arrival, of the set as it is at the beginning."""
        state = self._state
        found: list[Id] = state.columns.ids[state.live()].tolist()
        return iter(found)

    def __getitem__(self, subscription: Id) -> Subscription:
        """Return what a subscription wants, its score and its weights."""
        with self._edits:
            row, columns = self._row(subscription), self._store.columns
        weights = {}
        if columns.weights is not None:
            given = zip(self.space.names, columns.weights[row].tolist(), strict=True)
            weights = {name: weight for name, weight in given if weight != 1}
        text = text_of(self.space, terms_of(columns, row))
        return Subscription(subscription, text, float(columns.scores[row]), weights)

    def __repr__(self) -> str:
        count = len(self)
        noun = "subscription" if count == 1 else "subscriptions"
        return f"<{type(self).__name__}: {count:,} {noun} over {self.space}>"

    # ---- edits

    def subscribe(
        self,
        subscription: Id,
        filter: str | Filter,  # noqa: A002
        *,
        score: float = 0.0,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Add a subscription; its id must be new. A weight not given is 1."""
        boxes = self._checked(subscription, filter).boxes
        score, given = score_of(score), weights_of(self.space, weights, None)
        with self._edits:
            if subscription in self._row_of:
                raise UsageError(f"subscription {subscription!r} is there already; use replace")
            row = self._store.append_one(subscription, boxes, score, given, self._arrivals)
            self._row_of[subscription] = row
            self._arrivals += 1
            self._publish([])

    def replace(
        self,
        subscription: Id,
        filter: str | Filter,  # noqa: A002
        *,
        score: float | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Put a new filter in place of a subscription's old one; it keeps its place in ties.

        Its score and its weights stay, except for what is given.
        """
        self._change(subscription, self._checked(subscription, filter), score, weights)

    def rescore(
        self,
        subscription: Id,
        score: float | None = None,
        *,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Give a subscription another score or other weights; what isn't given stays."""
        self._change(subscription, None, score, weights)

    def _change(
        self,
        subscription: Id,
        filter: Filter | None,  # noqa: A002
        score: float | None,
        weights: Mapping[str, float] | None,
    ) -> None:
        """Put another row in place of a subscription's; what is `None` stays."""
        with self._edits:
            old, columns = self._row(subscription), self._store.columns
            boxes = terms_of(columns, old) if filter is None else filter.boxes
            number = float(columns.scores[old]) if score is None else score_of(score)
            before = None if columns.weights is None else columns.weights[old]
            given = weights_of(self.space, weights, before)
            arrival = int(columns.arrival[old])
            row = self._store.append_one(subscription, boxes, number, given, arrival)
            self._row_of[subscription] = row
            self._publish([old])

    def unsubscribe(self, subscription: Id) -> None:
        """Remove a subscription."""
        with self._edits:
            row = self._row(subscription)
            del self._row_of[subscription]
            self._publish([row])

    def subscribe_many(self, subscriptions: Any) -> int:
        """Add all of these as one edit; return how many.

        They are the path of a file, or an Arrow table, a DataFrame, a list of dicts or a dict of
        columns, with the columns of a file (`model.subscriptions`); or `Boxes`.
        """
        boxes = self._many(subscriptions)
        with self._edits:
            ids = boxes.ids.to_pylist()
            twice = next((i for i in ids if i in self._row_of), None)
            if twice is None and len(set(ids)) < len(ids):
                seen: set[Id] = set()
                twice = next(i for i in ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            if twice is not None:
                raise UsageError(f"subscription {twice!r} is there already; nothing was added")
            first = self._store.count
            arrival = np.arange(self._arrivals, self._arrivals + boxes.rows)
            self._store.append(boxes, arrival)
            self._row_of.update(zip(ids, range(first, first + boxes.rows), strict=True))
            self._arrivals += boxes.rows
            self._publish([])
        return boxes.rows

    def unsubscribe_many(self, subscriptions: Iterable[Id]) -> int:
        """Remove all of these, as one edit; return how many."""
        with self._edits:
            ids = list(dict.fromkeys(subscriptions))
            rows = [self._row(one) for one in ids]
            for one in ids:
                del self._row_of[one]
            self._publish(rows)
        return len(ids)

    def _checked(self, subscription: Id, given: str | Filter) -> Filter:
        """Return a filter of this space; refuse what can't be an id."""
        one = given if isinstance(given, Filter) else Filter.parse(given, self.space)
        if one.space is not self.space and one.space != self.space:
            raise UsageError(f"the filter is of another space, {one.space}; use {self.space}")
        if isinstance(subscription, bool) or not isinstance(subscription, str | int):
            raise UsageError(f"an id is an integer or a text; given: {subscription!r}")
        if isinstance(subscription, int) and not INT64_MIN <= subscription <= INT64_MAX:
            raise UsageError(f"an integer id has at most 64 bits; given: {subscription}")
        return one

    def _many(self, given: Any) -> Boxes:
        if isinstance(given, str | Path):
            return read_subscriptions(given, self.space)
        boxes = given if isinstance(given, Boxes) else encode_subscriptions(given, self.space)
        if boxes.dimensions != len(self.space):
            raise UsageError(
                f"boxes of {boxes.dimensions} attributes don't fit a space of {len(self.space)}"
            )
        return boxes

    def _row(self, subscription: Id) -> int:
        try:
            return self._row_of[subscription]
        except KeyError:
            hint = near(str(subscription), [str(one) for one in self._row_of])
            raise UsageError(f"no subscription {subscription!r}: {hint}") from None

    def _publish(self, removed: Sequence[int]) -> None:
        """Mark rows as removed, then publish: the one point at which an edit takes effect."""
        old = self._state
        store = self._store
        if removed:
            store.mark_dead(removed, old.edit + 1)
        parts = self._grown(old.parts, old.edit + 1)
        dead = old.dead + len(removed)
        self._state = State(old.edit + 1, store.columns, store.count, dead, parts)
        self._rebuild_if_due()

    # ---- keeping fast

    def _grown(self, parts: tuple[Part, ...], edit: int) -> tuple[Part, ...]:
        """Return the parts with recent rows, and small parts, made into larger ones."""
        indexed = parts[-1].end if parts else 0
        if self._store.count - indexed <= RECENT:
            return parts
        parts = (*parts, self._part(indexed, self._store.count, edit))
        while len(parts) > FAN:
            last = parts[-FAN:]
            start, end = last[0].start, last[-1].end
            uneven = len(last[0].names) > FAN * len(last[-1].names)
            if end - start > SMALL or uneven or start < self._barrier:
                break
            parts = (*parts[:-FAN], self._part(start, end, edit))
        return parts

    @property
    def _barrier(self) -> int:
        """Rows before this one are being rebuilt: no part may reach across it."""
        return self._rebuilt_to if self._rebuilding is not None else 0

    def _part(self, start: int, end: int, edit: int) -> Part:
        columns = self._store.columns
        rows = start + np.flatnonzero(columns.died[start:end] > edit)
        boxes = boxes_of_rows(columns, rows, len(self.space))
        # A part beside the first will soon be joined with others: too short a life for a choice.
        index = "slabs" if start and self.index == "auto" else self.index
        return Part(build(boxes, index), rows.astype(np.int32), start, end)

    def _rebuild_if_due(self) -> None:
        state = self._state
        base = state.parts[0].end if state.parts else 0
        loose = (state.indexed - base) + state.dead
        if self._rebuilding is None and loose > max(4 * RECENT, len(self) // 4):
            if state.indexed < state.count:
                part = self._part(state.indexed, state.count, state.edit)
                state = self._state = replace(state, parts=(*state.parts, part))
            self._rebuilt_to = state.count
            self._rebuilding = threading.Thread(
                target=self._rebuild, args=(state,), name="rangecast-rebuild", daemon=True
            )
            self._rebuilding.start()

    def _rebuild(self, begun: State) -> None:
        """Build all that lives anew, carry over the edits made meanwhile, and take its place."""
        try:
            live = np.flatnonzero(begun.columns.died[: begun.count] > begun.edit)
            boxes = boxes_of_rows(begun.columns, live, len(self.space))
            store = RowStore(len(self.space))
            store.append(boxes, begun.columns.arrival[live])
            names = np.arange(len(live), dtype=np.int32)
            base = Part(build(boxes, self.index), names, 0, len(live))
            for relaxed in {kind for part in begun.parts for kind in tuple(part.rankings)}:
                base.rankings[relaxed] = ranked_part(
                    store.columns, names, len(self.space), self.rank_index, relaxed=relaxed
                )
            row_of: dict[Id, int] = {}
            ids = begun.columns.ids[live].tolist()
            for first in range(0, len(ids), _DICT_PIECE):  # in pieces: others may run between
                piece = ids[first : first + _DICT_PIECE]
                row_of.update(zip(piece, range(first, first + len(piece)), strict=True))
            with self._edits:
                self._take_over(begun, live, store, base, row_of)
        except Exception as error:
            with self._edits:
                self._failure = error
                self._rebuilding = None

    def _take_over(
        self, begun: State, live: I64, store: RowStore, base: Part, row_of: dict[Id, int]
    ) -> None:
        now = self._state
        tail = np.arange(begun.count, now.count)
        if len(tail):
            boxes = boxes_of_rows(now.columns, tail, len(self.space))
            store.append(boxes, now.columns.arrival[tail])
        died = now.columns.died
        since = np.concatenate([died[live], died[tail]])
        removed = np.flatnonzero(since <= now.edit)
        store.mark_dead(removed, since[removed])
        for row in np.flatnonzero(died[live] <= now.edit).tolist():
            row_of.pop(store.columns.ids[row], None)
        shift = len(live) - begun.count
        for row in tail[died[tail] > now.edit].tolist():
            row_of[now.columns.ids[row]] = row + shift
        later = [
            Part(
                p.index,
                p.names + np.int32(shift),
                p.start + shift,
                p.end + shift,
                {relaxed: one.shifted(shift) for relaxed, one in list(p.rankings.items())},
            )
            for p in now.parts
            if p.start >= begun.count
        ]
        self._store, self._row_of, self._rebuilding = store, row_of, None
        self.rebuilds += 1
        parts = (base, *later)
        self._state = State(now.edit, store.columns, store.count, len(removed), parts)

    def wait(self) -> None:
        """Wait until no rebuild is under way; raise what made the last one fail."""
        thread = self._rebuilding
        if thread is not None:
            thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    @property
    def memory(self) -> int:
        """Bytes of the columns and of all structures."""
        state = self._state
        parts = sum(p.index.memory + p.names.nbytes for p in state.parts)
        ranking = sum(r.structure.memory for p in state.parts for r in list(p.rankings.values()))
        return self._store.memory + parts + ranking
