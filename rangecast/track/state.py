"""State of a tracker: its objects, their stays, and the kernels that change them.

When most objects are gone, the state is compacted by reloading its own content. Saving and opening
work the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.kernels.arrays import F64, I32, I64, U8, AnyArray, offsets_of
from rangecast.track.columns import MatchColumns, Objects, Output, Rules, Stays
from rangecast.track.geometry.crossings import NO_EVENT, STORED, Paths, previous
from rangecast.track.keys import Keys, with_capacity
from rangecast.track.machine import (
    FAR,
    FREE,
    FULL,
    LATE,
    LIVE,
    MATCHED,
    NEVER,
    NEXT,
    OUT,
    REPEATED,
    STAYS,
    TOTALS,
    apply_events,
    edit_stays,
    run_timers,
)

_MIN_ROWS = 256
"""Rows of the output at first."""
_MIN_SLOTS = 4096
"""Slots up to which free ones are kept."""


class Content(NamedTuple):
    """Compact state of a tracker: objects, and the stays of each in sequence."""

    keys: pa.Array
    last: I64
    stamp: I64
    number: I32
    counts: I64
    """Stays of each object."""
    subscription: I64
    since: I64
    left: I64
    flags: U8
    points: F64
    """(objects, d) the last event of each, where paths are looked at."""


class State:
    """Objects and stays."""

    def __init__(self, content: Content | None = None):
        self._totals = np.zeros(TOTALS, np.int64)
        self._few = _output(_MIN_ROWS)
        """Room for the transitions of one event."""
        self._load(content or _EMPTY)

    def _load(self, content: Content) -> None:
        self.keys = Keys(content.keys)
        count, stays = len(content.last), len(content.since)
        first = offsets_of(content.counts)
        following = np.arange(1, stays + 1, dtype=np.int32)
        following[first[1:][content.counts > 0] - 1] = -1
        self._objects = Objects(
            content.last.copy(),
            content.stamp.copy(),
            content.number.copy(),
            np.where(content.counts > 0, first[:-1], -1).astype(np.int32),
        )
        self._stays = Stays(
            content.subscription.copy(),
            content.since.copy(),
            content.left.copy(),
            content.flags.copy(),
            following,
        )
        self._points = content.points.copy()
        self._totals[STAYS] = self._totals[LIVE] = stays
        self._totals[FREE] = -1
        self._count = count
        """Objects that there are."""

    def __len__(self) -> int:
        return self._count

    @property
    def stays(self) -> int:
        """Number of stays."""
        return int(self._totals[LIVE])

    @property
    def late(self) -> int:
        """Number of events older than the last one of their object."""
        return int(self._totals[LATE])

    @property
    def repeated(self) -> int:
        """Number of events at the same time as the last one of their object."""
        return int(self._totals[REPEATED])

    def count_repeated(self, count: int) -> None:
        """Add repeated events that were counted before this state was opened."""
        self._totals[REPEATED] += count

    @property
    def memory(self) -> int:
        """Size of the arrays in bytes."""
        arrays = (*self._objects, *self._stays)
        return self.keys.memory + self._points.nbytes + sum(array.nbytes for array in arrays)

    def subscriptions(self) -> I64:
        """Return the distinct subscriptions that have a stay."""
        return np.unique(self.content().subscription)

    def stays_of(self, slot: int) -> tuple[I64, U8]:
        """Return the subscriptions of an object's stays, and their flags."""
        stays, stay = [], int(self._objects.stay[slot])
        while stay >= 0:
            stays.append(stay)
            stay = int(self._stays.next[stay])
        return self._stays.subscription[stays], self._stays.flags[stays]

    def slots_of(self, keys: pa.Array) -> I64:
        """Return the slots of keys; new keys get new slots."""
        coded = keys.dictionary_encode()
        slots = self.keys.find(coded.dictionary, add=True)
        self._make_room()
        is_new = self._objects.last[slots] == NEVER
        self._count += int(np.count_nonzero(is_new))
        slots_: I64 = slots[coded.indices.to_numpy()]
        return slots_

    def _make_room(self) -> None:
        """Grow the columns of objects to the number of slots."""
        count = self.keys.slots
        last, stamp, number, stay = self._objects
        if count > len(last):
            self._objects = Objects(
                with_capacity(last, count, NEVER),
                with_capacity(stamp, count, NEVER),
                with_capacity(number, count),
                with_capacity(stay, count, -1),
            )

    def apply_one(
        self, key: bytes, at: int, numbers: I64, rules: Rules, after: int, *, inside: bool
    ) -> tuple[int, Output, int]:
        """Apply one event that matches these subscriptions, ascending.

        Return its slot, the columns of transitions, and the number of valid rows in them.
        """
        slot = self.keys.find_one(key)
        self._make_room()
        self._count += int(self._objects.last[slot] == NEVER)
        count = len(numbers)
        matched = MatchColumns(np.array([0, count]), numbers, np.full(count, MATCHED, np.uint8))
        row, slots, known = np.array([at]), np.array([slot]), np.zeros(count, np.uint8)
        size = int(self._totals[STAYS]) + count
        if size > len(self._stays.next):
            self._stays = Stays(*(with_capacity(column, size) for column in self._stays))
        self._totals[OUT] = self._totals[FULL] = 0
        parts = self._objects, self._stays, rules, self._few, self._totals
        if apply_events(*parts, slots, row, matched, known, 0, after, inside):
            return slot, self._few, int(self._totals[OUT])
        out = self.apply(slots, row, matched, rules, after, inside=inside)
        return slot, out, len(out.slot)

    def paths(self, slots: I64, times: I64, points: F64, longest: int, after: int) -> Paths:
        """Return the paths to events about to be applied, and remember their end points.

        points    (events, d + 1) values and accuracy; longest, after: in microseconds
        """
        width = points.shape[1]
        if self._points.shape[1] != width:
            self._points = np.full((len(self._objects.last), width), np.nan)
        if len(self._points) < len(self._objects.last):
            more = np.full((len(self._objects.last) - len(self._points), width), np.nan)
            self._points = np.concatenate([self._points, more])
        last = self._objects.last
        before, newest = np.empty(len(slots), np.int64), np.zeros(len(slots), np.int64)
        previous(np.argsort(slots, kind="stable"), slots, times, last, before, newest)
        is_stored = before == STORED
        earlier = np.where(is_stored, last[slots], times[np.maximum(before, 0)])
        known = (before != NO_EVENT) & (earlier != NEVER)
        gap = np.where(known, times - earlier, 0)
        rows = np.flatnonzero(known & (gap <= (longest if after < 0 else min(longest, after))))
        start = np.where(
            is_stored[rows, None], self._points[slots[rows]], points[np.maximum(before[rows], 0)]
        )
        has_start = ~np.isnan(start).any(axis=1) & ~np.isnan(points[rows]).any(axis=1)
        rows, start = rows[has_start], start[has_start]
        ends = np.flatnonzero(newest)
        self._points[slots[ends]] = points[ends]
        return Paths(rows, gap[rows], start[:, :-1], points[rows, :-1], start[:, -1])

    def apply(
        self,
        slots: I64,
        times: I64,
        matched: MatchColumns,
        rules: Rules,
        after: int,
        *,
        inside: bool,
    ) -> Output:
        """Apply events in order."""
        known = np.zeros(len(matched.subscription), np.uint8)

        def run(out: Output, begin: int) -> int:
            new = int(matched.offsets[begin + 1] - matched.offsets[begin])
            size = int(self._totals[STAYS]) + new
            self._stays = Stays(*(with_capacity(column, size) for column in self._stays))
            parts = self._objects, self._stays, rules, out, self._totals
            return apply_events(*parts, slots, times, matched, known, begin, after, inside)

        return self._filled(len(slots), run)

    def run_timers(self, limit: int, rules: Rules, after: int) -> tuple[Output, int]:
        """Run the timers due before a moment; return transitions, and when the next is due."""
        count = self.keys.slots
        self._totals[NEXT] = FAR

        def run(out: Output, begin: int) -> int:
            parts = self._objects, self._stays, rules, out, self._totals
            return run_timers(*parts, begin, count, limit, after)

        return self._filled(count, run), int(self._totals[NEXT])

    def edit(self, removed: I64, edited: I64) -> Output:
        """End the stays with removed subscriptions, and mark those with edited ones."""
        count = self.keys.slots

        def run(out: Output, begin: int) -> int:
            parts = self._objects, self._stays, out, self._totals
            return edit_stays(*parts, begin, count, removed, edited)

        return self._filled(count, run)

    def _filled(self, end: int, run: Callable[[Output, int], int]) -> Output:
        """Run a kernel to its end, growing its output as needed."""
        self._totals[OUT] = begin = 0
        out = _output(_MIN_ROWS)
        while begin < end:
            self._totals[FULL] = 0
            begin = run(out, begin)
            if begin < end and not self._totals[FULL]:
                larger = _output(4 * len(out.slot))
                for new, old in zip(larger, out, strict=True):
                    new[: len(old)] = old
                out = larger
        return Output(*(column[: self._totals[OUT]] for column in out))

    def forget(self, before: int, slots: I64 | None = None) -> None:
        """Forget objects without a stay whose last event was before a moment, among all or some."""
        slots = self.keys.live() if slots is None else slots
        gone = slots[(self._objects.stay[slots] < 0) & (self._objects.last[slots] < before)]
        if not len(gone):
            return
        gone = np.unique(gone)
        self.keys.forget(gone)
        objects = self._objects
        objects.last[gone] = objects.stamp[gone] = NEVER
        objects.number[gone], objects.stay[gone] = 0, -1
        self._count -= len(gone)
        if self.keys.slots > max(4 * self._count, _MIN_SLOTS):
            self._load(self.content())

    def content(self) -> Content:
        """Return the compacted state."""
        slots = self.keys.live()
        objects, columns = self._objects, self._stays
        stay = objects.stay[slots]
        order, owner = [], []
        places = np.arange(len(slots))
        while True:  # the first stay of each object, then the second ones
            has = stay >= 0
            if not has.any():
                break
            places, stay = places[has], stay[has]
            order.append(stay)
            owner.append(places)
            stay = columns.next[stay]
        stays = np.concatenate(order) if order else np.zeros(0, np.int32)
        owners = np.concatenate(owner) if owner else np.zeros(0, np.int64)
        stays = stays[np.argsort(owners, kind="stable")]
        counts = np.bincount(owners, minlength=len(slots)).astype(np.int64)
        return Content(
            self.keys.texts(slots),
            objects.last[slots],
            objects.stamp[slots],
            objects.number[slots],
            counts,
            columns.subscription[stays],
            columns.since[stays],
            columns.left[stays],
            columns.flags[stays],
            self._points_of(slots),
        )

    def _points_of(self, slots: I64) -> F64:
        """Return the last points of some objects; NaN if they weren't kept."""
        points = np.full((len(slots), self._points.shape[1]), np.nan)
        known = slots < len(self._points)
        points[known] = self._points[slots[known]]
        return points


def _output(rows: int) -> Output:
    return Output(*(np.zeros(rows, np.int64) for _ in Output._fields))


def _none(kind: type) -> AnyArray:
    return np.zeros(0, kind)


_EMPTY = Content(
    pa.nulls(0, pa.large_string()),
    *(_none(np.int64), _none(np.int64), _none(np.int32), _none(np.int64)),
    *(_none(np.int64), _none(np.int64), _none(np.int64), _none(np.uint8)),
    np.zeros((0, 0)),
)
