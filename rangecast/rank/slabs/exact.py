"""Exact ranking in `slabs`: the top k that match an event on all attributes.

With a single attribute most events have their k in a list (`lists`). The others are searched for
one by one (`each`) if they are few, together if they are many (`together`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, U64
from rangecast.kernels.bits import (
    LANE_WORDS,
    LANES,
    ZERO,
    bits_set,
    bits_up_to,
    lowest_bit,
    prefetch,
)
from rangecast.kernels.bundle import pointer
from rangecast.kernels.grid import cell_in_table
from rangecast.kernels.jit import jit, jit_single
from rangecast.kernels.lanes import TABLE_ROWS
from rangecast.rank.liveness import is_live
from rangecast.rank.result import EXAMINED, TESTED, WORDS
from rangecast.rank.slabs.each import EACH_LONGS, EACH_WORDS, room_in, search_each
from rangecast.rank.slabs.lists import CELL
from rangecast.rank.slabs.pointers import (
    Found,
    LayoutPointers,
    ListPointers,
    QueryPointers,
    encode,
    open_layout,
)
from rangecast.rank.slabs.together import (
    FEW,
    LONGS,
    MASKS,
    MAX_AXES,
    TOGETHER,
    search_together,
)

_AHEAD = 32
"""Events whose lists are looked for before the first is read."""
_MAX_RANKS = 1 << 22
"""Ranks that may be kept at a time, if no event alone has more."""


@jit
def _left_of_list(
    lists: ListPointers, cell: int, count: int, value: float
) -> tuple[np.uint64, int]:
    """Return which of the first boxes of a cell's list contain a value, and the number compared."""
    bit_ = np.uint64(1)
    left = bits_up_to(count)
    doubt, at = np.uint64(lists.cells[cell + 2]) & left, 2 * lists.cells[cell + 3]
    tested = bits_set(doubt)
    for _ in range(tested):
        fails = not ((lists.bounds[at] <= value) & (value <= lists.bounds[at + 1]))
        left ^= (doubt & (~doubt + bit_)) * np.uint64(fails)
        doubt &= doubt - bit_
        at += 2
    return left, tested


@jit
def _find_lists(
    lists: ListPointers, values: Any, events: int, k: int, is_floored: bool, cells: Any
) -> None:
    """Write the cell of each of some events.

    What will be read of their lists is brought near meanwhile: if each event waited for its own, it
    would take three times as long. With a floor, most need no more than the first score.
    """
    for e in range(events):
        cell = cell_in_table(lists.edges, ZERO, lists.shape[0], values[e], lists.shape[1])
        cells[e] = CELL * cell
        prefetch(lists.cells, CELL * cell)
    for e in range(events):
        first, doubt = lists.cells[cells[e]], 2 * lists.cells[cells[e] + 3]
        if is_floored:
            prefetch(lists.scores, first)
            prefetch(lists.bounds, doubt)
            continue
        for ahead in range(0, k, 16):
            prefetch(lists.rows, first + ahead)
        for ahead in range(0, k, 8):
            prefetch(lists.scores, first + ahead)
        for ahead in range(0, 2 * bits_set(np.uint64(lists.cells[cells[e] + 2])), 8):
            prefetch(lists.bounds, doubt + ahead)


@jit
def _from_list(
    view: LayoutPointers,
    cell: int,
    value: float,
    floor: float,
    k: int,
    rows: Any,
    scores: Any,
    at: int,
) -> tuple[int, int, int]:
    """Write the best of an event from its list; return how many, -1 if the list isn't enough.

    Returns the boxes that were looked at and those compared, too.
    """
    lists, live = view.lists, view.live
    begin, count = lists.cells[cell], lists.cells[cell + 1]
    if floor > -np.inf:
        needed = ZERO
        while needed < count and lists.scores[begin + needed] >= floor:
            needed += 1
        count = needed
    left, tested = _left_of_list(lists, cell, count, value)
    if count >= k and left == bits_up_to(count) and not view.several[0]:
        some_dead = False
        if live.some_died:
            for i in range(begin, begin + k):
                some_dead |= not is_live(live, lists.rows[i])
        if not some_dead:
            for i in range(k):
                rows[at + i] = lists.rows[begin + i]
            for i in range(k):
                scores[at + i] = lists.scores[begin + i]
            return k, k, tested
    filled = looked = ZERO
    last = np.int32(-1)
    while left and filled < k:
        i = begin + lowest_bit(left)
        left &= left - np.uint64(1)
        row = lists.rows[i]
        rows[at + filled], scores[at + filled] = row, lists.scores[i]
        filled += row != last and is_live(live, row)
        last = row
        looked += 1
    return filled if filled == k or count < lists.shape[2] else -1, looked, tested


@jit
def _look_up(
    view: LayoutPointers,
    points: F64,
    left: I64,
    k: int,
    floors: F64,
    rows: Any,
    scores: Any,
    counts: I64,
    counters: I64,
) -> int:
    """Write the best of the events whose lists are enough; list the others, return how many."""
    values, cells = pointer(points, 0), pointer(left, 0)
    todo = ZERO
    for first in range(0, len(points), _AHEAD):
        size = min(_AHEAD, len(points) - first)
        is_floored = floors[first] > -np.inf
        mine = pointer(values, first), size, k, is_floored, pointer(cells, first)
        _find_lists(view.lists, *mine)
        for e in range(first, first + size):
            cell = cells[e]
            hits, looked, tested = _from_list(
                view, cell, values[e], floors[e], k, rows, scores, e * k
            )
            counters[EXAMINED] += looked
            counters[TESTED] += tested
            counts[e] = hits
            left[todo] = e
            todo += hits < 0
    return todo


