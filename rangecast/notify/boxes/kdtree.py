"""Points of D coordinates in a k-d tree: objects by position, interests by their 2d bounds.

Objects have a key (y, arrival) too, and each node knows the lowest one below it. A node is cut at a
value: what lies below it goes to the first child, the rest to the second. So the bounds of two
nodes never share a point, and equal points are always in one leaf, however many there are.

    at        (16 blocks, D)   an entry's coordinates; a leaf has its entries in a chain of blocks
    row       (16 blocks,)     whose entry it is
    y, arrival   (16 blocks,)  its key; empty in a tree without keys
    bounds    (nodes, 2 D)     least, then largest coordinates of the points below a node
    best_y, best_arrival   (nodes,)   the lowest key below it; empty in a tree without keys
    child     (nodes,)         first of two children; of a leaf ~b, where b is its first block
    size      (nodes,)         entries below a node
    parent, axis, cut   (nodes,)
    after     (blocks,)        the next block of a leaf; only equal points need more than one
    home      (rows,)          the leaf of each row, -1: none
    used      (3,)             nodes, blocks and levels in use

A leaf that is full becomes two. The tree is built again when it got too deep, or when half of what
it was built with is gone: amortised O(log n) for an edit.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import edited, opened
from rangecast.kernels.jit import jit

LEAF = 16
FILL = 13
"""Entries of a leaf when it is built: leaves room, so that not every insert splits a leaf."""
NODES, BLOCKS, LEVELS = 0, 1, 2
ZERO: int = np.int64(0)  # type: ignore[assignment]
"""Start value of counters: with a literal, numba would compile callees a second time."""
NO_ARRIVAL = np.iinfo(np.int64).max
"""Arrival number of an empty entry."""


@edited
class KdTree(NamedTuple):
    """Arrays of the tree: see the module's docstring."""

    at: Annotated[F64, 2]
    row: I32
    y: F64
    arrival: I64
    bounds: Annotated[F64, 2]
    best_y: F64
    best_arrival: I64
    child: I32
    size: I32
    parent: I32
    axis: I32
    cut: F64
    after: I32
    home: I32
    used: I64


@jit
def below(y: float, arrival: int, other_y: float, other_arrival: int) -> bool:
    """Return whether a key ranks before another one."""
    return bool(y < other_y or (y == other_y and arrival < other_arrival))


@jit
def _refresh(tree: KdTree, node: int) -> None:
    """Recompute the bounds and the lowest key of a node from its children."""
    d, child = tree.at.shape[1], tree.child[node]
    bounds, keyed = tree.bounds, len(tree.y) > 0
    if child >= 0:
        for j in range(d):
            bounds[node, j] = min(bounds[child, j], bounds[child + 1, j])
            bounds[node, d + j] = max(bounds[child, d + j], bounds[child + 1, d + j])
        if keyed:
            best = child
            if below(
                tree.best_y[child + 1],
                tree.best_arrival[child + 1],
                tree.best_y[child],
                tree.best_arrival[child],
            ):
                best = child + 1
            tree.best_y[node], tree.best_arrival[node] = tree.best_y[best], tree.best_arrival[best]
        return
    for j in range(d):
        bounds[node, j], bounds[node, d + j] = np.inf, -np.inf
    if keyed:
        tree.best_y[node], tree.best_arrival[node] = np.inf, NO_ARRIVAL
    block, left = ~child, tree.size[node]
    while left > 0:
        for e in range(LEAF * block, LEAF * block + min(left, LEAF)):
            for j in range(d):
                bounds[node, j] = min(bounds[node, j], tree.at[e, j])
                bounds[node, d + j] = max(bounds[node, d + j], tree.at[e, j])
            if keyed and below(
                tree.y[e], tree.arrival[e], tree.best_y[node], tree.best_arrival[node]
            ):
                tree.best_y[node], tree.best_arrival[node] = tree.y[e], tree.arrival[e]
        left -= LEAF
        block = tree.after[block]


