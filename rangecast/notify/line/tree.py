"""Interests, the ranges [l, r] of subscriptions, as points (l, r) in a k-d tree.

The one question is `snap`: which is the smallest rectangle that holds all interests of a given
rectangle? A node knows the rectangle of the interests below it: a node that lies inside the asked
rectangle answers at once, and one that can't widen the answer is skipped.

Nodes are cut in turn by l (even depth) and by r (odd depth), ties by row, so that even equal points
differ. Leaves have room for 16. Children come in pairs, so a node knows only the first.
An entry is a point, or a rectangle in a sketch: `low_l` and `high_l` are then two arrays, and
else one array twice.

    low_l, high_l, low_r, high_r   (16 leaves,)  the entries of leaf f from 16 f on, in any order,
                          then NaN, so that all 16 can be compared at once
    bounds   (nodes, 4)   least and largest l, least and largest r of the interests below a node
    child    (nodes,)     first of two children; of a leaf ~f
    size     (nodes,)     entries below a node

How the tree is built and changed is in `tree_edits.py`. About 37 bytes per interest with all of it.

`Frontier` holds at most 32 nodes that together hold all interests of a region, so that many snaps
within it don't all start at the root.

Section II-B of paper 001; the sketch is the remark at the end of its section III-B.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.bundle import edited, opened
from rangecast.kernels.jit import jit

LEAF = 16
FRONTIER = 32
STACK = 256
_LEAF, _FRONTIER = np.uint64(LEAF), np.uint64(FRONTIER)
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@edited
class Tree(NamedTuple):
    """Arrays that a search reads: see the module's docstring."""

    low_l: F64
    high_l: F64
    low_r: F64
    high_r: F64
    bounds: Annotated[F64, 2]
    child: I32
    size: I32


@edited
class Frontier(NamedTuple):
    """Nodes that hold all interests of a region, their bounds, and room for a search.

    Bounds are by side, NaN where there is no node, so that all can be compared at once.
    """

    node: I32
    bounds: Annotated[F64, 2]
    stack: I32

    @classmethod
    def empty(cls) -> Frontier:
        """Return an empty tree with room for the maximum number of nodes."""
        return cls(
            np.zeros(FRONTIER, np.int32), np.full((4, FRONTIER), np.nan), np.zeros(STACK, np.int32)
        )


class Rectangle(NamedTuple):
    """Least and largest l, least and largest r, all closed; `NONE` is empty."""

    l0: float
    l1: float
    r0: float
    r1: float


NONE = Rectangle(np.inf, -np.inf, np.inf, -np.inf)
ONLY_LEAST = Rectangle(np.inf, np.inf, -np.inf, np.inf)
"""Initial rectangle for finding only the least l of a region: inf if it is empty."""
ONLY_LARGEST = Rectangle(-np.inf, np.inf, -np.inf, -np.inf)
"""Initial rectangle for finding only the largest r of a region: -inf if it is empty."""


@jit
def _apart(bounds: F64, at: int, l0: float, l1: float, r0: float, r1: float) -> bool:
    return bool(
        bounds[at, 0] > l1 or bounds[at, 1] < l0 or bounds[at, 2] > r1 or bounds[at, 3] < r0
    )


@jit
def advance(tree: Tree, area: Rectangle, frontier: Frontier) -> None:
    """Fill a frontier for a region, level by level while the nodes fit."""
    l0, l1, r0, r1 = area
    bounds, children, nodes, queue = tree.bounds, tree.child, frontier.node, frontier.stack
    queue[0] = 0
    head, tail, n = 0, 1, 0
    while head < tail and n + tail - head < FRONTIER:
        node = queue[head & (FRONTIER - 1)]
        head += 1
        if (
            bounds[node, 0] > l1
            or bounds[node, 1] < l0
            or bounds[node, 2] > r1
            or bounds[node, 3] < r0
        ):
            continue
        child = children[node]
        if child < 0:
            nodes[n] = node
            n += 1
        else:
            queue[tail & (FRONTIER - 1)], queue[(tail + 1) & (FRONTIER - 1)] = child, child + 1
            tail += 2
    while head < tail:
        nodes[n] = queue[head & (FRONTIER - 1)]
        head, n = head + 1, n + 1
    for side in range(4):
        for at in range(FRONTIER):
            frontier.bounds[side, at] = bounds[nodes[at], side] if at < n else np.nan


