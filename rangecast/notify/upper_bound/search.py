"""Questions to the objects of two attributes: the nearest better ones, the next one upwards, the
next best of a rectangle.

Objects are in the k-d tree of `boxes/kdtree.py`. `axis` is the attribute of the range, called x
here; the other one has the upper bound and is called height. All bounds are included.

Appendix D of paper 001 calls them first_k, min_x(2) and min_y.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I32
from rangecast.kernels.jit import jit
from rangecast.notify.boxes.kdtree import LEAF, ZERO, KdTree, below


@jit
def first_k(
    tree: KdTree,
    axis: int,
    is_west: bool,
    x: float,
    height: float,
    y: float,
    arrival: int,
    k: int,
    places: F64,
    stack: I32,
) -> int:
    """Write the positions of the nearest k objects up to a height with a lower key, from near to
    far.

    To the west they lie at or below x, to the east above it. Return how many there are.
    """
    at, bounds, child, size = tree.at, tree.bounds, tree.child, tree.size
    up = 1 - axis
    stack[0] = 0
    depth, n = 1, 0
    while depth:
        depth -= 1
        node = stack[depth]
        if bounds[node, up] > height or not below(
            tree.best_y[node], tree.best_arrival[node], y, arrival
        ):
            continue
        if is_west:
            if bounds[node, axis] > x or (n == k and bounds[node, 2 + axis] <= places[k - 1]):
                continue
        elif bounds[node, 2 + axis] <= x or (n == k and bounds[node, axis] >= places[k - 1]):
            continue
        first = child[node]
        if first >= 0:
            if is_west:
                second = bounds[first + 1, 2 + axis] > bounds[first, 2 + axis]
            else:
                second = bounds[first + 1, axis] < bounds[first, axis]
            stack[depth], stack[depth + 1] = first + 1 - second, first + second
            depth += 2
            continue
        block, left = ~first, size[node]
        while left > 0:
            for e in range(LEAF * block, LEAF * block + min(left, LEAF)):
                v = at[e, axis]
                if (v > x) == is_west or at[e, up] > height:
                    continue
                if not below(tree.y[e], tree.arrival[e], y, arrival):
                    continue
                if n == k:
                    if v <= places[k - 1] if is_west else v >= places[k - 1]:
                        continue
                else:
                    n += 1
                slot = n - 1
                while slot and (v > places[slot - 1] if is_west else v < places[slot - 1]):
                    places[slot] = places[slot - 1]
                    slot -= 1
                places[slot] = v
            left -= LEAF
            block = tree.after[block]
    return n


@jit
def next_upwards(
    tree: KdTree,
    axis: int,
    lo: float,
    hi: float,
    height: float,
    last: int,
    y: float,
    arrival: int,
    stack: I32,
) -> int:
    """Return the lowest entry with x from lo to hi above a height, -1 if there is none.

    Its key is below the given one. At that very height it arrived after `last`.
    """
    at, bounds, child, size = tree.at, tree.bounds, tree.child, tree.size
    up = 1 - axis
    stack[0] = 0
    depth, entry = 1, ZERO - 1
    least, came = np.inf, ZERO + np.iinfo(np.int64).max
    while depth:
        depth -= 1
        node = stack[depth]
        if (
            bounds[node, 2 + up] < height
            or bounds[node, up] > least
            or bounds[node, axis] > hi
            or bounds[node, 2 + axis] < lo
            or not below(tree.best_y[node], tree.best_arrival[node], y, arrival)
        ):
            continue
        first = child[node]
        if first >= 0:
            second = bounds[first + 1, up] < bounds[first, up]
            stack[depth], stack[depth + 1] = first + 1 - second, first + second
            depth += 2
            continue
        block, left = ~first, size[node]
        while left > 0:
            for e in range(LEAF * block, LEAF * block + min(left, LEAF)):
                if (
                    lo <= at[e, axis] <= hi
                    and below(height, last, at[e, up], tree.arrival[e])
                    and below(at[e, up], tree.arrival[e], least, came)
                    and below(tree.y[e], tree.arrival[e], y, arrival)
                ):
                    entry, least, came = ZERO + e, at[e, up], tree.arrival[e]
            left -= LEAF
            block = tree.after[block]
    return entry


@jit
def next_best(
    tree: KdTree,
    axis: int,
    lo: float,
    hi: float,
    low: float,
    high: float,
    y: float,
    arrival: int,
    limit_y: float,
    limit_arrival: int,
    stack: I32,
) -> int:
    """Return the entry of a rectangle with the lowest key above a key and below a limit, or -1.

    The rectangle has x from lo to hi and heights from low to high.
    """
    at, bounds, child, size = tree.at, tree.bounds, tree.child, tree.size
    up = 1 - axis
    stack[0] = 0
    depth, entry = 1, ZERO - 1
    while depth:
        depth -= 1
        node = stack[depth]
        if (
            bounds[node, axis] > hi
            or bounds[node, 2 + axis] < lo
            or bounds[node, up] > high
            or bounds[node, 2 + up] < low
            or not below(tree.best_y[node], tree.best_arrival[node], limit_y, limit_arrival)
        ):
            continue
        first = child[node]
        if first >= 0:
            second = below(
                tree.best_y[first + 1],
                tree.best_arrival[first + 1],
                tree.best_y[first],
                tree.best_arrival[first],
            )
            stack[depth], stack[depth + 1] = first + 1 - second, first + second
            depth += 2
            continue
        block, left = ~first, size[node]
        while left > 0:
            for e in range(LEAF * block, LEAF * block + min(left, LEAF)):
                if (
                    lo <= at[e, axis] <= hi
                    and low <= at[e, up] <= high
                    and below(y, arrival, tree.y[e], tree.arrival[e])
                    and below(tree.y[e], tree.arrival[e], limit_y, limit_arrival)
                ):
                    entry, limit_y, limit_arrival = ZERO + e, tree.y[e], tree.arrival[e]
            left -= LEAF
            block = tree.after[block]
    return entry
