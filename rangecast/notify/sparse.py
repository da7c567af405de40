"""Paint-Sparse: fewer messages, by knowing where the interests lie.

As Paint-Dense, with three savings. A tile shrinks to the interests that it holds, and is left out
if there are none. From west to east, a tile is merged with the one before it if the rectangle
around both holds no other interest. And the sweep looks only for objects as far out as interests
of the remaining staircase reach: the least l and the largest r among them.

At most twice the fewest messages, and each reaches somebody. With a sketch instead of the
interests nobody is missed or reached in vain either, but a message may reach nobody.

Cost: that of Paint-Dense for fewer objects, and O(k) snaps for each of them. The snaps of one
change all lie within one region: they start from its front.
Section III-B of paper 001.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.jit import jit, jit_single
from rangecast.notify.dense import ARRIVAL, EVENT, POSITION, SWEEPING, post_tiles
from rangecast.notify.line import Line, change, next_best
from rangecast.notify.messages import FIRST_K, MIN_Y, PROBE, SNAP, Outbox
from rangecast.notify.staircase import (
    Desk,
    gather,
    look_around,
    pass_by,
    steps_of,
    tile_difference,
    tile_gain,
)
from rangecast.notify.tree import (
    NONE,
    ONLY_LARGEST,
    ONLY_LEAST,
    Front,
    Tree,
    advance,
    search,
)

LEAST, LARGEST, LEAST_RIGHT, LARGEST_LEFT = 1, 2, 3, 4
"""Where `level` keeps how far out the interests of the remaining staircase reach: the least l and
the largest r, and the other end of an interest that has it."""


@jit
def merge_tiles(tree: Tree, front: Front, tiles: F64, count: int, level: F64, work: I64) -> int:
    """Shrink tiles to their interests and merge them greedily; return how many are left.

    All interests of the tiles merged so far lie in the last rectangle, so any other one that the
    rectangle around it and the next tile would hold is foreign: above or below either, or between.

    To shrink a large tile is the most of the work, and mostly in vain: around some interests of
    the last tile and some of the next one there often is a foreign one already. So a tile stays
    as wide as it was until a merge needs to know. A tile beyond what `reach` found is empty.
    """
    last, exact = -1, False
    a, b, c, d = NONE  # around some interests of the last rectangle, or all
    for t in range(count):
        l0, l1 = np.nextafter(tiles[t, 0], np.inf), tiles[t, 1]
        r0, r1 = tiles[t, 2], np.nextafter(tiles[t, 3], -np.inf)
        work[SNAP] += 1
        if l1 < level[LEAST] or r0 > level[LARGEST]:
            continue
        e, f, g, h = NONE
        for part in range(2):  # what lies higher than the last one prevents more merges
            if e > f and (part or (last >= 0 and r0 <= tiles[last, 3] < r1)):
                low = r0 if part else np.nextafter(tiles[last, 3], np.inf)
                e, f, g, h = search(tree, front, l0, l1, low, r1, NONE, True, 0)
        if e > f:
            continue
        whole, apart = False, last < 0
        for side in range(2):
            if not apart:
                low, high = min(c, g), max(d, h)
                if side:
                    p, q, low, high = l0, f, low, np.nextafter(r0, -np.inf)
                else:
                    p, q, low = a, tiles[last, 1], np.nextafter(tiles[last, 3], np.inf)
                if p <= q and low <= high:
                    work[PROBE] += 1
                    apart = search(tree, front, p, q, low, high, NONE, True, 0)[0] < np.inf
        if not apart:
            u, v, w, z = tiles[last, 0], tiles[last, 1], tiles[last, 2], tiles[last, 3]
            for which in range(exact, 2):
                if which:
                    e, f, g, h = search(tree, front, l0, l1, r0, r1, NONE, False, 0)
                else:
                    a, b, c, d = search(tree, front, u, v, w, z, NONE, False, 0)
            whole = True
            for side in range(5):
                low, high = min(c, g), max(d, h)
                p, q = (a, b) if side < 2 else (e, f)
                if side == 0:
                    low = np.nextafter(d, np.inf)
                elif side == 1:
                    high = np.nextafter(c, -np.inf)
                elif side == 2:
                    low = np.nextafter(h, np.inf)
                elif side == 3:
                    high = np.nextafter(g, -np.inf)
                else:
                    p, q = np.nextafter(b, np.inf), np.nextafter(e, -np.inf)
                if not apart and p <= q and low <= high:
                    work[PROBE] += 1
                    apart = search(tree, front, p, q, low, high, NONE, True, 0)[0] < np.inf
        if apart:
            last += 1
            a, b, c, d, exact = e, f, g, h, whole
            tiles[last, 0], tiles[last, 1], tiles[last, 2], tiles[last, 3] = l0, l1, r0, r1
        else:
            b, c, d, exact = f, min(c, g), max(d, h), True
            tiles[last, 0], tiles[last, 1], tiles[last, 2], tiles[last, 3] = a, b, c, d
    for t in range(last + 1):
        tiles[t, 0] = np.nextafter(tiles[t, 0], -np.inf)
        tiles[t, 3] = np.nextafter(tiles[t, 3], np.inf)
    return last + 1


@jit
def _held(west: F64, east: F64, k: int, left: float, right: float) -> bool:
    """Whether an interest around the object of these lists has it in its list."""
    better = 0
    while better < k and west[better + 1] >= left:
        better += 1
    z = 1
    while better < k and east[z] <= right:
        better += 1
        z += 1
    return better < k


@jit
def reach(
    tree: Tree,
    front: Front,
    desk: Desk,
    k: int,
    x: float,
    level: F64,
    work: I64,
) -> bool:
    """Find the least l and the largest r of the interests whose list holds the object at x.

    The region only shrinks during a sweep: what was found stays until that interest is lost, and
    strips beyond it stay empty. Returns whether there are any.
    """
    west, east = desk.west, desk.east
    least, largest, turn = np.inf, -np.inf, 0
    if level[LEAST] > -np.inf and _held(west, east, k, level[LEAST], level[LEAST_RIGHT]):
        least = level[LEAST]
    while least == np.inf and turn < k:
        z = k - turn
        turn += 1
        if west[z] < west[z - 1] and west[z - 1] >= level[LEAST]:
            l0, r1 = np.nextafter(west[z], np.inf), np.nextafter(east[turn], -np.inf)
            work[PROBE] += 1
            least = search(tree, front, l0, west[z - 1], x, r1, ONLY_LEAST, False, 0)[0]
            if least < np.inf:
                found = search(tree, front, least, least, x, r1, NONE, True, 0)
                level[LEAST_RIGHT] = found[2]
    turn = 0
    if level[LARGEST] < np.inf and _held(west, east, k, level[LARGEST_LEFT], level[LARGEST]):
        largest = level[LARGEST]
    while least < np.inf and largest == -np.inf and turn < k:
        z = k - turn
        turn += 1
        if east[z - 1] < east[z] and east[z - 1] <= level[LARGEST]:
            l0, r1 = np.nextafter(west[turn], np.inf), np.nextafter(east[z], -np.inf)
            work[PROBE] += 1
            largest = search(tree, front, l0, x, east[z - 1], r1, ONLY_LARGEST, False, 1)[3]
            if largest > -np.inf:
                found = search(tree, front, l0, x, largest, largest, NONE, True, 0)
                level[LARGEST_LEFT] = found[1]
    level[LEAST], level[LARGEST] = least, largest
    return least < np.inf


@jit
def front_of(tree: Tree, front: Front, desk: Desk, k: int, x: float) -> None:
    """Fill the front of the region that these lists bound."""
    l0, r1 = np.nextafter(desk.west[k], np.inf), np.nextafter(desk.east[k], -np.inf)
    advance(tree, l0, x, x, r1, front)


@jit_single
def paint_sparse(
    arrays: Any,
    tree_arrays: Any,
    slots: I32,
    ys: F64,
    k: int,
    groups: int,
    desk_arrays: Any,
    front_arrays: Any,
    out_arrays: Any,
    course: I64,
    level: F64,
    work: I64,
) -> int:
    """Apply changes and write their messages; return how many. `course[EVENT]` says how far."""
    line, tree = Line(*arrays), Tree(*tree_arrays)
    desk, front, out = Desk(*desk_arrays), Front(*front_arrays), Outbox(*out_arrays)
    room = len(out.slot) - k
    n = 0
    while course[EVENT] < len(slots) and n <= room:
        event = course[EVENT]
        slot, y = slots[event], ys[event]
        p = line.place[slot]
        x, old, arrival = line.x[p], line.y[p], line.arrival[p]
        if not course[SWEEPING] and y != old:
            look_around(line, x, min(y, old), arrival, k, desk)
            work[FIRST_K] += 2
            front_of(tree, front, desk, k, x)
            level[LEAST], level[LARGEST] = -np.inf, np.inf
            steps = steps_of(desk, k, desk.steps)
            tiles = tile_difference(x, desk.steps, steps, desk.other, 0, desk.tiles)
            tiles = gather(desk.tiles, tiles, groups)
            tiles = merge_tiles(tree, front, desk.tiles, tiles, level, work)
            n = post_tiles(desk, tiles, out, n, event, course, slot, arrival, x, y)
            if y > old:
                course[SWEEPING], level[0], course[ARRIVAL] = 1, old, arrival
        limit = arrival if y < np.inf else -1
        while course[SWEEPING] and n <= room:
            p = -1
            work[MIN_Y] += 1
            if reach(tree, front, desk, k, x, level, work):
                lo, hi = level[LEAST], level[LARGEST]
                p = next_best(line, lo, hi, level[0], course[ARRIVAL], y, limit)
            if p < 0:
                course[SWEEPING] = 0
                break
            tiles = tile_gain(desk, k, x, line.x[p])
            tiles = gather(desk.tiles, tiles, groups)
            tiles = merge_tiles(tree, front, desk.tiles, tiles, level, work)
            came, place, value = line.arrival[p], line.x[p], line.y[p]
            n = post_tiles(desk, tiles, out, n, event, course, line.slot[p], came, place, value)
            pass_by(desk, k, x, place)
            level[0], course[ARRIVAL] = value, came
        if not course[SWEEPING]:
            change(line, slot, y)
            course[EVENT] += 1
            course[POSITION] = 0
    return n