@jit
def search(
    tree: Tree,
    frontier: Frontier,
    area: Rectangle,
    known: Rectangle,
    any_will_do: bool,
    upward: int,
) -> Rectangle:
    """Extend a rectangle to all interests of an area below a frontier.

    A node that can't widen it is skipped: so a side that is infinite from the start doesn't
    count. With `any_will_do` it ends at the first find. `upward` is 1 to look at large ends first.
    (It is called by its own name everywhere: a function in between, however small, has to count
    references to all ten arrays, which takes longer than most searches.)
    """
    entries_low_l, entries_high_l = tree.low_l, tree.high_l
    entries_low_r, entries_high_r = tree.low_r, tree.high_r
    bounds, children = tree.bounds, tree.child
    nodes, stack = frontier.node, frontier.stack
    min_l, largest_l = frontier.bounds[0], frontier.bounds[1]
    min_r, largest_r = frontier.bounds[2], frontier.bounds[3]
    l0, l1, r0, r1 = area
    least, largest, lowest, highest = known
    meeting = _ZERO
    for at in range(_FRONTIER):  # without branches, and counting without a sign: many at once
        meets = (
            (min_l[at] <= l1) & (largest_l[at] >= l0) & (min_r[at] <= r1) & (largest_r[at] >= r0)
        )
        meeting |= np.uint64(meets) << np.uint64(at)
    while meeting:
        stack[0] = nodes[np.int64(trailing_zeros(meeting))]
        meeting &= meeting - _ONE
        depth = 1
        while depth:
            depth -= 1
            node = stack[depth]
            low_l, high_l = bounds[node, 0], bounds[node, 1]
            low_r, high_r = bounds[node, 2], bounds[node, 3]
            if low_l > l1 or high_l < l0 or low_r > r1 or high_r < r0:
                continue
            inside = low_l >= l0 and high_l <= l1 and low_r >= r0 and high_r <= r1
            low_l, high_l = max(low_l, l0), min(high_l, l1)
            low_r, high_r = max(low_r, r0), min(high_r, r1)
            if low_l >= least and high_l <= largest and low_r >= lowest and high_r <= highest:
                continue
            if inside:
                least, largest = min(least, low_l), max(largest, high_l)
                lowest, highest = min(lowest, low_r), max(highest, high_r)
                if any_will_do:
                    return Rectangle(least, largest, lowest, highest)
                continue
            if children[node] >= 0:
                stack[depth] = children[node] + 1 - upward
                stack[depth + 1] = children[node] + upward
                depth += 2
                continue
            first = np.uint64(LEAF * ~children[node])
            is_hit = False  # all at once, so that few leaves need the slower loop below
            for j in range(_LEAF):
                e = first + j
                lies_inside = (
                    (entries_low_l[e] <= l1)
                    & (entries_high_l[e] >= l0)
                    & (entries_low_r[e] <= r1)
                    & (entries_high_r[e] >= r0)
                )
                widens = (
                    (entries_low_l[e] < least)
                    | (entries_high_l[e] > largest)
                    | (entries_low_r[e] < lowest)
                    | (entries_high_r[e] > highest)
                )
                is_hit |= lies_inside & widens
            if not is_hit:
                continue
            for j in range(_LEAF):
                e = first + j
                low_l, high_l = max(entries_low_l[e], l0), min(entries_high_l[e], l1)
                low_r, high_r = max(entries_low_r[e], r0), min(entries_high_r[e], r1)
                if low_l <= high_l and low_r <= high_r:
                    least, largest = min(least, low_l), max(largest, high_l)
                    lowest, highest = min(lowest, low_r), max(highest, high_r)
            if any_will_do:
                return Rectangle(least, largest, lowest, highest)
    return Rectangle(least, largest, lowest, highest)


@jit
def snap(table: I64, frontier_table: I64, area: Rectangle) -> Rectangle:
    """Return the smallest rectangle around all interests of an area."""
    tree, frontier = opened(table, Tree), opened(frontier_table, Frontier)
    advance(tree, area, frontier)
    return search(tree, frontier, area, NONE, False, 0)


@jit
def rows_within(
    tree: Tree,
    row: I32,
    l0: float,
    l1: float,
    r0: float,
    r1: float,
    rows: I32,
    stack: I32,
) -> int:
    """Write the rows of a region until `rows` is full; return how many there are in all."""
    stack[0] = 0
    depth, n = 1, 0
    while depth:
        depth -= 1
        node = stack[depth]
        if _apart(tree.bounds, node, l0, l1, r0, r1):
            continue
        bounds = tree.bounds[node]
        inside = bounds[0] >= l0 and bounds[1] <= l1 and bounds[2] >= r0 and bounds[3] <= r1
        if inside and n >= len(rows):
            n += tree.size[node]
        elif tree.child[node] >= 0:
            stack[depth], stack[depth + 1] = tree.child[node] + 1, tree.child[node]
            depth += 2
        else:
            first = LEAF * ~tree.child[node]
            for e in range(first, first + tree.size[node]):
                if (
                    tree.high_l[e] >= l0
                    and tree.low_l[e] <= l1
                    and tree.high_r[e] >= r0
                    and tree.low_r[e] <= r1
                ):
                    if n < len(rows):
                        rows[n] = row[e]
                    n += 1
    return n


@jit
def rows_in(
    table: I64, row: I32, l0: float, l1: float, r0: float, r1: float, rows: I32, stack: I32
) -> int:
    """Write the rows of a region, as `rows_within` does."""
    return rows_within(opened(table, Tree), row, l0, l1, r0, r1, rows, stack)


@jit
def number_reached(table: I64, tiles: F64, counts: I64) -> None:
    """Write the number of interests in each tile, in the layout of `staircase.py`."""
    tree = opened(table, Tree)
    none, stack = np.empty(0, np.int32), np.empty(STACK, np.int32)
    for t in range(len(tiles)):
        l0, r1 = np.nextafter(tiles[t, 0], np.inf), np.nextafter(tiles[t, 3], -np.inf)
        counts[t] = rows_within(tree, none, l0, tiles[t, 1], tiles[t, 2], r1, none, stack)
