"""Ranking of many events in `slabs`: LANES of them are compared with a box at once.

See `kernels.lanes`. The boxes of a band are taken best first. Events that have their k drop out
after each band, so that the others move together. Where the hulls of blocks leave hardly anything
to compare, or most boxes match, one event at a time is faster: some events of each band are tried.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import I64, U8, U64
from rangecast.kernels.bits import LANE_WORDS, LANES, ZERO, bits_set, bits_up_to, list_bits
from rangecast.kernels.blocks import BLOCK
from rangecast.kernels.bundle import pointer
from rangecast.kernels.jit import jit
from rangecast.kernels.lanes import TABLE_ROWS, list_lanes, tabulate
from rangecast.rank.slabs.each import BAND, Room, hulls_met, search_each
from rangecast.rank.slabs.pointers import (
    Found,
    LayoutPointers,
    QueryPointers,
    holds,
    is_new,
    may_add,
)

FEW = 96
"""Events that aren't worth a table."""
MAX_AXES = 32
"""With more attributes the tables are too large to stay near the processor."""
_TRIED = 16
"""Events of LANES whose hulls are looked at."""
_TABLE = 16
"""Comparing LANES events with a block takes as long as this many events one by one."""
_HITS = 4
"""Matches whose extra cost together equals comparing one event with a block."""
_PIECE = 64
"""Boxes that are compared before the results are read."""
TOGETHER = 16 * LANES
"""Events processed together: their output stays in the cache."""
_RECORDS = (_PIECE + 1) * LANE_WORDS
LONGS = TOGETHER + BAND + _RECORDS + _PIECE * LANES + 4
MASKS = LANE_WORDS + _RECORDS


class Lanes(NamedTuple):
    """Pointers to the arrays for comparing a band with LANES events."""

    above: Any
    below: Any
    """Tables of the events."""
    places: Any
    """Places of the boxes of the band, by rank."""
    keys: Any
    masks: Any
    """Records: 8 * rank + which 64 events, and which of them."""
    hits: Any
    """LANES * rank + event"""
    lanes: Any
    """One bit per event."""


