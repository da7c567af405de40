"""Ranking results: the top subscriptions of each event, and the work done."""

from __future__ import annotations

from itertools import zip_longest
from typing import Literal, NamedTuple

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.model.validation.arguments import check_integer

# Places in the array of counters that kernels fill; from LEVEL on, pages opened by level.
EXAMINED, HOLES, CALLS, TESTED, WORDS, LEVEL = 0, 1, 2, 3, 4, 5
_F64 = np.dtype(np.float64)
Span = Literal["overlap", "contain"]
"""Condition on the spans of an event: a subscription must overlap them, or contain them."""
LEVELS = 32
"""More levels than any tree of pages has."""


class Work(NamedTuple):
    """Counters of the work done: deterministic, so that tests can assert them."""

    examined: int = 0
    """Intervals looked at in lists and leaves, those that don't contain the event too."""
    holes: int = 0
    """Leaves opened in which no interval contained the event."""
    calls: int = 0
    """Times that a next interval was asked for."""
    tested: int = 0
    """Boxes compared with an event, attribute by attribute."""
    words: int = 0
    """Words of 64 comparisons of codes."""
    opened: tuple[int, ...] = ()
    """Pages opened by level, leaves first."""

    @classmethod
    def of(cls, counters: I64) -> Work:
        """Read the counters that kernels have filled."""
        counts = counters.tolist()
        if len(counts) == LEVEL:  # there are no pages
            return cls(*counts)
        while len(counts) > LEVEL and not counts[-1]:
            counts.pop()
        return cls._make((*counts[:LEVEL], tuple(counts[LEVEL:])))

    def plus(self, other: Work) -> Work:
        """Return the sum."""
        return Work(
            self.examined + other.examined,
            self.holes + other.holes,
            self.calls + other.calls,
            self.tested + other.tested,
            self.words + other.words,
            tuple(map(sum, zip_longest(self.opened, other.opened, fillvalue=0))),
        )


def new_counters(levels: int = LEVELS) -> I64:
    """Return a new counter array for kernels; `levels` is 0 for an index without pages."""
    return np.zeros(LEVEL + levels, np.int64)


class Best(NamedTuple):
    """Top subscriptions of some events: the first `counts[e]` entries of row e, best first."""

    rows: I32
    """(events, k)"""
    scores: F64
    """(events, k)"""
    counts: I64
    work: Work = Work()

    def of(self, event: int) -> tuple[I32, F64]:
        """Return the rows and scores of one event."""
        count = self.counts[event]
        return self.rows[event, :count], self.scores[event, :count]

    def pairs(self) -> tuple[I64, I64, I32, F64]:
        """Return events, ranks (from 1), rows and scores, one entry per (event, subscription)."""
        there = np.arange(self.rows.shape[1]) < self.counts[:, None]
        event, rank = np.nonzero(there)
        return event, rank + 1, self.rows[there], self.scores[there]


def new_best(events: int, k: int) -> tuple[I32, F64, I64]:
    """Allocate rows, scores and counts for the given number of events."""
    return np.empty((events, k), np.int32), np.empty((events, k)), np.zeros(events, np.int64)


def check_k(k: int) -> None:
    """Raise an error unless k is a positive integer."""
    if type(k) is not int or k < 1:  # most are plain integers: no more is asked of them
        check_integer("k", k)


def checked(points: F64, dimensions: int, k: int) -> F64:
    """Return events as a read-only array (events, d) for kernels; reject invalid arguments."""
    check_k(k)
    if type(points) is np.ndarray:
        flags = points.flags
        if (
            (points.dtype, points.ndim, points.shape[-1:]) == (_F64, 2, (dimensions,))
            and flags.c_contiguous
            and not flags.writeable
        ):
            return points  # they were checked before
    coordinates = np.asarray(points, np.float64, order="C").view()
    if coordinates.ndim != 2 or coordinates.shape[1] != dimensions:
        raise UsageError(
            f"events of this set must have the shape (events, {dimensions}); given: "
            f"{coordinates.shape}"
        )
    coordinates.setflags(write=False)  # quicker than by its flags
    return coordinates


def not_exact() -> UsageError:
    """Return the error of an index for relaxed ranking that is given spans."""
    return UsageError("events with spans are ranked exactly; give relaxed=False")


def ends_of(lo: F64, hi: F64, dimensions: int, k: int, span: Span) -> tuple[F64, F64]:
    """Return `above` and `below` of spans: a box holds one if lo <= above and below <= hi.

    lo, hi   (events, d) both included
    """
    if span not in ("overlap", "contain"):
        raise UsageError(f"span must be 'overlap' or 'contain'; given: {span!r}")
    first, last = checked(lo, dimensions, k), checked(hi, dimensions, k)
    if first.shape != last.shape or not (first <= last).all():
        raise UsageError("a span must not end before it begins")
    return (last, first) if span == "overlap" else (first, last)
