"""How `slabs` finds the k best that hold an event on all attributes: band by band, best first."""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.kernels.bits import (
    bits_up_to,
    holding,
    list_bits,
    lowest_bit,
    meeting,
    pointer,
    sharing,
)
from rangecast.kernels.blocks import BLOCK
from rangecast.kernels.codes import Bytes
from rangecast.kernels.jit import jit
from rangecast.model.boxes import Floats, Rows
from rangecast.rank.life import Life, lives
from rangecast.rank.result import TESTED, WORDS, Counters, Longs
from rangecast.rank.slabs_layout import LIST, SLOT_BYTES, Layout


@jit
def _slot_meets(
    codes: Any, attributes: Any, slot: int, above: Any, below: Any, event: int
) -> np.uint64:
    """Return which of 64 boxes or hulls may hold an event, by one slot."""
    j = event + attributes[slot]
    at = slot * SLOT_BYTES
    mask: np.uint64 = meeting(codes, at, at + BLOCK, above[j], below[j])
    return mask


@jit
def _meeting(
    codes: Any, attributes: Any, begin: int, end: int, above: Any, below: Any, event: int
) -> np.uint64:
    """Return which of 64 boxes or hulls may hold an event, by their slots from begin to end.

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
def _sharing(
    codes: Any,
    attributes: Any,
    rough: Any,
    begin: int,
    end: int,
    above: Any,
    below: Any,
    event: int,
) -> np.uint64:
    """Return which of 64 boxes have a bound inside a slab that the event is in."""
    doubt = np.uint64(0)
    slot = begin
    while slot + 2 <= end:
        doubt |= _slot_shares(codes, attributes, rough, slot, above, below, event)
        doubt |= _slot_shares(codes, attributes, rough, slot + 1, above, below, event)
        slot += 2
    if slot < end:
        doubt |= _slot_shares(codes, attributes, rough, slot, above, below, event)
    return doubt


@jit
def _holding(
    head: Any, attributes: Any, begin: int, end: int, above: Any, below: Any, event: int
) -> np.uint64:
    """Return which boxes of a block of the first band hold an event, by their bounds."""
    mask = ~np.uint64(0)
    for slot in range(begin, end):
        j = event + attributes[slot]
        at = slot * SLOT_BYTES
        mask &= holding(head, at, at + BLOCK, above[j], below[j])
    return mask


@jit
def _thinned(owner: Rows, life: Life, out: Longs, begin: int, end: int, last: int) -> int:
    """Leave out, of the ranks from begin to end, dead rows and rows that came already."""
    filled = begin
    for i in range(begin, end):
        row = owner[out[i]]
        if row != last and lives(life, row):
            out[filled] = out[i]
            filled += 1
        last = row
    return filled


@jit
def search_exact(
    layout: Layout,
    above: Floats,
    below: Floats,
    above_codes: Bytes,
    below_codes: Bytes,
    cells: Rows,
    life: Life,
    rows: Rows,
    scores: Floats,
    counts: Longs,
    counters: Counters,
) -> None:
    """Write the best of each event, as many as there is room.

    above, below   (events, d) a box holds an event if lo <= above and below <= hi
    codes          (events, d) of these
    cells          (events,) where to look an event up in the lists; none: nowhere

    It is one long function over pointers: handing this many arrays on for every band costs more
    than to search it.
    """
    d, k = above.shape[1], rows.shape[1]
    a, b = pointer(above, 0), pointer(below, 0)
    a_codes, b_codes = pointer(above_codes, 0), pointer(below_codes, 0)
    bands, last_band = pointer(layout.bands, 0), len(layout.bands) - 1
    hull_first, hull_codes = pointer(layout.hulls.first, 0), pointer(layout.hulls.codes, 0)
    hull_attributes = pointer(layout.hulls.attributes, 0)
    slots, codes = pointer(layout.blocks.first, 0), pointer(layout.blocks.codes, 0)
    attributes, rough = pointer(layout.blocks.attributes, 0), pointer(layout.rough, 0)
    head, rank = pointer(layout.head, 0), pointer(layout.rank, 0)
    owner, worth = pointer(layout.owner, 0), pointer(layout.worth, 0)
    first_term, dense = pointer(layout.first_term, 0), len(layout.first_term) == 0
    axis, bounds = pointer(layout.axis, 0), pointer(layout.bounds, 0)
    in_head = len(layout.head) > 0
    simple = len(life.died) == 0 and layout.several[0] == 0
    found = np.empty(k + BLOCK * BLOCK + 4, np.int64)  # ranks, best first
    left = np.empty(BLOCK, np.int64)  # blocks of a band that are left,
    masks = np.empty(BLOCK, np.uint64)  # and which of their boxes
    doubtful = np.empty(BLOCK * BLOCK + 4, np.int64)  # 64 * place in `left` + box
    ranks = np.zeros(BLOCK, np.uint64)  # a bit for each rank of a band
    out, to_rows, to_scores = pointer(found, 0), pointer(rows, 0), pointer(scores, 0)
    to_left, to_masks = pointer(left, 0), pointer(masks, 0)
    to_doubtful, to_ranks = pointer(doubtful, 0), pointer(ranks, 0)
    words = tested = 0
    one = np.uint64(1)
    listed, ranked = pointer(layout.lists.counts, 0), pointer(layout.lists.ranks, 0)
    for e in range(len(above)):
        if len(cells) and listed[cells[e]] >= k:
            begin = cells[e] * LIST
            for i in range(k):
                to_rows[e * k + i] = owner[ranked[begin + i]]
                to_scores[e * k + i] = worth[ranked[begin + i]]
            counts[e] = k
            continue
        event = e * d
        filled, last = 0, -1
        band = 0
        while band < last_band and filled < k:
            first = bands[band]
            since = filled
            if band == 0 and in_head:
                for block in range(bands[1]):
                    begin, end = slots[block], slots[block + 1]
                    words += end - begin
                    mask = _holding(head, attributes, begin, end, a, b, event)
                    filled = list_bits(mask, block * BLOCK, out, filled)
                    if filled >= k and simple:
                        break
            else:
                begin, end = hull_first[band], hull_first[band + 1]
                words += end - begin
                alive = bits_up_to(bands[band + 1] - first)
                alive &= _meeting(hull_codes, hull_attributes, begin, end, a_codes, b_codes, event)
                used = doubts = 0
                while alive:
                    block = first + lowest_bit(alive)
                    alive &= alive - one
                    begin, end = slots[block], slots[block + 1]
                    words += end - begin
                    mask = _meeting(codes, attributes, begin, end, a_codes, b_codes, event)
                    if mask:
                        doubt = mask & _sharing(
                            codes, attributes, rough, begin, end, a_codes, b_codes, event
                        )
                        to_left[used], to_masks[used] = block, mask
                        doubts = list_bits(doubt, used * BLOCK, to_doubtful, doubts)
                        used += 1
                for i in range(doubts):
                    which, bit = to_doubtful[i] >> 6, to_doubtful[i] & 63
                    place = to_left[which] * BLOCK + bit
                    held = True
                    if dense:
                        term = 2 * d * place
                        for j in range(event, event + d):
                            held &= (bounds[term] <= a[j]) & (b[j] <= bounds[term + 1])
                            term += 2
                    else:
                        for term in range(first_term[place], first_term[place + 1]):
                            j = event + axis[term]
                            held &= (bounds[2 * term] <= a[j]) & (b[j] <= bounds[2 * term + 1])
                    to_masks[which] ^= np.uint64(not held) << np.uint64(bit)
                tested += doubts
                base = first * BLOCK
                in_use = np.uint64(0)  # words of `ranks`
                for i in range(used):
                    mask = to_masks[i]
                    while mask:
                        at = rank[to_left[i] * BLOCK + lowest_bit(mask)] - base
                        mask &= mask - one
                        to_ranks[at >> 6] |= one << np.uint64(at & 63)
                        in_use |= one << np.uint64(at >> 6)
                while in_use:
                    word = lowest_bit(in_use)
                    in_use &= in_use - one
                    filled = list_bits(to_ranks[word], base + word * BLOCK, out, filled)
                    to_ranks[word] = 0
            if not simple and filled > since:
                latest = owner[out[filled - 1]]
                filled = _thinned(layout.owner, life, found, since, filled, last)
                last = latest
            band += 1
        filled = min(filled, k)
        counts[e] = filled
        for i in range(filled):
            to_rows[e * k + i] = owner[out[i]]
            to_scores[e * k + i] = worth[out[i]]
    counters[WORDS] += words
    counters[TESTED] += tested
