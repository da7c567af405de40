"""Ranking of one event in `slabs`: the hulls of a band's blocks, then the blocks left."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import I64, U64
from rangecast.kernels.bits import (
    ZERO,
    bits_up_to,
    holding,
    list_bits,
    lowest_bit,
    meeting,
    sharing,
)
from rangecast.kernels.blocks import BLOCK
from rangecast.kernels.bundle import pointer
from rangecast.kernels.jit import jit
from rangecast.kernels.lanes import SLOT_BYTES
from rangecast.rank.slabs.pointers import (
    Found,
    LayoutPointers,
    QueryPointers,
    holds,
    is_new,
    may_add,
)

BAND = BLOCK * BLOCK
"""Boxes of a band at most."""
EACH_LONGS = 2 * (BAND + 4) + BLOCK
EACH_WORDS = 2 * BLOCK


class Room(NamedTuple):
    """Pointers to what the search of a band writes."""

    found: Any
    """Ranks, best first."""
    doubtful: Any
    """64 * place in `left` + box"""
    left: Any
    """Remaining blocks."""
    masks: Any
    """Bitmaps of the remaining boxes of each block in `left`."""
    ranks: Any
    """A bit for each rank of the band; all are 0 between searches."""


@jit
def room_in(longs: I64, words: U64) -> Room:
    """Return zeroed buffers of EACH_LONGS and EACH_WORDS; the caller owns them."""
    return Room(
        pointer(longs, 0),
        pointer(longs, BAND + 4),
        pointer(longs, 2 * (BAND + 4)),
        pointer(words, 0),
        pointer(words, BLOCK),
    )


@jit
def _slot_meets(
    codes: Any, attributes: Any, slot: int, above: Any, below: Any, event: int
) -> np.uint64:
    """Return which of 64 boxes or hulls may contain an event, by one slot."""
    j = event + attributes[slot]
    at = slot * SLOT_BYTES
    mask: np.uint64 = meeting(codes, at, at + BLOCK, above[j], below[j])
    return mask


@jit
def _meeting(
    codes: Any, attributes: Any, begin: int, end: int, above: Any, below: Any, event: int
) -> np.uint64:
    """Return which of 64 boxes or hulls may contain an event, by their slots from begin to end.

    Four slots at a time: a loop's turn costs more than a comparison. The codes of the event begin
    at above[event] and below[event].
    """
    mask = ~np.uint64(0)
    slot = begin
    while slot + 4 <= end and mask:
        mask &= _slot_meets(codes, attributes, slot, above, below, event)
        mask &= _slot_meets(codes, attributes, slot + 1, above, below, event)
        mask &= _slot_meets(codes, attributes, slot + 2, above, below, event)
        mask &= _slot_meets(codes, attributes, slot + 3, above, below, event)
        slot += 4
    if slot + 2 <= end:
        mask &= _slot_meets(codes, attributes, slot, above, below, event)
        mask &= _slot_meets(codes, attributes, slot + 1, above, below, event)
        slot += 2
    if slot < end:
        mask &= _slot_meets(codes, attributes, slot, above, below, event)
    return mask


@jit
def _slot_shares(
    codes: Any, attributes: Any, rough: Any, slot: int, above: Any, below: Any, event: int
) -> np.uint64:
    """Return which of 64 boxes have a bound inside a slab that the event is in, by one slot."""
    axis = attributes[slot]
    at = slot * SLOT_BYTES
    shared = sharing(codes, at, at + BLOCK, above[event + axis], below[event + axis])
    mask: np.uint64 = shared & rough[axis]
    return mask


@jit
def _ambiguous_boxes(
    codes: Any,
    attributes: Any,
    rough: Any,
    begin: int,
    end: int,
    above: Any,
    below: Any,
    event: int,
) -> np.uint64:
    """Return a bitmap of the 64 boxes: those that share a slab with the event and are in doubt."""
    ambiguous = np.uint64(0)
    slot = begin
    while slot + 2 <= end:
        ambiguous |= _slot_shares(codes, attributes, rough, slot, above, below, event)
        ambiguous |= _slot_shares(codes, attributes, rough, slot + 1, above, below, event)
        slot += 2
    if slot < end:
        ambiguous |= _slot_shares(codes, attributes, rough, slot, above, below, event)
    return ambiguous


@jit
def _holding(
    head: Any, attributes: Any, begin: int, end: int, above: Any, below: Any, event: int
) -> np.uint64:
    """Return which boxes of a block of the first band contain an event, by their bounds."""
    mask = ~np.uint64(0)
    for slot in range(begin, end):
        j = event + attributes[slot]
        at = slot * SLOT_BYTES
        mask &= holding(head, at, at + BLOCK, above[j], below[j])
    return mask


@jit
def hulls_met(view: LayoutPointers, band: int, query: QueryPointers, event: int) -> np.uint64:
    """Return which blocks of a band may have a box that contains an event."""
    met: np.uint64 = bits_up_to(view.bands[band + 1] - view.bands[band]) & _meeting(
        view.hull_codes,
        view.hull_attributes,
        view.hull_first[band],
        view.hull_first[band + 1],
        query.above_codes,
        query.below_codes,
        event,
    )
    return met


@jit
def _search_head(
    view: LayoutPointers, query: QueryPointers, event: int, wanted: int, rows: Any
) -> tuple[int, int]:
    """List the ranks of the first band that contain an event, until `wanted`; return words, too."""
    filled = words = ZERO
    for block in range(view.bands[1]):
        begin, end = view.first_slot[block], view.first_slot[block + 1]
        words += end - begin
        mask = _holding(view.head, view.attributes, begin, end, query.above, query.below, event)
        filled = list_bits(mask, block * BLOCK, rows, filled)
        if filled >= wanted:
            break
    return filled, words


@jit
def _search_band(
    view: LayoutPointers, band: int, query: QueryPointers, event: int, room: Room
) -> tuple[int, int, int]:
    """List the ranks of a band that contain an event, best first; return how many, and the work."""
    bit_ = np.uint64(1)
    above, below = query.above_codes, query.below_codes
    words = view.hull_first[band + 1] - view.hull_first[band]
    met = hulls_met(view, band, query, event)
    used = doubts = ZERO
    while met:
        block = view.bands[band] + lowest_bit(met)
        met &= met - bit_
        begin, end = view.first_slot[block], view.first_slot[block + 1]
        words += end - begin
        mask = _meeting(view.codes, view.attributes, begin, end, above, below, event)
        if mask:
            doubt = mask & _ambiguous_boxes(
                view.codes, view.attributes, view.rough, begin, end, above, below, event
            )
            room.left[used], room.masks[used] = block, mask
            doubts = list_bits(doubt, used * BLOCK, room.doubtful, doubts)
            used += 1
    for i in range(doubts):
        which, bit = room.doubtful[i] >> 6, room.doubtful[i] & 63
        slot = room.left[which] * BLOCK + bit
        fails = not holds(view.terms, view.d, slot, query.above, query.below, event)
        room.masks[which] ^= np.uint64(fails) << np.uint64(bit)
    base = view.bands[band] * BLOCK
    in_use = np.uint64(0)  # words of room.ranks
    for i in range(used):
        mask = room.masks[i]
        while mask:
            at = view.rank[room.left[i] * BLOCK + lowest_bit(mask)] - base
            mask &= mask - bit_
            room.ranks[at >> 6] |= bit_ << np.uint64(at & 63)
            in_use |= bit_ << np.uint64(at >> 6)
    filled = ZERO
    while in_use:
        word = lowest_bit(in_use)
        in_use &= in_use - bit_
        filled = list_bits(room.ranks[word], base + word * BLOCK, room.found, filled)
        room.ranks[word] = 0
    return filled, words, doubts


@jit
def search_each(
    view: LayoutPointers,
    query: QueryPointers,
    e: int,
    band: int,
    until: int,
    room: Room,
    out: Found,
) -> tuple[int, int]:
    """Search for event e from one band to before another, until it has its k; return the work."""
    words = tested = ZERO
    k, filled = out.k, out.counts[e]
    while band < until and may_add(view, band, out, e):
        if band == 0 and view.has_head:
            wanted = k if view.is_simple else view.boxes
            more, work = _search_head(view, query, e * view.d, wanted, room.found)
        else:
            more, work, boxes = _search_band(view, band, query, e * view.d, room)
            tested += boxes
        words += work
        for i in range(more):
            rank = room.found[i]
            if filled < k and (view.is_simple or is_new(view.live, view.owner[rank], out.last, e)):
                out.ranks[e * (k + 1) + filled] = rank
                filled += 1
        out.counts[e] = filled
        band += 1
    return words, tested
