"""Layout of `slabs`: runs of boxes that mention the same attributes, in blocks.

    run      boxes that mention the same attributes. Where many sets of attributes have only a few
             boxes each, neighbouring sets share a run, as long as that wastes little room.
    block    at most BLOCK boxes of a run that lie near one another, with the hull of them all.
    code     a bound as the number of its slab, one byte.

For a block of c boxes with k attributes, slot j of box i has its bounds at `base + 2 * j * c + i`
(lower) and `base + (2 * j + 1) * c + i` (upper), both in `codes` and in `bounds`: so the codes
of one attribute lie side by side, ready to be compared together. The hulls of a run's blocks lie
in `hulls` in the same way.

Building takes time n log n: a sort by attributes mentioned, a sort of each attribute's bounds
for the slabs, and one pass over the boxes for each halving of a run into blocks.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, U64, ranges_of
from rangecast.kernels.bits import PADDING, bits_set
from rangecast.kernels.blocks import BLOCK, arrange
from rangecast.kernels.codes import FREE_HI, FREE_LO, codes_of
from rangecast.kernels.jit import jit
from rangecast.match.shared.candidates import earlier_boxes
from rangecast.model.boxes import Boxes, frozen

_OWN_RUN = 8
"""Boxes with the same attributes that are worth a run of their own."""
_WASTE = 1.5
"""Slots in a shared run at most, for each one that is mentioned."""

# Columns of `runs`.
SLOT, FIRST_BLOCK, HULL, CODE = 0, 1, 2, 3


class Layout(NamedTuple):
    """The arrays; all are read-only."""

    edges: F64
    """Where the slabs of attribute j begin: edges[first_edge[j]:first_edge[j + 1]]."""
    first_edge: I64
    rough: U8
    """(d,) 1 if some bound of an attribute lies inside a slab, which is then in doubt; else 0."""
    attributes: I32
    """The attributes of each run, one after the other."""
    runs: Annotated[I64, 2]
    """(runs + 1, 4) first of a run's slots in `attributes`, blocks, places in `hulls`, `codes`."""
    blocks: I64
    """(blocks + 1,) first box of each block."""
    hulls: U8
    codes: U8
    bounds: F64
    owner: I32
    """(boxes,) the subscription of each box, and PADDING."""
    earlier: I32
    """(boxes,) the box before it of the same subscription, or -1; empty if none has several."""
    dead: U64
    """(blocks,) bit i says that box i of a block no longer counts."""


@jit
def _cut_runs(words: U64, firsts: I64, united: U64) -> int:
    """Cut boxes that are sorted by attributes mentioned into runs; return how many.

    words     (boxes, w) which attributes each box mentions, as bits
    firsts    (boxes + 1,) is filled with the first box of each run
    united    (boxes, w) is filled with the attributes of each run
    """
    n, width = words.shape
    runs = begin = members = mentions = 0
    shared = False  # whether the last run may take another set of attributes
    while begin < n:
        end = begin
        same = True
        while same:
            end += 1
            same = end < n
            for w in range(width):
                same = same and words[end, w] == words[begin, w]
        size = end - begin
        mentioned = together = 0
        for w in range(width):
            mentioned += bits_set(words[begin, w])
            if shared:
                together += bits_set(words[begin, w] | united[runs - 1, w])
        members += size
        mentions += size * mentioned
        if not (
            shared
            and size < _OWN_RUN
            and members <= BLOCK
            and together * members <= _WASTE * mentions
        ):
            firsts[runs] = begin
            united[runs] = 0
            runs += 1
            shared = size < _OWN_RUN
            members = size
            mentions = size * mentioned
        for w in range(width):
            united[runs - 1, w] |= words[begin, w]
        begin = end
    firsts[runs] = n
    return runs


