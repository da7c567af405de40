"""Layout of `blocks`: how boxes are arranged, inserted and removed.

    code     a coordinate as the number of its cell, one byte: cells are cut at quantiles
    leaf     up to 64 boxes; the codes of one coordinate lie side by side, 64 bytes
    node     sends a box to one of two sides by one of its codes; leaves hang below nodes. Boxes
             are located by `place`, not by descent, so nodes only need to cluster similar boxes;
             where no code separates them, boxes are distributed arbitrarily
    tile     up to 64 leaves that follow one another in the order of the tree; per coordinate the
             highest and the lowest code of each leaf, side by side
    group    64 tiles in order of creation, with the highest and the lowest codes of each

A full leaf is split by the coordinate whose codes vary most among those that leave a quarter of the
boxes on each side; if there is none, its boxes go alternately to the two halves. A full tile is
split in half. So both take at least a quarter of their capacity before they are full again, which
bounds the memory of inserts. A removed box is replaced by the last box of its leaf; the leaf's
highest and lowest codes are recomputed, those of its tile aren't until the next rebuild.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from rangecast.cover.store import NONE, WIDTH, Store
from rangecast.kernels.arrays import F64, I32, I64, U8
from rangecast.kernels.bundle import edited, opened, pointers
from rangecast.kernels.grid import cell_in_table
from rangecast.kernels.jit import jit

WIDE = 64
MIN_ENTRIES = WIDE // 4
"""Minimum number of boxes on each side of a split."""
TABLE = 255
"""Size of the edge table of one coordinate."""
CELLS = 255
EITHER = -1
"""Axis of a node that distributes boxes arbitrarily."""

# Items of `header`. `TOP` is the node (or leaf) that all hang below, `COLUMNS` is 2d.
LEAVES, BRANCHES, TILES, HELD, CHANGED, BUILT, TOP, COLUMNS, LEAF_ROOM, TILE_ROOM = range(10)


@edited
class BlockState(NamedTuple):
    """Arrays of the index. A child is a node, or the complement of a leaf number."""

    edges: Annotated[F64, 2]
    """(2d, TABLE) lower edges of cells, padded with +inf."""
    edge_count: I64
    """(2d,)"""
    codes: U8
    """(leaves * 2d * 64)"""
    boxes: I32
    """(leaves * 64)"""
    sizes: I32
    early: I64
    """(leaves,) lower bound on the arrival of the leaf's boxes."""
    seat: I32
    """(leaves,) tile * 64 + position in the tile."""
    axis: I32
    split: I32
    """(nodes,) highest code that goes to the first side."""
    child: Annotated[I32, 2]
    """(nodes, 2)"""
    high: U8
    low: U8
    """(tiles * 2d * 64) lowest codes of leaves."""
    leaf: I32
    """(tiles * 64)"""
    leaves: I32
    """(tiles,) number of leaves."""
    top_high: U8
    top_low: U8
    """(groups * 2d * 64) lowest codes of tiles."""
    place: I32
    """(boxes,) leaf * 64 + position in the leaf, NONE if a box isn't stored."""
    wanted: U8
    order: I32
    """(2d,) each: scratch of one search or insert."""
    header: I64


@jit
def encode(index: BlockState, store: Store, box: int) -> None:
    """Write the codes of a box into `wanted`."""
    width = store.header[WIDTH]
    for j in range(width):
        value = store.points[box * width + j]
        index.wanted[j] = cell_in_table(index.edges, j * TABLE, index.edge_count[j], value)


@jit
def _widen(index: BlockState, leaf: int) -> None:
    """Widen the highest and lowest codes of a leaf, its tile and its group to include `wanted`."""
    tile, seat = index.seat[leaf] // WIDE, index.seat[leaf] % WIDE
    width = index.header[COLUMNS]
    here = tile * width * WIDE + seat
    above = tile // WIDE * width * WIDE + tile % WIDE
    for j in range(width):
        code = index.wanted[j]
        index.high[here] = max(index.high[here], code)
        index.low[here] = min(index.low[here], code)
        index.top_high[above] = max(index.top_high[above], code)
        index.top_low[above] = min(index.top_low[above], code)
        here += WIDE
        above += WIDE


