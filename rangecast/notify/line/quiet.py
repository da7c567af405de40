"""Quiet ranges (safe regions): values of an object that change no list.

The source of the object can evaluate this condition and send nothing.

A list has the values of its objects. So an object in some list has no other quiet value. One that
is in none stays out of all lists while its key is worse than the k-th of every interest around it:
from the least such value on, everything is quiet. That is where its staircase, which grows as the
value falls, begins to hold an interest; it is found by bisecting the doubles.

Cost: at most 64 times two first_k and a search per step of the staircase.
Section VI of paper 001, future work: one condition per object, however many interests there are.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import I64
from rangecast.kernels.bundle import opened
from rangecast.kernels.grid import MAX
from rangecast.kernels.jit import jit, jit_single
from rangecast.notify.line.objects_line import Line
from rangecast.notify.line.staircase import Scratch, fill_lists, steps_of, tile_difference
from rangecast.notify.line.tree import NONE, Frontier, Rectangle, Tree, advance, search

_LEAST = np.iinfo(np.int64).min


@jit
def _flipped(bits: int) -> int:
    """Turn the bits of a double into an integer of the same order, or back."""
    return bits if bits >= 0 else _LEAST - bits


@jit
def _is_listed(
    line: Line, tree: Tree, p: int, y: float, k: int, scratch: Scratch, frontier: Frontier
) -> bool:
    """Return whether the object at place p would be in some list if its value fell to y."""
    x = line.x[p]
    fill_lists(line, x, y, line.arrival[p], k, scratch)
    steps = steps_of(scratch, k, scratch.steps)
    tiles = tile_difference(x, scratch.steps, steps, scratch.other, 0, scratch.tiles)
    for t in range(tiles):
        tile = scratch.tiles[t]
        l0, r1 = np.nextafter(tile[0], np.inf), np.nextafter(tile[3], -np.inf)
        area = Rectangle(l0, tile[1], tile[2], r1)
        advance(tree, area, frontier)
        around = search(tree, frontier, area, NONE, True, 0)
        if around.l0 <= around.l1:
            return True
    return False


@jit_single
def quiet_from(
    objects_table: I64,
    tree_table: I64,
    slot: int,
    k: int,
    scratch_table: I64,
    frontier_table: I64,
) -> float:
    """Return the least value from which on an object is in no list; NaN if it is in one now."""
    line, tree = opened(objects_table, Line), opened(tree_table, Tree)
    scratch, frontier = opened(scratch_table, Scratch), opened(frontier_table, Frontier)
    p = line.place[slot]
    if _is_listed(line, tree, p, line.y[p], k, scratch, frontier):
        return np.nan
    if not _is_listed(line, tree, p, -MAX, k, scratch, frontier):
        return -np.inf
    value = np.empty(1)
    bits = value.view(np.int64)
    value[0] = -MAX
    listed = _flipped(bits[0])
    value[0] = line.y[p]
    quiet = _flipped(bits[0])
    while listed + 1 < quiet:
        middle = (listed >> 1) + (quiet >> 1) + (listed & quiet & 1)
        bits[0] = _flipped(middle)
        if _is_listed(line, tree, p, value[0], k, scratch, frontier):
            listed = middle
        else:
            quiet = middle
    bits[0] = _flipped(quiet)
    return float(value[0])
