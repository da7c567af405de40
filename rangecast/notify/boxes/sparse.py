"""Paint-Sparse over boxes: the interests that a change affects, in few tiles.

The tree of interests is walked from its root. A node whose interests all agree (see `regions.py`)
becomes a tile, or is left; only where they don't its children are looked at. So only regions that
hold interests are visited. Then neighbouring tiles of one object are merged where the rectangle
around them holds no other interest: in the order of the tree, and once more by a bound, since the
tree takes apart what belongs together.

The plain alternative, for few interests or very many rivals: the k + 1 best objects of each
interest that contains the object say whether it is concerned.

Section IV-C of paper 001.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import opened
from rangecast.kernels.jit import jit
from rangecast.notify.boxes.kdtree import LEAF, LEVELS, ZERO, KdTree, below, find
from rangecast.notify.boxes.regions import OWN, Tiles, holding, set_tile, sort_rivals
from rangecast.notify.boxes.rivals import Rivals, gather_rivals
from rangecast.notify.boxes.search import best_of, count_within, entries_within, foreign_within

REGIONS, RIVALS, NODES, LISTS, PROBES, TOO_MANY = 0, 1, 2, 3, 4, 5
"""Indexes of work counters: see `messages.BoxWork`."""
_NEIGHBOURS = 4
"""Number of preceding tiles that a tile may be merged with."""
_FOREIGN = 16
"""Number of recent obstacles to merges that are checked first."""


@jit
def add_tile(tiles: Tiles, n: int, first: int, rival: int, point: F64) -> int:
    """Add a tile of one interest, unless an equal one exists since `first`."""
    width = len(point)
    for t in range(first, n):
        same = tiles.rival[t] == rival
        for j in range(width):
            same &= tiles.bounds[t, j] == point[j] and tiles.bounds[t, width + j] == point[j]
        if same:
            return n
    tiles.rival[n] = rival
    for j in range(width):
        tiles.bounds[n, j] = tiles.bounds[n, width + j] = point[j]
    return n + 1


@jit
def descend(
    tree: KdTree, p: F64, at: F64, floor: int, k: int, exposes: bool, tiles: Tiles, work: I64
) -> int:
    """Write tiles by walking the tree of interests; return their number, -1 if there is no room."""
    d, rivals = len(p), len(at)
    bounds, size, child, after = tree.bounds, tree.size, tree.child, tree.after
    levels = tree.used[LEVELS] + 2
    segments = np.empty((levels + 1) * (rivals + k) + k + 1, np.int32)
    fresh = np.empty(rivals + 1, np.int32)
    frames = np.empty((levels, 5), np.int64)
    for c in range(rivals):
        segments[c] = c
    for i in range(4):
        frames[0, i] = 0
    frames[0, 4] = rivals
    depth, n = 1, ZERO
    while depth:
        depth -= 1
        node, sent, begin = frames[depth, 0], frames[depth, 1], frames[depth, 2]
        cover, open_ = frames[depth, 3], frames[depth, 4]
        apart, inside = size[node] == 0, True
        for j in range(d):
            apart |= bounds[node, j] > p[j] or bounds[node, 3 * d + j] < p[j]
            inside &= bounds[node, 2 * d + j] <= p[j] <= bounds[node, d + j]
        if apart:
            continue
        work[NODES] += 1
        counted = sort_rivals(bounds[node], p, at, floor, k, segments, begin, cover, open_, fresh)
        begin += cover + open_
        cover, open_ = counted.cover, counted.open
        if counted.cover_below >= k:
            continue
        is_full = cover == k
        if inside:
            if n + 2 > len(tiles.rival):
                return -1
            if not sent and counted.cover_below + counted.open_below < k:
                sent = 1
                set_tile(tiles, n, OWN, bounds[node])
                n += 1
            if open_ == 0 if is_full else cover + open_ < k:
                if is_full:
                    set_tile(tiles, n, segments[begin + k - 1], bounds[node])
                    n += 1
                continue
            if sent and not exposes:
                continue
        if child[node] >= 0:
            for side in range(2):
                frames[depth, 0], frames[depth, 1] = child[node] + 1 - side, sent
                frames[depth, 2], frames[depth, 3], frames[depth, 4] = begin, cover, open_
                depth += 1
            continue
        block, left = ~child[node], size[node]
        first = n
        while left > 0:
            for e in range(LEAF * block, LEAF * block + min(left, LEAF)):
                point = tree.at[e]
                holds = True
                for j in range(d):
                    holds &= point[j] <= p[j] <= point[d + j]
                if not holds:
                    continue
                i = o = count = 0
                last = -1
                while count < k and (i < cover or o < open_):
                    if o == open_ or (
                        i < cover and segments[begin + i] < segments[begin + cover + o]
                    ):
                        last = segments[begin + i]
                        i, count = i + 1, count + 1
                        continue
                    c = segments[begin + cover + o]
                    o += 1
                    holds = True
                    for j in range(d):
                        holds &= point[j] <= at[c, j] <= point[d + j]
                    if holds:
                        last, count = c, count + 1
                if count == k and last < floor:
                    continue
                if n + 2 > len(tiles.rival):
                    return -1
                if not sent:
                    n = add_tile(tiles, n, first, OWN, point)
                if count == k:
                    n = add_tile(tiles, n, first, last, point)
            left -= LEAF
            block = after[block]
    return n


@jit
def _by_lists(
    tree: KdTree,
    objects: KdTree,
    entries: I32,
    count: int,
    mine: int,
    floor_y: float,
    floor_arrival: int,
    ceiling_y: float,
    ceiling_arrival: int,
    exposes: bool,
    k: int,
    tiles: Tiles,
) -> int:
    """Write tiles by computing lists; return their number, -1 if there is no room."""
    d = objects.at.shape[1]
    rows, ys, arrivals = np.empty(k + 1, np.int32), np.empty(k + 1), np.empty(k + 1, np.int64)
    stack = np.empty(objects.used[LEVELS] + 2, np.int32)
    n = first = ZERO
    for i in range(count):
        point = tree.at[entries[i]]
        best = best_of(objects, point[:d], point[d:], k + 1, rows, ys, arrivals, stack)
        better, kth, others = 0, -1, 0
        for r in range(best):
            if rows[r] == mine:
                continue
            better += below(ys[r], arrivals[r], floor_y, floor_arrival)
            others += 1
            if others == k:
                kth = r
        if better >= k:
            continue
        if n + 2 > len(tiles.rival):
            return -1
        first = max(first, n - 2 * LEAF)
        n = add_tile(tiles, n, first, OWN, point)
        if not exposes or kth < 0 or not below(ys[kth], arrivals[kth], ceiling_y, ceiling_arrival):
            continue
        n = add_tile(tiles, n, first, rows[kth], point)
    return n


@jit
def _hull(tree: KdTree, within: F64, d: int, hull: F64, stack: I32) -> None:
    """Write the smallest box around all interests within bounds."""
    bounds, child, size, after = tree.bounds, tree.child, tree.size, tree.after
    width = 2 * d
    for j in range(d):
        hull[j], hull[d + j] = np.inf, -np.inf
    stack[0] = 0
    depth = 1
    while depth:
        depth -= 1
        node = stack[depth]
        apart, inside, widens = size[node] == 0, True, False
        for j in range(width):
            low, high = bounds[node, j], bounds[node, width + j]
            apart |= low > within[width + j] or high < within[j]
            inside &= low >= within[j] and high <= within[width + j]
        for j in range(d):
            widens |= bounds[node, j] < hull[j] or bounds[node, width + d + j] > hull[d + j]
        if apart or not widens:
            continue
        if inside:
            for j in range(d):
                hull[j] = min(hull[j], bounds[node, j])
                hull[d + j] = max(hull[d + j], bounds[node, width + d + j])
            continue
        if child[node] >= 0:
            stack[depth], stack[depth + 1] = child[node] + 1, child[node]
            depth += 2
            continue
        block, left = ~child[node], size[node]
        while left > 0:
            for e in range(LEAF * block, LEAF * block + min(left, LEAF)):
                inside = True
                for j in range(width):
                    inside &= within[j] <= tree.at[e, j] <= within[width + j]
                if inside:
                    for j in range(d):
                        hull[j] = min(hull[j], tree.at[e, j])
                        hull[d + j] = max(hull[d + j], tree.at[e, d + j])
            left -= LEAF
            block = after[block]


@jit
def _merge(
    tree: KdTree, tiles: Tiles, order: I64, begin: int, end: int, out: Tiles, n: int, work: I64
) -> int:
    """Merge the tiles order[begin:end], all of one rival, into `out`; return its new length.

    A tile has no interests but its own. So one that lies around two tiles, and in neither, is
    foreign to both, and must not be reached. It is likely to be in the way again: a few are kept.
    """
    width = tiles.bounds.shape[1] // 2
    around, tile = np.empty(2 * width), np.empty(2 * width)
    foreign, known = np.empty((_FOREIGN, width)), ZERO
    stack = np.empty(tree.used[LEVELS] + 2, np.int32)
    start = n
    for i in range(begin, end):
        for j in range(2 * width):
            tile[j] = tiles.bounds[order[i], j]
        turn = ZERO
        while turn < min(_NEIGHBOURS, n - start):
            last = n - 1 - turn
            for j in range(width):
                around[j] = min(tile[j], out.bounds[last, j])
                around[width + j] = max(tile[width + j], out.bounds[last, width + j])
            turn += 1
            work[PROBES] += 1
            apart = False
            for f in range(min(known, _FOREIGN)):
                inside = True
                for j in range(width):
                    inside &= around[j] <= foreign[f, j] <= around[width + j]
                apart |= inside
            if apart:
                continue
            e = foreign_within(tree, around, tile, out.bounds[last], stack)
            if e >= 0:
                for j in range(width):
                    foreign[known % _FOREIGN, j] = tree.at[e, j]
                known += 1
                continue
            for j in range(2 * width):
                tile[j] = around[j]
            n -= 1
            set_tile(out, last, out.rival[n], out.bounds[n])
            turn = ZERO
        set_tile(out, n, tiles.rival[order[i]], tile)
        n += 1
    return n


@jit
def merge_tiles(tree_table: I64, tiles_table: I64, order: I64, out_table: I64, work: I64) -> int:
    """Merge tiles that are ordered by rival; return the new number."""
    tree = opened(tree_table, KdTree)
    tiles, out = opened(tiles_table, Tiles), opened(out_table, Tiles)
    begin = n = ZERO
    while begin < len(order):
        end = begin + 1
        while end < len(order) and tiles.rival[order[end]] == tiles.rival[order[begin]]:
            end += 1
        n = _merge(tree, tiles, order, begin, end, out, n, work)
        begin = end
    return n


@jit
def find_tiles(
    objects_table: I64,
    tree_table: I64,
    row: int,
    y: float,
    exposes: bool,
    k: int,
    few: int,
    rivals_table: I64,
    tiles_table: I64,
    work: I64,
) -> int:
    """Write the tiles of a pending change of y; return their number, -1 if there is no room.

    Up to `few` interests that contain the object are computed one by one. Without `exposes`, only
    the interests affected by the object itself are found.
    """
    objects, tree = opened(objects_table, KdTree), opened(tree_table, KdTree)
    rivals, tiles = opened(rivals_table, Rivals), opened(tiles_table, Tiles)
    e = find(objects, row)
    p, old, arrival = objects.at[e].copy(), objects.y[e], objects.arrival[e]
    d = len(p)
    exposes = exposes and y > old
    floor_y = min(y, old)
    ceiling_y = y if exposes else floor_y
    ceiling_arrival = arrival if ceiling_y < np.inf else -1
    if floor_y == np.inf:
        return 0
    within, hull = np.empty(4 * d), np.empty(2 * d)
    stack = np.empty(max(objects.used[LEVELS], tree.used[LEVELS]) + 2, np.int32)
    holding(p, within)
    near = count_within(tree, within, few, stack)
    if near == 0:
        return 0
    known = n = -1
    if near > few:
        _hull(tree, within, d, hull, stack)
        known = gather_rivals(
            objects,
            p,
            row,
            floor_y,
            arrival,
            ceiling_y,
            ceiling_arrival,
            hull,
            k,
            ZERO,
            rivals,
            stack,
            work,
        )
    if known >= 0:
        work[REGIONS] += 1
        work[RIVALS] += known
        floor = 0
        while floor < known and below(rivals.y[floor], rivals.arrival[floor], floor_y, arrival):
            floor += 1
        n = descend(tree, p, rivals.at[:known], floor, k, exposes, tiles, work)
        for t in range(n):
            if tiles.rival[t] != OWN:
                tiles.rival[t] = rivals.row[tiles.rival[t]]
    else:
        near = count_within(tree, within, ZERO + tree.size[0], stack)
        work[LISTS] += near
        entries = np.empty(near, np.int32)
        entries_within(tree, within, entries, stack)
        n = _by_lists(
            tree,
            objects,
            entries,
            near,
            row,
            floor_y,
            arrival,
            ceiling_y,
            ceiling_arrival,
            exposes,
            k,
            tiles,
        )
    return n
