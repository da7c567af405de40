"""A Z-curve over the points (paper 000, section IV-D): cells as sorted keys.

Layout: `zcurve_order`. With many coordinates a key has a few bits of each, or takes in only those
that differ most; what it can't tell apart is compared.

A search walks over cells, halved by one bit of the key after the other, all cells of one size
before any smaller one: so the largest cells of the region asked for come first. In each cell the
extremal point is tried at once: the last on the curve, which is the nearest to the region's far
corner (the first, when asking what a box covers). Cells without points are never seen, as a cell is
a stretch of the order. A cell that lies wholly in the region needs no comparison, one with a few
points is compared point by point.

Cost: a binary search a cell. `NODES` counts cells.
"""

from __future__ import annotations

import numpy as np

from rangecast.cover.index import STALE, SearchParameters, consider, is_enough, register
from rangecast.cover.papers.zcurve_order import (
    AXES,
    BITS,
    BUILT,
    CHANGED,
    DEPTH,
    END,
    FAN,
    LEAF,
    LEAVES,
    LEVELS,
    NODE_ROOM,
    NODES,
    QUEUE,
    ROOM,
    SPARE,
    SPARE_NODES,
    TABLE,
    TOP,
    ZState,
    drop,
    encode,
    insert,
    key_all,
    seek,
)
from rangecast.cover.store import WIDTH, Store, dominates
from rangecast.kernels.arrays import I32, I64, U64
from rangecast.kernels.bundle import Bundle
from rangecast.kernels.grid import edges_of_bounds
from rangecast.kernels.jit import jit

_BUCKET = 16
"""Number of points of a cell up to which they are compared one by one."""
_KEY_BITS = 62
_MAX_BITS = 8
_SAMPLE = 1 << 14
"""Number of boxes sampled to choose cells."""
_FEW = 256
"""Number of changes that never justifies a rebuild."""


@jit
def _is_small(index: ZState, begin: int, end: int) -> bool:
    """Return whether there are few points between two positions."""
    leaf, last = begin // LEAF, end // LEAF
    if leaf == last:
        return end - begin <= _BUCKET
    left = index.sizes[leaf] - begin % LEAF
    return bool(index.after[leaf] == last and left + end % LEAF <= _BUCKET)


@jit
def _search_between(
    index: ZState,
    store: Store,
    parameters: SearchParameters,
    box: int,
    begin: int,
    end: int,
    sure: bool,
    out: I32,
    filled: int,
) -> tuple[int, int]:
    """Find points between two positions, extremal ones first; don't compare them if `sure`."""
    leaf, until, step = begin // LEAF, end // LEAF, 1
    if not parameters.down:
        leaf, until, step = until, leaf, -1
    compared = 0
    while True:
        first = begin % LEAF if leaf == begin // LEAF else 0
        last = end % LEAF if leaf == end // LEAF else int(index.sizes[leaf])
        at = leaf * LEAF + (first if parameters.down else last - 1)
        for _ in range(last - first):
            other = index.boxes[at]
            at += step
            holds = sure
            if not sure:
                compared += 1
                holds = (
                    dominates(store, box, other)
                    if parameters.down
                    else dominates(store, other, box)
                )
            if holds:
                filled = consider(store, parameters, other, out, filled)
                if is_enough(parameters, filled):
                    return filled, compared
        if leaf == until:
            return filled, compared
        leaf = int(index.after[leaf] if parameters.down else index.before[leaf])


