"""A live set of subscriptions: the object most users hold.

    engine = Engine(space)
    engine.subscribe("cheap", "price < 10 and sector = 'tech'")
    engine.match({"price": 9.5, "sector": "tech"})           # ["cheap"]

How it changes is `liveset`'s business; here it answers. Every answer reads one immutable state, so
any number of threads may ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.liveset import Id, LiveSet, State
from rangecast.match.live import Live, match_live
from rangecast.match.result import Matches
from rangecast.model.arguments import whole
from rangecast.model.attributes import Timestamp
from rangecast.model.boxes import Boxes
from rangecast.model.events import encode_event, encode_events
from rangecast.model.rowstore import Columns
from rangecast.model.rowstore import boxes_of as boxes_of_rows
from rangecast.model.snapshot import load_boxes, save_boxes
from rangecast.rank.adjusted import best_adjusted, best_uncertain
from rangecast.rank.live import Query, Rankings, best_live, split_spans
from rangecast.rank.result import Best
from rangecast.rank.shed import seconds_of, shed
from rangecast.rank.slabs.index import How, Slabs


@dataclass(frozen=True, slots=True)
class Answers:
    """Subscriptions by event."""

    matches: Matches
    event_ids: pa.Array | None
    """Of the batch; `None`: its events are numbered from 0."""
    _columns: Columns

    def __len__(self) -> int:
        return len(self.matches.offsets) - 1

    def of(self, event: int) -> list[Id]:
        """Return the subscriptions that hold an event, by its place, in order of arrival."""
        return _by_arrival(self._columns, self.matches.of(event))

    def table(self) -> pa.Table:
        """Return all pairs, with columns event and subscription.

        Events are in order; the subscriptions of one event are in any order, which saves sorting
        them. `of` has them in order of arrival.
        """
        ids = self._columns.ids
        events = pa.array(self.matches.events)
        if self.event_ids is not None:
            events = self.event_ids.take(events)
        kind = pa.int64() if ids.dtype == np.int64 else pa.large_string()
        subscriptions = pa.array(ids[self.matches.rows], kind)
        return pa.table({"event": events, "subscription": subscriptions})


class Engine(LiveSet):
    """One live set of subscriptions over a space."""

    # ---- matching

    def match(
        self, event: Mapping[str, Any], *, ignore_unknown: bool = False, nan: str = "refuse"
    ) -> list[Id]:
        """Return the subscriptions that hold one event, in order of arrival.

        ignore_unknown   an event may have values that are no attribute of the space
        nan              "refuse" NaN in an event, or read it as "missing"
        """
        state = self._state  # before encoding: a string is known by then if the state needs it
        point = encode_event(event, self.space, ignore_unknown=ignore_unknown, nan=nan)
        return _by_arrival(state.columns, self._match(state, point[None], 1).rows)

    def match_many(
        self,
        events: Any,
        *,
        ignore_unknown: bool = False,
        nan: str = "refuse",
        threads: int = 1,
    ) -> Answers:
        """Return the subscriptions that hold each event of a table, DataFrame or list of dicts."""
        state = self._state
        encoded = encode_events(events, self.space, ignore_unknown=ignore_unknown, nan=nan)
        matches = self._match(state, encoded.points, whole("threads", threads))
        return Answers(matches, encoded.ids, state.columns)

    def match_points(self, points: F64, *, threads: int = 1) -> Answers:
        """Return the subscriptions that hold each point, (events, d): events already encoded."""
        state = self._state
        given = np.ascontiguousarray(points, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != len(self.space) or np.isnan(given).any():
            raise UsageError(
                f"points take the shape (events, {len(self.space)}) and hold no NaN; "
                f"given: {given.shape}"
            )
        matches = self._match(state, given, whole("threads", threads))
        return Answers(matches, None, state.columns)

    def _match(self, state: State, points: F64, threads: int) -> Matches:
        if threads > 1 and len(points) >= 2 * threads:
            pieces = np.array_split(points, threads)
            with ThreadPoolExecutor(threads) as pool:
                answers = list(pool.map(lambda piece: self._match(state, piece, 1), pieces))
            return _concatenated(answers)
        recent = state.indexed, state.count
        live = Live(state.parts, recent, state.columns, state.edit, state.dead)
        return match_live(live, points)

    # ---- ranking

    def best(
        self,
        event: Mapping[str, Any],
        k: int = 10,
        *,
        relaxed: bool = False,
        how: How | None = None,
        ignore_unknown: bool = False,
        nan: str = "refuse",
    ) -> list[tuple[Id, float]]:
        """Return the k best subscriptions of one event and their scores, best first.

        relaxed   one attribute is enough, and the score is the sum of the weights that hold
        how       values may be spans, pairs (first, last), which a subscription must `overlap`
                  or `contain`

        `ignore_unknown` and `nan` are as in `match`, here and below.
        """
        state, spans = self._state, self._spans(event, how, ignore_unknown, nan)
        best = self._best(state, spans, k, relaxed, how)
        return Rankings(best, None, state.columns.ids).of(0)

    def best_many(
        self,
        events: Any,
        k: int = 10,
        *,
        relaxed: bool = False,
        budget: int | None = None,
        clock: str | None = None,
        ignore_unknown: bool = False,
        nan: str = "refuse",
    ) -> Rankings:
        """Return the k best of each event of a table, DataFrame or list of dicts.

        budget    at most so many notifications an event; with `clock`, a timestamp, so many in
                  each of its seconds, the best ones
        """
        state = self._state
        if budget is not None:
            k = min(whole("k", k), whole("budget", budget))
        axis = None if clock is None else self._clock(clock, budget)
        encoded = encode_events(events, self.space, ignore_unknown=ignore_unknown, nan=nan)
        best = self._best(state, (encoded.points, encoded.points), k, relaxed, None)
        if budget is not None and axis is not None:
            best = shed(best, seconds_of(encoded.points[:, axis]), budget)
        return Rankings(best, encoded.ids, state.columns.ids)

    def best_adjusted(
        self,
        event: Mapping[str, Any],
        k: int = 10,
        *,
        factor: Callable[[list[Id]], npt.ArrayLike],
        between: tuple[float, float] = (0.0, 1.0),
        relaxed: bool = False,
        how: How | None = None,
        ignore_unknown: bool = False,
        nan: str = "refuse",
    ) -> list[tuple[Id, float]]:
        """Return the k best by their scores times a factor that depends on the event.

        factor    ids of some subscriptions -> the factor of each, for this event
        between   the least and the most that it can be: the closer, the fewer are looked at
        """
        state, spans = self._state, self._spans(event, how, ignore_unknown, nan)
        best = best_adjusted(
            lambda _, ask: self._best(state, spans, ask, relaxed, how),
            1,
            k,
            lambda _, rows: factor(state.columns.ids[rows].tolist()),
            between,
            state.columns.arrival,
        )
        return Rankings(best, None, state.columns.ids).of(0)

    def best_uncertain(
        self,
        event: Mapping[str, Any],
        k: int = 10,
        *,
        chances: Mapping[str, float],
        ignore_unknown: bool = False,
        nan: str = "refuse",
    ) -> list[tuple[Id, float]]:
        """Return the k best by their scores times the probability that they surely hold.

        event     values may be spans, pairs (first, last), which a subscription must contain
        chances   the probability that a value lies in its span, where that isn't certain
        """
        state, (lo, hi) = self._state, self._spans(event, "contain", ignore_unknown, nan)
        sure = np.ones((1, len(self.space)))
        for name, chance in chances.items():
            sure[0, self.space.axis(name)] = chance
            if not 0 <= chance <= 1:
                raise UsageError(f"a chance lies between 0 and 1; given for {name!r}: {chance}")
            if name not in event:
                raise UsageError(f"{name!r} has a chance, but the event has no value for it")
        best = best_uncertain(
            lambda _, ask: self._best(state, (lo, hi), ask, False, "contain"),
            lambda rows: boxes_of_rows(state.columns, rows.astype(np.int64), len(self.space)),
            (lo, hi, sure),
            k,
            state.columns.arrival,
        )
        return Rankings(best, None, state.columns.ids).of(0)

    def _clock(self, name: str, budget: int | None) -> int:
        """Return the axis of a budget's clock."""
        attribute = self.space[name]
        if budget is None or not isinstance(attribute, Timestamp):
            raise UsageError(
                "a clock is a timestamp whose seconds have a budget each\n"
                f"  given: {name!r}, a {attribute.type}, and budget={budget}\n"
                "  to do: give both, such as budget=1000 and the name of a timestamp; or no clock"
            )
        return self.space.axis(name)

    def _spans(
        self, event: Mapping[str, Any], how: How | None, ignore_unknown: bool, nan: str
    ) -> tuple[F64, F64]:
        """Return the beginnings and the ends of an event's values, (1, d) each."""
        if how is None:
            point = encode_event(event, self.space, ignore_unknown=ignore_unknown, nan=nan)[None]
            return point, point
        if self.rank_index not in ("auto", Slabs.name):
            raise UsageError(
                f"events with spans are ranked by the index 'slabs' alone; this set's is "
                f"{self.rank_index!r}: make it with Engine(space, rank_index='auto')"
            )
        lo, hi = (
            encode_event(ends, self.space, ignore_unknown=ignore_unknown, nan=nan)[None]
            for ends in split_spans(event)
        )
        for axis in np.flatnonzero(lo[0] > hi[0]).tolist():
            name = self.space.names[axis]
            raise UsageError(
                "a span is a pair, (first, last), the first not above the last\n"
                f"  given: {event[name]!r} for {name!r}\n"
                "  to do: swap them"
            )
        return lo, hi

    def best_points(self, points: F64, k: int = 10, *, relaxed: bool = False) -> Rankings:
        """Return the k best of each point, (events, d): events already encoded."""
        state = self._state
        best = self._best(state, (points, points), k, relaxed, None)
        return Rankings(best, None, state.columns.ids)

    def _best(
        self, state: State, spans: tuple[F64, ...], k: int, relaxed: bool, how: How | None
    ) -> Best:
        asked = Query.of(spans, len(self.space), k, how, relaxed=relaxed)
        recent = state.indexed, state.count
        live = state.columns, state.edit, state.dead
        return best_live(state.parts, recent, *live, asked, self.rank_index)

    # ---- snapshots

    def boxes(self) -> Boxes:
        """Return the live subscriptions, in order of arrival."""
        state = self._state
        return boxes_of_rows(state.columns, state.live(), len(self.space))

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


def _by_arrival(columns: Columns, rows: I32) -> list[Id]:
    order = np.argsort(columns.arrival[rows], kind="stable")
    found: list[Id] = columns.ids[rows[order]].tolist()
    return found


def _concatenated(found: Sequence[Matches]) -> Matches:
    counts: list[I64] = [np.diff(one.offsets) for one in found]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    work = found[0].work
    for one in found[1:]:
        work = work.plus(one.work)
    return Matches(offsets, np.concatenate([one.rows for one in found]), work)
