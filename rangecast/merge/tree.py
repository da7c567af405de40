"""How many subscriptions hold each place of the curve: a step function in a B+-tree of flat arrays.

The function is kept as its steps: the places where it changes, in order, each with its level (how
many hold the curve from there on). A step stands exactly where the level changes, so the same
subscriptions always give the same steps, whatever came and went before: this is what makes
unsubscribing after merging possible (paper 004, section 4, leaves it open). The step at place 0 is
always there, even at level 0.

Levels are relative. In a leaf they count from the level just before the leaf; in an inner node the
level of a child is that just before the child, counted from the one just before the node. So a
range within one leaf changes that leaf only. `low` is the lowest level within a child, counted
from the level before it: where it comes to 0 there is a gap, and nothing else need be opened to
find one.

    leaf_key  (leaves, FAN) uint64          places of a leaf's steps
    leaf      (leaves, 2 + FAN) int32       SIZE; NEXT leaf or -1 (of a free one the next free);
                                            from LEVEL on their levels
    key       (inners, FAN) uint64          place where each child begins
    inner     (inners, 2 + 3 FAN) int32     SIZE; from LEVEL, LOW and CHILD on one number a child
    state     (4, 16) int64                 row 0: root, height, ...; then the path of a writer:
                                            nodes, children taken, levels before the nodes
    spare_key, spare                        working memory of a writer

Cost: a node has at least FAN / 4 entries. A look-up takes one search in each of log(steps) nodes; a
change besides adds to at most FAN numbers in each. 12 bytes a step at a fill of about two thirds.

Kernels called for every range take the arrays and not the tuple: numba would count references of
all its arrays at every call, which costs more than the search.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels.jit import jit

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]

FAN = 64
_LEAST = FAN // 4
_FILL = FAN * 11 // 16
_DEEPEST = 16

SIZE, NEXT, LEVEL = 0, 1, 2
_LOW, _CHILD = LEVEL + FAN, LEVEL + 2 * FAN

ROOT, HEIGHT, STEPS, LEAVES, INNERS = range(5)
"""In `state`; LEAVES and INNERS are those in use, HEIGHT counts the rows of inner nodes."""
_FREE_LEAF, _FREE_INNER, _FRESH_LEAF, _FRESH_INNER = range(5, 9)
"""The first of the nodes that were freed, -1; and of those that were never in use."""
_NODE, _TAKEN, _BEFORE = 1, 2, 3

_ZERO = np.uint64(0)
_ONE = np.uint64(1)


class Tree(NamedTuple):
    """The arrays of the module's docstring."""

    state: Counts
    key: Words
    inner: Ints
    leaf_key: Words
    leaf: Ints
    spare_key: Words
    spare: Ints


def empty_tree() -> Tree:
    """Return the function that is 0 everywhere."""
    return tree_of(np.zeros(1, np.uint64), np.zeros(1, np.int32))


def _with_room(state: Counts, leaves: int, inners: int) -> Tree:
    return Tree(
        state=state,
        key=np.empty((inners, FAN), np.uint64),
        inner=np.empty((inners, 2 + 3 * FAN), np.int32),
        leaf_key=np.empty((leaves, FAN), np.uint64),
        leaf=np.empty((leaves, 2 + FAN), np.int32),
        spare_key=np.empty(2 * FAN, np.uint64),
        spare=np.empty((3, 2 * FAN), np.int32),
    )


def grown(tree: Tree) -> Tree:
    """Return the same tree with room for more nodes; the old one is spent."""
    leaves, inners = len(tree.leaf), len(tree.inner)
    few = leaves - tree.state[0, LEAVES] < 2
    larger = _with_room(tree.state, leaves * 2 if few else leaves, inners if few else inners * 2)
    for name in ("key", "inner", "leaf_key", "leaf"):
        old = getattr(tree, name)
        getattr(larger, name)[: len(old)] = old
    return larger


@jit
def has_room(state: Counts, leaves: int, inners: int) -> bool:
    """Whether so many nodes are enough for two more steps, however many nodes they split."""
    enough = inners - state[0, INNERS] >= 2 * (state[0, HEIGHT] + 2)
    return bool(enough and leaves - state[0, LEAVES] >= 2)


# ---- looking up


