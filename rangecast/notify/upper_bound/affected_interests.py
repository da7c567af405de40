"""The interests whose lists contain an object, gathered in one walk through their tree.

They are kept by blocks of the tree's leaves. Interests of a leaf mostly have the same better
objects on either side: these are *even*, and are counted together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32
from rangecast.kernels.bundle import edited
from rangecast.kernels.jit import jit
from rangecast.notify.boxes.kdtree import LEAF, LEVELS, ZERO, KdTree
from rangecast.notify.upper_bound.sweep import COUNT, Sweep, east_of, interval_of, west_of


@edited
class AffectedLists(NamedTuple):
    """Interests whose lists contain the object, by blocks of the tree's leaves.

    block      (blocks,)       of the tree
    mask       (blocks,)       a bit for each of its interests that is left
    hull       (8 blocks,)     least and then largest bounds of these
    is_even    (blocks,)       whether all of them have as many better objects on either side
    more_west, more_east (blocks,)   better objects of all of them, beside those of each
    west, east (16 blocks,)    better objects of each, where they aren't even
    most       (blocks,)       the most better objects that one of them has
    """

    block: I32
    mask: I32
    hull: F64
    is_even: I32
    more_west: I32
    more_east: I32
    west: I32
    east: I32
    most: I32

    @classmethod
    def of(cls, blocks: int) -> AffectedLists:
        """Return empty arrays."""
        return cls(
            np.zeros(blocks, np.int32),
            np.zeros(blocks, np.int32),
            np.zeros(8 * blocks),
            np.zeros(blocks, np.int32),
            np.zeros(blocks, np.int32),
            np.zeros(blocks, np.int32),
            np.zeros(LEAF * blocks, np.int32),
            np.zeros(LEAF * blocks, np.int32),
            np.zeros(blocks, np.int32),
        )


@jit
def _take_even(
    tree: KdTree, node: int, west: int, east: int, held: AffectedLists, room: int, n: int
) -> int:
    """Add all interests below a node as even; return -1 if there is no room."""
    stack = np.empty(tree.used[LEVELS] + 2, np.int32)
    stack[0] = node
    depth = 1
    while depth:
        depth -= 1
        here = stack[depth]
        first = tree.child[here]
        if first >= 0:
            stack[depth], stack[depth + 1] = first + 1, first
            depth += 2
            continue
        block, more = ~first, tree.size[here]
        while more > 0:
            if n == room:
                return -1
            held.block[n], held.mask[n] = block, (1 << min(more, LEAF)) - 1
            held.is_even[n], held.most[n] = 1, west + east
            held.more_west[n], held.more_east[n] = west, east
            for j in range(8):
                held.hull[8 * n + j] = tree.bounds[8 * here + j]
            n += 1
            more -= LEAF
            block = tree.after[block]
    return n


@jit
def refresh(tree: KdTree, held: AffectedLists, b: int) -> None:
    """Recompute the hull of a block, and its maximum of better objects."""
    hull = 8 * b
    for j in range(4):
        held.hull[hull + j], held.hull[hull + 4 + j] = np.inf, -np.inf
    held.most[b] = 0
    for i in range(LEAF):
        if held.mask[b] >> i & 1:
            e, mine = LEAF * held.block[b] + i, LEAF * b + i
            held.most[b] = max(held.most[b], held.west[mine] + held.east[mine])
            for j in range(4):
                v = tree.at[4 * e + j]
                held.hull[hull + j] = min(held.hull[hull + j], v)
                held.hull[hull + 4 + j] = max(held.hull[hull + 4 + j], v)


@jit
def gather_interests(
    tree: KdTree,
    s: Sweep,
    axis: int,
    x: float,
    height: float,
    k: int,
    held: AffectedLists,
    room: int,
) -> int:
    """Write the interests of the region, block by block; return their number, -1 if there is no
    room.

    A node is left out if even its smallest interest around the object would have k better ones. If
    the smallest and the largest one have the same ones, all have.
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
            or bounds[8 * node + left_] > x
            or bounds[8 * node + 4 + right_] < x
            or bounds[8 * node + 4 + upper] < height
        ):
            continue
        left, right = min(bounds[8 * node + 4 + left_], x), max(bounds[8 * node + right_], x)
        z = interval_of(s, max(bounds[8 * node + upper], height))
        if z >= s.used[COUNT]:
            continue
        slot = s.order[z]
        west, east = west_of(s, slot, k, left), east_of(s, slot, k, right)
        if west + east >= k:
            continue
        if (
            bounds[8 * node + 4 + left_] <= x <= bounds[8 * node + right_]
            and bounds[8 * node + upper] >= height
            and interval_of(s, bounds[8 * node + 4 + upper]) == z
            and west_of(s, slot, k, bounds[8 * node + left_]) == west
            and east_of(s, slot, k, bounds[8 * node + 4 + right_]) == east
        ):
            n = _take_even(tree, node, west, east, held, room, n)
            if n < 0:
                return -1
            continue
        first = child[node]
        if first >= 0:
            stack[depth], stack[depth + 1] = first + 1, first
            depth += 2
            continue
        block, more = ~first, size[node]
        while more > 0:
            if n == room:
                return -1
            mask = ZERO
            for i in range(min(more, LEAF)):
                e = LEAF * block + i
                left, right, c = at[4 * e + left_], at[4 * e + right_], at[4 * e + upper]
                if not left <= x <= right or c < height:
                    continue
                here = z
                while here + 1 < s.used[COUNT] and s.start[s.order[here + 1]] <= c:
                    here += 1
                slot = s.order[here]
                a, b = west, east  # at least as many as the smallest one has
                while a < s.west_n[slot] and s.west[slot * k + a] >= left:
                    a += 1
                while b < s.east_n[slot] and s.east[slot * k + b] <= right:
                    b += 1
                if a + b < k and c <= s.top[0]:
                    held.west[LEAF * n + i], held.east[LEAF * n + i] = a, b
                    mask |= 1 << i
            if mask:
                held.block[n], held.mask[n], held.is_even[n] = block, mask, 0
                held.more_west[n] = held.more_east[n] = 0
                refresh(tree, held, n)
                n += 1
            more -= LEAF
            block = tree.after[block]
    return n
