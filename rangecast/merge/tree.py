"""How many subscriptions hold each place of the curve: a step function in a B+-tree of flat arrays.

The function is kept as its steps: the places where it changes, in order, each with its level (how
many hold the curve from there on). A step stands exactly where the level changes, so the same
subscriptions always give the same steps, whatever came and went before: this is what makes
unsubscribing after merging possible (paper 004, section 4, leaves it open). The step at place 0 is
always there, even at level 0.

Levels are relative. In a leaf they count from the level just before the leaf, in an inner node the
level of a child is that just before the child, counted from the one just before the node. So a
change from some place on changes one leaf and one path. `low` is the lowest level within a child,
counted from the level before it: where it comes to 0 there is a gap, and nothing else need be
opened to find one.

    leaf_key, leaf_level  (leaves, FAN) uint64, int32    steps; leaf_size (leaves,) of them
    leaf_next             (leaves,) int32                the next leaf, -1; of a free one the next free
    key, level, low, child  (inners, FAN)                children; size (inners,) of them
    state, path, spare_*                                 numbers below; working memory of one writer

Cost: a node has at least FAN / 4 entries. A look-up takes one search in each of log(steps) nodes; a
change besides adds to at most FAN numbers in each. 12 bytes a step at a fill of about two thirds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.kernels.jit import jit

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
Levels = npt.NDArray[np.int32]

FAN = 64
_LEAST = FAN // 4
_FILL = FAN * 11 // 16
_DEEPEST = 16

ROOT, HEIGHT, STEPS, LEAVES, INNERS, FREE_LEAF, FREE_INNER = range(7)
"""Places in `state`; LEAVES and INNERS are those in use, HEIGHT counts the inner levels."""
_TOUCHED_LEAVES, _TOUCHED_INNERS = 7, 8
"""Nodes before these were in use at some time; the others are fresh."""

_ZERO = np.uint64(0)


class Tree(NamedTuple):
    """The arrays of the module's docstring."""

    state: Counts
    path: Counts
    leaf_key: Words
    leaf_level: Levels
    leaf_size: Levels
    leaf_next: Levels
    key: Words
    level: Levels
    low: Levels
    child: Levels
    size: Levels
    spare_key: Words
    spare: Levels


def empty_tree() -> Tree:
    """Return the function that is 0 everywhere."""
    state = np.zeros(9, np.int64)
    state[[FREE_LEAF, FREE_INNER]] = -1
    state[[STEPS, LEAVES, _TOUCHED_LEAVES]] = 1
    tree = _with_room(state, 4, 4 * _DEEPEST)
    tree.leaf_size[0] = 1
    tree.leaf_next[0] = -1
    tree.leaf_key[0, 0] = tree.leaf_level[0, 0] = 0
    return tree


def _with_room(state: Counts, leaves: int, inners: int) -> Tree:
    return Tree(
        state=state,
        path=np.zeros((3, _DEEPEST), np.int64),
        leaf_key=np.empty((leaves, FAN), np.uint64),
        leaf_level=np.empty((leaves, FAN), np.int32),
        leaf_size=np.empty(leaves, np.int32),
        leaf_next=np.empty(leaves, np.int32),
        key=np.empty((inners, FAN), np.uint64),
        level=np.empty((inners, FAN), np.int32),
        low=np.empty((inners, FAN), np.int32),
        child=np.empty((inners, FAN), np.int32),
        size=np.empty(inners, np.int32),
        spare_key=np.empty(2 * FAN, np.uint64),
        spare=np.empty((3, 2 * FAN), np.int32),
    )


def grown(tree: Tree) -> Tree:
    """Return the same tree with room for more nodes; the old one is spent."""
    leaves, inners = len(tree.leaf_size), len(tree.size)
    more_leaves = leaves - tree.state[LEAVES] < 2
    larger = _with_room(
        tree.state, leaves * 2 if more_leaves else leaves, inners if more_leaves else inners * 2
    )
    used = int(tree.state[_TOUCHED_LEAVES]), int(tree.state[_TOUCHED_INNERS])
    for name in ("leaf_key", "leaf_level", "leaf_size", "leaf_next"):
        getattr(larger, name)[: used[0]] = getattr(tree, name)[: used[0]]
    for name in ("key", "level", "low", "child", "size"):
        getattr(larger, name)[: used[1]] = getattr(tree, name)[: used[1]]
    return larger


