"""Detection of edges of a polygon that cross or overlap.

Edges are compared in order of their lower ends, each with those that start before it ends: about
linear for the polygons of maps, quadratic where all edges span the same heights.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.kernels.jit import jit
from rangecast.model.shapes.exact.predicates import orientation


@jit
def meet(xs: F64, ys: F64, a: int, b: int, follows: bool) -> bool:
    """Return whether two edges cross or overlap; touching in a point is not a crossing.

    follows   edge b starts where a ends
    """
    ax, ay, bx, by = xs[a], ys[a], xs[a + 1], ys[a + 1]
    cx, cy, dx, dy = xs[b], ys[b], xs[b + 1], ys[b + 1]
    if max(cx, dx) < min(ax, bx) or min(cx, dx) > max(ax, bx):
        return False
    if max(cy, dy) < min(ay, by) or min(cy, dy) > max(ay, by):
        return False
    c = orientation(ax, ay, bx, by, cx, cy)
    d = orientation(ax, ay, bx, by, dx, dy)
    if c == 0 and d == 0:  # on one line: do they share more than a point?
        if abs(bx - ax) >= abs(by - ay):
            low, high = max(min(ax, bx), min(cx, dx)), min(max(ax, bx), max(cx, dx))
        else:
            low, high = max(min(ay, by), min(cy, dy)), min(max(ay, by), max(cy, dy))
        return bool(low < high)
    if follows or c * d >= 0:
        return False
    return orientation(cx, cy, dx, dy, ax, ay) * orientation(cx, cy, dx, dy, bx, by) < 0


@jit
def crossing(xs: F64, ys: F64, ends: I64) -> tuple[int, int]:
    """Return the first corners of two edges that cross or overlap; (-1, -1) if none do.

    ends   (rings,) end of each ring's corners
    """
    count = len(xs) - len(ends)
    edges = np.empty(count, np.int64)
    at = ring = 0
    for corner in range(len(xs) - 1):
        if corner + 1 == ends[ring]:
            ring += 1
            continue
        edges[at] = corner
        at += 1
    low = np.minimum(ys[edges], ys[edges + 1])
    edges = edges[np.argsort(low, kind="mergesort")]
    for i in range(count):
        a = edges[i]
        high = max(ys[a], ys[a + 1])
        for j in range(i + 1, count):
            b = edges[j]
            if min(ys[b], ys[b + 1]) > high:
                break
            follows = (xs[a + 1] == xs[b] and ys[a + 1] == ys[b]) or (
                xs[b + 1] == xs[a] and ys[b + 1] == ys[a]
            )
            if meet(xs, ys, a, b, follows):
                return a, b
    return -1, -1
