"""B+-tree of boxes in Z-order (Morton order).

Quantiles divide each coordinate into a power-of-two number of cells; the interleaved bits of a
point's cells are its key (`kernels.curves.morton`). The tree is keyed by (key, box): linked leaves
of up to 128 boxes, below nodes of up to 64 children. A full leaf or node is split; an underfull one
is merged with its sibling if both together are at most half full. So an insert or a delete moves
entries within about one leaf, and one node per level: O(log n). `MOVED` counts them.

A node has, for each child but the first, the least (key, box) that may be below it.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from rangecast.cover.store import WIDTH, Store
from rangecast.kernels.arrays import F64, I32, I64, U64
from rangecast.kernels.bundle import edited, opened, pointers
from rangecast.kernels.curves.morton import key_of
from rangecast.kernels.grid import cell_in_table
from rangecast.kernels.jit import jit

LEAF, FAN = 128, 64
DEPTH = 12
"""Maximum levels of nodes: all but the top have nodes of 8 or more children on average."""
TABLE = 255
"""Size of the edge table of one coordinate."""
END = 0
"""Sentinel leaf after the last and before the first one; it has no boxes."""

# Items of `header`: coordinates in a key and bits of each; leaves used, free and allocated; nodes
# used, free and allocated; the top node and the levels of nodes; boxes at the last build, changes
# since; capacity of a queue; entries moved.
AXES, BITS, LEAVES, SPARE, ROOM, NODES, SPARE_NODES, NODE_ROOM = range(8)
TOP, LEVELS, BUILT, CHANGED, QUEUE, MOVED = range(8, 14)


@edited
class ZState(NamedTuple):
    """Arrays of the order.

    A position is leaf * LEAF + index in the leaf; END * LEAF follows all boxes.
    """

    edges: Annotated[F64, 2]
    """(2d, TABLE) edges by coordinate of the key, padded with +inf."""
    edge_count: I64
    axes: I64
    """(2d,) the coordinates in the key."""
    cell: I64
    """(2d,) the cell of the query."""
    key: U64
    """(boxes,) 0 if a box isn't stored."""
    keys: U64
    boxes: I32
    """(leaves * LEAF)"""
    sizes: I32
    """(leaves,)"""
    after: I32
    before: I32
    """(leaves,) the neighbours of each leaf; those of END are the first and the last leaf."""
    spare: I32
    """(leaves,) free leaves."""
    child: I32
    """(nodes * FAN) leaves on the lowest level, else nodes."""
    min_key: U64
    min_box: I32
    """(nodes * FAN) smallest entry of each child but the first."""
    counts: I32
    """(nodes,) number of children."""
    spare_nodes: I32
    path: I32
    """(2 * DEPTH) by level, top first: the node on the path, and the child taken."""
    cells: U64
    masks: U64
    """(2 * places) keys of cells to visit, and which of their coordinates still equal those of the
    query.
    """
    begins: I64
    ends: I64
    header: I64


@jit
def encode(index: ZState, store: Store, box: int) -> np.uint64:
    """Write the cell of a box into `cell`; return its key."""
    point = box * store.header[WIDTH]
    for i in range(index.header[AXES]):
        value = store.points[point + index.axes[i]]
        index.cell[i] = cell_in_table(index.edges, i * TABLE, index.edge_count[i], value)
    return key_of(index.cell, index.header[AXES], index.header[BITS])


@jit
def _place(index: ZState, leaf: int, key: np.uint64, box: int, first: int, last: int) -> int:
    """Return the first index from `first` to `last` of a leaf that isn't before (key, box)."""
    begin = leaf * LEAF
    while first < last:
        middle = (first + last) >> 1
        there = index.keys[begin + middle]
        if there < key or (there == key and index.boxes[begin + middle] < box):
            first = middle + 1
        else:
            last = middle
    return first


@jit
def _leaf(index: ZState, key: np.uint64, box: int) -> int:
    """Return the leaf where (key, box) belongs, and write the path to it."""
    node = int(index.header[TOP])
    for level in range(index.header[LEVELS]):
        begin, low, high = node * FAN, 0, int(index.counts[node])
        while high - low > 1:
            middle = (low + high) >> 1
            least = index.min_key[begin + middle]
            if key < least or (key == least and box < index.min_box[begin + middle]):
                high = middle
            else:
                low = middle
        index.path[2 * level], index.path[2 * level + 1] = node, low
        node = int(index.child[begin + low])
    return node