@jit
def _fill(
    lo: F64,
    hi: F64,
    lo_codes: U8,
    hi_codes: U8,
    order: I64,
    attributes: I32,
    runs: I64,
    blocks: I64,
    hulls: U8,
    codes: U8,
    bounds: F64,
) -> None:
    """Copy the boxes to their places, and take the hulls of the blocks."""
    for run in range(len(runs) - 1):
        slots = attributes[runs[run, SLOT] : runs[run + 1, SLOT]]
        first, last = runs[run, FIRST_BLOCK], runs[run + 1, FIRST_BLOCK]
        base = runs[run, CODE]
        for block in range(first, last):
            size = blocks[block + 1] - blocks[block]
            hull = runs[run, HULL] + block - first
            for slot in range(len(slots)):
                j = slots[slot]
                low, high = FREE_HI, FREE_LO
                for i in range(size):
                    box = order[blocks[block] + i]
                    bounds[base + i] = lo[box, j]
                    bounds[base + size + i] = hi[box, j]
                    codes[base + i] = lo_codes[box, j]
                    codes[base + size + i] = hi_codes[box, j]
                    low = min(low, lo_codes[box, j])
                    high = max(high, hi_codes[box, j])
                hulls[hull] = low
                hulls[hull + last - first] = high
                hull += 2 * (last - first)
                base += 2 * size


def lay_out(boxes: Boxes) -> Layout:
    """Return the arrays of a set of boxes."""
    n = len(boxes.lo)
    mentioned = boxes.mentions
    edges, first_edge, lo_codes, hi_codes, rough = codes_of(boxes.lo, boxes.hi, mentioned)

    packed = np.packbits(mentioned, axis=1)
    packed = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8)))
    words = packed.view(">u8").astype(np.uint64)
    order = np.lexsort(words.T[::-1]).astype(np.int64)
    words = words[order]
    firsts = np.empty(n + 1, np.int64)
    united = np.empty_like(words)
    count = _cut_runs(words, firsts, united)
    firsts, united = firsts[: count + 1].copy(), united[:count]
    run, slot = np.nonzero(np.unpackbits(united.astype(">u8").view(np.uint8), axis=1))
    slots = slot.astype(np.int32)
    first_slot = np.searchsorted(run, np.arange(count + 1))
    arrange(lo_codes, hi_codes, firsts, slots, first_slot, order)

    sizes = np.diff(firsts)
    widths = np.diff(first_slot)
    run_blocks = (sizes + BLOCK - 1) // BLOCK
    runs = np.zeros((count + 1, 4), np.int64)
    runs[:, SLOT] = first_slot
    for column, amount in (
        (FIRST_BLOCK, run_blocks),
        (HULL, 2 * widths * run_blocks),
        (CODE, 2 * widths * sizes),
    ):
        runs[1:, column] = np.cumsum(amount)
    within_run = np.arange(runs[-1, FIRST_BLOCK]) - np.repeat(runs[:-1, FIRST_BLOCK], run_blocks)
    blocks = np.append(np.repeat(firsts[:-1], run_blocks) + within_run * BLOCK, n)
    hulls = np.zeros(runs[-1, HULL] + PADDING, np.uint8)
    codes = np.zeros(runs[-1, CODE] + PADDING, np.uint8)
    bounds = np.empty(runs[-1, CODE], np.float64)
    _fill(boxes.lo, boxes.hi, lo_codes, hi_codes, order, slots, runs, blocks, hulls, codes, bounds)

    return Layout(
        edges,
        first_edge,
        frozen(rough, np.uint8),
        frozen(slots, np.int32),
        frozen(runs, np.int64),
        frozen(blocks, np.int64),
        frozen(hulls, np.uint8),
        frozen(codes, np.uint8),
        frozen(bounds, np.float64),
        frozen(np.pad(boxes.owner[order], (0, PADDING)), np.int32),
        frozen(earlier_boxes(boxes, order), np.int32),
        np.zeros(len(blocks) - 1, np.uint64),
    )


class BoxesByOwner(NamedTuple):
    """The boxes in the order of their subscriptions, and the first box of each subscription."""

    boxes: I32
    first: I64


def by_owner(layout: Layout) -> BoxesByOwner:
    """Return where the boxes of each subscription are."""
    owner = layout.owner[: layout.blocks[-1]]
    boxes = np.argsort(owner, kind="stable").astype(np.int32)
    first = np.searchsorted(owner[boxes], np.arange(owner.max(initial=-1) + 2))
    return BoxesByOwner(boxes, first)


def dead_with(layout: Layout, places: BoxesByOwner, rows: I64) -> U64:
    """Return `dead` with the boxes of some more subscriptions."""
    first = places.first[rows]
    boxes = places.boxes[ranges_of(first, places.first[rows + 1] - first)]
    block = np.searchsorted(layout.blocks, boxes, side="right") - 1
    dead = layout.dead.copy()
    bits = np.uint64(1) << (boxes - layout.blocks[block]).astype(np.uint64)
    np.bitwise_or.at(dead, block, bits)
    return dead
