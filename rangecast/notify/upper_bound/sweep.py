"""The region of interests whose lists contain an object, by intervals of their upper bound.

An interest is a range from l to r on one attribute, x, and an upper bound c on another one, the
height. Take the better objects up to a height c. Those nearest to an object at x, at most k on each
side, say as on a line (`notify/line/staircase.py`) which ranges have the object in their list: a
staircase. As c is swept upwards, an object joins these lists whenever one comes in between them. So
heights are cut into intervals, each with its lists; together they are the paper's *influence
polygon* in the plane of objects, and their staircases the polyhedron of the interests.

    order      (T,)      slots of the intervals from low to high; `used[0]` of them
    free       (T,)      slots that are free; `used[1]` of them
    start      (T,)      where the interval of a slot begins; it ends before the next one begins
    west, east (T k,)    places of better objects up to there, from near to far; at the same x: west
    west_n, east_n (T,)  how many they are
    found      (T,)      entry of the object that is passed next there, UNKNOWN or NOTHING;
                         EMPTY if it isn't looked for, because there are no interests
    lo, hi, high (T,)    where it is looked for: x from lo to hi, heights up to `high`; no
                         number if it need not be
    used       (3,)      also how many slots there are
    top        (1,)      where the last interval ends
    tile_of    (T k,)    by slot and number of better objects in the west: the tile of an interest
    tiles      (8k + 8,)     of each, least and largest l, least and largest r

Kernels take it as pointers: it is handed to small functions very often.

All bounds are included. Coordinates may be +inf, for a missing value, so lists have lengths and no
padding. Where k better objects lie at x itself no interest has the object in its list, nor above:
there the last interval ends.

Appendix D of paper 001, Algorithms 6 to 11, with the corrections of the reading notes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import edited, pointer
from rangecast.kernels.jit import jit
from rangecast.notify.boxes.kdtree import NO_ARRIVAL, ZERO, KdTree, below
from rangecast.notify.upper_bound.search import first_k, next_best, next_upwards

NOTHING, UNKNOWN, EMPTY = -1, -2, -3
COUNT, FREE, ROOM = 0, 1, 2
FIRST_K, MIN_HEIGHT, MIN_Y, SNAP = 7, 8, 9, 10
"""Indexes of call counters: see `engine.UpperBoundWork`."""


@edited
class Sweep(NamedTuple):
    """Arrays of the sweep: see the module's docstring."""

    order: I32
    free: I32
    used: I64
    start: F64
    west: F64
    east: F64
    west_n: I32
    east_n: I32
    found: I64
    lo: F64
    hi: F64
    high: F64
    top: F64
    tile_of: I32
    tiles: F64

    @classmethod
    def of(cls, k: int, intervals: int) -> Sweep:
        """Return empty arrays for a sweep of up to `intervals` intervals."""
        return cls(
            np.zeros(intervals, np.int32),
            np.zeros(intervals, np.int32),
            np.array([0, 0, intervals], np.int64),
            np.zeros(intervals),
            np.zeros(intervals * k),
            np.zeros(intervals * k),
            np.zeros(intervals, np.int32),
            np.zeros(intervals, np.int32),
            np.zeros(intervals, np.int64),
            np.zeros(intervals),
            np.zeros(intervals),
            np.zeros(intervals),
            np.zeros(1),
            np.zeros(intervals * k, np.int32),
            np.zeros(4 * (2 * k + 2)),
        )


@jit
def min_x(s: Sweep, slot: int, k: int) -> float:
    """Return the least x that lies beyond none of the western list."""
    if s.west_n[slot] < k:
        return -np.inf
    return float(np.nextafter(s.west[slot * k + k - 1], np.inf))


@jit
def max_x(s: Sweep, slot: int, k: int) -> float:
    """Return the largest x that lies beyond none of the eastern list."""
    if s.east_n[slot] < k:
        return np.inf
    return float(np.nextafter(s.east[slot * k + k - 1], -np.inf))


@jit
def end_of(s: Sweep, z: int) -> float:
    """Return the last height of interval z."""
    if z + 1 == s.used[COUNT]:
        return float(s.top[0])
    return float(np.nextafter(s.start[s.order[z + 1]], -np.inf))