@jit
def seek(index: ZState, key: np.uint64, begin: int, end: int) -> int:
    """Return the position of the first entry at or after a key, between two other positions."""
    leaf, last = begin // LEAF, end // LEAF
    if leaf == last:
        return leaf * LEAF + _place(index, leaf, key, -1, begin % LEAF, end % LEAF)
    first = begin % LEAF
    if index.after[leaf] == last:
        if end % LEAF and index.keys[last * LEAF] < key:
            return last * LEAF + _place(index, last, key, -1, 1, end % LEAF)
    else:
        leaf, first = _leaf(index, key, -1), 0
    size = int(index.sizes[leaf])
    at = _place(index, leaf, key, -1, first, size)
    return index.after[leaf] * LEAF if at == size else leaf * LEAF + at


# ---- leaves


@jit
def _new_leaf(index: ZState, before: int) -> int:
    """Return an empty leaf, inserted after another one."""
    header = index.header
    if header[SPARE]:
        header[SPARE] -= 1
        leaf = int(index.spare[header[SPARE]])
    else:
        leaf = header[LEAVES]
        header[LEAVES] += 1
    after = index.after[before]
    index.after[before] = index.before[after] = leaf
    index.before[leaf], index.after[leaf] = before, after
    index.sizes[leaf] = 0
    return leaf


@jit
def _unlink(index: ZState, leaf: int) -> None:
    index.after[index.before[leaf]] = index.after[leaf]
    index.before[index.after[leaf]] = index.before[leaf]
    index.spare[index.header[SPARE]] = leaf
    index.header[SPARE] += 1


@jit
def _move(index: ZState, source: int, begin: int, target: int) -> None:
    """Move the entries `begin` and later of leaf `source` to the end of leaf `target`."""
    to = target * LEAF + index.sizes[target]
    moved = index.sizes[source] - begin
    for i in range(moved):
        index.keys[to + i] = index.keys[source * LEAF + begin + i]
        index.boxes[to + i] = index.boxes[source * LEAF + begin + i]
    index.sizes[target] += moved
    index.sizes[source] = begin
    index.header[MOVED] += moved


# ---- nodes


@jit
def _new_node(index: ZState) -> int:
    header = index.header
    if header[SPARE_NODES]:
        header[SPARE_NODES] -= 1
        node = int(index.spare_nodes[header[SPARE_NODES]])
    else:
        node = header[NODES]
        header[NODES] += 1
    index.counts[node] = 0
    return node


@jit
def _free_node(index: ZState, node: int) -> None:
    index.spare_nodes[index.header[SPARE_NODES]] = node
    index.header[SPARE_NODES] += 1


@jit
def _copy_child(index: ZState, source: int, target: int) -> None:
    index.child[target] = index.child[source]
    index.min_key[target] = index.min_key[source]
    index.min_box[target] = index.min_box[source]
    index.header[MOVED] += 1


@jit
def _put_child(index: ZState, node: int, at: int, child: int, key: np.uint64, box: int) -> None:
    begin = node * FAN
    for i in range(begin + index.counts[node], begin + at, -1):
        _copy_child(index, i - 1, i)
    index.child[begin + at] = child
    index.min_key[begin + at], index.min_box[begin + at] = key, box
    index.counts[node] += 1


@jit
def _move_children(index: ZState, source: int, begin: int, target: int) -> None:
    """Move the children `begin` and later of node `source` to the end of node `target`."""
    to = target * FAN + index.counts[target]
    moved = index.counts[source] - begin
    for i in range(moved):
        _copy_child(index, source * FAN + begin + i, to + i)
    index.counts[target] += moved
    index.counts[source] = begin


