"""How `slabs` finds the k best by the weights of the attributes that hold.

Boxes lie by the most that they can get. So when the k-th best so far has more than the first box of
the next block can get, the search is over; as much isn't enough, as that box may have arrived
earlier. At worst all blocks are looked at, which costs n d / 32 instructions and the sums: that is
why hundreds of attributes are no harm. Weights are summed in attribute order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.kernels.bits import lowest_bit, meeting, pointer, sharing
from rangecast.kernels.blocks import BLOCK
from rangecast.kernels.codes import Bytes
from rangecast.kernels.jit import jit
from rangecast.model.boxes import Floats, Rows
from rangecast.rank.life import Life, lives
from rangecast.rank.result import TESTED, WORDS, Counters, Longs
from rangecast.rank.slabs_layout import SLOT_BYTES, Layout
from rangecast.rank.top import insert, insert_once


@jit
def _term(layout: Layout, d: int, place: int, wanted: int) -> int:
    """Return the term of a box for an attribute that it mentions."""
    if len(layout.first_term) == 0:
        return place * d + wanted
    term = layout.first_term[place]
    while layout.axis[term] != wanted:
        term += 1
    return int(term)


@jit
def _held(
    layout: Layout, block: int, slot: int, points: Floats, codes: Any, event: int
) -> tuple[np.uint64, int]:
    """Return which boxes of a block hold an event on the attribute of a slot, and those tested."""
    d = points.shape[1]
    axis = layout.blocks.attributes[slot]
    at = slot * SLOT_BYTES
    code = codes[event * d + axis]
    all_codes = pointer(layout.blocks.codes, 0)
    mask = meeting(all_codes, at, at + BLOCK, code, code)
    doubt = mask & layout.rough[axis] & sharing(all_codes, at, at + BLOCK, code, code)
    tested = 0
    value = points[event, axis]
    while doubt:
        i = lowest_bit(doubt)
        doubt &= doubt - np.uint64(1)
        term = _term(layout, d, block * BLOCK + i, axis)
        if not (layout.bounds[2 * term] <= value and value <= layout.bounds[2 * term + 1]):
            mask ^= np.uint64(1) << np.uint64(i)
        tested += 1
    return mask, tested


@jit
def search_relaxed(
    layout: Layout,
    points: Floats,
    codes: Bytes,
    life: Life,
    rows: Rows,
    scores: Floats,
    counts: Longs,
    counters: Counters,
) -> None:
    """Write the best of each event, as many as there is room; a place is a rank here."""
    d, k = points.shape[1], rows.shape[1]
    event_codes = pointer(codes, 0)
    weighted, several = len(layout.weights) > 0, layout.several[0] > 0
    blocks = len(layout.blocks.first) - 1
    totals = np.empty(BLOCK)
    for e in range(len(points)):
        filled = block = 0
        while block < blocks and not (
            filled == k and scores[e, k - 1] > layout.worth[block * BLOCK]
        ):
            some = np.uint64(0)
            totals[:] = 0.0
            begin, end = layout.blocks.first[block], layout.blocks.first[block + 1]
            counters[WORDS] += end - begin
            for slot in range(begin, end):
                mask, tested = _held(layout, block, slot, points, event_codes, e)
                counters[TESTED] += tested
                some |= mask
                axis = layout.blocks.attributes[slot]
                while mask:
                    i = lowest_bit(mask)
                    mask &= mask - np.uint64(1)
                    if weighted:
                        totals[i] += layout.weights[_term(layout, d, block * BLOCK + i, axis)]
                    else:
                        totals[i] += 1.0
            while some:
                i = lowest_bit(some)
                some &= some - np.uint64(1)
                row = layout.owner[block * BLOCK + i]
                if filled == k and totals[i] < scores[e, k - 1]:
                    continue
                if not lives(life, row):
                    continue
                if several:
                    filled = insert_once(rows[e], scores[e], filled, row, totals[i])
                else:
                    filled = insert(rows[e], scores[e], filled, row, totals[i])
            block += 1
        counts[e] = filled