@jit
def _take_hull(index: BlockState, leaf: int) -> None:
    """Recompute the highest and lowest codes of a leaf."""
    tile, seat = index.seat[leaf] // WIDE, index.seat[leaf] % WIDE
    width = index.header[COLUMNS]
    here = tile * width * WIDE + seat
    begin = leaf * width * WIDE
    for _ in range(width):
        high, low = np.uint8(0), np.uint8(255)
        for i in range(begin, begin + index.sizes[leaf]):
            high, low = max(high, index.codes[i]), min(low, index.codes[i])
        index.high[here], index.low[here] = high, low
        here += WIDE
        begin += WIDE


@jit
def _take_top(index: BlockState, tile: int) -> None:
    """Recompute the highest and lowest codes of a tile."""
    width = index.header[COLUMNS]
    above = tile // WIDE * width * WIDE + tile % WIDE
    begin = tile * width * WIDE
    for _ in range(width):
        high, low = np.uint8(0), np.uint8(255)
        for i in range(begin, begin + index.leaves[tile]):
            high, low = max(high, index.high[i]), min(low, index.low[i])
        index.top_high[above], index.top_low[above] = high, low
        above += WIDE
        begin += WIDE


@jit
def _insert_leaf(index: BlockState, leaf: int, tile: int, seat: int) -> None:
    """Insert a leaf into a tile at this position; later ones move up."""
    width = index.header[COLUMNS]
    last = index.leaves[tile]
    for at in range(last, seat, -1):
        moved = index.leaf[tile * WIDE + at - 1]
        index.leaf[tile * WIDE + at], index.seat[moved] = moved, tile * WIDE + at
    for j in range(width):
        begin = (tile * width + j) * WIDE
        for at in range(begin + last, begin + seat, -1):
            index.high[at], index.low[at] = index.high[at - 1], index.low[at - 1]
    index.leaf[tile * WIDE + seat], index.seat[leaf] = leaf, tile * WIDE + seat
    index.leaves[tile] += 1


@jit
def _halve(index: BlockState, tile: int) -> None:
    """Split a full tile: move the second half of its leaves to a new tile."""
    half, width = WIDE // 2, index.header[COLUMNS]
    new = index.header[TILES]
    index.header[TILES] += 1
    for at in range(half):
        leaf = index.leaf[tile * WIDE + half + at]
        index.leaf[new * WIDE + at], index.seat[leaf] = leaf, new * WIDE + at
    for j in range(width):
        begin, after = (tile * width + j) * WIDE + half, (new * width + j) * WIDE
        for at in range(half):
            index.high[after + at], index.low[after + at] = (
                index.high[begin + at],
                index.low[begin + at],
            )
    index.leaves[tile] = index.leaves[new] = half
    _take_top(index, tile)
    _take_top(index, new)


@jit
def _best_split(index: BlockState, leaf: int) -> tuple[int, int]:
    """Return where to split a full leaf: a coordinate, and the highest code of its first side."""
    best, best_code, most = EITHER, 0, 0
    begin = leaf * index.header[COLUMNS] * WIDE
    for j in range(index.header[COLUMNS]):
        total = squares = 0
        for i in range(begin, begin + WIDE):
            code = int(index.codes[i])
            total += code
            squares += code * code
        spread = WIDE * squares - total * total
        if spread > most:
            code, share = _middle(index.codes, begin)
            if share >= MIN_ENTRIES:
                best, best_code, most = j, code, spread
        begin += WIDE
    return best, best_code


@jit
def _middle(codes: U8, begin: int) -> tuple[int, int]:
    """Return the code that splits a leaf most evenly, and the size of the smaller part."""
    counts = np.zeros(256, np.int64)
    for i in range(WIDE):
        counts[codes[begin + i]] += 1
    best, best_share, below = 0, 0, 0
    for code in range(256):
        below += counts[code]
        share = min(below, WIDE - below)
        if share > best_share:
            best, best_share = code, share
    return best, best_share


