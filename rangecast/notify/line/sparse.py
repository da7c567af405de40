"""Paint-Sparse: fewer messages, by using the positions of the interests.

As Paint-Dense, with three savings. A tile shrinks to the interests that it holds (so every side of
a message's region touches one), and is left out if there are none. From west to east, a tile is
merged with the one before it if the rectangle around both holds no other interest. And the sweep
looks only for objects as far out as interests of the remaining staircase reach: the least l and the
largest r among them.

At most twice the fewest messages, and each reaches an interest. With a sketch instead of the
interests none is missed or reached in vain either, but a message may reach none.

Cost: that of Paint-Dense for fewer objects, and O(k) snaps for each of them. The snaps of one
change all lie within one region: they start from its frontier.
Section III-B of paper 001.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.kernels.jit import jit
from rangecast.notify.line.staircase import Scratch
from rangecast.notify.line.tree import (
    NONE,
    ONLY_LARGEST,
    ONLY_LEAST,
    Frontier,
    Rectangle,
    Tree,
    advance,
    search,
)
from rangecast.notify.messages import PROBE, SNAP

SWEPT_Y = 0
"""Index of the y of the key swept to."""
LEAST, LARGEST, LEAST_RIGHT, LARGEST_LEFT = 1, 2, 3, 4
"""Indexes of how far the interests of the remaining staircase reach: the least l and the largest r,
and the other end of such an interest.
"""


@jit
def _closed(tile: F64) -> Rectangle:
    """Return a tile with its outer sides included."""
    return Rectangle(
        np.nextafter(tile[0], np.inf), tile[1], tile[2], np.nextafter(tile[3], -np.inf)
    )


@jit
def _write(tile: F64, area: Rectangle) -> None:
    tile[0], tile[1] = np.nextafter(area.l0, -np.inf), area.l1
    tile[2], tile[3] = area.r0, np.nextafter(area.r1, np.inf)


@jit
def _around(last: Rectangle, rectangle: Rectangle) -> Rectangle:
    """Return the bounding rectangle of two tiles, the second of which lies further east."""
    return Rectangle(last.l0, rectangle.l1, min(last.r0, rectangle.r0), max(last.r1, rectangle.r1))


@jit
def _likely_foreign(
    side: int, last: Rectangle, last_tile: Rectangle, rectangle: Rectangle, tile: Rectangle
) -> Rectangle:
    """Return the area of an interest that prevents a merge, given only some interests of both
    tiles.

    Above the last tile, or below the next one.
    """
    both = _around(last, rectangle)
    if side == 0:
        return Rectangle(last.l0, last_tile.l1, np.nextafter(last_tile.r1, np.inf), both.r1)
    return Rectangle(tile.l0, rectangle.l1, both.r0, np.nextafter(tile.r0, -np.inf))


@jit
def _foreign(side: int, last: Rectangle, rectangle: Rectangle) -> Rectangle:
    """Return the area of an interest that prevents a merge of two rectangles, one of five.

    Above and below the last one, above and below the next one, between the two.
    """
    both = _around(last, rectangle)
    if side == 0:
        return Rectangle(last.l0, last.l1, np.nextafter(last.r1, np.inf), both.r1)
    if side == 1:
        return Rectangle(last.l0, last.l1, both.r0, np.nextafter(last.r0, -np.inf))
    if side == 2:
        return Rectangle(rectangle.l0, rectangle.l1, np.nextafter(rectangle.r1, np.inf), both.r1)
    if side == 3:
        return Rectangle(rectangle.l0, rectangle.l1, both.r0, np.nextafter(rectangle.r0, -np.inf))
    return Rectangle(
        np.nextafter(last.l1, np.inf), np.nextafter(rectangle.l0, -np.inf), both.r0, both.r1
    )


@jit
def _is_area(area: Rectangle) -> bool:
    return area.l0 <= area.l1 and area.r0 <= area.r1


@jit
def merge_tiles(
    tree: Tree, frontier: Frontier, tiles: F64, count: int, sweep: F64, work: I64
) -> int:
    """Merge tiles greedily and shrink them to their interests; return the number left.

    All interests of the tiles merged so far lie in the last rectangle, so any other one that the
    rectangle around it and the next tile would hold is foreign: above or below either, or between.

    To shrink a large tile is the most of the work. Around some interests of the last tile and
    some of the next one there often is a foreign one already: so a tile is shrunk once, when it
    is written, unless a merge needs to know before. A tile beyond what `reach` found is empty.
    """
    n = 0
    last = last_tile = NONE  # around some interests of the last tile, or all if `last_whole`
    last_whole = False
    for t in range(count):
        tile = _closed(tiles[t])
        work[SNAP] += 1
        if tile.l1 < sweep[LEAST] or tile.r0 > sweep[LARGEST]:
            continue
        hit, whole = NONE, False
        if n and tile.r0 <= last_tile.r1 < tile.r1:  # what lies higher prevents more merges
            higher = Rectangle(tile.l0, tile.l1, np.nextafter(last_tile.r1, np.inf), tile.r1)
            hit = search(tree, frontier, higher, NONE, True, 0)
        if not _is_area(hit):
            hit = search(tree, frontier, tile, NONE, True, 0)
        if not _is_area(hit):
            continue
        apart, side = n == 0, 0
        while not apart and side < 2:
            area = _likely_foreign(side, last, last_tile, hit, tile)
            if _is_area(area):
                work[PROBE] += 1
                apart = _is_area(search(tree, frontier, area, NONE, True, 0))
            side += 1
        if not apart:
            if not last_whole:
                last, last_whole = search(tree, frontier, last_tile, last, False, 0), True
            hit, whole = search(tree, frontier, tile, hit, False, 0), True
        side = 0
        while not apart and side < 5:
            area = _foreign(side, last, hit)
            if _is_area(area):
                work[PROBE] += 1
                apart = _is_area(search(tree, frontier, area, NONE, True, 0))
            side += 1
        if not apart:
            last = last_tile = _around(last, hit)
            continue
        if n:
            if not last_whole:
                last = search(tree, frontier, last_tile, last, False, 0)
            _write(tiles[n - 1], last)
        n += 1
        last, last_whole, last_tile = hit, whole, hit if whole else tile
    if n:
        if not last_whole:
            last = search(tree, frontier, last_tile, last, False, 0)
        _write(tiles[n - 1], last)
    return n


@jit
def _held(west: F64, east: F64, k: int, left: float, right: float) -> bool:
    """Return whether an interest around the object of these lists has it in its list."""
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
    frontier: Frontier,
    scratch: Scratch,
    k: int,
    x: float,
    sweep: F64,
    work: I64,
) -> bool:
    """Compute the least l and the largest r of the interests that list the object at x, in `sweep`.

    The region only shrinks during a sweep: a bound stays valid until its interest drops out, and
    strips beyond it stay empty. Returns whether there are any.
    """
    west, east = scratch.west, scratch.east
    least, largest, turn = np.inf, -np.inf, 0
    if sweep[LEAST] > -np.inf and _held(west, east, k, sweep[LEAST], sweep[LEAST_RIGHT]):
        least = sweep[LEAST]
    while least == np.inf and turn < k:
        z = k - turn
        turn += 1
        if west[z] < west[z - 1] and west[z - 1] >= sweep[LEAST]:
            l0, r1 = np.nextafter(west[z], np.inf), np.nextafter(east[turn], -np.inf)
            area = Rectangle(l0, west[z - 1], x, r1)
            work[PROBE] += 1
            least = search(tree, frontier, area, ONLY_LEAST, False, 0).l0
            if least < np.inf:
                area = Rectangle(least, least, x, r1)
                sweep[LEAST_RIGHT] = search(tree, frontier, area, NONE, True, 0).r0
    turn = 0
    if sweep[LARGEST] < np.inf and _held(west, east, k, sweep[LARGEST_LEFT], sweep[LARGEST]):
        largest = sweep[LARGEST]
    while least < np.inf and largest == -np.inf and turn < k:
        z = k - turn
        turn += 1
        if east[z - 1] < east[z] and east[z - 1] <= sweep[LARGEST]:
            l0, r1 = np.nextafter(west[turn], np.inf), np.nextafter(east[z], -np.inf)
            area = Rectangle(l0, x, east[z - 1], r1)
            work[PROBE] += 1
            largest = search(tree, frontier, area, ONLY_LARGEST, False, 1).r1
            if largest > -np.inf:
                area = Rectangle(l0, x, largest, largest)
                sweep[LARGEST_LEFT] = search(tree, frontier, area, NONE, True, 0).l1
    sweep[LEAST], sweep[LARGEST] = least, largest
    return least < np.inf


@jit
def start_frontier(tree: Tree, frontier: Frontier, scratch: Scratch, k: int, x: float) -> None:
    """Fill the frontier of the region that these lists bound."""
    l0, r1 = np.nextafter(scratch.west[k], np.inf), np.nextafter(scratch.east[k], -np.inf)
    advance(tree, Rectangle(l0, x, x, r1), frontier)