@jit
def interval_of(s: Sweep, c: float) -> int:
    """Return the interval of a height, -1 below all of them and `used[COUNT]` above."""
    if c > s.top[0]:
        return int(s.used[COUNT])
    low, high = ZERO, ZERO + s.used[COUNT]
    while low < high:
        middle = (low + high) >> 1
        if s.start[s.order[middle]] <= c:
            low = middle + 1
        else:
            high = middle
    return low - 1


@jit
def west_of(s: Sweep, slot: int, k: int, left: float) -> int:
    """Return how many of the western list lie in a range from `left` on."""
    low, high = ZERO, ZERO + s.west_n[slot]
    while low < high:
        middle = (low + high) >> 1
        if s.west[slot * k + middle] >= left:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def east_of(s: Sweep, slot: int, k: int, right: float) -> int:
    """Return how many of the eastern list lie in a range up to `right`."""
    low, high = ZERO, ZERO + s.east_n[slot]
    while low < high:
        middle = (low + high) >> 1
        if s.east[slot * k + middle] <= right:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def _insert(s: Sweep, z: int, k: int, start: float, source: int) -> int:
    """Insert an interval with the lists of another slot at position z; return its slot."""
    count = s.used[COUNT]
    s.used[FREE] -= 1
    slot = int(s.free[s.used[FREE]])
    for i in range(count - z):
        s.order[count - i] = s.order[count - i - 1]
    s.order[z] = slot
    s.used[COUNT] = count + 1
    s.start[slot], s.found[slot] = start, UNKNOWN
    s.west_n[slot], s.east_n[slot] = s.west_n[source], s.east_n[source]
    for i in range(s.west_n[slot]):
        s.west[slot * k + i] = s.west[source * k + i]
    for i in range(s.east_n[slot]):
        s.east[slot * k + i] = s.east[source * k + i]
    return slot


@jit
def _remove(s: Sweep, z: int) -> None:
    s.free[s.used[FREE]] = s.order[z]
    s.used[FREE] += 1
    s.used[COUNT] -= 1
    for i in range(z, s.used[COUNT]):
        s.order[i] = s.order[i + 1]


@jit
def _cut_off(s: Sweep, z: int) -> None:
    """Drop the intervals from z on."""
    s.top[0] = np.nextafter(s.start[s.order[z]], -np.inf)
    while s.used[COUNT] > z:
        _remove(s, s.used[COUNT] - 1)


@jit
def _pass_by(s: Sweep, slot: int, k: int, x: float, position: float) -> bool:
    """Add a better object at `position` to the lists; return False if no interest is left."""
    if position <= x:
        if s.west_n[slot] < k:
            s.west_n[slot] += 1
        at = s.west_n[slot] - 1
        while at and s.west[slot * k + at - 1] < position:
            s.west[slot * k + at] = s.west[slot * k + at - 1]
            at -= 1
        s.west[slot * k + at] = position
        return bool(s.west_n[slot] < k or s.west[slot * k + k - 1] < x)
    if s.east_n[slot] < k:
        s.east_n[slot] += 1
    at = s.east_n[slot] - 1
    while at and s.east[slot * k + at - 1] > position:
        s.east[slot * k + at] = s.east[slot * k + at - 1]
        at -= 1
    s.east[slot * k + at] = position
    return True


@jit
def sweep_upwards(
    tree: KdTree,
    axis: int,
    x: float,
    height: float,
    y: float,
    arrival: int,
    k: int,
    s: Sweep,
    stack: I32,
    work: I64,
) -> int:
    """Write the intervals of an object with this key; return their number, -1 if there is
    no room.
    """
    room, up = s.used[ROOM], 1 - axis
    for i in range(room):
        s.free[i] = room - 1 - i
    s.used[COUNT], s.used[FREE], s.top[0] = 0, room, np.inf
    slot = _insert(s, ZERO, k, height, ZERO)
    s.west_n[slot] = first_k(
        tree, axis, True, x, height, y, arrival, k, pointer(s.west, slot * k), stack
    )
    s.east_n[slot] = first_k(
        tree, axis, False, x, height, y, arrival, k, pointer(s.east, slot * k), stack
    )
    work[FIRST_K] += 2
    if s.west_n[slot] == k and s.west[slot * k + k - 1] == x:
        _cut_off(s, ZERO)
        return 0
    last = ZERO + NO_ARRIVAL
    while True:
        work[MIN_HEIGHT] += 1
        lo, hi = min_x(s, slot, k), max_x(s, slot, k)
        e = next_upwards(tree, axis, lo, hi, s.start[slot], last, y, arrival, stack)
        if e < 0:
            break
        last = ZERO + tree.arrival[e]
        if tree.at[e, up] > s.start[slot]:
            if s.used[FREE] == 0:
                return -1
            slot = _insert(s, ZERO + s.used[COUNT], k, tree.at[e, up], slot)
        if not _pass_by(s, slot, k, x, tree.at[e, axis]):
            _cut_off(s, s.used[COUNT] - 1)
            break
    return int(s.used[COUNT])


