"""Levels of the curve, subscriptions per cell: a step function in a B+-tree of flat arrays.

The function is kept as its breakpoints: the places where it changes, in order, each with its level
(how many hold the curve from there on). A breakpoint stands exactly where the level changes, so the
same subscriptions always give the same breakpoints, whatever came and went before: this is what
makes unsubscribing after merging possible (paper 004, section 4, leaves it open). The breakpoint at
place 0 is always there, even at level 0.

Levels are relative. In a leaf they count from the level just before the leaf; in an inner node the
level of a child is that just before the child, counted from the one just before the node. So a
range within one leaf changes that leaf only. `low` is the lowest level within a child, counted
from the level before it: where it comes to 0 there is a gap, and nothing else need be opened to
find one.

    leaf_key  (leaves, FAN) uint64          places of a leaf's breakpoints
    leaf      (leaves, 2 + FAN) int32       SIZE; NEXT leaf or -1 (of a free one the next free);
                                            from LEVEL on their levels
    key       (inners, FAN) uint64          place where each child begins
    inner     (inners, 2 + 3 FAN) int32     SIZE; from LEVEL, LOW and CHILD on one number a child
    state     (4, 16) int64                 row 0: root, height, ...; then the path of a writer:
                                            nodes, children taken, levels before the nodes
    spare_key, spare                        working memory of a writer

Cost: a node has at least FAN / 4 entries. A look-up takes one search in each of log(breakpoints)
nodes; a change besides adds to at most FAN numbers in each. 12 bytes per breakpoint at a fill of
about two thirds.

Kernels called for every range take the arrays and not the tuple: numba would count references of
all its arrays at every call, which costs more than the search.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import I32, I64, U64
from rangecast.kernels.jit import jit

FAN = 64
MIN_ENTRIES = FAN // 4

SIZE, NEXT, LEVEL = 0, 1, 2
LOW, CHILD = LEVEL + FAN, LEVEL + 2 * FAN

ROOT, HEIGHT, STEPS, LEAVES, INNERS = range(5)
"""Fields of `state`; LEAVES and INNERS count nodes in use, HEIGHT the levels of inner nodes."""
FREE_LEAF, FREE_INNER, FRESH_LEAF, FRESH_INNER = range(5, 9)
"""Fields of `state`: the first freed node, or -1; and the first node never used."""
NODE, TAKEN, BEFORE = 1, 2, 3

_ZERO = np.uint64(0)
_ONE = np.uint64(1)


class Tree(NamedTuple):
    """Arrays of the tree: see the module's docstring."""

    state: I64
    key: U64
    inner: I32
    leaf_key: U64
    leaf: I32
    spare_key: U64
    spare: I32


@jit
def has_room(state: I64, leaves: int, inners: int) -> bool:
    """Return whether `inners` nodes suffice for two more breakpoints, whatever nodes they split."""
    enough = inners - state[0, INNERS] >= 2 * (state[0, HEIGHT] + 2)
    return bool(enough and leaves - state[0, LEAVES] >= 2)


# ---- looking up


