"""Staircases: the regions of interests whose lists contain an object, and their tilings.

An interest [l, r] is the point (l, r). Let west be the places of the nearest k better objects at or
west of an object at x, from near to far, and east those east of it, both with x itself in front and
padded with -inf and +inf. The interest holds a of the first and b of the second; the object is in
its list if l <= x <= r and a + b < k. So for l in (west[z], west[z - 1]] it is r < east[k + 1 - z]:
a staircase with its apex at (x, x), at most k steps, r falling to the west.

    lists      west, east    (k + 1,)   as above
    steps      (s, 2)        l down to beyond steps[j, 0] (and up to the step before, x for the
                             first) goes with r below steps[j, 1]; both columns fall strictly
    tiles      (t, 4)        left_outer < l <= left_inner and right_inner <= r < right_outer, from
                             west to east, with ranges of l that don't overlap

Steps of the same apex have unions and intersections, which are steps again (up to k + 2 of them
where batches need them), and differences, which are tiled strip by strip.

Sections II-C and III of paper 001, with the corrections of the reading notes: equal right ends make
one step, and what an object gains is cut at its own place.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.kernels.bundle import edited
from rangecast.kernels.jit import jit
from rangecast.notify.line.objects_line import Line, first_east, first_west

ROOM = 8


@edited
class Scratch(NamedTuple):
    """Working memory for lists of k: at most 2k + ROOM tiles, and as many steps."""

    west: F64
    east: F64
    tiles: Annotated[F64, 2]
    steps: Annotated[F64, 2]
    other: Annotated[F64, 2]
    third: Annotated[F64, 2]

    @classmethod
    def of(cls, k: int) -> Scratch:
        """Return working memory for this k."""
        most = 2 * k + ROOM
        return cls(
            np.zeros(k + 1),
            np.zeros(k + 1),
            np.zeros((most, 4)),
            np.zeros((most, 2)),
            np.zeros((most, 2)),
            np.zeros((most, 2)),
        )


@jit
def fill_lists(line: Line, x: float, y: float, arrival: int, k: int, scratch: Scratch) -> None:
    """Fill the lists of an object at x with this key."""
    first_west(line, x, y, arrival, k, scratch.west)
    first_east(line, x, y, arrival, k, scratch.east)


@jit
def pass_by(scratch: Scratch, k: int, x: float, position: float) -> None:
    """Move the object at x behind one at `position`, which joins the lists."""
    at = k
    if position <= x:
        while at > 1 and scratch.west[at - 1] < position:
            scratch.west[at] = scratch.west[at - 1]
            at -= 1
        scratch.west[at] = position
    else:
        while at > 1 and scratch.east[at - 1] > position:
            scratch.east[at] = scratch.east[at - 1]
            at -= 1
        scratch.east[at] = position


@jit
def _add_step(steps: F64, n: int, left: float, right: float) -> int:
    """Append a step, or extend the last one if it has the same height; return the number
    of steps.
    """
    if n and steps[n - 1, 1] == right:
        steps[n - 1, 0] = left
        return n
    steps[n, 0], steps[n, 1] = left, right
    return n + 1


@jit
def steps_of(scratch: Scratch, k: int, steps: F64) -> int:
    """Write the steps of the region of interests whose lists contain an object."""
    n = 0
    for z in range(1, k + 1):
        if scratch.west[z] < scratch.west[z - 1]:
            n = _add_step(steps, n, scratch.west[z], scratch.east[k + 1 - z])
    return n


@jit
def combine(other: F64, m: int, two: F64, n: int, both: bool, out: F64) -> int:
    """Write the steps of an intersection (`both`) or of a union; return their number."""
    i = j = count = 0
    while i < m or j < n:
        if both and (i == m or j == n):
            break
        first = j == n or (i < m and other[i, 0] >= two[j, 0])
        left = other[i, 0] if first else two[j, 0]
        if i == m:
            right = two[j, 1]
        elif j == n:
            right = other[i, 1]
        elif both:
            right = min(other[i, 1], two[j, 1])
        else:
            right = max(other[i, 1], two[j, 1])
        count = _add_step(out, count, left, right)
        if i < m and other[i, 0] == left:
            i += 1
        if j < n and two[j, 0] == left:
            j += 1
    return count


@jit
def _turn(tiles: F64, n: int) -> None:
    for low in range(n // 2):
        for side in range(4):
            tiles[low, side], tiles[n - 1 - low, side] = tiles[n - 1 - low, side], tiles[low, side]


@jit
def tile_difference(x: float, other: F64, m: int, two: F64, n: int, tiles: F64) -> int:
    """Tile the first steps minus the second; n = 0 tiles all of the first."""
    j = count = 0
    above = x
    for i in range(m):
        while True:
            bottom = two[j, 1] if j < n else x
            left = max(other[i, 0], two[j, 0]) if j < n else other[i, 0]
            if bottom < other[i, 1]:
                last = count - 1
                if (
                    count
                    and tiles[last, 0] == above
                    and tiles[last, 2] == bottom
                    and tiles[last, 3] == other[i, 1]
                ):
                    tiles[last, 0] = left
                else:
                    tiles[count, 0], tiles[count, 1] = left, above
                    tiles[count, 2], tiles[count, 3] = bottom, other[i, 1]
                    count += 1
            above = left
            if j < n and two[j, 0] == left:
                j += 1
            if left == other[i, 0]:
                break
    _turn(tiles, count)
    return count


@jit
def tile_gain(scratch: Scratch, k: int, x: float, position: float) -> int:
    """Tile the interests whose list loses the object at x to the one at `position`, passing it now.

    These hold both, and exactly k - 1 objects that are better than both.
    """
    count = 0
    for turn in range(k):
        a, b = k - 1 - turn, turn
        left_outer, left_inner = scratch.west[a + 1], scratch.west[a]
        right_inner, right_outer = scratch.east[b], scratch.east[b + 1]
        if position > x:
            right_inner = max(right_inner, position)
        else:
            left_inner = min(left_inner, position)
        if left_outer < left_inner and right_inner < right_outer:
            tiles = scratch.tiles
            tiles[count, 0], tiles[count, 1] = left_outer, left_inner
            tiles[count, 2], tiles[count, 3] = right_inner, right_outer
            count += 1
    return count


@jit
def gather(tiles: F64, n: int, groups: int) -> int:
    """Join neighbouring tiles into at most this many equal groups, with one bounding tile each.

    Reaches some interests needlessly: joining s tiles adds those where the object ranks up to k + s
    - 1.
    Section IV-B.
    """
    if n <= groups:
        return n
    for group in range(groups):
        first, end = group * n // groups, (group + 1) * n // groups
        low, high = tiles[first, 2], tiles[first, 3]
        for t in range(first + 1, end):
            low, high = min(low, tiles[t, 2]), max(high, tiles[t, 3])
        left_outer, left_inner = tiles[first, 0], tiles[end - 1, 1]
        tiles[group, 0], tiles[group, 1] = left_outer, left_inner
        tiles[group, 2], tiles[group, 3] = low, high
    return groups
