"""A live set of subscriptions: the object most users hold.

    engine = Engine(space)
    engine.subscribe("cheap", "price < 10 and sector = 'tech'")
    engine.match({"price": 9.5, "sector": "tech"})           # ["cheap"]

How it stays right while it changes. A match reads one immutable `_State`: some static structures
(`parts`), the newest rows which are compared one by one, and the number of the last edit. An edit
fills columns (`model.rows`), then publishes a new state by one assignment; so a match sees all of
an edit or none of it. A removed row is marked with the number of the edit that removed it, and is
left out of answers from that edit on.

How it stays fast. Past `RECENT` new rows they become a part of their own; `FAN` small parts become
one. When a quarter of the set is new or dead, all that lives is built anew in a background thread;
then the edits made meanwhile are carried over and the new state takes the place of the old.

Any number of threads may match. Edits take a lock and follow one another.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import UsageError, near
from rangecast.match.choose import Index, build, check_index
from rangecast.match.live import merged
from rangecast.match.recent import match_one_recent, match_recent
from rangecast.match.result import Counts, Matches, Rows
from rangecast.model.attributes import INT64_MAX, INT64_MIN
from rangecast.model.boxes import Boxes, Floats, id_array
from rangecast.model.events import encode_event, encode_events
from rangecast.model.filters import Filter, boxes_of, parse
from rangecast.model.rows import Columns, Longs, RowStore
from rangecast.model.rows import boxes_of as boxes_of_rows
from rangecast.model.snapshot import load_boxes, save_boxes
from rangecast.model.space import Space
from rangecast.model.subscriptions import encode_subscriptions, read_subscriptions
from rangecast.rank.choose import check_index as check_rank_index
from rangecast.rank.live import (
    Asked,
    RankedPart,
    Rankings,
    best_live,
    ranked_part,
    split_spans,
)
from rangecast.rank.result import Best
from rangecast.rank.shed import seconds_of, shed
from rangecast.rank.slabs import How

RECENT = 512
"""New rows that are compared one by one; more become a part."""
FAN = 4
"""Small parts of about one size that become one."""
SMALL = 1 << 18
"""A part beyond this is joined with others only in the background."""
_DICT_PIECE = 10_000

Id = str | int


@dataclass(frozen=True, slots=True)
class _Part:
    """A static structure over the rows `start` to before `end` that lived when it was built."""

    index: Index
    names: Rows
    """The set's row of each of its own rows."""
    start: int
    end: int
    rankings: dict[bool, RankedPart] = field(default_factory=dict)
    """Structures that rank its rows, relaxed or not: built when they are first asked."""

    @property
    def is_whole(self) -> bool:
        """Whether its rows are the set's own: nothing to renumber."""
        return self.start == 0 and self.end == len(self.names)


@dataclass(frozen=True, slots=True)
class _State:
    """All that a match reads."""

    edit: int
    columns: Columns
    count: int
    dead: int
    parts: tuple[_Part, ...]

    @property
    def indexed(self) -> int:
        """Rows before this one are in parts; the others are recent."""
        return self.parts[-1].end if self.parts else 0


@dataclass(frozen=True, slots=True)
class Answers:
    """Subscriptions by event; those of one event in any order."""

    matches: Matches
    event_ids: pa.Array | None
    """Of the batch; `None`: its events are numbered from 0."""
    _ids: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.matches.offsets) - 1

    def of(self, event: int) -> list[Id]:
        """Return the subscriptions that hold an event, by its place in the batch."""
        found: list[Id] = self._ids[self.matches.of(event)].tolist()
        return found

    def table(self) -> pa.Table:
        """Return all pairs, with columns event and subscription."""
        events = pa.array(self.matches.events)
        if self.event_ids is not None:
            events = self.event_ids.take(events)
        kind = pa.int64() if self._ids.dtype == np.int64 else pa.large_string()
        subscriptions = pa.array(self._ids[self.matches.rows], kind)
        return pa.table({"event": events, "subscription": subscriptions})


