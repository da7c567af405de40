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

from rangecast.kernels.jit import jit, jit_single
from rangecast.notify.dense import ARRIVAL, EVENT, POSITION, SWEEPING
from rangecast.notify.line import Line, change, next_best
from rangecast.notify.messages import (
    FIRST_K,
    MIN_Y,
    PROBE,
    SNAP,
    Counts,
    Floats,
    Outbox,
    Slots,
    post,
)
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
    Front,
    Tree,
    advance,
    largest_right,
    least_left,
    snap,
    some,
)

FRONT_NODES = 4
"""Where `course` keeps how many nodes the front has."""
LEAST, LARGEST = 1, 2
"""Where `level` keeps how far out the interests of the remaining staircase reach."""


@jit
def _nobody(
    tree: Tree, front: Front, nodes: int, l0: float, l1: float, r0: float, r1: float, work: Counts
) -> bool:
    """Whether no interest lies in a rectangle, which may be empty itself."""
    if l0 > l1 or r0 > r1:
        return True
    work[PROBE] += 1
    found = some(tree, front, nodes, l0, l1, r0, r1)
    return bool(found[0] > found[1])


@jit
def merge_tiles(
    tree: Tree, front: Front, nodes: int, tiles: Floats, count: int, level: Floats, work: Counts
) -> int:
    """Shrink tiles to their interests and merge them greedily; return how many are left.

    Tiles become closed rectangles in place. All interests of the tiles merged so far lie in the
    last rectangle, so any other one that the rectangle around it and the next tile would hold is
    foreign: between the two, above or below either.

    To shrink a large tile is the most of the work, and mostly in vain: around some interests of
    the last tile and some of the next one there often is a foreign one already. So a tile stays
    as wide as it was until a merge needs to know. A tile beyond what `reach` found is empty.
    """
    last, exact = -1, False
    a = b = c = d = np.inf  # around some interests of the last rectangle, or all
    for t in range(count):
        l0, l1 = np.nextafter(tiles[t, 0], np.inf), tiles[t, 1]
        r0, r1 = tiles[t, 2], np.nextafter(tiles[t, 3], -np.inf)
        work[SNAP] += 1
        if l1 < level[LEAST] or r0 > level[LARGEST]:
            continue
        e, f, g, h = NONE
        if (
            last >= 0 and r0 <= tiles[last, 3] < r1
        ):  # the higher, the more likely to prevent a merge
            e, f, g, h = some(tree, front, nodes, l0, l1, np.nextafter(tiles[last, 3], np.inf), r1)
        if e > f:
            e, f, g, h = some(tree, front, nodes, l0, l1, r0, r1)
        if e > f:
            continue
        whole = False
        if last >= 0:
            low, high = min(c, g), max(d, h)
            above, below = np.nextafter(tiles[last, 3], np.inf), np.nextafter(r0, -np.inf)
            if _nobody(tree, front, nodes, a, tiles[last, 1], above, high, work) and _nobody(
                tree, front, nodes, l0, f, low, below, work
            ):
                if not exact:
                    a, b, c, d = snap(
                        tree,
                        front,
                        nodes,
                        tiles[last, 0],
                        tiles[last, 1],
                        tiles[last, 2],
                        tiles[last, 3],
                    )
                e, f, g, h = snap(tree, front, nodes, l0, l1, r0, r1)
                whole = True
                low, high = min(c, g), max(d, h)
                if (
                    _nobody(tree, front, nodes, a, b, np.nextafter(d, np.inf), high, work)
                    and _nobody(tree, front, nodes, a, b, low, np.nextafter(c, -np.inf), work)
                    and _nobody(tree, front, nodes, e, f, np.nextafter(h, np.inf), high, work)
                    and _nobody(tree, front, nodes, e, f, low, np.nextafter(g, -np.inf), work)
                    and _nobody(
                        tree,
                        front,
                        nodes,
                        np.nextafter(b, np.inf),
                        np.nextafter(e, -np.inf),
                        low,
                        high,
                        work,
                    )
                ):
                    b, c, d, exact = f, low, high, True
                    tiles[last, 0], tiles[last, 1], tiles[last, 2], tiles[last, 3] = a, b, c, d
                    continue
        last += 1
        a, b, c, d, exact = e, f, g, h, whole
        tiles[last, 0], tiles[last, 1], tiles[last, 2], tiles[last, 3] = l0, l1, r0, r1
    return last + 1