@jit
def _add_child(index: ZState, child: int, key: np.uint64, box: int) -> None:
    """Insert a leaf after the one at the end of the path; split full nodes."""
    header = index.header
    for level in range(header[LEVELS] - 1, -1, -1):
        node, at = int(index.path[2 * level]), int(index.path[2 * level + 1]) + 1
        if index.counts[node] < FAN:
            _put_child(index, node, at, child, key, box)
            return
        new = _new_node(index)
        _move_children(index, node, FAN // 2, new)
        if at > FAN // 2:
            _put_child(index, new, at - FAN // 2, child, key, box)
        else:
            _put_child(index, node, at, child, key, box)
        child, key, box = new, index.min_key[new * FAN], int(index.min_box[new * FAN])
    top = _new_node(index)
    _put_child(index, top, 0, header[TOP], key, box)
    _put_child(index, top, 1, child, key, box)
    header[TOP] = top
    header[LEVELS] += 1


@jit
def _join(index: ZState, node: int, other: int, parent: int, at: int) -> None:
    """Move all children of `other`, child `at` of a parent, to the end of the node before it."""
    index.min_key[other * FAN] = index.min_key[parent * FAN + at]
    index.min_box[other * FAN] = index.min_box[parent * FAN + at]
    _move_children(index, other, 0, node)
    _free_node(index, other)


@jit
def _remove_child(index: ZState, at: int) -> None:
    """Remove child `at` of the lowest node of the path; merge underfull nodes."""
    header = index.header
    for level in range(header[LEVELS] - 1, -1, -1):
        node = int(index.path[2 * level])
        index.counts[node] -= 1
        count = int(index.counts[node])
        for i in range(node * FAN + at, node * FAN + count):
            _copy_child(index, i + 1, i)
        if level == 0:
            break
        parent, at = int(index.path[2 * level - 2]), int(index.path[2 * level - 1])
        if count == 0:
            _free_node(index, node)
            continue
        if count >= FAN // 4:
            return
        beside = parent * FAN + at
        after = int(index.child[beside + 1]) if at + 1 < index.counts[parent] else -1
        before = int(index.child[beside - 1]) if at > 0 else -1
        if after >= 0 and count + index.counts[after] <= FAN // 2:
            at += 1
            _join(index, node, after, parent, at)
        elif before >= 0 and count + index.counts[before] <= FAN // 2:
            _join(index, before, node, parent, at)
        else:
            return
    while header[LEVELS] > 1 and index.counts[header[TOP]] == 1:
        old = header[TOP]
        header[TOP] = index.child[old * FAN]
        header[LEVELS] -= 1
        _free_node(index, old)


# ---- boxes


@jit
def insert(index: ZState, store: Store, box: int) -> None:
    """Add a box."""
    header = index.header
    key = encode(index, store, box)
    index.key[box] = key
    header[CHANGED] += 1
    if index.after[END] == END:
        _put_child(index, header[TOP], 0, _new_leaf(index, END), key, box)
    leaf = _leaf(index, key, box)
    at = _place(index, leaf, key, box, 0, int(index.sizes[leaf]))
    if index.sizes[leaf] == LEAF:
        new = _new_leaf(index, leaf)
        _move(index, leaf, LEAF // 2, new)
        _add_child(index, new, index.keys[new * LEAF], int(index.boxes[new * LEAF]))
        if at > LEAF // 2:
            leaf, at = new, at - LEAF // 2
    for i in range(leaf * LEAF + index.sizes[leaf], leaf * LEAF + at, -1):
        index.keys[i], index.boxes[i] = index.keys[i - 1], index.boxes[i - 1]
    header[MOVED] += index.sizes[leaf] - at + 1
    index.keys[leaf * LEAF + at], index.boxes[leaf * LEAF + at] = key, box
    index.sizes[leaf] += 1


@jit
def drop(index: ZState, box: int) -> None:
    """Remove a box."""
    header, key = index.header, index.key[box]
    leaf = _leaf(index, key, box)
    size = int(index.sizes[leaf]) - 1
    at = _place(index, leaf, key, box, 0, size)
    for i in range(leaf * LEAF + at, leaf * LEAF + size):
        index.keys[i], index.boxes[i] = index.keys[i + 1], index.boxes[i + 1]
    index.sizes[leaf] = size
    index.key[box] = 0
    header[CHANGED] += 1
    header[MOVED] += size - at + 1
    if size >= LEAF // 4:
        return
    level = header[LEVELS] - 1
    node, slot = int(index.path[2 * level]), int(index.path[2 * level + 1])
    after, before = int(index.after[leaf]), int(index.before[leaf])
    if size == 0:
        _unlink(index, leaf)
        _remove_child(index, slot)
    elif slot + 1 < index.counts[node] and size + index.sizes[after] <= LEAF // 2:
        _move(index, after, 0, leaf)
        _unlink(index, after)
        _remove_child(index, slot + 1)
    elif slot > 0 and size + index.sizes[before] <= LEAF // 2:
        _move(index, leaf, 0, before)
        _unlink(index, leaf)
        _remove_child(index, slot)


@jit
def key_all(index_table: I64, store_table: I64, boxes: I64, out: U64) -> None:
    """Write the keys of some boxes."""
    curve, live = pointers(opened(index_table, ZState)), pointers(opened(store_table, Store))
    for i in range(len(boxes)):
        out[i] = encode(curve, live, boxes[i])
