"""Balancing the tree of levels: full nodes are split, nearly empty ones joined (see tree.py)."""

from __future__ import annotations

import numpy as np

from rangecast.kernels.jit import jit
from rangecast.merge.levels.tree import (
    CHILD,
    FAN,
    FREE_INNER,
    FREE_LEAF,
    FRESH_INNER,
    FRESH_LEAF,
    HEIGHT,
    INNERS,
    LEAVES,
    LEVEL,
    LOW,
    MIN_ENTRIES,
    NEXT,
    NODE,
    ROOT,
    SIZE,
    TAKEN,
    Tree,
    leaf_lowest,
    lowest,
)

_ZERO = np.uint64(0)


@jit
def balance(tree: Tree, leaf: int) -> None:
    """Split the path's leaf if it is full, or join it if nearly empty; then the nodes above."""
    state, inner = tree.state, tree.inner
    depth = state[0, HEIGHT] - 1
    if depth < 0:
        _raise_root(tree)
        state[NODE, 0], state[TAKEN, 0], depth = state[0, ROOT], 0, 0
    node = state[NODE, depth]
    i = state[TAKEN, depth]
    _spread_leaves(tree, node, _pair(tree, node, i, tree.leaf[leaf, SIZE] == FAN, True))
    while True:
        size = inner[node, SIZE]
        if depth == 0 and size == 1:
            state[0, ROOT] = inner[node, CHILD]
            state[0, HEIGHT] -= 1
            _free_inner(tree, node)
        if size < FAN and (depth == 0 or size >= MIN_ENTRIES):
            return
        if depth == 0:
            _raise_root(tree)
            above, i = state[0, ROOT], 0
        else:
            above, i = state[NODE, depth - 1], state[TAKEN, depth - 1]
        _spread_inners(tree, above, _pair(tree, above, i, size == FAN, False))
        if depth == 0:
            return
        node = above
        depth -= 1


@jit
def _raise_root(tree: Tree) -> None:
    """Add a new root above the old one."""
    state, inner = tree.state, tree.inner
    old = state[0, ROOT]
    root = _new_inner(tree)
    tree.key[root, 0] = _ZERO
    inner[root, SIZE], inner[root, LEVEL], inner[root, CHILD] = 1, 0, old
    inner[root, LOW] = lowest(inner, old) if state[0, HEIGHT] else leaf_lowest(tree.leaf, old)
    state[0, ROOT] = root
    state[0, HEIGHT] += 1


@jit
def _pair(tree: Tree, node: int, i: int, full: bool, leaves: bool) -> int:
    """Return the first of two children to rebalance: `i` gets a new sibling if it is full."""
    inner, leaf = tree.inner, tree.leaf
    size = inner[node, SIZE]
    if not full:
        return i - 1 if i + 1 == size else i
    for j in range(size, i + 1, -1):
        tree.key[node, j] = tree.key[node, j - 1]
        for part in (LEVEL, LOW, CHILD):
            inner[node, part + j] = inner[node, part + j - 1]
    if leaves:
        fresh, left = _new_leaf(tree), inner[node, CHILD + i]
        leaf[fresh, SIZE], leaf[fresh, NEXT] = 0, leaf[left, NEXT]
        leaf[left, NEXT] = fresh
    else:
        fresh = _new_inner(tree)
        inner[fresh, SIZE] = 0
    inner[node, CHILD + i + 1] = fresh
    inner[node, LEVEL + i + 1] = inner[node, LEVEL + i]
    inner[node, SIZE] = size + 1
    return i


@jit
def _remove_child(tree: Tree, node: int, i: int) -> None:
    inner = tree.inner
    inner[node, SIZE] -= 1
    for j in range(i, inner[node, SIZE]):
        tree.key[node, j] = tree.key[node, j + 1]
        for part in (LEVEL, LOW, CHILD):
            inner[node, part + j] = inner[node, part + j + 1]


@jit
def _spread_leaves(tree: Tree, node: int, i: int) -> None:
    """Move the breakpoints of children `i` and `i + 1` into the first, or split them evenly."""
    inner, leaf, leaf_key = tree.inner, tree.leaf, tree.leaf_key
    keys, levels = tree.spare_key, tree.spare[0]
    left, right = inner[node, CHILD + i], inner[node, CHILD + i + 1]
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
    inner[node, LOW + i] = leaf_lowest(leaf, left)
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
    inner[node, LOW + i + 1] = leaf_lowest(leaf, right)


@jit
def _spread_inners(tree: Tree, node: int, i: int) -> None:
    """Join or balance two inner nodes in the same way."""
    inner, key = tree.inner, tree.key
    keys, levels, lows, children = tree.spare_key, tree.spare[0], tree.spare[1], tree.spare[2]
    total = 0
    for side in (i, i + 1):
        child = inner[node, CHILD + side]
        rise = inner[node, LEVEL + side] - inner[node, LEVEL + i]
        for j in range(inner[child, SIZE]):
            keys[total], levels[total] = key[child, j], inner[child, LEVEL + j] + rise
            lows[total], children[total] = inner[child, LOW + j], inner[child, CHILD + j]
            total += 1
    kept = total if total < FAN else total // 2
    for side in (i, i + 1):
        child = inner[node, CHILD + side]
        begin, end = (0, kept) if side == i else (kept, total)
        if begin == end:
            _free_inner(tree, child)
            _remove_child(tree, node, side)
            return
        rise = levels[begin]
        for j in range(begin, end):
            key[child, j - begin], inner[child, LEVEL + j - begin] = keys[j], levels[j] - rise
            inner[child, LOW + j - begin] = lows[j]
            inner[child, CHILD + j - begin] = children[j]
        inner[child, SIZE] = end - begin
        key[node, side] = keys[begin]
        inner[node, LEVEL + side] = inner[node, LEVEL + i] + rise
        inner[node, LOW + side] = lowest(inner, child)


@jit
def _new_leaf(tree: Tree) -> int:
    state = tree.state
    state[0, LEAVES] += 1
    leaf = state[0, FREE_LEAF]
    if leaf >= 0:
        state[0, FREE_LEAF] = tree.leaf[leaf, NEXT]
    else:
        leaf = state[0, FRESH_LEAF]
        state[0, FRESH_LEAF] += 1
    return int(leaf)


@jit
def _new_inner(tree: Tree) -> int:
    state = tree.state
    state[0, INNERS] += 1
    node = state[0, FREE_INNER]
    if node >= 0:
        state[0, FREE_INNER] = tree.inner[node, CHILD]
    else:
        node = state[0, FRESH_INNER]
        state[0, FRESH_INNER] += 1
    return int(node)


@jit
def _free_leaf(tree: Tree, leaf: int) -> None:
    tree.leaf[leaf, NEXT] = tree.state[0, FREE_LEAF]
    tree.state[0, FREE_LEAF] = leaf
    tree.state[0, LEAVES] -= 1


@jit
def _free_inner(tree: Tree, node: int) -> None:
    tree.inner[node, CHILD] = tree.state[0, FREE_INNER]
    tree.state[0, FREE_INNER] = node
    tree.state[0, INNERS] -= 1