@jit
def post_merged(
    tree: Tree,
    front: Front,
    nodes: int,
    desk: Desk,
    tiles: int,
    out: Outbox,
    n: int,
    event: int,
    course: Counts,
    slot: int,
    arrival: int,
    x: float,
    y: float,
    level: Floats,
    work: Counts,
) -> int:
    """Send an object to all tiles that hold interests; return how many messages there are now."""
    merged = merge_tiles(tree, front, nodes, desk.tiles, tiles, level, work)
    for t in range(merged):
        tile = desk.tiles[t]
        post(
            out,
            n,
            event,
            course[POSITION],
            slot,
            arrival,
            x,
            y,
            np.nextafter(tile[0], -np.inf),
            tile[1],
            tile[2],
            np.nextafter(tile[3], np.inf),
        )
        course[POSITION] += 1
        n += 1
    return n


@jit
def reach(
    tree: Tree,
    front: Front,
    nodes: int,
    desk: Desk,
    k: int,
    x: float,
    level: Floats,
    work: Counts,
) -> bool:
    """Find the least l and the largest r of the interests whose list holds the object at x.

    The region only shrinks during a sweep: strips beyond what was found before stay empty. Returns
    whether there are any.
    """
    west, east = desk.west, desk.east
    least, largest = np.inf, -np.inf
    turn = 0
    while least == np.inf and turn < k:
        z = k - turn
        turn += 1
        if west[z] < west[z - 1] and west[z - 1] >= level[LEAST]:
            l0, r1 = np.nextafter(west[z], np.inf), np.nextafter(east[turn], -np.inf)
            work[PROBE] += 1
            least = least_left(tree, front, nodes, l0, west[z - 1], x, r1)
    turn = 0
    while least < np.inf and largest == -np.inf and turn < k:
        z = k - turn
        turn += 1
        if east[z - 1] < east[z] and east[z - 1] <= level[LARGEST]:
            l0, r1 = np.nextafter(west[turn], np.inf), np.nextafter(east[z], -np.inf)
            work[PROBE] += 1
            largest = largest_right(tree, front, nodes, l0, x, east[z - 1], r1)
    level[LEAST], level[LARGEST] = least, largest
    return least < np.inf


@jit
def front_of(tree: Tree, front: Front, desk: Desk, k: int, x: float) -> int:
    """Fill the front of the region that these lists bound; return how many nodes it has."""
    l0, r1 = np.nextafter(desk.west[k], np.inf), np.nextafter(desk.east[k], -np.inf)
    return advance(tree, l0, x, x, r1, front)


@jit_single
def paint_sparse(
    arrays: Any,
    tree_arrays: Any,
    slots: Slots,
    ys: Floats,
    k: int,
    groups: int,
    desk_arrays: Any,
    front_arrays: Any,
    out_arrays: Any,
    course: Counts,
    level: Floats,
    work: Counts,
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
            nodes = front_of(tree, front, desk, k, x)
            course[FRONT_NODES] = nodes
            level[LEAST], level[LARGEST] = -np.inf, np.inf
            steps = steps_of(desk, k, desk.steps)
            tiles = tile_difference(x, desk.steps, steps, desk.other, 0, desk.tiles)
            tiles = gather(desk.tiles, tiles, groups)
            n = post_merged(
                tree,
                front,
                nodes,
                desk,
                tiles,
                out,
                n,
                event,
                course,
                slot,
                arrival,
                x,
                y,
                level,
                work,
            )
            if y > old:
                course[SWEEPING], level[0], course[ARRIVAL] = 1, old, arrival
        nodes = course[FRONT_NODES]
        limit = arrival if y < np.inf else -1
        while course[SWEEPING] and n <= room:
            p = -1
            work[MIN_Y] += 1
            if reach(tree, front, nodes, desk, k, x, level, work):
                lo, hi = level[LEAST], level[LARGEST]
                p = next_best(line, lo, hi, level[0], course[ARRIVAL], y, limit)
            if p < 0:
                course[SWEEPING] = 0
                break
            tiles = tile_gain(desk, k, x, line.x[p])
            tiles = gather(desk.tiles, tiles, groups)
            n = post_merged(
                tree,
                front,
                nodes,
                desk,
                tiles,
                out,
                n,
                event,
                course,
                line.slot[p],
                line.arrival[p],
                line.x[p],
                line.y[p],
                level,
                work,
            )
            pass_by(desk, k, x, line.x[p])
            level[0], course[ARRIVAL] = line.y[p], line.arrival[p]
        if not course[SWEEPING]:
            change(line, slot, y)
            course[EVENT] += 1
            course[POSITION] = 0
    return n
