"""Search of `slabs` for one event: its codes against those of 64 boxes at a time.

First against the hulls of the blocks, 64 blocks at a time; then, in each block that is left,
against the boxes. A candidate that lies strictly between the slabs of its bounds holds for sure;
one that shares a slab with a bound that lies inside it is compared exactly.

Kernels count `visited`, words of 64 comparisons, and `tested`, boxes compared exactly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8
from rangecast.kernels.bits import ZERO, bits_up_to, lowest_bit, meeting, pack_bits, sharing
from rangecast.kernels.blocks import BLOCK
from rangecast.kernels.bundle import opened, pointer, pointers
from rangecast.kernels.codes import encode_points
from rangecast.kernels.grid import cell_of
from rangecast.kernels.jit import jit, jit_single
from rangecast.match.single_event import OWN, append_other_rows, max_beside, reject_nan
from rangecast.match.slabs.layout import CODE, FIRST_BLOCK, HULL, SLOT, Layout

FIRST_ROWS = 1024
"""Rows that a single event has room for at first."""


class Part(NamedTuple):
    """Boxes whose codes lie side by side: those of a block, or the hulls of some blocks.

    The bounds of box i in slot s have their codes at base + 2 * s * stride + i, and `stride` on.
    """

    codes: Any
    """Pointer to all codes."""
    base: int
    stride: int
    size: int
    attributes: Any
    """Pointer to the attributes of the slots."""
    width: int
    """Number of slots."""


@jit
def candidates(part: Part, codes: U8, event: int, mask: np.uint64) -> np.uint64:
    """Return which boxes may contain the event whose codes begin at codes[event]."""
    word = part.base
    for s in range(part.width):
        code = codes[event + part.attributes[s]]
        mask &= meeting(part.codes, word, word + part.stride, code, code)
        word += 2 * part.stride
        if s & 3 == 3 and mask == 0:  # not always: a branch costs more than a comparison
            break
    return mask


@jit
def doubtful(part: Part, rough: U8, codes: U8, event: int) -> np.uint64:
    """Return which boxes have a bound inside a slab that the event is in."""
    doubt = np.uint64(0)
    word = part.base
    for s in range(part.width):
        j = part.attributes[s]
        if rough[j]:
            code = codes[event + j]
            doubt |= sharing(part.codes, word, word + part.stride, code, code)
        word += 2 * part.stride
    return doubt


@jit
def holds(part: Part, box: int, bounds: F64, points: F64, event: int) -> bool:
    """Compare a box with the event whose coordinates begin at points[event], exactly."""
    word = part.base + box
    for s in range(part.width):
        value = points[event + part.attributes[s]]
        if not ((bounds[word] <= value) & (value <= bounds[word + part.stride])):
            return False
        word += 2 * part.stride
    return True


@jit
def is_first(layout: Layout, box: int, points: F64, event: int) -> bool:
    """Return whether no earlier box of the same subscription contains the event."""
    other = layout.earlier[box]
    while other >= 0:
        block = cell_of(layout.blocks, other) - 1
        run = cell_of(layout.runs[:, FIRST_BLOCK], block) - 1
        slot = layout.runs[run, SLOT]
        width = layout.runs[run + 1, SLOT] - slot
        begin = layout.blocks[block]
        before = begin - layout.blocks[layout.runs[run, FIRST_BLOCK]]
        size = layout.blocks[block + 1] - begin
        part = Part(
            pointer(layout.codes, 0),
            layout.runs[run, CODE] + 2 * width * before,
            size,
            size,
            pointer(layout.attributes, slot),
            width,
        )
        if holds(part, other - begin, pointer(layout.bounds, 0), points, event):
            return False
        other = layout.earlier[other]
    return True


@jit
def _search(
    layout: Layout,
    points: F64,
    codes: U8,
    event: int,
    run: int,
    block: int,
    out: I32,
    filled: int,
) -> tuple[int, int, int, int, int]:
    """Append the subscriptions that match one event, from a block of a run on.

    points    pointer to coordinates; those of the event begin at points[event]
    codes     pointer to codes, likewise

    Stops where there is less than a block's room. Returns the run and block to go on with (the
    number of runs when done), how far `out` is filled, and the work.
    """
    visited = tested = 0
    several = len(layout.earlier) > 0
    at, rows = pointers(layout), pointer(out, 0)
    runs, blocks = at.runs, at.blocks
    for now in range(run, len(layout.runs) - 1):
        this, after = 4 * now, 4 * now + 4
        attributes = pointer(at.attributes, runs[this + SLOT])
        width = runs[after + SLOT] - runs[this + SLOT]
        first, last = runs[this + FIRST_BLOCK], runs[after + FIRST_BLOCK]
        for tile in range(max(first, block), last, BLOCK):
            alive = bits_up_to(last - tile)
            if last - first > 1:  # the hull of a single block would spare nothing
                base = runs[this + HULL] + tile - first
                hull = Part(at.hulls, base, last - first, BLOCK, attributes, width)
                alive = candidates(hull, codes, event, alive)
                visited += width
            while alive:
                here = tile + lowest_bit(alive)
                alive &= alive - np.uint64(1)
                if filled + BLOCK > len(out):
                    return now, here, filled, visited, tested
                begin = blocks[here]
                size = blocks[here + 1] - begin
                base = runs[this + CODE] + 2 * width * (begin - blocks[first])
                part = Part(at.codes, base, size, size, attributes, width)
                mask = candidates(part, codes, event, bits_up_to(size) & ~at.dead[here])
                visited += width
                if mask == 0:
                    continue
                doubt = mask & doubtful(part, at.rough, codes, event)
                while doubt:
                    box = lowest_bit(doubt)
                    doubt &= doubt - np.uint64(1)
                    tested += 1
                    if not holds(part, box, at.bounds, points, event):
                        mask ^= np.uint64(1) << np.uint64(box)
                if not several:
                    filled = pack_bits(mask, at.owner, begin, rows, filled)
                    continue
                while mask:
                    box = begin + lowest_bit(mask)
                    mask &= mask - np.uint64(1)
                    rows[filled] = at.owner[box]
                    filled += is_first(layout, box, points, event)
    return len(layout.runs) - 1, 0, filled, visited, tested


@jit
def _search_coded(
    layout: Layout, points: F64, codes: U8, run: int, block: int, out: I32, filled: int
) -> tuple[int, int, int, int, int]:
    """Search for one event, whose codes the caller holds in the meantime."""
    return _search(layout, pointer(points, 0), pointer(codes, 0), ZERO, run, block, out, filled)


@jit
def more_room(rows: I32, filled: int) -> I32:
    """Return room for four times as many rows, the first ones copied."""
    larger = np.empty(4 * len(rows), np.int32)
    for i in range(filled):
        larger[i] = rows[i]
    return larger


@jit_single
def match_one(table: I64, points: F64, others: I32) -> I32:
    """The kernel of a `Single`: the table behind its own is that of the layout."""
    reject_nan(points)
    layout = opened(table[OWN:], Layout)
    codes = np.empty(points.shape, np.uint8)
    encode_points(layout.edges, layout.first_edge, points, codes)
    beside = max_beside(table, others)
    rows = np.empty(FIRST_ROWS + beside, np.int32)
    run = block = filled = ZERO
    while True:
        out = rows[: len(rows) - beside]
        run, block, filled, _, _ = _search_coded(layout, points, codes, run, block, out, filled)
        if run == len(layout.runs) - 1:
            break
        rows = more_room(rows, filled)
    return rows[: append_other_rows(table, points, others, rows, filled)]


@jit
def search_each(table: I64, points: F64, codes: U8, offsets: I64, out: I32) -> tuple[int, int, int]:
    """Search for some events one after the other, as long as there is room.

    Fills `out`, and `offsets` (events + 1) with the places of each event's rows in it. Returns
    how many events were done, and the work.
    """
    layout = opened(table, Layout)
    d = points.shape[1]
    filled = visited = tested = ZERO
    offsets[0] = 0
    for e in range(len(points)):
        run, _, filled, words, boxes = _search(
            layout, pointer(points, 0), pointer(codes, 0), e * d, ZERO, ZERO, out, filled
        )
        visited += words
        tested += boxes
        if run < len(layout.runs) - 1:
            return e, visited, tested
        offsets[e + 1] = filled
    return len(points), visited, tested
