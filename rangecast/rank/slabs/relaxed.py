"""Relaxed ranking in `slabs`: the top k by the weights of the attributes that match.

Boxes lie by the most that they can get. So when the k-th best so far has more than the first box of
the next block can get, the search is over; as much isn't enough, as that box may have arrived
earlier. At worst all blocks are looked at, which costs n d / 32 instructions and the sums: that is
why hundreds of attributes are no harm. Weights are combined in attribute order.

With tolerances, a box is compared with the values from value - tolerance to value + tolerance as
well; what only these meet is looked at by its bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8
from rangecast.kernels.bits import ZERO, bits_set, lowest_bit, meeting, sharing
from rangecast.kernels.blocks import BLOCK
from rangecast.kernels.bundle import pointer
from rangecast.kernels.grid import MAX
from rangecast.kernels.jit import jit, jit_single
from rangecast.kernels.lanes import SLOT_BYTES
from rangecast.rank.liveness import is_live
from rangecast.rank.result import TESTED, WORDS
from rangecast.rank.scores.combine import initial_value, joined
from rangecast.rank.scores.tolerances import share_of
from rangecast.rank.slabs.pointers import LayoutPointers, TermPointers, encode, open_layout
from rangecast.rank.top import insert, insert_once


@jit
def _term(terms: TermPointers, d: int, slot: int, wanted: int) -> int:
    """Return the term of a box for an attribute that it mentions."""
    if terms.are_all:
        return slot * d + wanted
    term = terms.first[slot]
    while terms.axis[term] != wanted:
        term += 1
    return int(term)


@jit
def _held(
    terms: TermPointers,
    d: int,
    block: int,
    codes: Any,
    at: int,
    rough: np.uint64,
    axis: int,
    code: int,
    value: float,
) -> tuple[np.uint64, int]:
    """Return which boxes of a block contain a value of an attribute, and those tested."""
    mask = meeting(codes, at, at + BLOCK, code, code)
    doubt = mask & rough & sharing(codes, at, at + BLOCK, code, code)
    tested = ZERO
    while doubt:
        i = lowest_bit(doubt)
        doubt &= doubt - np.uint64(1)
        term = _term(terms, d, block * BLOCK + i, axis)
        if not (terms.bounds[2 * term] <= value and value <= terms.bounds[2 * term + 1]):
            mask ^= np.uint64(1) << np.uint64(i)
        tested += 1
    return mask, tested


@jit
def _add_near(
    view: LayoutPointers,
    combine: int,
    block: int,
    near: np.uint64,
    axis: int,
    tolerance: float,
    value: float,
    totals: Any,
) -> np.uint64:
    """Add what boxes near a value count to their totals; return those that count something."""
    terms, counted = view.terms, np.uint64(0)
    while near:
        i = lowest_bit(near)
        near &= near - np.uint64(1)
        term = _term(terms, view.d, block * BLOCK + i, axis)
        share = share_of(value, terms.bounds[2 * term], terms.bounds[2 * term + 1], tolerance)
        if share > 0.0:
            counted |= np.uint64(1) << np.uint64(i)
            weight = terms.weights[term] if terms.have_weights else 1.0
            totals[i] = joined(combine, totals[i], weight * share)
    return counted


@jit
def _search(
    view: LayoutPointers,
    combine: int,
    tolerances: F64,
    points: Any,
    codes: Any,
    totals: Any,
    rows: I32,
    scores: F64,
    floor: float,
) -> tuple[int, int, int]:
    """Write the best of an event; return how many, and the work. A place is a rank here."""
    k, d, terms = len(rows), view.d, view.terms
    filled = block = words = tested = ZERO
    while block < view.last_block and not (
        view.worth[block * BLOCK] < (scores[k - 1] if filled == k else floor)
    ):
        candidates = np.uint64(0)
        for i in range(BLOCK):
            totals[i] = initial_value(combine)
        begin, end = view.first_slot[block], view.first_slot[block + 1]
        words += end - begin
        for slot in range(begin, end):
            axis, at = view.attributes[slot], slot * SLOT_BYTES
            rough, code, value = view.rough[axis], codes[axis], points[axis]
            mask, boxes = _held(terms, d, block, view.codes, at, rough, axis, code, value)
            tested += boxes
            candidates |= mask
            held = mask
            while mask:
                i = lowest_bit(mask)
                mask &= mask - np.uint64(1)
                weight = 1.0
                if terms.have_weights:
                    weight = terms.weights[_term(terms, d, block * BLOCK + i, axis)]
                totals[i] = joined(combine, totals[i], weight)
            if len(tolerances) and tolerances[axis] > 0.0 and value <= MAX:
                below, above = codes[d + axis], codes[2 * d + axis]
                near = meeting(view.codes, at, at + BLOCK, above, below) & ~held
                if near:
                    tested += bits_set(near)
                    width = tolerances[axis]
                    candidates |= _add_near(view, combine, block, near, axis, width, value, totals)
        while candidates:
            i = lowest_bit(candidates)
            candidates &= candidates - np.uint64(1)
            row = view.owner[block * BLOCK + i]
            if totals[i] < (scores[k - 1] if filled == k else floor):
                continue
            if not is_live(view.live, row):
                continue
            if view.several[0]:
                filled = insert_once(rows, scores, filled, row, totals[i])
            else:
                filled = insert(rows, scores, filled, row, totals[i])
        block += 1
    return filled, words, tested


@jit
def _search_all(
    view: LayoutPointers,
    combine: int,
    tolerances: F64,
    points: F64,
    codes: U8,
    totals: F64,
    rows: I32,
    scores: F64,
    counts: I64,
    floors: F64,
    counters: I64,
) -> None:
    """Write the top k of each event; `codes` and `totals` are scratch buffers for one event.

    The codes are those of the values and, with tolerances, of both ends of each tolerance interval.
    """
    d = view.d
    its_codes, sums = pointer(codes, 0), pointer(totals, 0)
    ends = np.empty(3 * d)
    near = pointer(ends, 0)
    for e in range(len(points)):
        mine = pointer(points, e * view.d)
        encode(view, mine, ZERO, its_codes)
        if len(tolerances):
            for j in range(d):
                ends[d + j] = max(points[e, j] - tolerances[j], -MAX)
                ends[2 * d + j] = min(points[e, j] + tolerances[j], MAX)
            encode(view, near, d, its_codes)
            encode(view, near, 2 * d, its_codes)
        out = rows[e], scores[e], floors[e]
        hits = _search(view, combine, tolerances, mine, its_codes, sums, *out)
        counts[e], words, tested = hits
        counters[WORDS] += words
        counters[TESTED] += tested


@jit
def search_relaxed(
    table: I64,
    combine: int,
    tolerances: F64,
    points: F64,
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
    """Write the best of each event, as many as there is room; see `search_exact`.

    tolerances   (d,) that of each attribute, 0 if it has none; empty: none has one
    """
    view = open_layout(table, set_rows, died, edit, dead_bits)
    codes, totals = np.empty(3 * view.d, np.uint8), np.empty(BLOCK)
    out = rows, scores, counts, floors, counters
    _search_all(view, combine, tolerances, points, codes, totals, *out)


@jit_single
def search_relaxed_one(
    table: I64,
    combine: int,
    tolerances: F64,
    points: F64,
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
    """As `search_relaxed`, without giving up the GIL."""
    liveness, out = (set_rows, died, edit, dead_bits), (rows, scores, counts, counters)
    search_relaxed(table, combine, tolerances, points, *liveness, floors, *out)
