"""Adding the top k of a small part of a set, in `slabs`, to those of a larger one.

The k-th best so far is a floor: what scores less isn't looked for. Most events stop at the first
box of a small part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8
from rangecast.kernels.bits import prefetch
from rangecast.kernels.bundle import pointer
from rangecast.kernels.jit import jit, jit_single
from rangecast.rank.merged import merge_into
from rangecast.rank.slabs.exact import search_exact
from rangecast.rank.slabs.relaxed import search_relaxed

_PIECE = 512
"""Events that are searched for before the results are merged."""
_MAX_FOUND = 1 << 20
"""Rows of all of these events, unless one alone has more."""


class _Found(NamedTuple):
    """Room for the best of some events."""

    rows: I32
    scores: F64
    counts: I64
    floors: F64


@jit
def _room(events: int, k: int) -> _Found:
    """Return room for as many events as are searched for at a time."""
    size = min(events, max(1, min(_PIECE, _MAX_FOUND // max(1, k))))
    return _Found(
        np.empty((size, k), np.int32), np.empty((size, k)), np.empty(size, np.int64), np.empty(size)
    )


@jit
def _set_floors(
    rows: I32,
    scores: F64,
    counts: I64,
    first: int,
    last: int,
    earliest: int,
    arrival: I64,
    floors: F64,
) -> None:
    """Write the score that rows must reach for events from first to before last.

    earliest   arrival of the first of these rows: where all came later, an equal score loses
    """
    k = scores.shape[1]
    arrivals = pointer(arrival, 0)
    for event in range(first, last):
        if counts[event] == k:
            prefetch(arrivals, rows[event, k - 1])
    for event in range(first, last):
        floor = -np.inf
        if counts[event] == k:
            floor = scores[event, k - 1]
            if arrival[rows[event, k - 1]] < earliest:
                floor = np.nextafter(floor, np.inf)
        floors[event - first] = floor


@jit
def add_exact(
    table: I64,
    above: F64,
    below: F64,
    is_span: bool,
    set_rows: I32,
    died: I64,
    edit: int,
    dead_bits: U8,
    arrival: I64,
    rows: I32,
    scores: F64,
    counts: I64,
    counters: I64,
) -> None:
    """Merge a layout's top k of each event into the top k found so far, as rows of the set.

    The other arguments are those of `search_exact`.
    """
    events, k = rows.shape
    room = _room(events, k)
    earliest = arrival[set_rows[0] if len(set_rows) else 0]
    for first in range(0, events if k else 0, max(1, len(room.counts))):
        last = min(first + len(room.counts), events)
        _set_floors(rows, scores, counts, first, last, earliest, arrival, room.floors)
        size = last - first
        out = room.rows[:size], room.scores[:size], room.counts[:size]
        query = table, above[first:last], below[first:last], is_span, set_rows, died, edit
        search_exact(*query, dead_bits, room.floors, *out, counters)
        into = rows[first:last], scores[first:last], counts[first:last]
        merge_into(*into, *out, set_rows, arrival)


@jit_single
def add_exact_one(
    table: I64,
    above: F64,
    below: F64,
    is_span: bool,
    set_rows: I32,
    died: I64,
    edit: int,
    dead_bits: U8,
    arrival: I64,
    rows: I32,
    scores: F64,
    counts: I64,
    counters: I64,
) -> None:
    """As `add_exact`, without giving up the GIL."""
    liveness = set_rows, died, edit, dead_bits
    best = rows, scores, counts, counters
    add_exact(table, above, below, is_span, *liveness, arrival, *best)


@jit
def add_relaxed(
    table: I64,
    combine: int,
    tolerances: F64,
    points: F64,
    set_rows: I32,
    died: I64,
    edit: int,
    dead_bits: U8,
    arrival: I64,
    rows: I32,
    scores: F64,
    counts: I64,
    counters: I64,
) -> None:
    """Merge the best of a layout by weights into those of each event, whose rows are the set's.

    The other arguments are those of `search_relaxed`.
    """
    events, k = rows.shape
    room = _room(events, k)
    earliest = arrival[set_rows[0] if len(set_rows) else 0]
    for first in range(0, events if k else 0, max(1, len(room.counts))):
        last = min(first + len(room.counts), events)
        _set_floors(rows, scores, counts, first, last, earliest, arrival, room.floors)
        size = last - first
        out = room.rows[:size], room.scores[:size], room.counts[:size]
        liveness = set_rows, died, edit, dead_bits
        query = table, combine, tolerances, points[first:last]
        search_relaxed(*query, *liveness, room.floors, *out, counters)
        into = rows[first:last], scores[first:last], counts[first:last]
        merge_into(*into, *out, set_rows, arrival)