@jit
def _extreme(index: ZState, begin: int, end: int, down: bool) -> int:
    """Return the first box, or the last one, between two positions."""
    if down:
        return int(index.boxes[begin])
    if end % LEAF:
        return int(index.boxes[end - 1])
    leaf = index.before[end // LEAF]
    return int(index.boxes[leaf * LEAF + index.sizes[leaf] - 1])


@jit
def _search(
    index: ZState, store: Store, parameters: SearchParameters, box: int, out: I32, filled: int
) -> tuple[int, int, int]:
    header, down, bit = index.header, parameters.down, np.uint64(1)
    axes, bits = header[AXES], header[BITS]
    encode(index, store, box)
    whole = axes == store.header[WIDTH]
    index.cells[0], index.masks[0] = bit, (bit << np.uint64(axes)) - bit
    index.begins[0], index.ends[0] = index.after[END] * LEAF, END * LEAF
    waiting, here, there = int(index.after[END] != END), 0, header[QUEUE]
    visited = compared = 0
    for level in range(axes * bits):
        axis = np.uint64(level % axes)
        asked = (np.uint64(index.cell[level % axes]) >> np.uint64(bits - 1 - level // axes)) & bit
        below = np.uint64(axes * bits - level - 1)
        later = 0
        for turn in range(here, here + waiting):
            visited += 1
            begin, end = index.begins[turn], index.ends[turn]
            cell, tight = index.cells[turn] << bit, (index.masks[turn] >> axis) & bit
            border = seek(index, (cell | bit) << below, begin, end)
            for near in range(2):  # the half first that lies further into the region
                half = np.uint64(near) if down else bit - np.uint64(near)
                first, last = (begin, border) if half == 0 else (border, end)
                if first == last:
                    continue
                mask = index.masks[turn]
                if tight and half != asked:
                    if (half > asked) if down else (half < asked):
                        continue
                    mask ^= bit << axis
                sure = whole and mask == 0
                if sure or level == axes * bits - 1 or _is_small(index, first, last):
                    filled, tests = _search_between(
                        index, store, parameters, box, first, last, sure, out, filled
                    )
                else:
                    other, tests = _extreme(index, first, last, down), 1
                    holds = dominates(store, box, other) if down else dominates(store, other, box)
                    if holds:
                        filled = consider(store, parameters, other, out, filled)
                    at = there + later
                    index.cells[at], index.masks[at] = cell | half, mask
                    index.begins[at], index.ends[at] = first, last
                    later += 1
                compared += tests
                if is_enough(parameters, filled):
                    return filled, visited, compared
        here, there, waiting = there, here, later
        if waiting == 0:
            break
    return filled, visited, compared


@jit
def _room(index: ZState) -> int:
    header = index.header
    if header[CHANGED] > _FEW + 2 * header[BUILT]:
        return STALE
    leaves = header[ROOM] - header[LEAVES] + header[SPARE]
    nodes = header[NODE_ROOM] - header[NODES] + header[SPARE_NODES]
    return int(min(leaves, nodes // (header[LEVELS] + 2)))


register(ZState, insert, drop, _search, _room)


class ZCurve:
    """Covering index on a Z-curve (paper 000)."""

    name = "zcurve"

    def __init__(self, dimensions: int):
        width = 2 * dimensions
        none, words, longs = np.empty(0, np.int32), np.empty(0, np.uint64), np.empty(0, np.int64)
        state = ZState(
            edges=np.full((width, TABLE), np.inf),
            edge_count=np.zeros(width, np.int64),
            axes=np.arange(width),
            cell=np.zeros(width, np.int64),
            key=words,
            keys=words,
            boxes=none,
            sizes=none,
            after=none,
            before=none,
            spare=none,
            child=none,
            min_key=words,
            min_box=none,
            counts=none,
            spare_nodes=none,
            path=np.zeros(2 * DEPTH, np.int32),
            cells=words,
            masks=words,
            begins=longs,
            ends=longs,
            header=np.zeros(14, np.int64),
        )
        self.state = Bundle(state)
        self._set_axes(np.arange(min(width, _KEY_BITS)))
        self._fill(np.empty(0, np.int64), words)

    def _set_axes(self, axes: I64) -> None:
        state = self.state.arrays
        state.header[AXES] = len(axes)
        state.header[BITS] = min(_MAX_BITS, _KEY_BITS // len(axes))
        state.axes[: len(axes)] = axes
        state.edges[:] = np.inf
        state.edge_count[:] = 0

    def reserve(self, boxes: int) -> None:
        # A queue holds cells of one size with more than a bucket of points each.
        places = 2 * (boxes // _BUCKET + 2)
        names = ("cells", "masks", "begins", "ends")
        self.state = self.state.grown(key=boxes, **dict.fromkeys(names, places))
        self.state.arrays.header[QUEUE] = len(self.state.arrays.cells) // 2

    def make_room(self, inserts: int) -> None:
        header = self.state.arrays.header
        more = {"sizes": int(header[LEAVES]) + inserts}
        more["counts"] = int(header[NODES] + (header[LEVELS] + 2) * inserts)
        state = self.state.grown(**more)
        leaves, nodes = len(state.arrays.sizes), len(state.arrays.counts)
        state = state.grown(**dict.fromkeys(("after", "before", "spare"), leaves))
        state = state.grown(keys=leaves * LEAF, boxes=leaves * LEAF, spare_nodes=nodes)
        names = ("child", "min_key", "min_box")
        self.state = state.grown(**dict.fromkeys(names, nodes * FAN))
        header[ROOM], header[NODE_ROOM] = leaves, nodes

    def held(self) -> I64:
        return np.flatnonzero(self.state.arrays.key != 0)

    def hold(self, store: Bundle[Store], boxes: I64) -> None:
        state = self.state.arrays
        state.key[:] = 0
        rng = np.random.default_rng(len(boxes))
        sample = store.arrays.points[rng.choice(boxes, min(len(boxes), _SAMPLE), replace=False)]
        distinct = np.array([len(np.unique(column)) for column in sample.T])
        # At least two bits for each coordinate that is taken, if there are as many.
        most = min(len(distinct), _KEY_BITS // 2)
        axes = np.sort(np.argsort(-distinct, kind="stable")[:most])
        self._set_axes(axes)
        for i, axis in enumerate(axes):
            edges = edges_of_bounds(sample[:, axis], np.empty(0), 1 << int(state.header[BITS]))
            state.edges[i, : len(edges)] = edges
            state.edge_count[i] = len(edges)
        keys = np.empty(len(boxes), np.uint64)
        key_all(self.state.table, store.table, boxes, keys)
        order = np.lexsort((boxes, keys))
        self._fill(boxes[order], keys[order])
        state.header[BUILT], state.header[CHANGED] = len(boxes), 0

    def _fill(self, held: I64, keys: U64) -> None:
        """Put boxes into leaves, and leaves below nodes, three quarters full."""
        header = self.state.arrays.header
        header[SPARE] = header[SPARE_NODES] = 0
        size = LEAF * 3 // 4
        leaves = -(-len(held) // size)
        levels = _levels(leaves)
        header[LEAVES], header[LEVELS] = 1 + leaves, len(levels)
        header[NODES], header[TOP] = sum(levels), sum(levels) - 1
        self.make_room(8)
        state = self.state.arrays
        ring = np.arange(leaves + 1)  # END is the leaf 0
        state.after[ring], state.before[ring] = np.roll(ring, -1), np.roll(ring, 1)
        state.sizes[ring[1:]] = np.diff(np.append(np.arange(leaves) * size, len(held)))
        state.sizes[END] = 0
        places = LEAF + np.arange(len(held)) // size * LEAF + np.arange(len(held)) % size
        state.keys[places], state.boxes[places], state.key[held] = keys, held, keys
        children, size = ring[1:], FAN * 3 // 4
        least = keys[:: LEAF * 3 // 4], held[:: LEAF * 3 // 4]
        node = 0
        for count in levels:
            own = node + np.arange(count)
            within = np.arange(len(children))
            places = (node + within // size) * FAN + within % size
            state.child[places] = children
            state.min_key[places], state.min_box[places] = least
            state.counts[own] = np.bincount(within // size, minlength=count)
            children, least, node = own, (least[0][::size], least[1][::size]), node + count


def _levels(leaves: int) -> list[int]:
    """Return the number of nodes on each level above the leaves, lowest first."""
    counts = [max(1, -(-leaves // (FAN * 3 // 4)))]
    while counts[-1] > 1:
        counts.append(-(-counts[-1] // (FAN * 3 // 4)))
    return counts