@jit
def _split(index: BlockState, leaf: int, parent: int, side: int) -> None:
    """Split a full leaf in two, below a new node on this side of `parent`."""
    header, width = index.header, index.header[COLUMNS]
    if index.leaves[index.seat[leaf] // WIDE] == WIDE:
        _halve(index, index.seat[leaf] // WIDE)
    axis, split = _best_split(index, leaf)
    new, node = header[LEAVES], header[BRANCHES]
    header[LEAVES] += 1
    header[BRANCHES] += 1
    begin, after = leaf * width * WIDE, new * width * WIDE
    stay = move = 0
    for i in range(WIDE):
        box = index.boxes[leaf * WIDE + i]
        moves = i % 2 == 1 if axis == EITHER else index.codes[begin + axis * WIDE + i] > split
        if moves:
            for j in range(width):
                index.codes[after + j * WIDE + move] = index.codes[begin + j * WIDE + i]
            index.boxes[new * WIDE + move] = box
            index.place[box] = new * WIDE + move
            move += 1
        else:
            for j in range(width):
                index.codes[begin + j * WIDE + stay] = index.codes[begin + j * WIDE + i]
            index.boxes[leaf * WIDE + stay] = box
            index.place[box] = leaf * WIDE + stay
            stay += 1
    index.sizes[leaf], index.sizes[new] = stay, move
    index.early[new] = index.early[leaf]
    index.axis[node], index.split[node] = axis, split
    index.child[2 * node + 0], index.child[2 * node + 1] = ~leaf, ~new
    if parent == NONE:
        header[TOP] = node
    else:
        index.child[2 * parent + side] = node
    tile, seat = index.seat[leaf] // WIDE, index.seat[leaf] % WIDE
    _insert_leaf(index, new, tile, seat + 1)
    _take_hull(index, leaf)
    _take_hull(index, new)


@jit
def insert(index: BlockState, store: Store, box: int) -> None:
    """Add a box."""
    encode(index, store, box)
    header, width = index.header, index.header[COLUMNS]
    while True:
        here, parent, side, bits = header[TOP], NONE, 0, box * 0x9E3779B1
        while here >= 0:
            axis = index.axis[here]
            if axis == EITHER:
                side = (bits >> 12) & 1
                bits >>= 1
            else:
                side = int(index.wanted[axis] > index.split[here])
            parent, here = here, int(index.child[2 * here + side])
        leaf = ~here
        if index.sizes[leaf] < WIDE:
            break
        _split(index, leaf, parent, side)
    at = index.sizes[leaf]
    for j in range(width):
        index.codes[(leaf * width + j) * WIDE + at] = index.wanted[j]
    index.boxes[leaf * WIDE + at] = box
    index.place[box] = leaf * WIDE + at
    index.sizes[leaf] += 1
    index.early[leaf] = min(index.early[leaf], store.arrival[store.owner[box]])
    _widen(index, leaf)
    header[HELD] += 1
    header[CHANGED] += 1


@jit
def drop(index: BlockState, box: int) -> None:
    """Remove a box."""
    width = index.header[COLUMNS]
    leaf, at = index.place[box] // WIDE, index.place[box] % WIDE
    index.sizes[leaf] -= 1
    last = index.sizes[leaf]
    moved = index.boxes[leaf * WIDE + last]
    for j in range(width):
        begin = (leaf * width + j) * WIDE
        index.codes[begin + at] = index.codes[begin + last]
    index.boxes[leaf * WIDE + at] = moved
    index.place[moved] = leaf * WIDE + at
    index.place[box] = NONE
    _take_hull(index, leaf)
    index.header[HELD] -= 1
    index.header[CHANGED] += 1


@jit
def insert_all(index_table: I64, store_table: I64, boxes: I64) -> None:
    """Add boxes; there must be room for all."""
    blocks = pointers(opened(index_table, BlockState))
    live = pointers(opened(store_table, Store))
    for i in range(len(boxes)):
        insert(blocks, live, boxes[i])