@jit
def has_room(tree: Tree) -> bool:
    """Whether there are nodes enough for two more steps, however many nodes they split."""
    leaves = len(tree.leaf_size) - tree.state[LEAVES]
    inners = len(tree.size) - tree.state[INNERS]
    return bool(leaves >= 2 and inners >= 2 * (tree.state[HEIGHT] + 2))


# ---- looking up


@jit
def last_at(keys: Words, node: int, count: int, place: np.uint64) -> int:
    """Return the last of `count` ascending keys of a node that is at or before a place.

    The first one is.
    """
    low = 0
    while count > 1:
        half = count >> 1
        low += half if keys[node, low + half] <= place else 0
        count -= half
    return low


@jit
def leaf_of(tree: Tree, place: np.uint64) -> tuple[int, int]:
    """Return the leaf that a place falls in, and the level before the leaf. For readers."""
    node, base = tree.state[ROOT], 0
    for _ in range(tree.state[HEIGHT]):
        i = last_at(tree.key, node, tree.size[node], place)
        base += tree.level[node, i]
        node = tree.child[node, i]
    return node, base


@jit
def descend(tree: Tree, place: np.uint64) -> tuple[int, int]:
    """Return what `leaf_of` does and write the path: nodes, children taken, levels before."""
    path = tree.path
    node, base = tree.state[ROOT], 0
    for depth in range(tree.state[HEIGHT]):
        i = last_at(tree.key, node, tree.size[node], place)
        path[0, depth], path[1, depth], path[2, depth] = node, i, base
        base += tree.level[node, i]
        node = tree.child[node, i]
    return node, base


@jit
def next_leaf_with_gap(tree: Tree, last: np.uint64) -> tuple[int, int]:
    """Return the first leaf after that of the path that has level 0 in it, and the level before it.

    Leaves that begin after `last` don't count: -1 if there is no other. Moves the path.
    """
    path, height = tree.path, tree.state[HEIGHT]
    for depth in range(height - 1, -1, -1):
        node, base = path[0, depth], path[2, depth]
        i = path[1, depth] + 1
        while i < tree.size[node]:
            if tree.key[node, i] > last:
                return -1, 0
            if base + tree.level[node, i] + tree.low[node, i] == 0:
                return _down_to_gap(tree, depth, i)
            i += 1
    return -1, 0


@jit
def _down_to_gap(tree: Tree, depth: int, i: int) -> tuple[int, int]:
    path, height = tree.path, tree.state[HEIGHT]
    node, base = path[0, depth], path[2, depth]
    while True:
        path[0, depth], path[1, depth], path[2, depth] = node, i, base
        base += tree.level[node, i]
        node = tree.child[node, i]
        depth += 1
        if depth == height:
            return node, base
        i = 0
        while base + tree.level[node, i] + tree.low[node, i] != 0:
            i += 1


# ---- changing


