"""Layout of `slabs` for ranking: best first, in bands of blocks, as codes of one byte.

    band     boxes that follow one another in rank: first 8 blocks of them, then bands twice as
             large each time, up to 64 blocks. Within a band boxes lie where their neighbours in
             space are, so that blocks are small; `rank` says which is which. The first band, which
             is all that many events need, stays in order; its bounds are there as they are too,
             if they are on one or two attributes.
    block    64 boxes. Its slots are the attributes that some of its boxes mention; the others take
             neither room nor time.
    slot     the codes of an attribute: those of 64 lower bounds, then those of 64 upper ones. A box
             that doesn't mention it has codes that always hold (exact) or never do (relaxed).
    hull     of a band: slots with the hulls of its blocks instead of boxes.

Exact ranking is by score. Relaxed ranking is by the most that a box can get, such as the sum of all
its weights; there bands aren't reordered, and the slots of a block are in attribute order, as the
weights are combined. Ties go by arrival, so that the boxes of one subscription follow one another.
The bounds themselves, for what the codes leave in doubt, are kept by box, only where something is
mentioned.

2 bytes per box and slot, 20 per box and mention, 16 per box, and 8 more unless every box mentions
every attribute.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, U64, offsets_of
from rangecast.kernels.bits import PADDING
from rangecast.kernels.blocks import BLOCK, arrange
from rangecast.kernels.codes import FREE_HI, FREE_LO, codes_of
from rangecast.kernels.jit import jit
from rangecast.kernels.lanes import SLOT_BYTES
from rangecast.model.boxes import Boxes, frozen
from rangecast.rank.scores.combine import limits_of
from rangecast.rank.slabs.lists import CellResolution, lists_of, no_lists

FIRST_BAND = 8
"""Blocks of the first band."""
EDGES = 255
"""Room for the edges of an attribute."""
_FEW_SLOTS = 2
"""Slots a block up to which comparing bounds is faster than codes, which leave some in doubt."""


class Layout(NamedTuple):
    """The arrays; all are read-only. A box has a place, and a rank."""

    edges: F64
    """(d * EDGES,) of each attribute, padded by +inf."""
    edge_count: I64
    """(d,)"""
    rough: U64
    """(d,) all bits set if some bound of an attribute lies inside a slab, none otherwise."""
    bands: I64
    """(bands + 1,) the first block of each."""
    hull_first: I64
    """(bands + 1,) the slots of the hulls of each band."""
    hull_attributes: I32
    hull_codes: U8
    """As `codes`, a hull of a block instead of a box."""
    first_slot: I64
    """(blocks + 1,) the slots of each block."""
    attributes: I32
    codes: U8
    """(slots * SLOT_BYTES,) and PADDING; begins at a cache line."""
    head: F64
    """(slots of the first band * SLOT_BYTES,) its bounds, laid out as the codes are; or none."""
    list_edges: F64
    list_shape: I64
    list_cells: I64
    list_rows: I32
    list_scores: F64
    list_bounds: F64
    """See `Lists`."""
    rank: I32
    """(places,) the rank of the box at each place; the places of a whole number of blocks."""
    owner: I32
    """(boxes,) by rank: the subscription."""
    worth: F64
    """(boxes,) by rank: the score, or the most that it can get; descending."""
    several: U8
    """(1,) whether some subscription has several boxes."""
    first_term: I64
    """(places + 1,) the terms of the box at each place; if all boxes mention all, none: d each."""
    axis: I32
    """(terms,) the attribute of each, ascending within a box."""
    bounds: F64
    """(2 * terms,) lower and upper bound of each."""
    weights: F64
    """(terms,) what each counts in relaxed ranking; none if all count 1, or in exact ranking."""


@jit
def _fill_blocks(
    lo_codes: U8,
    hi_codes: U8,
    mentioned: U8,
    relaxed: bool,
    first: I64,
    attributes: I32,
    codes: U8,
) -> None:
    """Write the codes of all blocks; (boxes, d) by place are given."""
    n = len(lo_codes)
    for block in range(len(first) - 1):
        for slot in range(first[block], first[block + 1]):
            j = attributes[slot]
            at = slot * SLOT_BYTES
            for i in range(BLOCK):
                box = block * BLOCK + i
                if box >= n or (relaxed and not mentioned[box, j]):
                    codes[at + i], codes[at + BLOCK + i] = FREE_HI, FREE_LO
                else:
                    codes[at + i], codes[at + BLOCK + i] = lo_codes[box, j], hi_codes[box, j]


@jit
def _fill_head(lo: F64, hi: F64, first: I64, attributes: I32, blocks: int, head: F64) -> None:
    """Write the bounds of the first band; a place without a box never holds."""
    for block in range(blocks):
        for slot in range(first[block], first[block + 1]):
            at = slot * SLOT_BYTES
            for i in range(BLOCK):
                box = block * BLOCK + i
                if box < len(lo):
                    head[at + i] = lo[box, attributes[slot]]
                    head[at + BLOCK + i] = hi[box, attributes[slot]]
                else:
                    head[at + i], head[at + BLOCK + i] = np.inf, -np.inf


@jit
def _fill_hulls(
    lo_codes: U8,
    hi_codes: U8,
    bands: I64,
    first: I64,
    attributes: I32,
    codes: U8,
) -> None:
    """Write the hulls of the blocks of all bands."""
    n = len(lo_codes)
    for band in range(len(first) - 1):
        for slot in range(first[band], first[band + 1]):
            j = attributes[slot]
            at = slot * SLOT_BYTES
            for block in range(bands[band], bands[band + 1]):
                low, high = np.uint8(FREE_HI), np.uint8(FREE_LO)
                for box in range(block * BLOCK, min(block * BLOCK + BLOCK, n)):
                    low, high = min(low, lo_codes[box, j]), max(high, hi_codes[box, j])
                i = block - bands[band]
                codes[at + i], codes[at + BLOCK + i] = low, high


def _bands(blocks: int) -> I64:
    bands, size = [0], FIRST_BAND
    while bands[-1] < blocks:
        bands.append(min(blocks, bands[-1] + size))
        size = min(2 * size, BLOCK)
    return frozen(bands, np.int64)


def _slots(counts: I64, *, by_use: bool) -> tuple[I64, I32, U8]:
    """Return room for the slots of attributes that are mentioned: (blocks, d) how often."""
    block, axis = np.nonzero(counts)
    if by_use:  # what most boxes mention excludes most of them: it comes first
        order = np.lexsort((-counts[block, axis], block))
        block, axis = block[order], axis[order]
    first = np.searchsorted(block, np.arange(len(counts) + 1)).astype(np.int64)
    size = len(axis) * SLOT_BYTES + PADDING
    room = np.zeros(size + BLOCK, np.uint8)
    skip = -room.ctypes.data % BLOCK
    return first, axis.astype(np.int32), room[skip : skip + size]


def lay_out(boxes: Boxes, *, relaxed: bool, combine: str, fineness: CellResolution) -> Layout:
    """Return the arrays of a set of boxes; `fineness` is that of its lists."""
    n, d = boxes.lo.shape
    mentioned = boxes.mentions
    worth = limits_of(boxes, combine) if relaxed else boxes.scores[boxes.owner]
    by_rank = np.argsort(-worth, kind="stable")
    lo, hi = boxes.lo[by_rank], boxes.hi[by_rank]
    edges, first_edge, lo_codes, hi_codes, rough = codes_of(lo, hi, mentioned[by_rank])
    owner, worth = frozen(boxes.owner[by_rank], np.int32), frozen(worth[by_rank], np.float64)
    lists = no_lists()
    if d == 1 and not relaxed:
        lists = lists_of(lo[:, 0], hi[:, 0], owner, worth, fineness)
    blocks = -(-n // BLOCK)
    bands = _bands(blocks)
    rank = np.arange(n)
    if not relaxed:
        firsts = np.minimum(bands[1:] * BLOCK, n)
        all_axes = np.tile(np.arange(d, dtype=np.int32), len(bands))
        arrange(lo_codes, hi_codes, firsts, all_axes, np.arange(len(bands)) * d, rank)
    lo, hi, lo_codes, hi_codes = lo[rank], hi[rank], lo_codes[rank], hi_codes[rank]
    mentioned = mentioned[by_rank[rank]]

    padded = np.zeros((blocks * BLOCK, d), np.bool_)
    padded[:n] = mentioned
    counts = padded.reshape(blocks, BLOCK, d).sum(axis=1)
    counts[counts.sum(axis=1) == 0, 0] = 1  # a block that mentions nothing still has its end
    slots = _slots(counts, by_use=not relaxed)
    _fill_blocks(lo_codes, hi_codes, mentioned.astype(np.uint8), relaxed, *slots)
    first, attributes, _ = slots
    in_head = int(bands[1]) if blocks and not relaxed else 0
    if first[in_head] > _FEW_SLOTS * in_head:
        in_head = 0
    head = np.empty(first[in_head] * SLOT_BYTES)
    _fill_head(lo, hi, first, attributes, in_head, head)
    in_bands = np.zeros((max(len(bands) - 1, 0), d), np.int64)
    if len(bands) > 1 and not relaxed:
        in_bands = np.add.reduceat(counts, bands[:-1], axis=0)
    hulls = _slots(in_bands, by_use=True)
    _fill_hulls(lo_codes, hi_codes, bands, *hulls)

    box, axis = np.nonzero(mentioned)
    first_term = offsets_of(mentioned.sum(axis=1))
    weights = np.zeros(0)
    if relaxed and boxes.weights is not None:
        weights = boxes.weights[boxes.owner[by_rank[rank[box]]], axis]
    table = np.full((d, EDGES), np.inf)
    for j, mine in enumerate(np.split(edges, first_edge[1:-1])):
        table[j, : len(mine)] = mine
    for array in (*hulls, *slots):  # not `frozen`, which may move them off their cache line
        array.flags.writeable = False
    return Layout(
        frozen(table.reshape(-1), np.float64),
        frozen(np.diff(first_edge), np.int64),
        frozen(np.where(rough, ~np.uint64(0), np.uint64(0)), np.uint64),
        bands,
        hulls[0],
        hulls[1],
        hulls[2],
        first,
        attributes,
        slots[2],
        frozen(head, np.float64),
        *lists,
        frozen(np.pad(rank, (0, blocks * BLOCK - n)), np.int32),
        owner,
        worth,
        frozen([n > boxes.rows], np.uint8),
        frozen(np.zeros(0) if len(axis) == n * d else first_term, np.int64),
        frozen(axis, np.int32),
        frozen(np.stack([lo[box, axis], hi[box, axis]], axis=1).reshape(-1), np.float64),
        frozen(weights, np.float64),
    )
