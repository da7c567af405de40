"""Objects on a line, each with a value: which rank better nearby, and which comes next?

An object lies at x and has a value y. Objects are ranked by their key (y, arrival), the lowest
first, so of equal values the first that came ranks first. Two questions are asked all the time:

    first_west, first_east   the nearest k objects on one side with a key below a given one
    next_best                the lowest key above a given one, and below a limit, within a range

Objects stand in order of x in blocks of 32 places with room to spare, and over the blocks lies a
complete binary tree of their lowest keys: node 1 is the root, the children of node v are 2v and
2v + 1, block b is node blocks + b. A full block shares with its neighbours: the smallest aligned
window of 2, 4, 8 ... blocks that is not too full is spread evenly (a packed memory array); if even
the whole line is too full, it is rebuilt with twice the room.

    x, y, arrival, slot   (32 blocks,)  by place; block b has held[b] objects from place 32 b on
    held, min_x           (blocks,)     objects of a block have x >= min_x, earlier ones have not
                                        more; an empty block has that of the next one
    best_y, best_arrival  (2 blocks,)   the lowest key of a node; an empty one has (inf, NO_ARRIVAL)
    place                 (slots,)      where the object of a slot is, -1: nowhere

An object with y = inf has a place but ranks nowhere: so it is while it enters or leaves.

Cost: a key changes in O(log n); an object enters in amortised O(log^2 n); first_* opens O(k) blocks
and next_best O(b + 1) of them with O(log n) nodes each, where b objects of the range have a key
at or below the given one: at most 2k in the algorithms of paper 001, whose section II-B this is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import edited, opened
from rangecast.kernels.jit import jit

BLOCK = 32
NO_ARRIVAL = np.iinfo(np.int64).max
"""Arrival number of an empty entry."""
_FULLEST, _FULLEST_LINE = 0.95, 0.7
"""Maximum fill of two neighbouring blocks, and of all of them together."""


@edited
class Line(NamedTuple):
    """Arrays of the line: see the module's docstring."""

    x: F64
    y: F64
    arrival: I64
    slot: I32
    held: I32
    min_x: F64
    best_y: F64
    best_arrival: I64
    place: I64


@jit
def _block_of(min_x: F64, x: float) -> int:
    """Return the last block that may contain an object at x."""
    low, high = 0, len(min_x)
    while high - low > 1:
        middle = (low + high) >> 1
        if min_x[middle] <= x:
            low = middle
        else:
            high = middle
    return low


@jit
def _block_before(min_x: F64, x: float) -> int:
    """Return the first block that may contain an object at x."""
    low, high = 0, len(min_x)
    while high - low > 1:
        middle = (low + high) >> 1
        if min_x[middle] < x:
            low = middle
        else:
            high = middle
    return low


@jit
def _refresh(line: Line, block: int) -> None:
    """Write the lowest key of a block into the tree, and update its ancestors."""
    y, arrival = np.inf, NO_ARRIVAL
    for p in range(BLOCK * block, BLOCK * block + line.held[block]):
        if line.y[p] < y or (line.y[p] == y and line.arrival[p] < arrival):
            y, arrival = line.y[p], line.arrival[p]
    node = len(line.held) + block
    while True:
        if line.best_y[node] == y and line.best_arrival[node] == arrival:
            return
        line.best_y[node], line.best_arrival[node] = y, arrival
        if node == 1:
            return
        other = node ^ 1
        other_y, other_arrival = line.best_y[other], line.best_arrival[other]
        if other_y < y or (other_y == y and other_arrival < arrival):
            y, arrival = other_y, other_arrival
        node >>= 1


