"""Queries of a k-d tree: the best points of a box; how many, and which, lie within bounds.

Bounds are least and then largest coordinates, all included, as nodes have them.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, Bool
from rangecast.kernels.bundle import opened
from rangecast.kernels.jit import jit
from rangecast.notify.boxes.kdtree import LEAF, LEVELS, KdTree, below


@jit
def best_of(
    tree: KdTree, lo: F64, hi: F64, k: int, rows: I32, ys: F64, arrivals: I64, stack: I32
) -> int:
    """Write the top k points of a box, the best first; return their number."""
    at, y, arrival, bounds = tree.at, tree.y, tree.arrival, tree.bounds
    best_y, best_arrival, child, d = tree.best_y, tree.best_arrival, tree.child, tree.at.shape[1]
    row, size, after = tree.row, tree.size, tree.after
    stack[0] = 0
    depth, n = 1, 0
    limit_y, limit_arrival = np.inf, -1
    while depth:
        depth -= 1
        node = stack[depth]
        if not below(best_y[node], best_arrival[node], limit_y, limit_arrival):
            continue
        apart = False
        for j in range(d):
            apart |= bounds[node, j] > hi[j] or bounds[node, d + j] < lo[j]
        if apart:
            continue
        first = child[node]
        if first >= 0:
            second = below(
                best_y[first + 1], best_arrival[first + 1], best_y[first], best_arrival[first]
            )
            stack[depth], stack[depth + 1] = first + 1 - second, first + second
            depth += 2
            continue
        block, left = ~first, size[node]
        while left > 0:
            for e in range(LEAF * block, LEAF * block + min(left, LEAF)):
                if not below(y[e], arrival[e], limit_y, limit_arrival):
                    continue
                inside = True
                for j in range(d):
                    inside &= lo[j] <= at[e, j] <= hi[j]
                if not inside:
                    continue
                n = min(n + 1, k)
                slot = n - 1
                while slot and below(y[e], arrival[e], ys[slot - 1], arrivals[slot - 1]):
                    rows[slot], ys[slot] = rows[slot - 1], ys[slot - 1]
                    arrivals[slot] = arrivals[slot - 1]
                    slot -= 1
                rows[slot], ys[slot], arrivals[slot] = row[e], y[e], arrival[e]
                if n == k:
                    limit_y, limit_arrival = ys[k - 1], arrivals[k - 1]
            left -= LEAF
            block = after[block]
    return n


@jit
def best_in(table: I64, lo: F64, hi: F64, rows: I32, ys: F64, arrivals: I64) -> int:
    """Write the best points of a box, up to the room; return their number."""
    tree = opened(table, KdTree)
    stack = np.empty(tree.used[LEVELS] + 2, np.int32)
    return best_of(tree, lo, hi, len(rows), rows, ys, arrivals, stack)


@jit
def _walk(tree: KdTree, within: F64, most: int, entries: I32, stack: I32) -> int:
    """Return the number of points within bounds; stop beyond `most`.

    Entries are written while there is room; without room, whole nodes are counted.
    """
    at, bounds, child, d = tree.at, tree.bounds, tree.child, tree.at.shape[1]
    size, after, room = tree.size, tree.after, len(entries)
    stack[0] = 0
    depth, n = 1, 0
    while depth and n <= most:
        depth -= 1
        node = stack[depth]
        apart, inside = size[node] == 0, room == 0
        for j in range(d):
            apart |= bounds[node, j] > within[d + j] or bounds[node, d + j] < within[j]
            inside &= bounds[node, j] >= within[j] and bounds[node, d + j] <= within[d + j]
        if apart:
            continue
        if inside:
            n += size[node]
            continue
        first = child[node]
        if first >= 0:
            stack[depth], stack[depth + 1] = first + 1, first
            depth += 2
            continue
        block, left = ~first, size[node]
        while left > 0:
            for e in range(LEAF * block, LEAF * block + min(left, LEAF)):
                inside = True
                for j in range(d):
                    inside &= within[j] <= at[e, j] <= within[d + j]
                if inside and n < room:
                    entries[n] = e
                n += inside
            left -= LEAF
            block = after[block]
    return n


@jit
def count_within(tree: KdTree, within: F64, most: int, stack: I32) -> int:
    """Return the number of points within bounds; beyond `most`, any larger number."""
    return _walk(tree, within, most, stack[:0], stack)


@jit
def count_in(table: I64, within: F64, most: int) -> int:
    """Return the number of points within bounds; beyond `most`, any larger number."""
    tree = opened(table, KdTree)
    return count_within(tree, within, most, np.empty(tree.used[LEVELS] + 2, np.int32))


@jit
def entries_within(tree: KdTree, within: F64, entries: I32, stack: I32) -> int:
    """Write the entries within bounds; return their number. There must be room for all."""
    return _walk(tree, within, len(entries), entries, stack) if len(entries) else 0


@jit
def mark_within(table: I64, tiles: F64, entries: I32, marks: Bool) -> None:
    """Mark the rows of all points within one of these bounds."""
    tree = opened(table, KdTree)
    stack = np.empty(tree.used[LEVELS] + 2, np.int32)
    for i in range(len(tiles)):
        for j in range(entries_within(tree, tiles[i], entries, stack)):
            marks[tree.row[entries[j]]] = True


@jit
def entries_in(table: I64, within: F64, entries: I32) -> int:
    """Write the entries within bounds; return their number. There must be room for all."""
    tree = opened(table, KdTree)
    return entries_within(tree, within, entries, np.empty(tree.used[LEVELS] + 2, np.int32))


@jit
def foreign_within(tree: KdTree, within: F64, box: F64, two: F64, stack: I32) -> int:
    """Return an entry within bounds but outside two others, -1 if there is none."""
    at, bounds, child, d = tree.at, tree.bounds, tree.child, tree.at.shape[1]
    stack[0] = 0
    depth = 1
    while depth:
        depth -= 1
        node = stack[depth]
        apart = tree.size[node] == 0
        for j in range(d):
            apart |= bounds[node, j] > within[d + j] or bounds[node, d + j] < within[j]
        if apart:
            continue
        in_one = in_two = True
        for j in range(d):
            low, high = bounds[node, j], bounds[node, d + j]
            in_one &= box[j] <= low and high <= box[d + j]
            in_two &= two[j] <= low and high <= two[d + j]
        if in_one or in_two:
            continue
        first = child[node]
        if first >= 0:
            stack[depth], stack[depth + 1] = first + 1, first
            depth += 2
            continue
        block, left = ~first, tree.size[node]
        while left > 0:
            for e in range(LEAF * block, LEAF * block + min(left, LEAF)):
                inside = True
                for j in range(d):
                    inside &= within[j] <= at[e, j] <= within[d + j]
                if not inside:
                    continue
                in_one = in_two = True
                for j in range(d):
                    in_one &= box[j] <= at[e, j] <= box[d + j]
                    in_two &= two[j] <= at[e, j] <= two[d + j]
                if not in_one and not in_two:
                    return e
            left -= LEAF
            block = tree.after[block]
    return -1