class Engine:
    """One live set of subscriptions over a space."""

    def __init__(self, space: Space, *, index: str = "auto", rank_index: str = "auto"):
        check_index(index)
        check_rank_index(rank_index)
        self.space = space
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
        self._state = _State(0, self._store.columns, 0, 0, ())

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, subscription: Id) -> bool:
        return subscription in self._row_of

    # ---- edits

    def subscribe(
        self,
        subscription: Id,
        filter: str | Filter,  # noqa: A002
        *,
        score: float = 0.0,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Add a subscription; its id must be new."""
        add = self._prepared(subscription, filter, score, weights)
        with self._edits:
            if subscription in self._row_of:
                raise UsageError(f"subscription {subscription!r} is there already; use replace")
            self._row_of[subscription] = add(self._arrivals)
            self._arrivals += 1
            self._publish([])

    def replace(
        self,
        subscription: Id,
        filter: str | Filter,  # noqa: A002
        *,
        score: float = 0.0,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Put a new filter in place of a subscription's old one; it keeps its place in ties."""
        add = self._prepared(subscription, filter, score, weights)
        with self._edits:
            old = self._row(subscription)
            self._row_of[subscription] = add(int(self._store.columns.arrival[old]))
            self._publish([old])

    def rescore(
        self,
        subscription: Id,
        score: float | None = None,
        *,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Give a subscription another score or other weights; what isn't given stays."""
        with self._edits:
            old = self._row(subscription)
            columns = self._store.columns
            boxes = boxes_of_rows(columns, np.array([old]), len(self.space))
            changed = boxes.weights
            if weights is not None:
                changed = np.ones((1, len(self.space))) if changed is None else changed.copy()
                for name, weight in weights.items():
                    changed[0, self.space.axis(name)] = weight
            scores = boxes.scores if score is None else [score]
            boxes = Boxes.of(
                boxes.lo, boxes.hi, owner=boxes.owner, ids=boxes.ids, scores=scores, weights=changed
            )
            self._store.append(boxes, columns.arrival[[old]])
            self._row_of[subscription] = self._store.count - 1
            self._publish([old])

    def unsubscribe(self, subscription: Id) -> None:
        """Remove a subscription."""
        with self._edits:
            row = self._row(subscription)
            del self._row_of[subscription]
            self._publish([row])

    def subscribe_many(self, subscriptions: Boxes | pa.Table | str | Path) -> int:
        """Add all of a table, a file or `Boxes`, as one edit; return how many."""
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

    def _prepared(
        self,
        subscription: Id,
        given: str | Filter,
        score: float,
        weights: Mapping[str, float] | None,
    ) -> Callable[[int], int]:
        """Check a subscription; return what adds it with a place in the order, giving its row."""
        one = given if isinstance(given, Filter) else parse(self.space, given)
        if one.space is not self.space and one.space != self.space:
            raise UsageError(f"the filter is of another space, {one.space}; use {self.space}")
        if isinstance(subscription, bool) or not isinstance(subscription, str | int):
            raise UsageError(f"an id is an integer or a text; given: {subscription!r}")
        if isinstance(subscription, int) and not INT64_MIN <= subscription <= INT64_MAX:
            raise UsageError(f"an integer id has at most 64 bits; given: {subscription}")
        if not math.isfinite(score):
            raise UsageError(f"a score is a finite number; given: {score!r}")
        if weights is None:
            return lambda arrival: self._store.append_one(subscription, one.boxes, score, arrival)
        values = np.ones((1, len(self.space)))
        for name, weight in weights.items():
            values[0, self.space.axis(name)] = weight
        lo, hi, owner = boxes_of(self.space, [one])
        ids = id_array([subscription])
        boxes = Boxes.of(lo, hi, owner=owner, ids=ids, scores=[score], weights=values)

        def add(arrival: int) -> int:
            self._store.append(boxes, np.array([arrival]))
            return self._store.count - 1

        return add

    def _many(self, given: Boxes | pa.Table | str | Path) -> Boxes:
        if isinstance(given, str | Path):
            return read_subscriptions(given, self.space)
        boxes = given if isinstance(given, Boxes) else encode_subscriptions(self.space, given)
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
        self._state = _State(old.edit + 1, store.columns, store.count, dead, parts)
        self._rebuild_if_due()

    # ---- matching

    def match(self, event: Mapping[str, Any]) -> list[Id]:
        """Return the subscriptions that hold one event, in order of arrival."""
        state = self._state  # before encoding: a string is known by then if the state needs it
        point = encode_event(self.space, event)
        rows = self._match(state, point[None], 1).rows
        order = np.argsort(state.columns.arrival[rows], kind="stable")
        found: list[Id] = state.columns.ids[rows[order]].tolist()
        return found

    def match_many(self, events: Any, *, threads: int = 1) -> Answers:
        """Return the subscriptions that hold each event of a table, DataFrame or list of dicts."""
        state = self._state
        encoded = encode_events(self.space, events)
        matches = self._match(state, encoded.points, threads)
        return Answers(matches, encoded.ids, state.columns.ids)

    def match_points(self, points: Floats, *, threads: int = 1) -> Answers:
        """Return the subscriptions that hold each point, (events, d): events already encoded."""
        state = self._state
        given = np.ascontiguousarray(points, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != len(self.space) or np.isnan(given).any():
            raise UsageError(
                f"points take the shape (events, {len(self.space)}) and hold no NaN; "
                f"given: {given.shape}"
            )
        matches = self._match(state, given, threads)
        return Answers(matches, None, state.columns.ids)

    def _match(self, state: _State, points: Floats, threads: int) -> Matches:
        if threads > 1 and len(points) >= 2 * threads:
            pieces = np.array_split(points, threads)
            with ThreadPoolExecutor(threads) as pool:
                answers = list(pool.map(lambda piece: self._match(state, piece, 1), pieces))
            return _concatenated(answers)
        columns, edit = state.columns, state.edit
        one = len(points) == 1
        found = None
        if state.indexed < state.count or not state.parts:
            span = columns.bounds, state.indexed, state.count
            if one:
                recent = _single(match_one_recent(*span, points[0]))
            else:
                recent = match_recent(*span, points)
            names = np.arange(state.indexed, state.count, dtype=np.int32)
            found = merged(recent, names, columns, edit, None)
        for part in reversed(state.parts):  # the first is by far the largest: it comes last
            index = part.index
            matches = _single(index.match_one(points[0])) if one else index.match(points)
            if found is None and part.is_whole and not state.dead:
                found = matches
            else:
                names = part.names[:0] if part.is_whole else part.names
                found = merged(matches, names, columns, edit, found)
        assert found is not None
        return found

    # ---- ranking

    def best(
        self,
        event: Mapping[str, Any],
        k: int = 10,
        *,
        relaxed: bool = False,
        how: How | None = None,
    ) -> list[tuple[Id, float]]:
        """Return the k best subscriptions of one event and their scores, best first.

        relaxed   one attribute is enough, and the score is the sum of the weights that hold
        how       values may be spans, pairs (first, last), which a subscription must `overlap`
                  or `contain`
        """
        state = self._state
        ends = split_spans(event) if how is not None else (event, event)
        first = encode_event(self.space, ends[0])[None]
        last = first if how is None else encode_event(self.space, ends[1])[None]
        best = self._best(state, (first, last), k, relaxed, how)
        return Rankings(best, None, state.columns.ids).of(0)

    def best_many(
        self,
        events: Any,
        k: int = 10,
        *,
        relaxed: bool = False,
        budget: int | None = None,
        clock: str | None = None,
    ) -> Rankings:
        """Return the k best of each event of a table, DataFrame or list of dicts.

        budget    at most so many notifications an event; with `clock`, a timestamp, so many in
                  each of its seconds, the best ones
        """
        state = self._state
        encoded = encode_events(self.space, events)
        k = k if budget is None else min(k, budget)
        best = self._best(state, (encoded.points, encoded.points), k, relaxed, None)
        if budget is not None and clock is not None:
            best = shed(best, seconds_of(encoded.points[:, self.space.axis(clock)]), budget)
        return Rankings(best, encoded.ids, state.columns.ids)

    def best_points(self, points: Floats, k: int = 10, *, relaxed: bool = False) -> Rankings:
        """Return the k best of each point, (events, d): events already encoded."""
        state = self._state
        best = self._best(state, (points, points), k, relaxed, None)
        return Rankings(best, None, state.columns.ids)

    def _best(
        self, state: _State, spans: tuple[Floats, ...], k: int, relaxed: bool, how: How | None
    ) -> Best:
        asked = Asked.of(spans, len(self.space), k, how, relaxed=relaxed)
        recent = state.indexed, state.count
        live = state.columns, state.edit, state.dead
        return best_live(state.parts, recent, *live, asked, self.rank_index)

    # ---- keeping fast

    def _grown(self, parts: tuple[_Part, ...], edit: int) -> tuple[_Part, ...]:
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

    def _part(self, start: int, end: int, edit: int) -> _Part:
        columns = self._store.columns
        rows = start + np.flatnonzero(columns.died[start:end] > edit)
        boxes = boxes_of_rows(columns, rows, len(self.space))
        # A part beside the first will soon be joined with others: too short a life for a choice.
        index = "slabs" if start and self.index == "auto" else self.index
        return _Part(build(boxes, index), rows.astype(np.int32), start, end)

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

    def _rebuild(self, begun: _State) -> None:
        """Build all that lives anew, carry over the edits made meanwhile, and take its place."""
        try:
            live = np.flatnonzero(begun.columns.died[: begun.count] > begun.edit)
            boxes = boxes_of_rows(begun.columns, live, len(self.space))
            store = RowStore(len(self.space))
            store.append(boxes, begun.columns.arrival[live])
            names = np.arange(len(live), dtype=np.int32)
            base = _Part(build(boxes, self.index), names, 0, len(live))
            for relaxed in {kind for part in begun.parts for kind in part.rankings}:
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
        self, begun: _State, live: Longs, store: RowStore, base: _Part, row_of: dict[Id, int]
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
            _Part(
                p.index,
                p.names + np.int32(shift),
                p.start + shift,
                p.end + shift,
                {relaxed: one.shifted(shift) for relaxed, one in p.rankings.items()},
            )
            for p in now.parts
            if p.start >= begun.count
        ]
        self._store, self._row_of, self._rebuilding = store, row_of, None
        self.rebuilds += 1
        parts = (base, *later)
        self._state = _State(now.edit, store.columns, store.count, len(removed), parts)

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
        ranking = sum(r.structure.memory for p in state.parts for r in p.rankings.values())
        return self._store.memory + parts + ranking

    # ---- snapshots

    def boxes(self) -> Boxes:
        """Return the live subscriptions, in order of arrival."""
        state = self._state
        live = np.flatnonzero(state.columns.died[: state.count] > state.edit)
        live = live[np.argsort(state.columns.arrival[live], kind="stable")]
        return boxes_of_rows(state.columns, live, len(self.space))

    def save(self, path: str | Path) -> None:
        """Write the live subscriptions and the space as a snapshot folder."""
        save_boxes(path, self.boxes(), self.space)

    @classmethod
    def open(cls, path: str | Path, *, index: str = "auto") -> Engine:
        """Return a live set with the subscriptions of a snapshot."""
        boxes, space = load_boxes(path)
        engine = cls(space, index=index)
        engine.subscribe_many(boxes)
        return engine


def _single(rows: Rows) -> Matches:
    return Matches(np.array([0, len(rows)]), rows)


def _concatenated(found: Sequence[Matches]) -> Matches:
    counts: list[Counts] = [np.diff(one.offsets) for one in found]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    work = found[0].work
    for one in found[1:]:
        work = work.plus(one.work)
    return Matches(offsets, np.concatenate([one.rows for one in found]), work)