@jit
def last_at(keys: Words, node: int, count: int, place: np.uint64) -> int:
    """Return the last of `count` ascending keys of a node that is at or before a place.

    The first one is. No branch depends on the keys: it would be guessed wrong.
    """
    row, low, step, size = np.uint64(node), _ZERO, np.uint64(FAN // 2), np.uint64(count)
    while step > _ZERO:
        trial = low + step
        low = trial if (trial < size) & (keys[row, trial] <= place) else low
        step >>= _ONE
    return int(np.int64(low))


@jit
def descend(state: Counts, key: Words, inner: Ints, place: np.uint64) -> tuple[int, int]:
    """Return the leaf that a place falls in, and the level before it; write the path."""
    node, base = state[0, ROOT], 0
    for depth in range(state[0, HEIGHT]):
        i = last_at(key, node, inner[node, SIZE], place)
        state[_NODE, depth], state[_TAKEN, depth], state[_BEFORE, depth] = node, i, base
        base += inner[node, LEVEL + i]
        node = np.int64(inner[node, _CHILD + i])
    return node, base


@jit
def leaves_of(
    state: Counts, key: Words, inner: Ints, places: Words, leaves: Counts, bases: Counts
) -> None:
    """Write the leaf of each of a few places, and the level before it. For readers.

    They go down side by side: the waits for memory overlap.
    """
    leaves[: len(places)] = state[0, ROOT]
    bases[: len(places)] = 0
    for _ in range(state[0, HEIGHT]):
        for k in range(len(places)):
            node = leaves[k]
            i = last_at(key, node, inner[node, SIZE], places[k])
            bases[k] += inner[node, LEVEL + i]
            leaves[k] = inner[node, _CHILD + i]


@jit
def next_leaf_with_gap(state: Counts, key: Words, inner: Ints, last: np.uint64) -> tuple[int, int]:
    """Return the first leaf after that of the path that has level 0 in it, and the level before it.

    Leaves that begin after `last` don't count: -1 if there is no other. Moves the path.
    """
    height = state[0, HEIGHT]
    for turn in range(height - 1, -1, -1):
        node, base = state[_NODE, turn], state[_BEFORE, turn]
        i = state[_TAKEN, turn] + 1
        while i < inner[node, SIZE]:
            if key[node, i] > last:
                return -1, 0
            if base + inner[node, LEVEL + i] + inner[node, _LOW + i] == 0:
                for depth in range(turn, height):
                    while base + inner[node, LEVEL + i] + inner[node, _LOW + i] != 0:
                        i += 1
                    state[_NODE, depth], state[_TAKEN, depth] = node, i
                    state[_BEFORE, depth] = base
                    base += inner[node, LEVEL + i]
                    node = np.int64(inner[node, _CHILD + i])
                    i = 0
                return node, base
            i += 1
    return -1, 0


# ---- changing


@jit
def shift(
    state: Counts,
    key: Words,
    inner: Ints,
    leaf_key: Words,
    leaf: Ints,
    start: np.uint64,
    end: np.uint64,
    by: int,
) -> tuple[int, bool]:
    """Add `by` to the level of all places from `start` to `end`, if one leaf holds both ends.

    Returns the leaf, -1 if one doesn't, and whether `balance` must follow. Nothing above the leaf
    changes but what is lowest. Needs `has_room`.
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
    low = _leaf_low(leaf, node)
    for depth in range(state[0, HEIGHT] - 1, -1, -1):
        above, i = state[_NODE, depth], state[_TAKEN, depth]
        if inner[above, _LOW + i] == low:
            break
        inner[above, _LOW + i] = low
        low = _low(inner, above)
    return node, _is_due(state, leaf, node)


@jit
def shift_from(
    state: Counts,
    key: Words,
    inner: Ints,
    leaf_key: Words,
    leaf: Ints,
    place: np.uint64,
    by: int,
) -> tuple[int, bool]:
    """Add `by` to the level of every place from this one on; return as `shift` does."""
    node, _ = descend(state, key, inner, place)
    before = leaf[node, SIZE]
    i = _with_step(leaf_key, leaf, node, place)
    for j in range(LEVEL + i, LEVEL + leaf[node, SIZE]):
        leaf[node, j] += by
    if place != _ZERO and leaf[node, LEVEL + i] == (leaf[node, LEVEL + i - 1] if i else 0):
        _drop(state, key, leaf_key, leaf, node, i)
    state[0, STEPS] += leaf[node, SIZE] - before
    low = _leaf_low(leaf, node)
    for depth in range(state[0, HEIGHT] - 1, -1, -1):
        above, i = state[_NODE, depth], state[_TAKEN, depth]
        for j in range(LEVEL + i + 1, LEVEL + inner[above, SIZE]):
            inner[above, j] += by
        inner[above, _LOW + i] = low
        low = _low(inner, above)
    return node, _is_due(state, leaf, node)


@jit
def _with_step(leaf_key: Words, leaf: Ints, node: int, place: np.uint64) -> int:
    """Return the step of a leaf at this place; if there is none, make one of no height."""
    size = leaf[node, SIZE]
    i = last_at(leaf_key, node, size, place)
    if leaf_key[node, i] == place:
        return i
    i += 1
    for j in range(size, i, -1):
        leaf_key[node, j] = leaf_key[node, j - 1]
    for j in range(LEVEL + size, LEVEL + i, -1):
        leaf[node, j] = leaf[node, j - 1]
    leaf_key[node, i], leaf[node, LEVEL + i] = place, leaf[node, LEVEL + i - 1]
    leaf[node, SIZE] = size + 1
    return i


@jit
def _drop(state: Counts, key: Words, leaf_key: Words, leaf: Ints, node: int, i: int) -> None:
    """Remove a step; where it was the first of its leaf, the keys above follow."""
    size = leaf[node, SIZE] - 1
    for j in range(i, size):
        leaf_key[node, j] = leaf_key[node, j + 1]
    for j in range(LEVEL + i, LEVEL + size):
        leaf[node, j] = leaf[node, j + 1]
    leaf[node, SIZE] = size
    depth = state[0, HEIGHT] - 1
    while i == 0 and depth >= 0:
        i = state[_TAKEN, depth]
        key[state[_NODE, depth], i] = leaf_key[node, 0]
        depth -= 1


@jit
def _leaf_low(leaf: Ints, node: int) -> int:
    low = leaf[node, LEVEL]
    for j in range(LEVEL + 1, LEVEL + leaf[node, SIZE]):
        low = min(low, leaf[node, j])
    return int(np.int64(low))


@jit
def _low(inner: Ints, node: int) -> int:
    low = np.int64(inner[node, _LOW])
    for j in range(1, inner[node, SIZE]):
        low = min(low, inner[node, LEVEL + j] + inner[node, _LOW + j])
    return int(low)


# ---- keeping in balance


@jit
def _is_due(state: Counts, leaf: Ints, node: int) -> bool:
    size = leaf[node, SIZE]
    return bool(size == FAN or (size < _LEAST and state[0, HEIGHT] > 0))


@jit
def balance(tree: Tree, leaf: int) -> None:
    """Split a full leaf, the path's, or join one that is nearly empty; then the nodes above."""
    state, inner = tree.state, tree.inner
    depth = state[0, HEIGHT] - 1
    if depth < 0:
        _raise_root(tree)
        state[_NODE, 0], state[_TAKEN, 0], depth = state[0, ROOT], 0, 0
    node = state[_NODE, depth]
    i = state[_TAKEN, depth]
    _spread_leaves(tree, node, _pair(tree, node, i, tree.leaf[leaf, SIZE] == FAN, True))
    while True:
        size = inner[node, SIZE]
        if depth == 0 and size == 1:
            state[0, ROOT] = inner[node, _CHILD]
            state[0, HEIGHT] -= 1
            _free_inner(tree, node)
        if size < FAN and (depth == 0 or size >= _LEAST):
            return
        if depth == 0:
            _raise_root(tree)
            above, i = state[0, ROOT], 0
        else:
            above, i = state[_NODE, depth - 1], state[_TAKEN, depth - 1]
        _spread_inners(tree, above, _pair(tree, above, i, size == FAN, False))
        if depth == 0:
            return
        node = above
        depth -= 1


@jit
def _raise_root(tree: Tree) -> None:
    """Put a new root with one child on top."""
    state, inner = tree.state, tree.inner
    old = state[0, ROOT]
    root = _new_inner(tree)
    tree.key[root, 0] = _ZERO
    inner[root, SIZE], inner[root, LEVEL], inner[root, _CHILD] = 1, 0, old
    inner[root, _LOW] = _low(inner, old) if state[0, HEIGHT] else _leaf_low(tree.leaf, old)
    state[0, ROOT] = root
    state[0, HEIGHT] += 1


@jit
def _pair(tree: Tree, node: int, i: int, full: bool, leaves: bool) -> int:
    """Return the first of two children to spread: `i` has a new neighbour if it is full."""
    inner, leaf = tree.inner, tree.leaf
    size = inner[node, SIZE]
    if not full:
        return i - 1 if i + 1 == size else i
    for j in range(size, i + 1, -1):
        tree.key[node, j] = tree.key[node, j - 1]
        for part in (LEVEL, _LOW, _CHILD):
            inner[node, part + j] = inner[node, part + j - 1]
    if leaves:
        fresh, left = _new_leaf(tree), inner[node, _CHILD + i]
        leaf[fresh, SIZE], leaf[fresh, NEXT] = 0, leaf[left, NEXT]
        leaf[left, NEXT] = fresh
    else:
        fresh = _new_inner(tree)
        inner[fresh, SIZE] = 0
    inner[node, _CHILD + i + 1] = fresh
    inner[node, LEVEL + i + 1] = inner[node, LEVEL + i]
    inner[node, SIZE] = size + 1
    return i


@jit
def _remove_child(tree: Tree, node: int, i: int) -> None:
    inner = tree.inner
    inner[node, SIZE] -= 1
    for j in range(i, inner[node, SIZE]):
        tree.key[node, j] = tree.key[node, j + 1]
        for part in (LEVEL, _LOW, _CHILD):
            inner[node, part + j] = inner[node, part + j + 1]


@jit
def _spread_leaves(tree: Tree, node: int, i: int) -> None:
    """Put the steps of children `i` and `i + 1` into the first if they fit, else half into each."""
    inner, leaf, leaf_key = tree.inner, tree.leaf, tree.leaf_key
    keys, levels = tree.spare_key, tree.spare[0]
    left, right = inner[node, _CHILD + i], inner[node, _CHILD + i + 1]
    rise = inner[node, LEVEL + i + 1] - inner[node, LEVEL + i]
    many = leaf[left, SIZE]
    total = many + leaf[right, SIZE]
    for j in range(many):
        keys[j], levels[j] = leaf_key[left, j], leaf[left, LEVEL + j]
    for j in range(total - many):
        keys[many + j], levels[many + j] = leaf_key[right, j], leaf[right, LEVEL + j] + rise
    kept = total if total < FAN else total // 2
    for j in range(kept):
        leaf_key[left, j], leaf[left, LEVEL + j] = keys[j], levels[j]
    leaf[left, SIZE] = kept
    inner[node, _LOW + i] = _leaf_low(leaf, left)
    if kept == total:
        leaf[left, NEXT] = leaf[right, NEXT]
        _free_leaf(tree, right)
        _remove_child(tree, node, i + 1)
        return
    rise = levels[kept - 1]
    for j in range(kept, total):
        leaf_key[right, j - kept], leaf[right, LEVEL + j - kept] = keys[j], levels[j] - rise
    leaf[right, SIZE] = total - kept
    tree.key[node, i + 1] = keys[kept]
    inner[node, LEVEL + i + 1] = inner[node, LEVEL + i] + rise
    inner[node, _LOW + i + 1] = _leaf_low(leaf, right)


@jit
def _spread_inners(tree: Tree, node: int, i: int) -> None:
    """Do the same with two inner nodes."""
    inner, key = tree.inner, tree.key
    keys, levels, lows, children = tree.spare_key, tree.spare[0], tree.spare[1], tree.spare[2]
    total = 0
    for side in (i, i + 1):
        child = inner[node, _CHILD + side]
        rise = inner[node, LEVEL + side] - inner[node, LEVEL + i]
        for j in range(inner[child, SIZE]):
            keys[total], levels[total] = key[child, j], inner[child, LEVEL + j] + rise
            lows[total], children[total] = inner[child, _LOW + j], inner[child, _CHILD + j]
            total += 1
    kept = total if total < FAN else total // 2
    for side in (i, i + 1):
        child = inner[node, _CHILD + side]
        begin, end = (0, kept) if side == i else (kept, total)
        if begin == end:
            _free_inner(tree, child)
            _remove_child(tree, node, side)
            return
        rise = levels[begin]
        for j in range(begin, end):
            key[child, j - begin], inner[child, LEVEL + j - begin] = keys[j], levels[j] - rise
            inner[child, _LOW + j - begin] = lows[j]
            inner[child, _CHILD + j - begin] = children[j]
        inner[child, SIZE] = end - begin
        key[node, side] = keys[begin]
        inner[node, LEVEL + side] = inner[node, LEVEL + i] + rise
        inner[node, _LOW + side] = _low(inner, child)


@jit
def _new_leaf(tree: Tree) -> int:
    state = tree.state
    state[0, LEAVES] += 1
    leaf = state[0, _FREE_LEAF]
    if leaf >= 0:
        state[0, _FREE_LEAF] = tree.leaf[leaf, NEXT]
    else:
        leaf = state[0, _FRESH_LEAF]
        state[0, _FRESH_LEAF] += 1
    return int(leaf)


@jit
def _new_inner(tree: Tree) -> int:
    state = tree.state
    state[0, INNERS] += 1
    node = state[0, _FREE_INNER]
    if node >= 0:
        state[0, _FREE_INNER] = tree.inner[node, _CHILD]
    else:
        node = state[0, _FRESH_INNER]
        state[0, _FRESH_INNER] += 1
    return int(node)


@jit
def _free_leaf(tree: Tree, leaf: int) -> None:
    tree.leaf[leaf, NEXT] = tree.state[0, _FREE_LEAF]
    tree.state[0, _FREE_LEAF] = leaf
    tree.state[0, LEAVES] -= 1


@jit
def _free_inner(tree: Tree, node: int) -> None:
    tree.inner[node, _CHILD] = tree.state[0, _FREE_INNER]
    tree.state[0, _FREE_INNER] = node
    tree.state[0, INNERS] -= 1


# ---- all at once


def tree_of(keys: Words, levels: Ints) -> Tree:
    """Return the tree of steps in ascending order, the first at place 0."""
    leaves = -(-len(keys) // _FILL)
    inners, row = 0, leaves
    while row > 1:
        row = -(-row // _FILL)
        inners += row
    state = np.zeros((4, _DEEPEST), np.int64)
    state[0, [_FREE_LEAF, _FREE_INNER]] = -1
    state[0, STEPS] = len(keys)
    state[0, [LEAVES, _FRESH_LEAF]] = leaves
    state[0, [INNERS, _FRESH_INNER]] = inners
    tree = _with_room(state, leaves + leaves // 4 + 4, inners + inners // 4 + 4)
    _load(tree, keys, levels, np.empty(leaves, np.int32))
    return tree


@jit
def _load(tree: Tree, keys: Words, levels: Ints, before: Ints) -> None:
    """Fill fresh nodes, leaves first, then row by row; all of a row have about one size.

    `before` is working memory: the level before each node of the row below.
    """
    state, inner, leaf = tree.state, tree.inner, tree.leaf
    leaves = state[0, LEAVES]
    for node in range(leaves):
        begin, end = len(keys) * node // leaves, len(keys) * (node + 1) // leaves
        before[node] = levels[begin - 1] if begin else 0
        for j in range(begin, end):
            tree.leaf_key[node, j - begin] = keys[j]
            leaf[node, LEVEL + j - begin] = levels[j] - before[node]
        leaf[node, SIZE] = end - begin
        leaf[node, NEXT] = node + 1 if node + 1 < leaves else -1
    begin, count, made = 0, leaves, 0  # the row below: its first node, how many
    while count > 1:
        nodes = (count + _FILL - 1) // _FILL
        for number in range(nodes):
            node = made + number
            first, last = count * number // nodes, count * (number + 1) // nodes
            for j in range(last - first):
                child = begin + first + j
                inner[node, _CHILD + j] = child
                inner[node, LEVEL + j] = before[first + j] - before[first]
                if made:
                    tree.key[node, j] = tree.key[child, 0]
                    inner[node, _LOW + j] = _low(inner, child)
                else:
                    tree.key[node, j] = tree.leaf_key[child, 0]
                    inner[node, _LOW + j] = _leaf_low(leaf, child)
            inner[node, SIZE] = last - first
            before[number] = before[first]
        begin, count = made, nodes
        made += nodes
        state[0, HEIGHT] += 1
    state[0, ROOT] = begin
