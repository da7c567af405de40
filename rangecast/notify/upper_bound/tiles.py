"""Tiles of one interval of heights: ranges that contain an object, or lose it to another one.

As on a line (`notify/line/staircase.py`), from east to west, with lists that have lengths.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.jit import jit
from rangecast.notify.upper_bound.sweep import Sweep


@jit
def _add_tile(s: Sweep, n: int, l0: float, l1: float, r0: float, r1: float) -> int:
    s.tiles[4 * n], s.tiles[4 * n + 1] = l0, l1
    s.tiles[4 * n + 2], s.tiles[4 * n + 3] = r0, r1
    return n + 1


@jit
def _strip(s: Sweep, slot: int, k: int, a: int, x: float) -> tuple[float, float, bool]:
    """Return the least and the largest l of ranges with a of the western list, and whether there
    are any.
    """
    inner = s.west[slot * k + a - 1] if a else x
    if a == s.west_n[slot]:
        return -np.inf, inner, True
    return np.nextafter(s.west[slot * k + a], np.inf), inner, s.west[slot * k + a] < inner


@jit
def region_tiles(s: Sweep, slot: int, k: int, x: float, groups: int) -> int:
    """Tile the ranges whose lists contain the object, from east to west; return the number of
    tiles.
    """
    n = 0
    for a in range(min(k - 1, s.west_n[slot]) + 1):
        l0, l1, is_there = _strip(s, slot, k, a, x)
        if not is_there:
            continue
        b = k - 1 - a
        r1 = np.nextafter(s.east[slot * k + b], -np.inf) if b < s.east_n[slot] else np.inf
        if n and s.tiles[4 * n - 1] == r1:
            s.tiles[4 * n - 4] = l0
        else:
            n = _add_tile(s, n, l0, l1, x, r1)
        s.tile_of[slot * k + a] = n - 1
    return _gather(s, slot, k, n, groups)


@jit
def gain_tiles(s: Sweep, slot: int, k: int, x: float, position: float, groups: int) -> int:
    """Tile the ranges that lose the object at x to one at `position`; return how many.

    These hold both, and exactly k - 1 objects that are better than both.
    """
    n = 0
    for a in range(min(k - 1, s.west_n[slot]) + 1):
        b = k - 1 - a
        if b > s.east_n[slot]:
            continue
        l0, l1, is_there = _strip(s, slot, k, a, x)
        r0 = s.east[slot * k + b - 1] if b else x
        r1 = np.inf
        if b < s.east_n[slot]:
            r1 = np.nextafter(s.east[slot * k + b], -np.inf)
            is_there &= r0 < s.east[slot * k + b]
        if position > x:
            r0 = max(r0, position)
        else:
            l1 = min(l1, position)
        if is_there and l0 <= l1 and r0 <= r1:
            n = _add_tile(s, n, l0, l1, r0, r1)
            s.tile_of[slot * k + a] = n - 1
    return _gather(s, slot, k, n, groups)


@jit
def _gather(s: Sweep, slot: int, k: int, n: int, groups: int) -> int:
    """Join neighbouring tiles into at most this many equal groups, with one bounding tile each.

    As `staircase.gather` does: section IV-B.
    """
    if n <= groups:
        return n
    for t in range(n):
        group = ((t + 1) * groups - 1) // n
        tile, whole = 4 * t, 4 * group
        if t == group * n // groups:
            for side in range(4):
                s.tiles[whole + side] = s.tiles[tile + side]
        for side in (0, 2):
            s.tiles[whole + side] = min(s.tiles[whole + side], s.tiles[tile + side])
        for side in (1, 3):
            s.tiles[whole + side] = max(s.tiles[whole + side], s.tiles[tile + side])
    for a in range(k):
        s.tile_of[slot * k + a] = ((s.tile_of[slot * k + a] + 1) * groups - 1) // n
    return groups
