"""Batches of events with their matches, including events that wait for earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import F64, I32, I64, Bool, offsets_of
from rangecast.model.sets.members import Id
from rangecast.track.columns import MatchColumns
from rangecast.track.machine import MATCHED

_TEXT = pa.large_string()
_SINGLE_BYTES = 400
"""Size of an event that came alone, about."""


class Batch(NamedTuple):
    """Columns with one row per event, and the matching subscriptions of each."""

    keys: pa.Array
    """Texts."""
    times: I64
    ids: pa.Array
    """Null: an event has none."""
    matched: MatchColumns
    points: F64
    """(events, d) and their accuracy, where paths are looked at; (events, 0) elsewhere."""

    def take(self, rows: I64) -> Batch:
        """Return some events."""
        offsets, subscription, flags = self.matched
        counts = (offsets[1:] - offsets[:-1])[rows]
        ends = offsets_of(counts)
        places = np.arange(ends[-1]) + np.repeat(offsets[rows] - ends[:-1], counts)
        matched = MatchColumns(ends, subscription[places], flags[places])
        taken = pa.array(rows)
        keys, ids = self.keys.take(taken), self.ids.take(taken)
        return Batch(keys, self.times[rows], ids, matched, self.points[rows])

    def slice(self, begin: int, end: int) -> Batch:
        """Return a range of events."""
        offsets, subscription, flags = self.matched
        first, last = int(offsets[begin]), int(offsets[end])
        return Batch(
            self.keys.slice(begin, end - begin),
            self.times[begin:end],
            self.ids.slice(begin, end - begin),
            MatchColumns(
                offsets[begin : end + 1] - first, subscription[first:last], flags[first:last]
            ),
            self.points[begin:end],
        )

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        columns = self.keys, self.times, self.ids, self.points, *self.matched
        return sum(int(column.nbytes) for column in columns)

    def without(self, removed: I64) -> Batch:
        """Return the events without matches of removed subscriptions."""
        offsets, subscription, flags = self.matched
        stays: Bool = ~np.isin(subscription, removed)
        kept = MatchColumns(offsets_of(stays)[offsets], subscription[stays], flags[stays])
        return self._replace(matched=kept)


def no_events() -> Batch:
    """Return an empty batch."""
    nothing = np.zeros(0, np.int64)
    matched = MatchColumns(np.zeros(1, np.int64), nothing, np.zeros(0, np.uint8))
    return Batch(pa.array([], _TEXT), nothing, pa.array([], pa.int64()), matched, np.zeros((0, 0)))


def followed(first: Batch, then: Batch) -> Batch:
    """Concatenate two batches. If their ids have different types, they become text."""
    if not len(first.times):
        return then
    ids = [first.ids, then.ids]
    if first.ids.type != then.ids.type:
        for side, opposite in ((0, 1), (1, 0)):
            if ids[side].null_count == len(ids[side]):
                ids[side] = pa.nulls(len(ids[side]), ids[opposite].type)
                break
        else:
            ids = [id_.cast(_TEXT) for id_ in ids]
    ends, more = first.matched.offsets, then.matched.offsets
    matched = MatchColumns(
        np.concatenate([ends, ends[-1] + more[1:]]),
        np.concatenate([first.matched.subscription, then.matched.subscription]),
        np.concatenate([first.matched.flags, then.matched.flags]),
    )
    keys = pa.concat_arrays([first.keys, then.keys])
    times = np.concatenate([first.times, then.times])
    return Batch(keys, times, pa.concat_arrays(ids), matched, _stacked(first.points, then.points))


def _stacked(first: F64, then: F64) -> F64:
    """Concatenate the points of two batches; points that weren't kept are NaN."""
    width = max(first.shape[1], then.shape[1])
    both = [
        part if part.shape[1] else np.full((len(part), width), np.nan) for part in (first, then)
    ]
    return np.concatenate(both)


def merged(count: int, parts: Sequence[tuple[I64 | I32, I64, int]]) -> MatchColumns:
    """Merge (events, subscriptions, flag) of several kinds into one, combining the flags."""
    events = np.concatenate([part for part, _, _ in parts])
    numbers = np.concatenate([part for _, part, _ in parts])
    flags = np.concatenate([np.full(len(part), flag, np.uint8) for part, _, flag in parts])
    order = np.lexsort((numbers, events))
    events, numbers, flags = events[order], numbers[order], flags[order]
    if len(parts) > 1 and len(events):
        is_new = np.ones(len(events), np.bool_)
        is_new[1:] = (np.diff(events) != 0) | (np.diff(numbers) != 0)
        flags = np.bitwise_or.reduceat(flags, np.flatnonzero(is_new))
        events, numbers = events[is_new], numbers[is_new]
    offsets = np.searchsorted(events, np.arange(count + 1))
    return MatchColumns(offsets.astype(np.int64), numbers, flags)


