"""Blocks: codes of a byte, 64 boxes compared at once, highest and lowest codes looked at first.

The idea. A coordinate becomes the number of its cell, one byte, so that order is kept: a box that
dominates has no lower code. One instruction then compares 64 boxes on one coordinate. Boxes that
are near one another share a leaf of 64; the highest codes of 64 leaves lie side by side in the
same way, and those of 64 tiles. So a search reads, for 64 * 64 * 64 boxes, a few words; then for
each tile that may hold something a few words, and so on down. The coordinates that rule out most
are looked at first: where a box asks for a wildcard, that is one comparison. The rest is
compared exactly.

With k = 1 only roots need to be held (see `graph`): with a million live subscriptions of the
paper's kind and five attributes, that is one in six.

Layout: `blocks_layout`. 2d bytes per box for codes at 50 to 100% fill, twice that over 64 for the
codes of leaves, 8 bytes for places; the boxes themselves stay in the store.

Cost. n / 64^3 words per attribute at the top, and what may hold something below. `NODES` counts
leaves, tiles and groups looked at, `COMPARISONS` boxes compared exactly. The index is rebuilt, with
other cells, after edits of twice as many boxes as it had.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.cover.blocks.layout import (
    BUILT,
    CELLS,
    CHANGED,
    COLUMNS,
    HELD,
    LEAF_ROOM,
    LEAVES,
    MIN_ENTRIES,
    TABLE,
    TILE_ROOM,
    TILES,
    TOP,
    WIDE,
    BlockState,
    drop,
    encode,
    insert,
    insert_all,
)
from rangecast.cover.index import STALE, SearchParameters, consider, is_enough, register
from rangecast.cover.store import NONE, Store, dominates
from rangecast.kernels.arrays import I32, I64
from rangecast.kernels.bits import at_least, at_most, bits_up_to, lowest_bit
from rangecast.kernels.bundle import Bundle
from rangecast.kernels.grid import edges_of_bounds
from rangecast.kernels.jit import jit

_SAMPLE = 1 << 14
"""Number of boxes sampled to choose cells."""
_FEW = 256
"""Number of changes that never justifies a rebuild."""


@jit
def _order(index: BlockState, down: bool) -> int:
    """Order the coordinates, the most selective first; return how many are selective at all."""
    wanted, order = index.wanted, index.order
    used = 0
    for j in range(index.header[COLUMNS]):
        code = int(wanted[j])
        most = index.edge_count[j] + 1
        if code == (most if down else 0):
            continue
        at = used
        while at > 0:
            other = int(wanted[order[at - 1]])
            if (other <= code) if down else (other >= code):
                break
            order[at] = order[at - 1]
            at -= 1
        order[at] = j
        used += 1
    return used


@jit
def _may_hold(
    codes: Any, base: int, wanted: Any, order: Any, used: int, down: bool, mask: np.uint64
) -> np.uint64:
    """Return which of 64 columns have codes at least (or at most) as large as wanted."""
    if down:
        for i in range(used):
            j = order[i]
            mask &= at_most(codes, base + WIDE * j, wanted[j])
            if mask == 0:
                break
    else:
        for i in range(used):
            j = order[i]
            mask &= at_least(codes, base + WIDE * j, wanted[j])
            if mask == 0:
                break
    return mask


@jit
def _search(
    index: BlockState, store: Store, parameters: SearchParameters, box: int, out: I32, filled: int
) -> tuple[int, int, int]:
    down = parameters.down
    encode(index, store, box)
    used = _order(index, down)
    width = index.header[COLUMNS]
    bit = np.uint64(1)
    wanted, order, codes = index.wanted, index.order, index.codes
    tops = index.top_low if down else index.top_high
    hulls = index.low if down else index.high
    visited = compared = 0
    tiles = index.header[TILES]
    for group in range((tiles + WIDE - 1) // WIDE):
        some_tiles = bits_up_to(tiles - group * WIDE)
        visited += 1
        some_tiles = _may_hold(tops, group * width * WIDE, wanted, order, used, down, some_tiles)
        while some_tiles:
            tile = group * WIDE + lowest_bit(some_tiles)
            some_tiles &= some_tiles - bit
            visited += 1
            leaves = bits_up_to(int(index.leaves[tile]))
            leaves = _may_hold(hulls, tile * width * WIDE, wanted, order, used, down, leaves)
            while leaves:
                leaf = int(index.leaf[tile * WIDE + lowest_bit(leaves)])
                leaves &= leaves - bit
                if parameters.earliest and filled and index.early[leaf] > store.arrival[out[0]]:
                    continue
                visited += 1
                left = bits_up_to(int(index.sizes[leaf]))
                left = _may_hold(codes, leaf * width * WIDE, wanted, order, used, down, left)
                while left:
                    other = index.boxes[leaf * WIDE + lowest_bit(left)]
                    left &= left - bit
                    compared += 1
                    large, small = (box, other) if down else (other, box)
                    if dominates(store, large, small):
                        filled = consider(store, parameters, other, out, filled)
                        if is_enough(parameters, filled):
                            return filled, visited, compared
    return filled, visited, compared


@jit
def _room(index: BlockState) -> int:
    header = index.header
    if header[CHANGED] > _FEW + 2 * header[BUILT]:
        return STALE
    # Every tile may be full and halved at its next leaf, after that only at each 32nd one; so it is
    # with leaves and boxes.
    tiles = header[TILE_ROOM] - header[TILES]
    splits = min(header[LEAF_ROOM] - header[LEAVES], _additions(tiles, header[TILES], WIDE // 2))
    return _additions(splits, header[LEAVES], MIN_ENTRIES)


@jit
def _additions(spare: int, full: int, width: int) -> int:
    """Return how many items can be added while `spare` leaves or tiles are free.

    `full` of those in use may split at the next item, a new one after `width` items. So it is the
    largest s with min(s, full) + s // width + 1 <= spare, or a little less.
    """
    left = spare - 1
    return max(0, (left - full) * width, left - left // width)


register(BlockState, insert, drop, _search, _room)


class Blocks:
    """The default structure: byte codes in blocks of 64."""

    name = "blocks"

    def __init__(self, dimensions: int):
        self.width = 2 * dimensions
        none, no_bytes = np.empty(0, np.int32), np.empty(0, np.uint8)
        state = BlockState(
            edges=np.full((self.width, TABLE), np.inf),
            edge_count=np.zeros(self.width, np.int64),
            codes=no_bytes,
            boxes=none,
            sizes=none,
            early=np.empty(0, np.int64),
            seat=none,
            axis=none,
            split=none,
            child=np.empty((0, 2), np.int32),
            high=no_bytes,
            low=no_bytes,
            leaf=none,
            leaves=none,
            top_high=no_bytes,
            top_low=no_bytes,
            place=none,
            wanted=np.zeros(self.width, np.uint8),
            order=np.zeros(self.width, np.int32),
            header=np.zeros(10, np.int64),
        )
        self.state = Bundle(state)
        self.make_room(8)
        self._clear()

    def _clear(self) -> None:
        """Start with one empty leaf, in its own tile."""
        state = self.state.arrays
        state.place[:] = NONE
        state.sizes[:] = state.leaves[:] = 0
        state.early[:] = np.iinfo(np.int64).max
        for high, low in ((state.high, state.low), (state.top_high, state.top_low)):
            high[:], low[:] = 0, 255
        state.header[:COLUMNS] = 0
        state.header[COLUMNS] = self.width
        state.header[LEAVES] = state.header[TILES] = 1
        state.header[TOP] = ~0
        state.seat[0] = state.leaf[0] = 0
        state.leaves[0] = 1

    def reserve(self, boxes: int) -> None:
        self.state = self.state.grown(fill=NONE, place=boxes)

    def make_room(self, inserts: int) -> None:
        header, width = self.state.arrays.header, self.width
        leaves, tiles = int(header[LEAVES]), int(header[TILES])
        splits = (
            min(inserts, leaves) + inserts // (MIN_ENTRIES // 2) + 2
        )  # more than `_room` asks for
        leaves += splits
        tiles += min(splits, tiles) + splits // (WIDE // 4) + 2
        state = self.state.grown(sizes=leaves, leaves=tiles)
        leaves, tiles = len(state.arrays.sizes), len(state.arrays.leaves)
        groups = -(-tiles // WIDE)
        state = state.grown(
            codes=leaves * width * WIDE,
            boxes=leaves * WIDE,
            **dict.fromkeys(("seat", "axis", "split", "child"), leaves),
            leaf=tiles * WIDE,
            high=tiles * width * WIDE,
            top_high=groups * width * WIDE,
        )
        state = state.grown(fill=255, low=tiles * width * WIDE, top_low=groups * width * WIDE)
        self.state = state.grown(fill=np.iinfo(np.int64).max, early=leaves)
        header[LEAF_ROOM], header[TILE_ROOM] = leaves, tiles

    def held(self) -> I64:
        return np.flatnonzero(self.state.arrays.place != NONE)

    def hold(self, store: Bundle[Store], boxes: I64) -> None:
        rng = np.random.default_rng(len(boxes))
        sample = store.arrays.points[rng.choice(boxes, min(len(boxes), _SAMPLE), replace=False)]
        state = self.state.arrays
        state.edges[:] = np.inf
        for j, column in enumerate(sample.T):
            edges = edges_of_bounds(column, np.empty(0), CELLS)
            state.edges[j, : len(edges)] = edges
            state.edge_count[j] = len(edges)
        self._clear()
        self.make_room(len(boxes))
        insert_all(self.state.table, store.table, rng.permutation(boxes))
        state.header[CHANGED] = 0
        state.header[BUILT] = state.header[HELD]
