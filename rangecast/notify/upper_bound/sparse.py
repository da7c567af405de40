"""Paint-Sparse under an upper bound: only boxes that reach interests, shrunk to fit them.

The intervals of heights (see `sweep.py`) say whose lists have the object. Those interests are found
in one walk through their tree and kept at hand, with their numbers of better objects in the west
and in the east. So a tile that shrinks to its interests, a *snap* of the paper, needs no question
of its own: they say in which tile they lie. Interests of a leaf mostly agree, and are moved at
once. The next object to be passed is looked for only as far
as the interests that are left reach. Boxes of one object are merged afterwards, as over all boxes
(`boxes/sparse.py`).

Appendix D of paper 001.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import opened, pointers
from rangecast.kernels.jit import jit
from rangecast.notify.boxes.kdtree import LEAF, LEVELS, ZERO, KdTree, find
from rangecast.notify.boxes.regions import OWN, Tiles
from rangecast.notify.upper_bound.affected_interests import AffectedLists, gather_interests, refresh
from rangecast.notify.upper_bound.dense import NO_INTERVALS, NO_TILES
from rangecast.notify.upper_bound.sweep import (
    COUNT,
    EMPTY,
    FREE,
    MIN_Y,
    ROOM,
    SNAP,
    UNKNOWN,
    Sweep,
    begin_passing,
    end_of,
    end_passing,
    interval_of,
    is_between,
    max_x,
    min_x,
    next_exposed,
    sweep_upwards,
)
from rangecast.notify.upper_bound.tiles import gain_tiles, region_tiles

NO_INTERESTS = -3
"""Result if there is no room for the interests of a region."""


class IntervalBelow(NamedTuple):
    """The tiles of the interval below, from east to west, and their numbers."""

    bounds: F64
    number: I64


@jit
def _widen(
    number: I32, width: int, rival: int, bounds: F64, low: int, high: int, tiles: Tiles, n: int
) -> int:
    """Extend the box of `number`, or begin one.

    What it is widened to are the four bounds from `low` on and the four from `high` on.
    """
    t = number[width]
    if t < 0:
        number[width] = n
        tiles.rival[n] = rival
        for j in range(4):
            tiles.bounds[8 * n + j], tiles.bounds[8 * n + 4 + j] = bounds[low + j], bounds[high + j]
        return n + 1
    for j in range(4):
        tiles.bounds[8 * t + j] = min(tiles.bounds[8 * t + j], bounds[low + j])
        tiles.bounds[8 * t + 4 + j] = max(tiles.bounds[8 * t + 4 + j], bounds[high + j])
    return n


@jit
def _box_region(
    tree: KdTree,
    s: Sweep,
    upper: int,
    held: AffectedLists,
    blocks: int,
    k: int,
    number: I32,
    tiles: Tiles,
) -> int:
    """Group all interests by the tile of the region that they lie in; return the number
    of boxes.
    """
    n = ZERO
    for b in range(blocks):
        if held.is_even[b]:
            slot = s.order[interval_of(s, held.hull[8 * b + upper])]
            tile = s.tile_of[slot * k + held.more_west[b]]
            n = _widen(number, tile, OWN, held.hull, 8 * b, 8 * b + 4, tiles, n)
            continue
        for i in range(LEAF):
            if held.mask[b] >> i & 1:
                point = 4 * (LEAF * held.block[b] + i)
                slot = s.order[interval_of(s, tree.at[point + upper])]
                tile = s.tile_of[slot * k + held.west[LEAF * b + i]]
                n = _widen(number, tile, OWN, tree.at, point, point, tiles, n)
    return n


@jit
def _reach(s: Sweep, axis: int, held: AffectedLists, blocks: int) -> bool:
    """Write the range of the next search: as far as interests reach, interval by interval.

    What lies in an interval concerns the interests of that one and of those above it. Return
    whether there are any.
    """
    intervals, is_reached = s.used[COUNT], False
    for z in range(intervals):
        s.lo[z], s.hi[z], s.high[z] = np.nan, -np.inf, -np.inf
    for b in range(blocks):
        if held.mask[b] == 0:
            continue
        is_reached = True
        hull = 8 * b
        left, right = held.hull[hull + axis], held.hull[hull + 6 + axis]
        c = held.hull[hull + 7 - axis]
        z = interval_of(s, c)
        s.lo[z] = left if np.isnan(s.lo[z]) else min(s.lo[z], left)
        s.hi[z], s.high[z] = max(s.hi[z], right), max(s.high[z], c)
    for turn in range(1, intervals):
        z = intervals - 1 - turn
        if np.isnan(s.lo[z + 1]):
            continue
        s.lo[z] = s.lo[z + 1] if np.isnan(s.lo[z]) else min(s.lo[z], s.lo[z + 1])
        s.hi[z], s.high[z] = max(s.hi[z], s.hi[z + 1]), end_of(s, z)
    return is_reached


@jit
def _count_passed(
    tree: KdTree,
    s: Sweep,
    axis: int,
    held: AffectedLists,
    b: int,
    k: int,
    is_west: bool,
    position: float,
    there: float,
    rival: int,
    number: I32,
    tiles: Tiles,
    n: int,
) -> int:
    """Count a passed object for each interest of a block; box those that lose to it."""
    more_west, more_east = held.more_west[b], held.more_east[b]
    for i in range(LEAF):
        if not held.mask[b] >> i & 1:
            continue
        mine, point = LEAF * b + i, 4 * (LEAF * held.block[b] + i)
        c = tree.at[point + 3 - axis]
        west, east = more_west, more_east
        if not held.is_even[b]:
            west, east = west + held.west[mine], east + held.east[mine]
        if tree.at[point + axis] <= position <= tree.at[point + 2 + axis] and there <= c:
            if west + east == k - 1:
                slot = s.order[interval_of(s, c)]
                at = s.tile_of[slot * k + west]
                n = _widen(number, at, rival, tree.at, point, point, tiles, n)
                held.mask[b] ^= 1 << i
                continue
            west, east = west + is_west, east + (not is_west)
        held.west[mine], held.east[mine] = west, east
    held.is_even[b] = held.more_west[b] = held.more_east[b] = 0
    refresh(tree, held, b)
    return n


@jit
def _count_passed_in_all(
    tree: KdTree,
    s: Sweep,
    axis: int,
    held: AffectedLists,
    blocks: int,
    k: int,
    is_west: bool,
    position: float,
    there: float,
    rival: int,
    number: I32,
    tiles: Tiles,
    n: int,
) -> int:
    """Count a passed object for the interests of all blocks; most lie outside, or are even."""
    hull = held.hull
    for b in range(blocks):
        at = 8 * b
        if (
            held.mask[b] == 0
            or hull[at + axis] > position
            or hull[at + 6 + axis] < position
            or hull[at + 7 - axis] < there
        ):
            continue
        low = hull[at + 3 - axis]
        if hull[at + 4 + axis] <= position <= hull[at + 2 + axis] and there <= low:
            if held.most[b] + 1 < k:
                held.most[b] += 1
                held.more_west[b] += is_west
                held.more_east[b] += not is_west
                continue
            z = interval_of(s, low)
            if held.is_even[b] and interval_of(s, hull[at + 7 - axis]) == z:
                slot = s.order[z]
                tile = s.tile_of[slot * k + held.more_west[b]]
                n = _widen(number, tile, rival, hull, at, at + 4, tiles, n)
                held.mask[b] = 0
                continue
        n = _count_passed(
            tree, s, axis, held, b, k, is_west, position, there, rival, number, tiles, n
        )
    return n


@jit
def _number_tiles(
    s: Sweep, slot: int, k: int, tiles: int, last: IntervalBelow, lasts: int, number: I32, ids: int
) -> int:
    """Number the tiles of an interval, starting with `ids`; return the next number.

    A tile that the interval below has too, one of `lasts`, has its number: they are one box.
    """
    mine = np.empty(tiles, np.int64)
    i = 0
    for t in range(tiles):
        while i < lasts and last.bounds[i, 1] > s.tiles[4 * t + 1]:
            i += 1
        same = i < lasts
        for side in range(4):
            same = same and last.bounds[i, side] == s.tiles[4 * t + side]
        mine[t] = last.number[i] if same else ids
        if not same:
            number[ids] = -1
            ids += 1
    for t in range(tiles):
        last.number[t] = mine[t]
        for side in range(4):
            last.bounds[t, side] = s.tiles[4 * t + side]
    for i in range(slot * k, slot * k + k):
        s.tile_of[i] = mine[min(s.tile_of[i], tiles - 1)] if tiles else 0
    return ids


@jit
def _ask_as_the_paper(s: Sweep, tree: KdTree, axis: int, k: int, is_first: bool, work: I64) -> None:
    """Extend the range of `_reach` to what the paper queries, to count its calls.

    It asks each interval before it looks at interests there, and keeps what it found as long as it
    lies between the lists; then it asks as far as interests reach, once if there are none. Tiles of
    such an interval are no longer snapped.
    """
    for z in range(s.used[COUNT]):
        slot = s.order[z]
        lo, hi, e = min_x(s, slot, k), max_x(s, slot, k), s.found[slot]
        if e >= 0 and not lo <= tree.at[e, axis] <= hi:
            s.found[slot] = e = UNKNOWN
        if e >= 0 or is_first:
            s.lo[z], s.hi[z], s.high[z] = lo, hi, end_of(s, z)
        elif e == UNKNOWN and np.isnan(s.lo[z]):
            work[MIN_Y] += 1
            s.found[slot] = EMPTY


@jit
def paint_sparse(
    objects_table: I64,
    tree_table: I64,
    axis: int,
    row: int,
    y: float,
    k: int,
    groups: int,
    as_paper: bool,
    sweep_table: I64,
    held_table: I64,
    tiles_table: I64,
    work: I64,
) -> int:
    """Write the boxes of a pending change of y; return their number, or which resource ran out.

    `as_paper` asks for objects more often, and gives the same boxes.
    """
    objects, tree = opened(objects_table, KdTree), pointers(opened(tree_table, KdTree))
    s, held = pointers(opened(sweep_table, Sweep)), pointers(opened(held_table, AffectedLists))
    tiles = pointers(opened(tiles_table, Tiles))
    room, most = len(opened(held_table, AffectedLists).block), len(opened(tiles_table, Tiles).rival)
    e, up = find(objects, row), 1 - axis
    x, height = objects.at[e, axis], objects.at[e, up]
    old, arrival = objects.y[e], objects.arrival[e]
    floor_y = min(y, old)
    if floor_y == np.inf:
        return 0
    stack = np.empty(objects.used[LEVELS] + 2, np.int32)
    if sweep_upwards(objects, axis, x, height, floor_y, arrival, k, s, stack, work) < 0:
        return NO_INTERVALS
    blocks = gather_interests(tree, s, axis, x, height, k, held, room)
    if blocks < 0:
        return NO_INTERESTS
    number, ids = np.empty(s.used[ROOM] * k, np.int32), ZERO
    last, lasts = IntervalBelow(np.empty((k, 4)), np.empty(k, np.int64)), ZERO
    for z in range(s.used[COUNT]):
        count = region_tiles(s, s.order[z], k, x, groups)
        ids = _number_tiles(s, s.order[z], k, count, last, lasts, number, ids)
        lasts = count
    work[SNAP] += ids
    if ids > most:
        return NO_TILES
    n = _box_region(tree, s, 3 - axis, held, blocks, k, number, tiles)
    limit = arrival if y < np.inf else ZERO - 1
    swept_y, swept_arrival = floor_y, arrival
    is_first = True
    while y > old:
        if not _reach(s, axis, held, blocks) and not as_paper:
            break
        if as_paper:
            _ask_as_the_paper(s, objects, axis, k, is_first, work)
            is_first = False
        z = next_exposed(objects, axis, swept_y, swept_arrival, y, limit, s, stack, work)
        if z < 0:
            break
        if s.used[FREE] == 0:
            return NO_INTERVALS
        h = s.found[s.order[z]]
        position, there = objects.at[h, axis], objects.at[h, up]
        first = begin_passing(s, z, k, there)
        z, ids, lasts = first, ZERO, ZERO
        while is_between(s, z, k, position):
            count, before = gain_tiles(s, s.order[z], k, x, position, groups), ids
            ids = _number_tiles(s, s.order[z], k, count, last, lasts, number, ids)
            if s.found[s.order[z]] != EMPTY:
                work[SNAP] += ids - before
            z, lasts = z + 1, count
        if n + ids > most:
            return NO_TILES
        rival, west = objects.row[h], position <= x
        n = _count_passed_in_all(
            tree, s, axis, held, blocks, k, west, position, there, rival, number, tiles, n
        )
        end_passing(s, objects, first, k, x, position)
        swept_y, swept_arrival = objects.y[h], objects.arrival[h]
    return n


@jit
def find_interests(
    objects_table: I64,
    tree_table: I64,
    axis: int,
    row: int,
    y: float,
    k: int,
    sweep_table: I64,
    held_table: I64,
    work: I64,
) -> int:
    """Write the interests whose lists contain an object with this y; return the number of blocks.

    If room runs out, returns which resource did.
    """
    objects, tree = opened(objects_table, KdTree), pointers(opened(tree_table, KdTree))
    s, held = pointers(opened(sweep_table, Sweep)), pointers(opened(held_table, AffectedLists))
    room = len(opened(held_table, AffectedLists).block)
    e = find(objects, row)
    x, height = objects.at[e, axis], objects.at[e, 1 - axis]
    stack = np.empty(objects.used[LEVELS] + 2, np.int32)
    if sweep_upwards(objects, axis, x, height, y, objects.arrival[e], k, s, stack, work) < 0:
        return NO_INTERVALS
    n = gather_interests(tree, s, axis, x, height, k, held, room)
    return NO_INTERESTS if n < 0 else n