@jit
def change(line: Line, slot: int, y: float) -> None:
    """Set the value of an object."""
    p = line.place[slot]
    line.y[p] = y
    _refresh(line, p // BLOCK)


@jit
def change_all(table: I64, slots: I32, ys: F64) -> None:
    """Set the values of objects."""
    line = opened(table, Line)
    for i in range(len(slots)):
        change(line, slots[i], ys[i])


@jit
def _put(line: Line, target: int, source: int) -> None:
    line.x[target], line.y[target] = line.x[source], line.y[source]
    line.arrival[target], line.slot[target] = line.arrival[source], line.slot[source]
    line.place[line.slot[target]] = target


@jit
def _spread(line: Line, first: int, width: int) -> None:
    """Distribute the objects evenly over the blocks first .. first + width - 1."""
    packed = BLOCK * first
    for block in range(first, first + width):
        for p in range(BLOCK * block, BLOCK * block + line.held[block]):
            if p > packed:
                _put(line, packed, p)
            packed += 1
    total = packed - BLOCK * first
    share, more = total // width, total % width
    after = line.min_x[first + width] if first + width < len(line.held) else np.inf
    for turn in range(width):
        block = first + width - 1 - turn
        here = share + (block - first < more)
        line.held[block] = here
        for j in range(here):
            packed -= 1
            target = BLOCK * block + here - 1 - j
            if target > packed:
                _put(line, target, packed)
        if here:
            after = line.x[BLOCK * block]
        if block:
            line.min_x[block] = after
    for block in range(first, first + width):
        _refresh(line, block)


@jit
def _make_room(line: Line, block: int) -> bool:
    """Spread the objects around a full block; return whether that made room."""
    blocks = len(line.held)
    heights = 0
    while (1 << heights) < blocks:
        heights += 1
    for height in range(1, heights + 1):
        width = 1 << height
        first = block & ~(width - 1)
        total = 0
        for other in range(first, first + width):
            total += line.held[other]
        most = _FULLEST - (_FULLEST - _FULLEST_LINE) * height / heights
        if total <= most * width * BLOCK:
            _spread(line, first, width)
            return True
    return False


@jit
def enter(table: I64, slot: int, x: float, y: float, arrival: int) -> bool:
    """Insert an object; return False without a change if the line needs more room."""
    line = opened(table, Line)
    block = _block_of(line.min_x, x)
    if line.held[block] == BLOCK:
        if not _make_room(line, block):
            return False
        block = _block_of(line.min_x, x)
    p = BLOCK * block + line.held[block]
    while p > BLOCK * block and line.x[p - 1] > x:
        _put(line, p, p - 1)
        p -= 1
    line.x[p], line.y[p], line.arrival[p], line.slot[p] = x, y, arrival, slot
    line.place[slot] = p
    line.held[block] += 1
    _refresh(line, block)
    return True


@jit
def leave(table: I64, slot: int) -> None:
    """Remove an object."""
    line = opened(table, Line)
    p = line.place[slot]
    block = p // BLOCK
    line.held[block] -= 1
    for q in range(p, BLOCK * block + line.held[block]):
        _put(line, q, q + 1)
    line.place[slot] = -1
    _refresh(line, block)


@jit
def _below(y: float, arrival: int, other_y: float, other_arrival: int) -> bool:
    return bool(y < other_y or (y == other_y and arrival < other_arrival))


@jit
def first_west(line: Line, x: float, y: float, arrival: int, k: int, values: F64) -> int:
    """Write the positions of the nearest k objects at or west of x with a key below this one.

    found[0] becomes x, found[1 ..] the positions from near to far, then -inf. Returns their number.
    (Takes arrays one by one: passing a whole `Line` in a loop is slow.)
    """
    xs, ys, arrivals, count = line.x, line.y, line.arrival, line.held
    best_y, best_arrival, blocks = line.best_y, line.best_arrival, len(line.held)
    values[0] = x
    n = 0
    block = _block_of(line.min_x, x)
    while n < k:
        p = BLOCK * block + count[block] - 1
        while p >= BLOCK * block and n < k:
            values[n + 1] = xs[p]
            n += _below(ys[p], arrivals[p], y, arrival) and xs[p] <= x
            p -= 1
        node = blocks + block
        while node > 1 and not (
            node & 1 and _below(best_y[node - 1], best_arrival[node - 1], y, arrival)
        ):
            node >>= 1
        if node <= 1:
            break
        node -= 1
        while node < blocks:
            node = 2 * node + 1
            node -= not _below(best_y[node], best_arrival[node], y, arrival)
        block = node - blocks
    for j in range(n + 1, k + 1):
        values[j] = -np.inf
    return n


@jit
def first_east(line: Line, x: float, y: float, arrival: int, k: int, values: F64) -> int:
    """Do what `first_west` does, for objects strictly east of x, padded with inf."""
    xs, ys, arrivals, count = line.x, line.y, line.arrival, line.held
    best_y, best_arrival, blocks = line.best_y, line.best_arrival, len(line.held)
    values[0] = x
    n = 0
    block = _block_of(line.min_x, x)
    while n < k:
        p = BLOCK * block
        end = p + count[block]
        while p < end and n < k:
            values[n + 1] = xs[p]
            n += _below(ys[p], arrivals[p], y, arrival) and xs[p] > x
            p += 1
        node = blocks + block
        while node > 1 and (
            node & 1 or not _below(best_y[node + 1], best_arrival[node + 1], y, arrival)
        ):
            node >>= 1
        if node <= 1:
            break
        node += 1
        while node < blocks:
            node = 2 * node
            node += not _below(best_y[node], best_arrival[node], y, arrival)
        block = node - blocks
    for j in range(n + 1, k + 1):
        values[j] = np.inf
    return n


@jit
def next_best(
    line: Line,
    lo: float,
    hi: float,
    y: float,
    arrival: int,
    limit_y: float,
    limit_arrival: int,
) -> int:
    """Return the entry with the lowest key above (y, arrival) in [lo, hi], -1 if none is below the
    limit.

    Walks the blocks from west to east, a whole subtree in one step if its lowest key decides: it is
    no better than the best so far, or it is itself the better one.
    """
    xs, ys, arrivals, count = line.x, line.y, line.arrival, line.held
    lowest_y, lowest_arrival, blocks = line.best_y, line.best_arrival, len(line.held)
    last = _block_of(line.min_x, hi)
    block = _block_before(line.min_x, lo)
    best_y, best_arrival = limit_y, limit_arrival
    best, best_node = -1, 0
    node, height = blocks + block, 0
    while True:
        first = (node << height) - blocks
        beyond = first + (1 << height) > last
        low_y, low_arrival = lowest_y[node], lowest_arrival[node]
        better = _below(low_y, low_arrival, best_y, best_arrival)
        if height and beyond:
            if not better:
                break
            node, height = 2 * node, height - 1
            continue
        if better:
            if _below(y, arrival, low_y, low_arrival) and first > block and not beyond:
                best_y, best_arrival, best_node = low_y, low_arrival, node
            elif height:
                node, height = 2 * node, height - 1
                continue
            else:
                for p in range(BLOCK * first, BLOCK * first + count[first]):
                    here, came = ys[p], arrivals[p]
                    if (
                        (here < best_y or (here == best_y and came < best_arrival))
                        and (here > y or (here == y and came > arrival))
                        and lo <= xs[p] <= hi
                    ):
                        best_y, best_arrival, best, best_node = here, came, p, 0
        while node & 1 and node > 1:
            node, height = node >> 1, height + 1
        node += 1
        if node <= 2 or (node << height) - blocks > last:
            break
    if not best_node:
        return best
    while best_node < blocks:
        best_node = 2 * best_node
        best_node += lowest_y[best_node] != best_y or lowest_arrival[best_node] != best_arrival
    best = BLOCK * (best_node - blocks)
    while arrivals[best] != best_arrival or ys[best] != best_y:
        best += 1
    return best


@jit
def best_of(line: Line, lo: float, hi: float, k: int, slots: I32, ys: F64, arrivals: I64) -> int:
    """Write the top k objects of a range, the best first; return their number."""
    y, arrival = -np.inf, -1
    for n in range(k):
        p = next_best(line, lo, hi, y, arrival, np.inf, -1)
        if p < 0:
            return n
        y, arrival = line.y[p], line.arrival[p]
        slots[n], ys[n], arrivals[n] = line.slot[p], y, arrival
    return k


@jit
def best_in(table: I64, lo: float, hi: float, slots: I32, ys: F64, arrivals: I64) -> int:
    """Write the best objects of a range, as many as fit; return their number."""
    return best_of(opened(table, Line), lo, hi, len(slots), slots, ys, arrivals)


@jit
def nearest(table: I64, x: float, y: float, arrival: int, east: bool, values: F64) -> int:
    """Call `first_east` or `first_west` for as many objects as there is room."""
    if east:
        return first_east(opened(table, Line), x, y, arrival, len(values) - 1, values)
    return first_west(opened(table, Line), x, y, arrival, len(values) - 1, values)


@jit
def next_in(
    table: I64, lo: float, hi: float, y: float, arrival: int, limit_y: float, limit_arrival: int
) -> int:
    """Return the slot of the object that `next_best` finds, -1 if none."""
    line = opened(table, Line)
    p = next_best(line, lo, hi, y, arrival, limit_y, limit_arrival)
    return line.slot[p] if p >= 0 else -1


@jit
def fill(table: I64, order: I64, x: F64, y: F64, arrival: I64, slot: I32) -> None:
    """Lay out objects, in the order given, over an empty line."""
    line = opened(table, Line)
    blocks = len(line.held)
    share, more = len(order) // blocks, len(order) % blocks
    j = 0
    for block in range(blocks):
        for t in range(share + (block < more)):
            p, o = BLOCK * block + t, order[j]
            line.x[p], line.y[p], line.arrival[p], line.slot[p] = x[o], y[o], arrival[o], slot[o]
            line.place[slot[o]] = p
            line.held[block] += 1
            j += 1
    after = np.inf
    for turn in range(blocks):
        block = blocks - 1 - turn
        if line.held[block]:
            after = line.x[BLOCK * block]
        line.min_x[block] = after if block else -np.inf
        _refresh(line, block)