@jit
def next_exposed(
    tree: KdTree,
    axis: int,
    y: float,
    arrival: int,
    limit_y: float,
    limit_arrival: int,
    s: Sweep,
    stack: I32,
    work: I64,
) -> int:
    """Return the interval whose next exposed object has the lowest key, -1 if there is none.

    Objects are cached in `found`; only intervals that lost theirs are searched again.
    """
    best = ZERO - 1
    for z in range(s.used[COUNT]):
        slot = s.order[z]
        if np.isnan(s.lo[z]):
            continue
        e = s.found[slot]
        if e >= 0 and not (
            s.lo[z] <= tree.at[e, axis] <= s.hi[z] and tree.at[e, 1 - axis] <= s.high[z]
        ):
            e = UNKNOWN
        if e == UNKNOWN:
            work[MIN_Y] += 1
            low = s.start[slot] if z else -np.inf
            s.found[slot] = e = next_best(
                tree,
                axis,
                s.lo[z],
                s.hi[z],
                low,
                s.high[z],
                y,
                arrival,
                limit_y,
                limit_arrival,
                stack,
            )
        if e >= 0:
            least = s.found[s.order[max(best, 0)]]
            if best < 0 or below(tree.y[e], tree.arrival[e], tree.y[least], tree.arrival[least]):
                best = ZERO + z
    return best


@jit
def begin_passing(s: Sweep, z: int, k: int, height: float) -> int:
    """Return the first interval that the object found in z belongs to: z, or a part of it."""
    slot = s.order[z]
    s.found[slot] = UNKNOWN
    if height <= s.start[slot]:
        return z
    _insert(s, z + 1, k, height, slot)
    return z + 1


@jit
def is_between(s: Sweep, z: int, k: int, position: float) -> bool:
    """Return whether interval z exists, and a position lies between its lists."""
    if z >= s.used[COUNT]:
        return False
    slot = s.order[z]
    return bool(min_x(s, slot, k) <= position <= max_x(s, slot, k))


@jit
def _is_same(s: Sweep, slot: int, two: int, k: int) -> bool:
    same = s.west_n[slot] == s.west_n[two] and s.east_n[slot] == s.east_n[two]
    if same:
        for i in range(s.west_n[slot]):
            same &= s.west[slot * k + i] == s.west[two * k + i]
        for i in range(s.east_n[slot]):
            same &= s.east[slot * k + i] == s.east[two * k + i]
    return bool(same)


@jit
def _unite(s: Sweep, tree: KdTree, z: int, k: int) -> bool:
    """Unite interval z with the one below it if their lists are equal; return whether they are."""
    if z == 0 or z >= s.used[COUNT] or not _is_same(s, s.order[z - 1], s.order[z], k):
        return False
    first, two = s.found[s.order[z - 1]], s.found[s.order[z]]
    if first == UNKNOWN or two == UNKNOWN:
        first = UNKNOWN
    elif first < 0 or (
        two >= 0 and below(tree.y[two], tree.arrival[two], tree.y[first], tree.arrival[first])
    ):
        first = two
    s.found[s.order[z - 1]] = first
    _remove(s, z)
    return True


@jit
def end_passing(s: Sweep, tree: KdTree, z: int, k: int, x: float, position: float) -> None:
    """Add an object at `position` to the lists from interval z on; unite equal intervals."""
    while is_between(s, z, k, position):
        if not _pass_by(s, s.order[z], k, x, position):
            _cut_off(s, z)
            return
        if not _unite(s, tree, z, k):
            z += 1
    _unite(s, tree, z, k)
