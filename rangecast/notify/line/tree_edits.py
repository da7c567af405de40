"""Edits of the tree of `tree.py`: building, splitting a leaf, inserting and deleting an entry.

    row      (16 leaves,)  the interest of an entry
    cut, cut_row (nodes,)  an entry goes to the second child if its (coordinate, row) is not below
    home     (rows,)       the leaf's node of each row, -1: none
    used     (4,)          nodes, leaves, spare pairs of nodes and spare leaves, which are listed in
    pairs, leaves          (leaves,)

A leaf that is full becomes two. If that makes the tree too deep, the highest lopsided subtree on
the way is rebuilt, as a scapegoat tree does: amortised O(log^2 m) work for an entry.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import edited, opened
from rangecast.kernels.jit import jit
from rangecast.notify.line.tree import LEAF, STACK, Tree

FILL = 13
"""Entries of a leaf when it is built: leaves room, so that not every insert splits a leaf."""
LOPSIDED = 0.7
NODES, LEAVES, PAIRS_SPARE, LEAVES_SPARE = 0, 1, 2, 3


@edited
class EditArrays(NamedTuple):
    """Arrays that only edits need."""

    row: I32
    cut: F64
    cut_row: I32
    home: I32
    used: I64
    pairs: I32
    leaves: I32


@jit
def _before(key: float, row: int, other_key: float, other_row: int) -> bool:
    return bool(key < other_key or (key == other_key and row < other_row))


@jit
def _select(order: I32, begin: int, end: int, nth: int, keys: F64, rows: I32) -> None:
    """Move the n entries with the lowest (key, row) to the front."""
    end -= 1
    while begin < end:
        middle = (begin + end) >> 1
        for low, high in ((begin, middle), (begin, end), (middle, end)):
            first, two = order[low], order[high]
            if _before(keys[two], rows[two], keys[first], rows[first]):
                order[low], order[high] = two, first
        key, row = keys[order[middle]], rows[order[middle]]
        i, j = begin, end
        while i <= j:
            while _before(keys[order[i]], rows[order[i]], key, row):
                i += 1
            while _before(key, row, keys[order[j]], rows[order[j]]):
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if nth <= j:
            end = j
        elif nth >= i:
            begin = i
        else:
            return


@jit
def _take(spare: I32, used: I64, listed: int, made: int, step: int) -> int:
    """Return a spare number if there is one, else a new one."""
    if used[listed]:
        used[listed] -= 1
        return int(spare[used[listed]])
    used[made] += step
    return int(used[made] - step)


@jit
def _clear(tree: Tree, e: int) -> None:
    tree.low_l[e] = tree.high_l[e] = tree.low_r[e] = tree.high_r[e] = np.nan


@jit
def _bound(tree: Tree, node: int) -> None:
    """Compute the bounds of a node from its children."""
    bounds, child = tree.bounds[node], tree.child[node]
    if child >= 0:
        first, two = tree.bounds[child], tree.bounds[child + 1]
        bounds[0], bounds[1] = min(first[0], two[0]), max(first[1], two[1])
        bounds[2], bounds[3] = min(first[2], two[2]), max(first[3], two[3])
        return
    bounds[0], bounds[1], bounds[2], bounds[3] = np.inf, -np.inf, np.inf, -np.inf
    for e in range(LEAF * ~child, LEAF * ~child + tree.size[node]):
        bounds[0], bounds[1] = min(bounds[0], tree.low_l[e]), max(bounds[1], tree.high_l[e])
        bounds[2], bounds[3] = min(bounds[2], tree.low_r[e]), max(bounds[3], tree.high_r[e])


@jit
def build(
    table: I64,
    upkeep: I64,
    root: int,
    root_depth: int,
    low_l: F64,
    high_l: F64,
    low_r: F64,
    high_r: F64,
    rows: I32,
) -> None:
    """Build the subtree of entries below an empty node."""
    tree, keep = opened(table, Tree), opened(upkeep, EditArrays)
    order = np.arange(len(rows)).astype(np.int32)
    nodes, spans = np.empty(STACK, np.int64), np.empty((STACK, 3), np.int64)
    made = np.empty(4 * (len(rows) // FILL + 1), np.int32)
    nodes[0] = root
    spans[0, 0], spans[0, 1], spans[0, 2] = 0, len(rows), root_depth
    waiting, count = 1, 0
    while waiting:
        waiting -= 1
        node, begin, end = nodes[waiting], spans[waiting, 0], spans[waiting, 1]
        depth = spans[waiting, 2]
        tree.size[node] = end - begin
        made[count] = node
        count += 1
        if end - begin <= FILL:
            leaf = _take(keep.leaves, keep.used, LEAVES_SPARE, LEAVES, 1)
            tree.child[node] = ~leaf
            for e in range(LEAF * leaf, LEAF * leaf + LEAF):
                _clear(tree, e)
            for j in range(begin, end):
                e, o = LEAF * leaf + j - begin, order[j]
                tree.low_l[e], tree.high_l[e] = low_l[o], high_l[o]
                tree.low_r[e], tree.high_r[e] = low_r[o], high_r[o]
                keep.row[e] = rows[o]
                keep.home[rows[o]] = node
            continue
        whole = (end - begin + FILL - 1) // FILL
        middle = begin + (whole // 2) * FILL
        keys = low_r if depth & 1 else low_l
        _select(order, begin, end, middle, keys, rows)
        keep.cut[node], keep.cut_row[node] = keys[order[middle]], rows[order[middle]]
        pair = _take(keep.pairs, keep.used, PAIRS_SPARE, NODES, 2)
        tree.child[node] = pair
        for side in range(2):
            nodes[waiting] = pair + side
            spans[waiting, 0] = middle if side else begin
            spans[waiting, 1] = end if side else middle
            spans[waiting, 2] = depth + 1
            waiting += 1
    for turn in range(count):
        _bound(tree, made[count - 1 - turn])


@jit
def dissolve(
    table: I64,
    upkeep: I64,
    root: int,
    low_l: F64,
    high_l: F64,
    low_r: F64,
    high_r: F64,
    rows: I32,
) -> None:
    """Copy out the entries below a node, and free its nodes and leaves."""
    tree, keep = opened(table, Tree), opened(upkeep, EditArrays)
    stack = np.empty(STACK, np.int32)
    stack[0] = root
    depth, n = 1, 0
    while depth:
        depth -= 1
        node = stack[depth]
        child = tree.child[node]
        if child >= 0:
            stack[depth], stack[depth + 1] = child, child + 1
            depth += 2
            keep.pairs[keep.used[PAIRS_SPARE]] = child
            keep.used[PAIRS_SPARE] += 1
            continue
        for e in range(LEAF * ~child, LEAF * ~child + tree.size[node]):
            low_l[n], high_l[n], low_r[n], high_r[n] = (
                tree.low_l[e],
                tree.high_l[e],
                tree.low_r[e],
                tree.high_r[e],
            )
            rows[n] = keep.row[e]
            n += 1
        tree.size[node] = 0
        keep.leaves[keep.used[LEAVES_SPARE]] = ~child
        keep.used[LEAVES_SPARE] += 1


@jit
def _move(tree: Tree, keep: EditArrays, target: int, source: int, node: int) -> None:
    tree.low_l[target], tree.high_l[target] = tree.low_l[source], tree.high_l[source]
    tree.low_r[target], tree.high_r[target] = tree.low_r[source], tree.high_r[source]
    keep.row[target] = keep.row[source]
    keep.home[keep.row[target]] = node


@jit
def _split(tree: Tree, keep: EditArrays, node: int, depth: int) -> None:
    """Split a full leaf in two."""
    old = ~tree.child[node]
    new = _take(keep.leaves, keep.used, LEAVES_SPARE, LEAVES, 1)
    pair = _take(keep.pairs, keep.used, PAIRS_SPARE, NODES, 2)
    keys = tree.low_r if depth & 1 else tree.low_l
    order = np.arange(LEAF * old, LEAF * old + LEAF).astype(np.int32)
    _select(order, 0, LEAF, LEAF // 2, keys, keep.row)
    middle = order[LEAF // 2]
    keep.cut[node], keep.cut_row[node] = keys[middle], keep.row[middle]
    stay = move = 0
    for e in range(LEAF * old, LEAF * old + LEAF):
        if _before(keys[e], keep.row[e], keep.cut[node], keep.cut_row[node]):
            _move(tree, keep, LEAF * old + stay, e, pair)
            stay += 1
        else:
            _move(tree, keep, LEAF * new + move, e, pair + 1)
            move += 1
    for e in range(LEAF):
        if e >= stay:
            _clear(tree, LEAF * old + e)
        if e >= move:
            _clear(tree, LEAF * new + e)
    tree.child[node] = pair
    tree.child[pair], tree.child[pair + 1] = ~old, ~new
    tree.size[pair], tree.size[pair + 1] = stay, move
    _bound(tree, pair)
    _bound(tree, pair + 1)


@jit
def insert(
    table: I64,
    upkeep: I64,
    row: int,
    low_l: float,
    high_l: float,
    low_r: float,
    high_r: float,
    deepest: int,
    path: I32,
) -> int:
    """Insert an entry; return the depth in `path` of a subtree to rebuild, or -1."""
    tree, keep = opened(table, Tree), opened(upkeep, EditArrays)
    node = depth = 0
    while True:
        tree.size[node] += 1
        bounds, child = tree.bounds[node], tree.child[node]
        bounds[0], bounds[1] = min(bounds[0], low_l), max(bounds[1], high_l)
        bounds[2], bounds[3] = min(bounds[2], low_r), max(bounds[3], high_r)
        path[depth] = node
        if child < 0:
            break
        key = low_r if depth & 1 else low_l
        node = child + (not _before(key, row, keep.cut[node], keep.cut_row[node]))
        depth += 1
    e = LEAF * ~child + tree.size[node] - 1
    tree.low_l[e], tree.high_l[e], tree.low_r[e], tree.high_r[e] = low_l, high_l, low_r, high_r
    keep.row[e], keep.home[row] = row, node
    if tree.size[node] < LEAF:
        return -1
    _split(tree, keep, node, depth)
    if depth < deepest:
        return -1
    lopsided = -1
    for above in range(depth):
        if tree.size[path[above + 1]] > LOPSIDED * tree.size[path[above]]:
            lopsided = above
            break
    return lopsided


@jit
def delete(table: I64, upkeep: I64, row: int, path: I32) -> None:
    """Remove the entry of a row."""
    tree, keep = opened(table, Tree), opened(upkeep, EditArrays)
    home = keep.home[row]
    e = LEAF * ~tree.child[home]
    while keep.row[e] != row:
        e += 1
    node = depth = 0
    while True:
        path[depth] = node
        tree.size[node] -= 1
        if node == home:
            break
        key = tree.low_r[e] if depth & 1 else tree.low_l[e]
        node = tree.child[node] + (not _before(key, row, keep.cut[node], keep.cut_row[node]))
        depth += 1
    last = LEAF * ~tree.child[home] + tree.size[home]
    if e != last:
        _move(tree, keep, e, last, home)
    _clear(tree, last)
    keep.home[row] = -1
    for turn in range(depth + 1):
        _bound(tree, path[depth - turn])