@jit
def last_at(keys: U64, node: int, count: int, key: np.uint64) -> int:
    """Return the last of `count` ascending keys of a node that is at or before an index.

    The first key always is. No branch depends on the keys, as it would be mispredicted.
    """
    row, low, step, size = np.uint64(node), _ZERO, np.uint64(FAN // 2), np.uint64(count)
    while step > _ZERO:
        trial = low + step
        low = trial if (trial < size) & (keys[row, trial] <= key) else low
        step >>= _ONE
    return int(np.int64(low))


@jit
def descend(state: I64, key: U64, inner: I32, start: np.uint64) -> tuple[int, int]:
    """Return the leaf of an index, and the level before it; write the path."""
    node, base = state[0, ROOT], 0
    for depth in range(state[0, HEIGHT]):
        i = last_at(key, node, inner[node, SIZE], start)
        state[NODE, depth], state[TAKEN, depth], state[BEFORE, depth] = node, i, base
        base += inner[node, LEVEL + i]
        node = np.int64(inner[node, CHILD + i])
    return node, base


@jit
def leaves_of(state: I64, key: U64, inner: I32, places: U64, leaves: I64, bases: I64) -> None:
    """Write the leaf of each of a few indexes, and the level before it; for readers.

    The descents run side by side, so that their memory accesses overlap.
    """
    leaves[: len(places)] = state[0, ROOT]
    bases[: len(places)] = 0
    for _ in range(state[0, HEIGHT]):
        for k in range(len(places)):
            node = leaves[k]
            i = last_at(key, node, inner[node, SIZE], places[k])
            bases[k] += inner[node, LEVEL + i]
            leaves[k] = inner[node, CHILD + i]


@jit
def next_leaf_with_gap(state: I64, key: U64, inner: I32, last: np.uint64) -> tuple[int, int]:
    """Return the first leaf after the path's that contains level 0, and the level before it.

    Leaves that begin after `last` don't count: -1 if there is no other. Moves the path.
    """
    height = state[0, HEIGHT]
    for turn in range(height - 1, -1, -1):
        node, base = state[NODE, turn], state[BEFORE, turn]
        i = state[TAKEN, turn] + 1
        while i < inner[node, SIZE]:
            if key[node, i] > last:
                return -1, 0
            if base + inner[node, LEVEL + i] + inner[node, LOW + i] == 0:
                for depth in range(turn, height):
                    while base + inner[node, LEVEL + i] + inner[node, LOW + i] != 0:
                        i += 1
                    state[NODE, depth], state[TAKEN, depth] = node, i
                    state[BEFORE, depth] = base
                    base += inner[node, LEVEL + i]
                    node = np.int64(inner[node, CHILD + i])
                    i = 0
                return node, base
            i += 1
    return -1, 0


# ---- changing


@jit
def shift(
    state: I64,
    key: U64,
    inner: I32,
    leaf_key: U64,
    leaf: I32,
    start: np.uint64,
    end: np.uint64,
    by: int,
) -> tuple[int, bool]:
    """Add `by` to the level from `start` to `end`, if one leaf contains both ends.

    Returns the leaf, -1 if there is no such leaf, and whether `balance` must follow. Above the leaf
    only the lowest levels change. Needs `has_room`.
    """
    node, _ = descend(state, key, inner, start)
    behind = leaf[node, NEXT]
    if leaf[node, SIZE] > FAN - 2 or (behind >= 0 and end + _ONE >= leaf_key[behind, 0]):
        return -1, False
    before = leaf[node, SIZE]
    i = _with_step(leaf_key, leaf, node, start)
    j = _with_step(leaf_key, leaf, node, end + _ONE)
    for k in range(LEVEL + i, LEVEL + j):
        leaf[node, k] += by
    if leaf[node, LEVEL + j] == leaf[node, LEVEL + j - 1]:
        _drop(state, key, leaf_key, leaf, node, j)
    if start != _ZERO and leaf[node, LEVEL + i] == (leaf[node, LEVEL + i - 1] if i else 0):
        _drop(state, key, leaf_key, leaf, node, i)
    state[0, STEPS] += leaf[node, SIZE] - before
    low = leaf_lowest(leaf, node)
    for depth in range(state[0, HEIGHT] - 1, -1, -1):
        above, i = state[NODE, depth], state[TAKEN, depth]
        if inner[above, LOW + i] == low:
            break
        inner[above, LOW + i] = low
        low = lowest(inner, above)
    return node, _is_due(state, leaf, node)


@jit
def shift_from(
    state: I64,
    key: U64,
    inner: I32,
    leaf_key: U64,
    leaf: I32,
    start: np.uint64,
    by: int,
) -> tuple[int, bool]:
    """Add `by` to the level of every cell from this one on; return as `shift` does."""
    node, _ = descend(state, key, inner, start)
    before = leaf[node, SIZE]
    i = _with_step(leaf_key, leaf, node, start)
    for j in range(LEVEL + i, LEVEL + leaf[node, SIZE]):
        leaf[node, j] += by
    if start != _ZERO and leaf[node, LEVEL + i] == (leaf[node, LEVEL + i - 1] if i else 0):
        _drop(state, key, leaf_key, leaf, node, i)
    state[0, STEPS] += leaf[node, SIZE] - before
    low = leaf_lowest(leaf, node)
    for depth in range(state[0, HEIGHT] - 1, -1, -1):
        above, i = state[NODE, depth], state[TAKEN, depth]
        for j in range(LEVEL + i + 1, LEVEL + inner[above, SIZE]):
            inner[above, j] += by
        inner[above, LOW + i] = low
        low = lowest(inner, above)
    return node, _is_due(state, leaf, node)


@jit
def _with_step(leaf_key: U64, leaf: I32, node: int, key: np.uint64) -> int:
    """Return the breakpoint of a leaf at this index; if there is none, insert one of height 0."""
    size = leaf[node, SIZE]
    i = last_at(leaf_key, node, size, key)
    if leaf_key[node, i] == key:
        return i
    i += 1
    for j in range(size, i, -1):
        leaf_key[node, j] = leaf_key[node, j - 1]
    for j in range(LEVEL + size, LEVEL + i, -1):
        leaf[node, j] = leaf[node, j - 1]
    leaf_key[node, i], leaf[node, LEVEL + i] = key, leaf[node, LEVEL + i - 1]
    leaf[node, SIZE] = size + 1
    return i


@jit
def _drop(state: I64, key: U64, leaf_key: U64, leaf: I32, node: int, i: int) -> None:
    """Remove a breakpoint; if it was the first of its leaf, update the keys above."""
    size = leaf[node, SIZE] - 1
    for j in range(i, size):
        leaf_key[node, j] = leaf_key[node, j + 1]
    for j in range(LEVEL + i, LEVEL + size):
        leaf[node, j] = leaf[node, j + 1]
    leaf[node, SIZE] = size
    depth = state[0, HEIGHT] - 1
    while i == 0 and depth >= 0:
        i = state[TAKEN, depth]
        key[state[NODE, depth], i] = leaf_key[node, 0]
        depth -= 1


@jit
def leaf_lowest(leaf: I32, node: int) -> int:
    """Return the lowest level in a leaf, relative to the level before it."""
    low = leaf[node, LEVEL]
    for j in range(LEVEL + 1, LEVEL + leaf[node, SIZE]):
        low = min(low, leaf[node, j])
    return int(np.int64(low))


@jit
def lowest(inner: I32, node: int) -> int:
    """Return the lowest level below an inner node, relative to the level before it."""
    low = np.int64(inner[node, LOW])
    for j in range(1, inner[node, SIZE]):
        low = min(low, inner[node, LEVEL + j] + inner[node, LOW + j])
    return int(low)


@jit
def _is_due(state: I64, leaf: I32, node: int) -> bool:
    size = leaf[node, SIZE]
    return bool(size == FAN or (size < MIN_ENTRIES and state[0, HEIGHT] > 0))