@jit
def shift(tree: Tree, place: np.uint64, by: int) -> None:
    """Add `by` to the level of every place from this one on. Needs `has_room`."""
    leaf, _ = descend(tree, place)
    keys, levels = tree.leaf_key, tree.leaf_level
    size = tree.leaf_size[leaf]
    i = last_at(keys, leaf, size, place)
    if keys[leaf, i] == place:
        for j in range(i, size):
            levels[leaf, j] += by
        before = levels[leaf, i - 1] if i else 0
        if levels[leaf, i] == before and place != _ZERO:
            _drop(tree, leaf, i)
    else:
        i += 1
        for j in range(size, i, -1):
            keys[leaf, j] = keys[leaf, j - 1]
        for j in range(size, i, -1):
            levels[leaf, j] = levels[leaf, j - 1] + by
        keys[leaf, i], levels[leaf, i] = place, levels[leaf, i - 1] + by
        tree.leaf_size[leaf] = size + 1
        tree.state[STEPS] += 1
    low = _leaf_low(tree, leaf)
    for depth in range(tree.state[HEIGHT] - 1, -1, -1):
        node, i = tree.path[0, depth], tree.path[1, depth]
        for j in range(i + 1, tree.size[node]):
            tree.level[node, j] += by
        tree.low[node, i] = low
        low = _low(tree, node)
    size = tree.leaf_size[leaf]
    if size == FAN or (size < _LEAST and tree.state[HEIGHT] > 0):
        _balance(tree, leaf)


@jit
def _drop(tree: Tree, leaf: int, i: int) -> None:
    """Remove a step; where it was the first of its leaf, the keys above follow."""
    size = tree.leaf_size[leaf] - 1
    for j in range(i, size):
        tree.leaf_key[leaf, j] = tree.leaf_key[leaf, j + 1]
        tree.leaf_level[leaf, j] = tree.leaf_level[leaf, j + 1]
    tree.leaf_size[leaf] = size
    tree.state[STEPS] -= 1
    depth = tree.state[HEIGHT] - 1
    while i == 0 and depth >= 0:
        i = tree.path[1, depth]
        tree.key[tree.path[0, depth], i] = tree.leaf_key[leaf, 0]
        depth -= 1


@jit
def _leaf_low(tree: Tree, leaf: int) -> int:
    low = tree.leaf_level[leaf, 0]
    for j in range(1, tree.leaf_size[leaf]):
        low = min(low, tree.leaf_level[leaf, j])
    return low


@jit
def _low(tree: Tree, node: int) -> int:
    low = tree.low[node, 0]
    for j in range(1, tree.size[node]):
        low = min(low, tree.level[node, j] + tree.low[node, j])
    return low


@jit
def _balance(tree: Tree, leaf: int) -> None:
    """Split a full leaf or join one that is nearly empty, then the nodes above as far as need be."""
    state, path = tree.state, tree.path
    depth = state[HEIGHT] - 1
    if depth < 0:
        _raise_root(tree)
        path[0, 0], path[1, 0], depth = state[ROOT], 0, 0
    node = path[0, depth]
    i = _make_pair(tree, node, path[1, depth], tree.leaf_size[leaf] == FAN, True)
    _spread_leaves(tree, node, i)
    while True:
        size = tree.size[node]
        if depth == 0 and size == 1:
            state[ROOT] = tree.child[node, 0]
            state[HEIGHT] -= 1
            _free_inner(tree, node)
        if size < FAN and (depth == 0 or size >= _LEAST):
            return
        if depth == 0:
            _raise_root(tree)
            above, i = state[ROOT], 0
        else:
            above, i = path[0, depth - 1], path[1, depth - 1]
        i = _make_pair(tree, above, i, size == FAN, False)
        _spread_inners(tree, above, i)
        if depth == 0:
            return
        node = above
        depth -= 1


@jit
def _raise_root(tree: Tree) -> None:
    """Put a new root with one child on top."""
    state = tree.state
    root = _new_inner(tree)
    low = _low(tree, state[ROOT]) if state[HEIGHT] else _leaf_low(tree, state[ROOT])
    tree.key[root, 0], tree.level[root, 0] = _ZERO, 0
    tree.low[root, 0], tree.child[root, 0] = low, state[ROOT]
    tree.size[root] = 1
    state[ROOT] = root
    state[HEIGHT] += 1