@jit
def _partition(order: I32, begin: int, end: int, points: F64, axis: int, cut: float) -> int:
    """Move the entries below a cut before the others; return where the others begin."""
    i = begin
    for j in range(begin, end):
        if points[order[j], axis] < cut:
            order[i], order[j] = order[j], order[i]
            i += 1
    return i


@jit
def _nth(order: I32, begin: int, end: int, nth: int, points: F64, axis: int) -> float:
    """Return the n-th smallest value of the entries."""
    end -= 1
    while begin < end:
        pivot = points[order[(begin + end) >> 1], axis]
        i, j = begin, end
        while i <= j:
            while points[order[i], axis] < pivot:
                i += 1
            while points[order[j], axis] > pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i, j = i + 1, j - 1
        if nth <= j:
            end = j
        elif nth >= i:
            begin = i
        else:
            break
    return float(points[order[nth], axis])


@jit
def _cut_at(order: I32, begin: int, end: int, middle: int, points: F64, axis: int) -> float:
    """Return a value near the median with some entries below it, -inf if all are equal."""
    cut = _nth(order, begin, end, middle, points, axis)
    above, some_below, some_above = np.inf, False, False
    for j in range(begin, end):
        value = points[order[j], axis]
        some_below = some_below or value < cut
        if value > cut:
            above, some_above = min(above, value), True
    if some_below:
        return cut
    return above if some_above else -np.inf


