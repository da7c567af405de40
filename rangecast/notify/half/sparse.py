"""Paint-Sparse under an upper bound: only what reaches interests, each box as small as they are.

The intervals of heights (see `sweep.py`) say whose lists have the object. Those interests are found
in one walk through their tree and kept at hand, each with its number of better objects in the west
and in the east. So a tile that shrinks to its interests, a *snap* of the paper, needs no question
of its own: they say in which tile they lie. The next object to be passed is looked for only as far
as the interests that are left reach. Boxes of one object are merged afterwards, as over all boxes
(`boxes/sparse.py`).

Appendix D of paper 001.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import I32, I64
from rangecast.kernels.bundle import edited, opened
from rangecast.kernels.jit import jit
from rangecast.notify.boxes.kdtree import LEAF, LEVELS, ZERO, KdTree, find
from rangecast.notify.boxes.regions import OWN, Tiles
from rangecast.notify.half.dense import NO_INTERVALS, NO_TILES
from rangecast.notify.half.sweep import (
    COUNT,
    FREE,
    SNAP,
    Sweep,
    begin_passing,
    east_of,
    end_of,
    end_passing,
    gain_tiles,
    interval_of,
    is_between,
    next_exposed,
    region_tiles,
    sweep_upwards,
    west_of,
)

NO_INTERESTS = -3
"""There was no room for the interests of a region."""


@edited
class Held(NamedTuple):
    """Interests whose lists have the object: their entries, and better objects on either side."""

    entry: I32
    west: I32
    east: I32

    @classmethod
    def of(cls, room: int) -> Held:
        """Return an empty one."""
        return cls(*(np.zeros(room, np.int32) for _ in range(3)))


@jit
def _better(s: Sweep, left: float, right: float, c: float, k: int) -> int:
    """Return how many better objects an interest has, k or more beyond the intervals."""
    z = interval_of(s, c)
    if z >= s.used[COUNT]:
        return ZERO + k
    slot = s.order[z]
    return west_of(s, slot, left) + east_of(s, slot, right)


@jit
def gather_interests(
    tree: KdTree, s: Sweep, axis: int, x: float, height: float, k: int, held: Held
) -> int:
    """Write the interests of the region; return how many, -1 if there is no room.

    A node is left out if even its smallest interest around the object would have k better ones.
    """
    at, bounds, child, size = tree.at, tree.bounds, tree.child, tree.size
    left_, right_, upper = axis, 2 + axis, 3 - axis
    stack = np.empty(tree.used[LEVELS] + 2, np.int32)
    stack[0] = 0
    depth, n = 1, ZERO
    while depth:
        depth -= 1
        node = stack[depth]
        if (
            size[node] == 0
            or bounds[node, left_] > x
            or bounds[node, 4 + right_] < x
            or bounds[node, 4 + upper] < height
        ):
            continue
        left, right = min(bounds[node, 4 + left_], x), max(bounds[node, right_], x)
        if _better(s, left, right, max(bounds[node, upper], height), k) >= k:
            continue
        first = child[node]
        if first >= 0:
            stack[depth], stack[depth + 1] = first + 1, first
            depth += 2
            continue
        block, more = ~first, size[node]
        while more > 0:
            for e in range(LEAF * block, LEAF * block + min(more, LEAF)):
                left, right, c = at[e, left_], at[e, right_], at[e, upper]
                if not left <= x <= right or c < height:
                    continue
                z = interval_of(s, c)
                if z >= s.used[COUNT]:
                    continue
                slot = s.order[z]
                west, east = west_of(s, slot, left), east_of(s, slot, right)
                if west + east >= k:
                    continue
                if n == len(held.entry):
                    return -1
                held.entry[n], held.west[n], held.east[n] = e, west, east
                n += 1
            more -= LEAF
            block = tree.after[block]
    return n


@jit
def _count_in(
    tree: KdTree, e: int, rival: int, number: I32, place: int, tiles: Tiles, n: int
) -> int:
    """Count an interest in: widen the box that `number` has at a place, or begin one."""
    t, width = number[place], tree.at.shape[1]
    if t < 0:
        number[place] = n
        tiles.rival[n], tiles.interests[n] = rival, 1
        for j in range(width):
            tiles.bounds[n, j] = tiles.bounds[n, width + j] = tree.at[e, j]
        return n + 1
    tiles.interests[t] += 1
    for j in range(width):
        tiles.bounds[t, j] = min(tiles.bounds[t, j], tree.at[e, j])
        tiles.bounds[t, width + j] = max(tiles.bounds[t, width + j], tree.at[e, j])
    return n


@jit
def _reach(tree: KdTree, s: Sweep, axis: int, held: Held, count: int) -> None:
    """Say where the next object is looked for: as far as interests reach, interval by interval.

    What lies in an interval concerns the interests of that one and of those above it.
    """
    intervals = s.used[COUNT]
    for z in range(intervals):
        s.lo[z], s.hi[z], s.high[z] = np.nan, -np.inf, -np.inf
    for i in range(count):
        e = held.entry[i]
        left, right, c = tree.at[e, axis], tree.at[e, 2 + axis], tree.at[e, 3 - axis]
        z = interval_of(s, c)
        s.lo[z] = left if np.isnan(s.lo[z]) else min(s.lo[z], left)
        s.hi[z], s.high[z] = max(s.hi[z], right), max(s.high[z], c)
    for turn in range(1, intervals):
        z = intervals - 1 - turn
        if np.isnan(s.lo[z + 1]):
            continue
        s.lo[z] = s.lo[z + 1] if np.isnan(s.lo[z]) else min(s.lo[z], s.lo[z + 1])
        s.hi[z], s.high[z] = max(s.hi[z], s.hi[z + 1]), end_of(s, z)


@jit
def paint_sparse(
    objects_table: I64,
    tree_table: I64,
    axis: int,
    row: int,
    y: float,
    k: int,
    groups: int,
    sweep_table: I64,
    held_table: I64,
    tiles_table: I64,
    work: I64,
) -> int:
    """Write the boxes of a change of y, not yet made; return how many, or what needs more room."""
    objects, tree = opened(objects_table, KdTree), opened(tree_table, KdTree)
    s, held, tiles = (
        opened(sweep_table, Sweep),
        opened(held_table, Held),
        opened(tiles_table, Tiles),
    )
    e, up = find(objects, row), 1 - axis
    x, height = objects.at[e, axis], objects.at[e, up]
    old, arrival = objects.y[e], objects.arrival[e]
    floor_y = min(y, old)
    if floor_y == np.inf:
        return 0
    stack = np.empty(objects.used[LEVELS] + 2, np.int32)
    if sweep_upwards(objects, axis, x, height, floor_y, arrival, k, s, stack, work) < 0:
        return NO_INTERVALS
    count = gather_interests(tree, s, axis, x, height, k, held)
    if count < 0:
        return NO_INTERESTS
    if 2 * count > len(tiles.rival):
        return NO_TILES
    number = np.full(len(s.order) * k, -1, np.int32)
    n = ZERO
    for z in range(s.used[COUNT]):
        work[SNAP] += region_tiles(s, s.order[z], k, x, groups)
    for i in range(count):
        e = held.entry[i]
        slot = s.order[interval_of(s, tree.at[e, 3 - axis])]
        place = slot * k + s.tile_of[slot, held.west[i]]
        n = _count_in(tree, e, OWN, number, place, tiles, n)
    limit = arrival if y < np.inf else ZERO - 1
    swept_y, swept_arrival = floor_y, arrival
    while y > old and count:
        _reach(tree, s, axis, held, count)
        z = next_exposed(objects, axis, swept_y, swept_arrival, y, limit, s, stack, work)
        if z < 0:
            break
        if s.used[FREE] == 0:
            return NO_INTERVALS
        h = s.found[s.order[z]]
        place, there = objects.at[h, axis], objects.at[h, up]
        first = begin_passing(s, z, there)
        z = first
        while is_between(s, z, k, place):
            slot = s.order[z]
            work[SNAP] += gain_tiles(s, slot, k, x, place, groups)
            for i in range(slot * k, slot * k + k):
                number[i] = -1
            z += 1
        left = ZERO
        for i in range(count):
            e, west, east = held.entry[i], held.west[i], held.east[i]
            c = tree.at[e, 3 - axis]
            if tree.at[e, axis] <= place <= tree.at[e, 2 + axis] and there <= c:
                if west + east == k - 1:
                    slot = s.order[interval_of(s, c)]
                    at = slot * k + s.tile_of[slot, west]
                    n = _count_in(tree, e, objects.row[h], number, at, tiles, n)
                    continue
                if place <= x:
                    west += 1
                else:
                    east += 1
            held.entry[left], held.west[left], held.east[left] = e, west, east
            left += 1
        count = left
        end_passing(s, objects, first, k, x, place)
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
    """Write the interests that have an object in their list at this y; return how many.

    Or what needs more room.
    """
    objects, tree = opened(objects_table, KdTree), opened(tree_table, KdTree)
    s, held = opened(sweep_table, Sweep), opened(held_table, Held)
    e = find(objects, row)
    x, height = objects.at[e, axis], objects.at[e, 1 - axis]
    stack = np.empty(objects.used[LEVELS] + 2, np.int32)
    if sweep_upwards(objects, axis, x, height, y, objects.arrival[e], k, s, stack, work) < 0:
        return NO_INTERVALS
    n = gather_interests(tree, s, axis, x, height, k, held)
    return NO_INTERESTS if n < 0 else n
