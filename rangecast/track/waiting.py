"""Batches of events with their matches, including events that wait for earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import F64, I32, I64, Bool, offsets_of
from rangecast.track.columns import MatchColumns

_TEXT = pa.large_string()


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
        for one, other in ((0, 1), (1, 0)):
            if ids[one].null_count == len(ids[one]):
                ids[one] = pa.nulls(len(ids[one]), ids[other].type)
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


def due(waiting: Batch, watermark: int) -> tuple[Batch, Batch]:
    """Split events by the watermark: return those before it, by time and arrival, and the rest."""
    is_due = waiting.times < watermark
    rows = np.flatnonzero(is_due)
    if not len(rows):
        return no_events(), waiting
    rows = rows[np.argsort(waiting.times[rows], kind="stable")]
    return waiting.take(rows), waiting.take(np.flatnonzero(~is_due))
