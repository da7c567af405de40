"""Paint-Dense over boxes: the region of a change as disjoint boxes, whatever interests there are.

Begins with all interests that could contain the object and cuts the region, at bounds that a rival
has, until all interests of each part agree (see `regions.py`). A cut that leaves nothing to say
beyond it comes first; else the side with the most open rivals is cut in the middle. The number of
boxes grows steeply with d: the painter gives up when the buffer is full.

Section IV-C and theorem 8 of paper 001.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import opened
from rangecast.kernels.jit import jit
from rangecast.notify.boxes.kdtree import LEVELS, ZERO, KdTree, below, find
from rangecast.notify.boxes.regions import OWN, Tiles, holding, set_tile, sort_rivals
from rangecast.notify.boxes.rivals import Rivals, gather_rivals
from rangecast.notify.boxes.sparse import RIVALS

_DEEPEST = 512
"""Maximum depth of cuts."""


@jit
def _nth(values: F64, n: int, nth: int) -> float:
    """Return the `nth` smallest of the first n values, counted from 0."""
    for i in range(n):
        less = equal = 0
        for j in range(n):
            less += values[j] < values[i]
            equal += values[j] == values[i]
        if less <= nth < less + equal:
            return float(values[i])
    return np.nan


@jit
def _choose(
    region: F64, at: F64, floor: int, needed: int, open_rivals: I32, values: F64, chosen: F64
) -> int:
    """Return the side to cut, and the cut in `chosen[0]`.

    Sides are the d lower and then the d upper bounds. A rival is open on those sides where some
    interests of the region end before it. If it is open on one alone, and `needed` such rivals
    with keys below floor lie on one side, then nothing is left to say beyond the last of them.
    """
    d, n = at.shape[1], len(open_rivals)
    best, most = 0, -1
    for side in range(2 * d):
        j, upper = side % d, side >= d
        edge = region[d + j] if upper else region[2 * d + j]
        all_here = alone = 0
        for i in range(n):
            v = at[open_rivals[i], j]
            if not (v > edge if upper else v < edge):
                continue
            all_here += 1
            if open_rivals[i] >= floor:
                continue
            sides = 0
            for a in range(d):
                sides += at[open_rivals[i], a] < region[2 * d + a]
                sides += at[open_rivals[i], a] > region[d + a]
            if sides == 1:
                values[alone] = v if upper else -v
                alone += 1
        if alone >= needed:
            cut = _nth(values, alone, needed - 1)
            chosen[0] = cut if upper else -cut
            return side
        if all_here > most:
            best, most = side, all_here
    j, upper, count = best % d, best >= d, 0
    edge = region[d + j] if upper else region[2 * d + j]
    for i in range(n):
        v = at[open_rivals[i], j]
        if v > edge if upper else v < edge:
            values[count] = v
            count += 1
    chosen[0] = _nth(values, count, count // 2)
    return best


@jit
def cut_regions(p: F64, at: F64, floor: int, k: int, exposes: bool, tiles: Tiles) -> int:
    """Write tiles by cutting regions; return their number, -1 if there is no room."""
    d, rivals = len(p), len(at)
    segments = np.empty(64 * (rivals + k) + 4 * k, np.int32)
    fresh, values, chosen = np.empty(rivals + 1, np.int32), np.empty(rivals + 1), np.empty(1)
    frames, regions = np.empty((_DEEPEST, 4), np.int64), np.empty((_DEEPEST, 4 * d))
    for c in range(rivals):
        segments[c] = c
    for i in range(3):
        frames[0, i] = 0
    frames[0, 3] = rivals
    holding(p, regions[0])
    region = np.empty(4 * d)
    depth, n = 1, ZERO
    while depth:
        depth -= 1
        sent, begin = frames[depth, 0], frames[depth, 1]
        cover, open_ = frames[depth, 2], frames[depth, 3]
        for j in range(4 * d):
            region[j] = regions[depth, j]
        top = begin + cover + open_
        if n + 2 > len(tiles.rival) or top + open_ + 2 * k > len(segments):
            return -1
        count = sort_rivals(region, p, at, floor, k, segments, begin, cover, open_, fresh)
        begin, cover, open_ = top, count.cover, count.open
        if count.cover_below >= k:
            continue
        is_full = cover == k
        if not sent and count.cover_below + count.open_below < k:
            sent = 1
            set_tile(tiles, n, OWN, region)
            n += 1
        if open_ == 0 if is_full else cover + open_ < k:
            if is_full:
                set_tile(tiles, n, segments[begin + k - 1], region)
                n += 1
            continue
        if sent and not exposes:
            continue
        if depth + 2 > _DEEPEST:
            return -1
        theirs = segments[begin + cover : begin + cover + open_]
        side = _choose(region, at, floor, k - count.cover_below, theirs, values, chosen)
        for _ in range(2):
            for j in range(4 * d):
                regions[depth, j] = region[j]
            frames[depth, 0], frames[depth, 1] = sent, begin
            frames[depth, 2], frames[depth, 3] = cover, open_
            depth += 1
        if side < d:  # interests begin at or before the cut, or after it
            regions[depth - 2, 2 * d + side] = chosen[0]
            regions[depth - 1, side] = np.nextafter(chosen[0], np.inf)
        else:
            regions[depth - 2, side] = chosen[0]
            regions[depth - 1, 2 * d + side] = np.nextafter(chosen[0], -np.inf)
    return n


@jit
def paint_dense(
    objects_table: I64, row: int, y: float, k: int, rivals_table: I64, out_table: I64, work: I64
) -> int:
    """Write the tiles of a pending change of y; return their number, -1 if there is no room."""
    objects = opened(objects_table, KdTree)
    rivals, out = opened(rivals_table, Rivals), opened(out_table, Tiles)
    e = find(objects, row)
    p, old, arrival = objects.at[e].copy(), objects.y[e], objects.arrival[e]
    d = len(p)
    floor_y, ceiling_y = min(y, old), max(y, old)
    exposes = y > old
    if not exposes:
        ceiling_y = floor_y
    ceiling_arrival = arrival if ceiling_y < np.inf else -1
    if floor_y == np.inf:
        return 0
    hull = np.empty(2 * d)
    for j in range(d):
        hull[j], hull[d + j] = -np.inf, np.inf
    stack = np.empty(objects.used[LEVELS] + 2, np.int32)
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
    if known < 0:
        return -1
    work[RIVALS] += known
    floor = 0
    while floor < known and below(rivals.y[floor], rivals.arrival[floor], floor_y, arrival):
        floor += 1
    n = cut_regions(p, rivals.at[:known], floor, k, exposes, out)
    for t in range(n):
        if out.rival[t] != OWN:
            out.rival[t] = rivals.row[out.rival[t]]
    return n