@jit
def _fill_leaf(
    tree: KdTree,
    node: int,
    order: I32,
    begin: int,
    end: int,
    points: F64,
    rows: I32,
    ys: F64,
    arrivals: I64,
) -> bool:
    """Put entries into a new leaf; return False if there are too few blocks."""
    used, d = tree.used, points.shape[1]
    if used[BLOCKS] + max(1, (end - begin + LEAF - 1) // LEAF) > len(tree.after):
        return False
    tree.size[node] = end - begin
    tree.child[node] = ~used[BLOCKS]
    tree.after[used[BLOCKS]] = -1
    for j in range(begin, end):
        if j > begin and (j - begin) % LEAF == 0:
            tree.after[used[BLOCKS]] = used[BLOCKS] + 1
            used[BLOCKS] += 1
            tree.after[used[BLOCKS]] = -1
        e, o = LEAF * used[BLOCKS] + (j - begin) % LEAF, order[j]
        for a in range(d):
            tree.at[e, a] = points[o, a]
        tree.row[e] = rows[o]
        tree.home[rows[o]] = node
        if len(tree.y):
            tree.y[e], tree.arrival[e] = ys[o], arrivals[o]
    used[BLOCKS] += 1
    _refresh(tree, node)
    return True


@jit
def build(table: I64, points: F64, rows: I32, ys: F64, arrivals: I64) -> bool:
    """Build the tree from entries; return False if there is too little room."""
    tree = opened(table, KdTree)
    n, d = points.shape
    order = np.arange(n).astype(np.int32)
    spans = np.empty((n + 2, 4), np.int64)
    used = tree.used
    spans[0, 0], spans[0, 1], spans[0, 2], spans[0, 3] = 0, 0, n, 1
    tree.parent[0] = -1
    used[NODES], used[BLOCKS], used[LEVELS] = 1, 0, 1
    waiting = 1
    while waiting:
        waiting -= 1
        node, begin, end = spans[waiting, 0], spans[waiting, 1], spans[waiting, 2]
        level = spans[waiting, 3]
        used[LEVELS] = max(used[LEVELS], level)
        axis, middle = -1, begin
        if end - begin > FILL:
            whole = (end - begin + FILL - 1) // FILL
            target = begin + (whole // 2) * FILL
            fairest = 0
            for turn in range(d):  # the next axis in turn, unless its values are nearly all equal
                a = (level + turn) % d
                cut = _cut_at(order, begin, end, target, points, a)
                if cut == -np.inf:
                    continue
                at = _partition(order, begin, end, points, a, cut)
                smaller = min(at - begin, end - at)
                if smaller > fairest:
                    fairest, axis, middle = smaller, a, at
                    tree.cut[node], tree.axis[node] = cut, a
                if 4 * fairest >= end - begin:
                    break
        if axis < 0:
            if not _fill_leaf(tree, node, order, begin, end, points, rows, ys, arrivals):
                return False
            continue
        if used[NODES] + 2 > len(tree.child):
            return False
        middle = _partition(order, begin, end, points, axis, tree.cut[node])
        child = used[NODES]
        used[NODES] += 2
        tree.child[node], tree.size[node] = child, end - begin
        for side in range(2):
            tree.parent[child + side] = node
            spans[waiting, 0] = child + side
            spans[waiting, 1] = middle if side else begin
            spans[waiting, 2] = end if side else middle
            spans[waiting, 3] = level + 1
            waiting += 1
    for turn in range(used[NODES]):  # children have higher numbers
        node = used[NODES] - 1 - turn
        if tree.child[node] >= 0:
            _refresh(tree, node)
    return True


@jit
def _put(tree: KdTree, target: int, source: int, node: int) -> None:
    for j in range(tree.at.shape[1]):
        tree.at[target, j] = tree.at[source, j]
    tree.row[target] = tree.row[source]
    tree.home[tree.row[source]] = node
    if len(tree.y):
        tree.y[target], tree.arrival[target] = tree.y[source], tree.arrival[source]


@jit
def _new_block(tree: KdTree) -> int:
    block = int(tree.used[BLOCKS])
    tree.used[BLOCKS] += 1
    tree.after[block] = -1
    return block


@jit
def _split(tree: KdTree, node: int, level: int, point: F64) -> None:
    """Split a full leaf in two, unless all its points are equal."""
    d = tree.at.shape[1]
    axis = -1
    all_equal = True
    for turn in range(d):
        j = (level + turn) % d
        if tree.bounds[node, j] < tree.bounds[node, d + j]:  # the point is counted in already
            axis = j if axis < 0 else axis
        first = LEAF * ~tree.child[node]
        for e in range(first, first + LEAF):
            all_equal = all_equal and tree.at[e, j] == tree.at[first, j]
    pair = tree.used[NODES]
    tree.used[NODES] += 2
    block, size = ~tree.child[node], tree.size[node]
    new = _new_block(tree)
    tree.parent[pair] = tree.parent[pair + 1] = node
    if all_equal:  # perhaps a chain of them: it stays unchanged
        is_low = point[axis] < tree.at[LEAF * block, axis]
        tree.cut[node] = max(point[axis], tree.at[LEAF * block, axis])
        tree.child[pair + is_low], tree.size[pair + is_low] = ~block, size
        tree.child[pair + 1 - is_low], tree.size[pair + 1 - is_low] = ~new, 0
        left, chain = size, block
        while left > 0:
            for e in range(LEAF * chain, LEAF * chain + min(left, LEAF)):
                tree.home[tree.row[e]] = pair + is_low
            left -= LEAF
            chain = tree.after[chain]
    else:
        order = np.arange(LEAF * block, LEAF * block + LEAF).astype(np.int32)
        cut = -np.inf
        for turn in range(d):
            axis = (level + turn) % d
            cut = _cut_at(order, 0, LEAF, LEAF // 2, tree.at, axis)
            if cut > -np.inf:
                break
        tree.cut[node] = cut
        stay = move = 0
        for e in range(LEAF * block, LEAF * block + LEAF):
            if tree.at[e, axis] < cut:
                _put(tree, LEAF * block + stay, e, pair)
                stay += 1
            else:
                _put(tree, LEAF * new + move, e, pair + 1)
                move += 1
        for e in range(LEAF * block + stay, LEAF * block + LEAF):
            tree.row[e] = -1
        tree.child[pair], tree.child[pair + 1] = ~block, ~new
        tree.size[pair], tree.size[pair + 1] = stay, move
    tree.axis[node], tree.child[node] = axis, pair
    _refresh(tree, pair)
    _refresh(tree, pair + 1)


@jit
def insert(table: I64, row: int, point: F64, y: float, arrival: int) -> None:
    """Insert an entry; there must be room for one more block and two more nodes."""
    tree = opened(table, KdTree)
    d, keyed = tree.at.shape[1], len(tree.y) > 0
    node, level = ZERO, ZERO + 1
    while True:
        for j in range(d):
            tree.bounds[node, j] = min(tree.bounds[node, j], point[j])
            tree.bounds[node, d + j] = max(tree.bounds[node, d + j], point[j])
        if keyed and below(y, arrival, tree.best_y[node], tree.best_arrival[node]):
            tree.best_y[node], tree.best_arrival[node] = y, arrival
        child, size = tree.child[node], tree.size[node]
        if child < 0:
            if size < LEAF:
                break
            is_new = False
            for j in range(d):
                is_new = is_new or tree.bounds[node, j] < tree.bounds[node, d + j]
            if not is_new:
                last = ~child
                while tree.after[last] >= 0:
                    last = tree.after[last]
                if size % LEAF == 0:
                    tree.after[last] = _new_block(tree)
                break
            _split(tree, node, level, point)
            child = tree.child[node]
            tree.used[LEVELS] = max(tree.used[LEVELS], level + 1)
        tree.size[node] += 1
        node = ZERO + child + (point[tree.axis[node]] >= tree.cut[node])
        level += 1
    block, left = ~tree.child[node], tree.size[node]
    while left >= LEAF:
        block = tree.after[block]
        left -= LEAF
    e = LEAF * block + left
    for j in range(d):
        tree.at[e, j] = point[j]
    tree.row[e], tree.home[row] = row, node
    tree.size[node] += 1
    if keyed:
        tree.y[e], tree.arrival[e] = y, arrival


@jit
def find(tree: KdTree, row: int) -> int:
    """Return the entry of a row."""
    block = ~tree.child[tree.home[row]]
    while True:
        for e in range(LEAF * block, LEAF * block + LEAF):
            if tree.row[e] == row:
                return e
        block = tree.after[block]


@jit
def delete(table: I64, row: int) -> None:
    """Remove the entry of a row."""
    tree = opened(table, KdTree)
    e, node = find(tree, row), ZERO + tree.home[row]
    block, before, left = ~tree.child[node], -1, tree.size[node]
    while left > LEAF:
        block, before = tree.after[block], block
        left -= LEAF
    last = LEAF * block + left - 1
    if e != last:
        _put(tree, e, last, node)
    tree.row[last] = -1
    if left == 1 and before >= 0:
        tree.after[before] = -1
    tree.home[row] = -1
    while node >= 0:
        tree.size[node] -= 1
        _refresh(tree, node)
        node = ZERO + tree.parent[node]


@jit
def rekey(table: I64, row: int, y: float) -> None:
    """Set the y of a row's entry."""
    tree = opened(table, KdTree)
    tree.y[find(tree, row)] = y
    node = ZERO + tree.home[row]
    while node >= 0:
        _refresh(tree, node)
        node = ZERO + tree.parent[node]


@jit
def rekey_many(table: I64, rows: I32, ys: F64) -> None:
    """Set the ys of several rows' entries."""
    tree = opened(table, KdTree)
    for i in range(len(rows)):
        if tree.y[find(tree, rows[i])] != ys[i]:
            rekey(table, rows[i], ys[i])


@jit
def describe(table: I64, rows: I32, at: F64, ys: F64, arrivals: I64) -> None:
    """Write the position and key of some rows."""
    tree = opened(table, KdTree)
    for i in range(len(rows)):
        e = find(tree, rows[i])
        for j in range(tree.at.shape[1]):
            at[i, j] = tree.at[e, j]
        ys[i], arrivals[i] = tree.y[e], tree.arrival[e]