@jit
def _make_pair(tree: Tree, node: int, i: int, full: bool, leaves: bool) -> int:
    """Give child `i` of a node an empty right neighbour if it is full; return the pair's first."""
    if not full:
        return i - 1 if i + 1 == tree.size[node] else i
    fresh = _new_leaf(tree) if leaves else _new_inner(tree)
    if leaves:
        left = tree.child[node, i]
        tree.leaf_next[fresh], tree.leaf_next[left] = tree.leaf_next[left], fresh
        tree.leaf_size[fresh] = 0
    else:
        tree.size[fresh] = 0
    for j in range(tree.size[node], i + 1, -1):
        tree.key[node, j] = tree.key[node, j - 1]
        tree.level[node, j] = tree.level[node, j - 1]
        tree.low[node, j] = tree.low[node, j - 1]
        tree.child[node, j] = tree.child[node, j - 1]
    tree.child[node, i + 1] = fresh
    tree.level[node, i + 1] = tree.level[node, i]
    tree.size[node] += 1
    return i


@jit
def _remove_child(tree: Tree, node: int, i: int) -> None:
    tree.size[node] -= 1
    for j in range(i, tree.size[node]):
        tree.key[node, j] = tree.key[node, j + 1]
        tree.level[node, j] = tree.level[node, j + 1]
        tree.low[node, j] = tree.low[node, j + 1]
        tree.child[node, j] = tree.child[node, j + 1]


@jit
def _spread_leaves(tree: Tree, node: int, i: int) -> None:
    """Put the steps of children `i` and `i + 1` into the first if they fit, else half into each."""
    left, right = tree.child[node, i], tree.child[node, i + 1]
    keys, levels = tree.spare_key, tree.spare[0]
    total = tree.leaf_size[left]
    for j in range(total):
        keys[j], levels[j] = tree.leaf_key[left, j], tree.leaf_level[left, j]
    rise = tree.level[node, i + 1] - tree.level[node, i]
    for j in range(tree.leaf_size[right]):
        keys[total + j] = tree.leaf_key[right, j]
        levels[total + j] = tree.leaf_level[right, j] + rise
    total += tree.leaf_size[right]
    kept = total if total < FAN else total // 2
    for j in range(kept):
        tree.leaf_key[left, j], tree.leaf_level[left, j] = keys[j], levels[j]
    tree.leaf_size[left] = kept
    tree.low[node, i] = _leaf_low(tree, left)
    if kept == total:
        tree.leaf_next[left] = tree.leaf_next[right]
        _free_leaf(tree, right)
        _remove_child(tree, node, i + 1)
        return
    rise = levels[kept - 1]
    for j in range(kept, total):
        tree.leaf_key[right, j - kept] = keys[j]
        tree.leaf_level[right, j - kept] = levels[j] - rise
    tree.leaf_size[right] = total - kept
    tree.key[node, i + 1] = keys[kept]
    tree.level[node, i + 1] = tree.level[node, i] + rise
    tree.low[node, i + 1] = _leaf_low(tree, right)


@jit
def _spread_inners(tree: Tree, node: int, i: int) -> None:
    """Do the same with two inner nodes."""
    left, right = tree.child[node, i], tree.child[node, i + 1]
    keys, levels, lows, children = tree.spare_key, tree.spare[0], tree.spare[1], tree.spare[2]
    total = tree.size[left]
    for j in range(total):
        keys[j], levels[j] = tree.key[left, j], tree.level[left, j]
        lows[j], children[j] = tree.low[left, j], tree.child[left, j]
    rise = tree.level[node, i + 1] - tree.level[node, i]
    for j in range(tree.size[right]):
        keys[total + j], levels[total + j] = tree.key[right, j], tree.level[right, j] + rise
        lows[total + j], children[total + j] = tree.low[right, j], tree.child[right, j]
    total += tree.size[right]
    kept = total if total < FAN else total // 2
    for j in range(kept):
        tree.key[left, j], tree.level[left, j] = keys[j], levels[j]
        tree.low[left, j], tree.child[left, j] = lows[j], children[j]
    tree.size[left] = kept
    tree.low[node, i] = _low(tree, left)
    if kept == total:
        _free_inner(tree, right)
        _remove_child(tree, node, i + 1)
        return
    rise = levels[kept]
    for j in range(kept, total):
        tree.key[right, j - kept], tree.level[right, j - kept] = keys[j], levels[j] - rise
        tree.low[right, j - kept], tree.child[right, j - kept] = lows[j], children[j]
    tree.size[right] = total - kept
    tree.key[node, i + 1] = keys[kept]
    tree.level[node, i + 1] = tree.level[node, i] + rise
    tree.low[node, i + 1] = _low(tree, right)