@jit
def _pays(
    view: LayoutPointers,
    band: int,
    query: QueryPointers,
    members: Any,
    begin: int,
    end: int,
    counts: Any,
) -> tuple[bool, int]:
    """Return whether a band is searched faster for all these events at once than one by one.

    It is estimated from the hulls that some of the events meet. Matches are written faster one
    event at a time, and their number is estimated from the bands before. So it is unknown for the
    first band, which is searched one by one if it stores its bounds as doubles (`has_head`).

    Returns the words read by the estimate as well.
    """
    if band == 0 and view.has_head:
        return False, ZERO
    tried = met = matched = ZERO
    for i in range(begin, end, max(1, (end - begin) // _TRIED)):
        met += bits_set(hulls_met(view, band, query, members[i] * view.d))
        matched += counts[members[i]]
        tried += 1
    words = tried * (view.hull_first[band + 1] - view.hull_first[band])
    blocks = view.bands[band + 1] - view.bands[band]
    hits = matched * blocks // max(1, view.bands[band])  # as many more as there were so far
    events = end - begin
    return (_HITS * met - hits) * events > _HITS * _TABLE * blocks * tried, words


@jit
def _tabulate(
    value: Any, d: int, members: Any, begin: int, end: int, codes: U8, table: U64
) -> None:
    """Build the table of members[begin:end] from their codes."""
    for i in range(begin, end):
        for j in range(d):
            codes[i - begin, j] = value[members[i] * d + j]
    tabulate(codes[: end - begin], np.arange(d), 1, table)


@jit
def _compare(
    view: LayoutPointers,
    band: int,
    query: QueryPointers,
    members: Any,
    begin: int,
    room: Lanes,
    out: Found,
) -> tuple[int, int]:
    """Add all boxes of a band to the events that they contain; return the work.

    members   the events; those whose tables are in `room` are from begin on
    """
    k, d, terms = out.k, view.d, view.terms
    base = view.bands[band] * BLOCK
    last = min(view.bands[band + 1] * BLOCK, view.boxes)
    words = tested = ZERO
    for first in range(base, last, _PIECE):
        filled = ZERO
        for rank in range(first, min(first + _PIECE, last)):
            entry = room.places[rank - base]
            slot, end = view.first_slot[entry >> 6], view.first_slot[(entry >> 6) + 1]
            words += (end - slot) * LANE_WORDS
            filled = list_lanes(
                room.above,
                room.below,
                view.codes,
                view.attributes,
                slot,
                end,
                entry & 63,
                room.lanes,
                room.masks,
                room.keys,
                filled,
                rank * LANE_WORDS,
            )
        hits = ZERO
        for i in range(filled):
            hits = list_bits(room.masks[i], room.keys[i] * 64, room.hits, hits)
        tested += 0 if view.is_exact else hits
        for i in range(hits):
            rank = room.hits[i] // LANES
            e = members[begin + room.hits[i] % LANES]
            so_far = out.counts[e]
            held = so_far < k
            if not view.is_exact:
                entry = room.places[rank - base]
                held &= holds(terms, d, entry, query.above, query.below, e * d)
            if not view.is_simple:
                held = held and is_new(view.live, view.owner[rank], out.last, e)
            out.ranks[e * (k + 1) + so_far] = rank  # counts if it held: a branch would cost more
            out.counts[e] = so_far + held
    return words, tested


@jit
def search_together(
    view: LayoutPointers,
    query: QueryPointers,
    events: int,
    room_: Room,
    out: Found,
    codes: U8,
    table: U64,
    longs: I64,
    words: U64,
) -> tuple[int, int]:
    """Search for up to TOGETHER events; return the work.

    codes, table, longs, words   room: (LANES, d), d tables or twice as many, LONGS, MASKS
    """
    d = view.d
    rows = d * TABLE_ROWS * LANE_WORDS
    skip = -(table.ctypes.data >> 3) % LANE_WORDS  # rows shouldn't straddle two cache lines
    above = table[skip : skip + rows]
    below = table[skip + rows : skip + 2 * rows] if query.is_span else above
    members = pointer(longs, 0)
    room = Lanes(
        pointer(above, 0),
        pointer(below, 0),
        pointer(longs, TOGETHER),
        pointer(longs, TOGETHER + BAND),
        pointer(words, LANE_WORDS),
        pointer(longs, TOGETHER + BAND + _RECORDS),
        pointer(words, 0),
    )
    left = ZERO
    for e in range(events):
        members[left] = e
        left += view.last_band > 0 and may_add(view, ZERO, out, e)
    visited = tested = band = ZERO
    while band < view.last_band and left >= FEW:
        base = view.bands[band] * BLOCK
        for slot in range(base, min(view.bands[band + 1] * BLOCK, view.boxes)):
            room.places[view.rank[slot] - base] = slot
        for begin in range(0, left, LANES):
            end = min(begin + LANES, left)
            pays, compared = _pays(view, band, query, members, begin, end, out.counts)
            visited += compared
            if pays:
                _tabulate(query.above_codes, d, members, begin, end, codes, above)
                if query.is_span:
                    _tabulate(query.below_codes, d, members, begin, end, codes, below)
                for w in range(LANE_WORDS):
                    room.lanes[w] = bits_up_to(end - begin - 64 * w)
                compared, boxes = _compare(view, band, query, members, begin, room, out)
                visited += compared
                tested += boxes
            else:
                for i in range(begin, end):
                    e = members[i]
                    compared, boxes = search_each(view, query, e, band, band + 1, room_, out)
                    visited += compared
                    tested += boxes
        still = ZERO
        for i in range(left):
            members[still] = members[i]
            still += band + 1 < view.last_band and may_add(view, band + 1, out, members[i])
        left = still
        band += 1
    for i in range(left):
        compared, boxes = search_each(view, query, members[i], band, view.last_band, room_, out)
        visited += compared
        tested += boxes
    return visited, tested