class Single(NamedTuple):
    """An event that came alone. Singles are ordered by time, then by arrival."""

    at: int
    arrival: int
    key: Id
    id: Id | None
    numbers: I64
    """Subscriptions that it matches, ascending."""


class Waiting:
    """Events that wait for earlier ones.

    Batches are in order of arrival, each sorted by time. A new one is merged with those before it
    that aren't much larger, so an event is copied a few times, however many wait. Events that came
    alone since the last batch are in a heap.
    """

    def __init__(self, batch: Batch | None = None):
        self._batches: list[Batch] = []
        self._singles: list[Single] = []
        self._arrivals = 0
        if batch is not None:
            self.add(batch)

    def __len__(self) -> int:
        return len(self._singles) + sum(len(batch.times) for batch in self._batches)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return sum(batch.nbytes for batch in self._batches) + _SINGLE_BYTES * len(self._singles)

    def is_due(self, moment: int) -> bool:
        """Return whether an event is before a moment."""
        return self._has_due_batch(moment) or bool(self._singles and self._singles[0].at < moment)

    def _has_due_batch(self, moment: int) -> bool:
        return any(batch.times[0] < moment for batch in self._batches)

    def add(self, batch: Batch) -> None:
        """Add events; those of equal times stay in order of arrival."""
        if self._singles:
            singles, self._singles = self._singles, []
            self._append(_batch_of(singles))
        self._append(batch)

    def _append(self, batch: Batch) -> None:
        if not len(batch.times):
            return
        batch = _by_time(batch)
        while self._batches and len(self._batches[-1].times) <= 2 * len(batch.times):
            batch = _by_time(followed(self._batches.pop(), batch))
        self._batches.append(batch)

    def add_one(self, at: int, key: Id, id_: Id | None, numbers: I64) -> None:
        """Add one event and the subscriptions that it matches."""
        self._arrivals += 1
        heappush(self._singles, Single(at, self._arrivals, key, id_, numbers))

    def take_singles(self, moment: int) -> list[Single] | None:
        """Take the events before a moment out, by time and arrival; `None`: use `take`."""
        if self._has_due_batch(moment):
            return None
        taken = []
        while self._singles and self._singles[0].at < moment:
            taken.append(heappop(self._singles))
        return taken

    def take(self, moment: int) -> Batch:
        """Remove and return the events before `moment`, by time and arrival."""
        taken, rest = no_events(), []
        for batch in self._batches:
            count = int(np.searchsorted(batch.times, moment))
            if count:
                taken = followed(taken, batch.slice(0, count))
            if count < len(batch.times):
                rest.append(batch.slice(count, len(batch.times)))
        self._batches = rest
        singles = self.take_singles(moment)
        if singles:
            taken = followed(taken, _batch_of(singles))
        return _by_time(taken)

    def whole(self) -> Batch:
        """Return all events by time, those of equal times in order of arrival."""
        whole = no_events()
        for batch in self._batches:
            whole = followed(whole, batch)
        if self._singles:
            whole = followed(whole, _batch_of(self._singles))
        return _by_time(whole)

    def without(self, removed: I64) -> Waiting:
        """Return the events without matches of removed subscriptions."""
        return Waiting(self.whole().without(removed))

    def subscriptions(self) -> I64:
        """Return the numbers of all matched subscriptions, with repetitions."""
        numbers = [batch.matched.subscription for batch in self._batches]
        numbers += [single.numbers for single in self._singles]
        return np.concatenate(numbers) if numbers else np.zeros(0, np.int64)


def _batch_of(singles: Sequence[Single]) -> Batch:
    """Return single events as a batch, by time and arrival."""
    singles = sorted(singles)
    subscription = np.concatenate([single.numbers for single in singles])
    counts = np.array([len(single.numbers) for single in singles])
    flags = np.full(len(subscription), MATCHED, np.uint8)
    ids: list[Id | None] = [single.id for single in singles]
    if len({type(id_) for id_ in ids if id_ is not None}) > 1:
        ids = [None if id_ is None else str(id_) for id_ in ids]
    return Batch(
        pa.array([str(single.key) for single in singles], _TEXT),
        np.array([single.at for single in singles]),
        pa.array(ids),
        MatchColumns(offsets_of(counts), subscription, flags),
        np.zeros((len(singles), 0)),
    )


def _by_time(batch: Batch) -> Batch:
    """Return events by time, those of equal times as they are."""
    if (batch.times[1:] >= batch.times[:-1]).all():
        return batch
    return batch.take(np.argsort(batch.times, kind="stable"))