@jit
def _new_leaf(tree: Tree) -> int:
    state = tree.state
    state[LEAVES] += 1
    leaf = state[FREE_LEAF]
    if leaf >= 0:
        state[FREE_LEAF] = tree.leaf_next[leaf]
        return leaf
    state[_TOUCHED_LEAVES] += 1
    return state[_TOUCHED_LEAVES] - 1


@jit
def _new_inner(tree: Tree) -> int:
    state = tree.state
    state[INNERS] += 1
    node = state[FREE_INNER]
    if node >= 0:
        state[FREE_INNER] = tree.child[node, 0]
        return node
    state[_TOUCHED_INNERS] += 1
    return state[_TOUCHED_INNERS] - 1


@jit
def _free_leaf(tree: Tree, leaf: int) -> None:
    tree.leaf_next[leaf] = tree.state[FREE_LEAF]
    tree.state[FREE_LEAF] = leaf
    tree.state[LEAVES] -= 1


@jit
def _free_inner(tree: Tree, node: int) -> None:
    tree.child[node, 0] = tree.state[FREE_INNER]
    tree.state[FREE_INNER] = node
    tree.state[INNERS] -= 1


# ---- all at once


def tree_of(keys: Words, levels: Levels) -> Tree:
    """Return the tree of steps in ascending order, the first at place 0."""
    leaves = -(-len(keys) // _FILL)
    inners, row = 0, leaves
    while row > 1:
        row = -(-row // _FILL)
        inners += row
    state = np.zeros(9, np.int64)
    state[[FREE_LEAF, FREE_INNER]] = -1
    state[STEPS] = len(keys)
    state[[LEAVES, _TOUCHED_LEAVES]] = leaves
    state[[INNERS, _TOUCHED_INNERS]] = inners
    tree = _with_room(state, leaves + leaves // 4 + 4, inners + inners // 4 + 4 * _DEEPEST)
    _load(tree, keys, levels, np.empty(leaves, np.int32))
    return tree


@jit
def _load(tree: Tree, keys: Words, levels: Levels, before: Levels) -> None:
    """Fill fresh nodes, leaves first, then row by row; all of a row have about one size.

    `before` is working memory: the level before each node of the row below.
    """
    state = tree.state
    leaves = state[LEAVES]
    for leaf in range(leaves):
        begin, end = len(keys) * leaf // leaves, len(keys) * (leaf + 1) // leaves
        before[leaf] = levels[begin - 1] if begin else 0
        for j in range(begin, end):
            tree.leaf_key[leaf, j - begin] = keys[j]
            tree.leaf_level[leaf, j - begin] = levels[j] - before[leaf]
        tree.leaf_size[leaf] = end - begin
        tree.leaf_next[leaf] = leaf + 1 if leaf + 1 < leaves else -1
    begin, count, bottom = 0, leaves, True  # the row below: its first node, how many
    made = 0
    while count > 1:
        nodes = (count + _FILL - 1) // _FILL
        for number in range(nodes):
            node = made + number
            first, last = count * number // nodes, count * (number + 1) // nodes
            for j in range(last - first):
                child = begin + first + j
                tree.child[node, j] = child
                tree.level[node, j] = before[first + j] - before[first]
                tree.key[node, j] = tree.leaf_key[child, 0] if bottom else tree.key[child, 0]
                tree.low[node, j] = _leaf_low(tree, child) if bottom else _low(tree, child)
            before[number] = before[first]
            tree.size[node] = last - first
        begin, count, bottom = made, nodes, False
        made += nodes
        state[HEIGHT] += 1
    state[ROOT] = begin