class _Room(NamedTuple):
    """Arrays for the search for some events together."""

    ends: F64
    """(1 or 2, events * d) the events themselves: one, or above and below."""
    codes: U8
    """(1 or 2, events * d)"""
    ranks: I32
    """(events * (k + 1),)"""
    counts: I64
    """(events,)"""
    last: I32
    """(events,)"""
    floors: F64
    """(events,)"""


@jit
def _search(
    view: LayoutPointers,
    is_span: bool,
    events: int,
    k: int,
    room: _Room,
    longs: I64,
    words: U64,
) -> tuple[int, int]:
    """Write the ranks of the best of some events; return the work."""
    second = 1 if is_span else 0
    query = QueryPointers(
        pointer(room.ends, 0),
        pointer(room.ends, second * room.ends.shape[1]),
        pointer(room.codes, 0),
        pointer(room.codes, second * room.codes.shape[1]),
        is_span,
    )
    out = Found(
        pointer(room.ranks, 0),
        k,
        pointer(room.counts, 0),
        pointer(room.last, 0),
        pointer(room.floors, 0),
    )
    scratch = room_in(longs, words)
    for e in range(events):
        room.counts[e], room.last[e] = 0, -1
        encode(view, query.above, e * view.d, query.above_codes)
        if is_span:
            encode(view, query.below, e * view.d, query.below_codes)
    visited = tested = ZERO
    if events < FEW or view.d > MAX_AXES:
        for e in range(events):
            compared, boxes = search_each(view, query, e, ZERO, view.last_band, scratch, out)
            visited += compared
            tested += boxes
        return visited, tested
    group = np.empty((LANES, view.d), np.uint8)
    table = np.empty(((1 + second) * view.d * TABLE_ROWS + 1) * LANE_WORDS, np.uint64)
    more_longs, more_words = np.empty(LONGS, np.int64), np.empty(MASKS, np.uint64)
    visited, tested = search_together(
        view, query, events, scratch, out, group, table, more_longs, more_words
    )
    return visited, tested


@jit
def search_exact(
    table: I64,
    above: F64,
    below: F64,
    is_span: bool,
    set_rows: I32,
    died: I64,
    edit: int,
    dead_bits: U8,
    floors: F64,
    rows: I32,
    scores: F64,
    counts: I64,
    counters: I64,
) -> None:
    """Write the best of each event, as many as there is room.

    table               of the layout's bundle
    above, below        (events, d) a box contains an event if lo <= above and below <= hi
    is_span             whether the two differ
    set_rows, died, edit, dead_bits   see `Liveness`
    floors              (events,) scores below which nothing is needed; -inf: all
    """
    view = open_layout(table, set_rows, died, edit, dead_bits)
    events, k = rows.shape
    to_rows, to_scores = pointer(rows, 0), pointer(scores, 0)
    left = np.empty(events, np.int64)
    listed = view.lists.are_there and not is_span
    if listed and k <= view.lists.shape[2]:
        todo = _look_up(view, above, left, k, floors, to_rows, to_scores, counts, counters)
    else:
        todo = events
        for e in range(events):
            left[e] = e
    if todo == 0:
        return
    size = min(todo, max(1, min(TOGETHER, _MAX_RANKS // (k + 1))))
    sides, d = 1 + is_span, view.d
    room = _Room(
        np.empty((sides, size * d)),
        np.empty((sides, size * d), np.uint8),
        np.empty(size * (k + 1), np.int32),
        np.empty(size, np.int64),
        np.empty(size, np.int32),
        np.empty(size),
    )
    longs, words = np.empty(EACH_LONGS, np.int64), np.zeros(EACH_WORDS, np.uint64)
    for first in range(0, todo, size):
        piece = left[first : min(first + size, todo)]
        for i in range(len(piece)):
            room.floors[i] = floors[piece[i]]
            for j in range(d):
                room.ends[0, i * d + j] = above[piece[i], j]
                if is_span:
                    room.ends[1, i * d + j] = below[piece[i], j]
        visited, tested = _search(view, is_span, len(piece), k, room, longs, words)
        counters[WORDS] += visited
        counters[TESTED] += tested
        ranks = pointer(room.ranks, 0)
        for i in range(len(piece)):
            e = piece[i]
            counts[e] = room.counts[i]
            for at in range(room.counts[i]):
                rank = ranks[i * (k + 1) + at]
                to_rows[e * k + at] = view.owner[rank]
                to_scores[e * k + at] = view.worth[rank]


@jit_single
def search_exact_one(
    table: I64,
    above: F64,
    below: F64,
    is_span: bool,
    set_rows: I32,
    died: I64,
    edit: int,
    dead_bits: U8,
    floors: F64,
    rows: I32,
    scores: F64,
    counts: I64,
    counters: I64,
) -> None:
    """As `search_exact`, without giving up the GIL."""
    liveness = set_rows, died, edit, dead_bits
    search_exact(table, above, below, is_span, *liveness, floors, rows, scores, counts, counters)
