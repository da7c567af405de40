"""Paint-Dense under an upper bound: the region of a change as disjoint boxes, from objects alone.

Each interval of heights (see `sweep.py`) is tiled as a line is. A tile that the interval below has
too, for the same object, goes on upwards as one box.

Appendix D of paper 001, Algorithms 8 to 11.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import opened
from rangecast.kernels.jit import jit
from rangecast.notify.boxes.kdtree import LEVELS, ZERO, KdTree, find
from rangecast.notify.boxes.regions import OWN, Tiles
from rangecast.notify.upper_bound.sweep import (
    COUNT,
    FREE,
    Sweep,
    begin_passing,
    end_of,
    end_passing,
    is_between,
    max_x,
    min_x,
    next_exposed,
    sweep_upwards,
)
from rangecast.notify.upper_bound.tiles import gain_tiles, region_tiles

NO_TILES, NO_INTERVALS = -1, -2
"""Results if there is not enough room."""


@jit
def _add_boxes(
    s: Sweep,
    count: int,
    axis: int,
    domain: F64,
    z: int,
    height: float,
    rival: int,
    out: Tiles,
    n: int,
    last: I32,
    lasts: int,
) -> tuple[int, int]:
    """Add the tiles of interval z from a height on, or extend boxes of the interval below.

    `last` has the boxes of the interval below, from east to west, and those of this one then.
    Return the number of boxes, and of those in this interval.
    """
    up, top = 1 - axis, end_of(s, z)
    low = max(height, s.start[s.order[z]])
    now = np.empty(count, np.int32)
    i = 0
    for t in range(count):
        l0, l1, r0, r1 = s.tiles[4 * t], s.tiles[4 * t + 1], s.tiles[4 * t + 2], s.tiles[4 * t + 3]
        while i < lasts and out.bounds[last[i], 4 + axis] > l1:
            i += 1
        if i < lasts:
            box = out.bounds[last[i]]
            if (
                box[axis] == l0
                and box[4 + axis] == l1
                and box[2 + axis] == r0
                and box[6 + axis] == r1
            ):
                box[6 + up] = top
                now[t] = last[i]
                i += 1
                continue
        box = out.bounds[n]
        box[axis], box[4 + axis], box[2 + axis], box[6 + axis] = l0, l1, r0, r1
        box[up], box[4 + up], box[2 + up], box[6 + up] = domain[0], domain[1], low, top
        out.rival[n] = rival
        now[t] = n
        n += 1
    for t in range(count):
        last[t] = now[t]
    return n, count


@jit
def paint_dense(
    objects_table: I64,
    axis: int,
    domain: F64,
    row: int,
    y: float,
    k: int,
    groups: int,
    sweep_table: I64,
    out_table: I64,
    work: I64,
) -> int:
    """Write the tiles of a pending change of y; return their number, or which resource ran out.

    `domain` are the least and the largest lower bound of interests on the other attribute.
    """
    objects, s, out = (
        opened(objects_table, KdTree),
        opened(sweep_table, Sweep),
        opened(out_table, Tiles),
    )
    e, up = find(objects, row), 1 - axis
    x, height = objects.at[e, axis], objects.at[e, up]
    old, arrival = objects.y[e], objects.arrival[e]
    floor_y = min(y, old)
    if floor_y == np.inf:
        return 0
    stack = np.empty(objects.used[LEVELS] + 2, np.int32)
    last = np.empty(k, np.int32)
    count = sweep_upwards(objects, axis, x, height, floor_y, arrival, k, s, stack, work)
    if count < 0:
        return NO_INTERVALS
    n = lasts = ZERO
    for z in range(count):
        if n + k > len(out.rival):
            return NO_TILES
        tiles = region_tiles(s, s.order[z], k, x, groups)
        n, lasts = _add_boxes(s, tiles, axis, domain, z, height, OWN, out, n, last, lasts)
    limit = arrival if y < np.inf else ZERO - 1
    swept_y, swept_arrival = floor_y, arrival
    while y > old:
        for z in range(s.used[COUNT]):
            slot = s.order[z]
            s.lo[z], s.hi[z], s.high[z] = min_x(s, slot, k), max_x(s, slot, k), end_of(s, z)
        z = next_exposed(objects, axis, swept_y, swept_arrival, y, limit, s, stack, work)
        if z < 0:
            break
        if s.used[FREE] == 0:
            return NO_INTERVALS
        e = s.found[s.order[z]]
        position, there = objects.at[e, axis], objects.at[e, up]
        first = begin_passing(s, z, k, there)
        z, lasts = first, ZERO
        while is_between(s, z, k, position):
            if n + k > len(out.rival):
                return NO_TILES
            tiles = gain_tiles(s, s.order[z], k, x, position, groups)
            n, lasts = _add_boxes(
                s, tiles, axis, domain, z, there, objects.row[e], out, n, last, lasts
            )
            z += 1
        end_passing(s, objects, first, k, x, position)
        swept_y, swept_arrival = objects.y[e], objects.arrival[e]
    return n
