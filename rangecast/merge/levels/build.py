"""Build trees of levels: empty, from breakpoints, or with more room (see tree.py)."""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import I32, I64, U64
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
    NEXT,
    ROOT,
    SIZE,
    STEPS,
    Tree,
    leaf_lowest,
    lowest,
)

_FILL = FAN * 11 // 16
_DEEPEST = 16


def empty_tree() -> Tree:
    """Return the tree of the function that is 0 everywhere."""
    return tree_of(np.zeros(1, np.uint64), np.zeros(1, np.int32))


def _with_room(state: I64, leaves: int, inners: int) -> Tree:
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
    """Return the same tree with room for more nodes; the old one must not be used again."""
    leaves, inners = len(tree.leaf), len(tree.inner)
    few = leaves - tree.state[0, LEAVES] < 2
    larger = _with_room(tree.state, leaves * 2 if few else leaves, inners if few else inners * 2)
    for name in ("key", "inner", "leaf_key", "leaf"):
        old = getattr(tree, name)
        getattr(larger, name)[: len(old)] = old
    return larger


def tree_of(keys: U64, levels: I32) -> Tree:
    """Return the tree of ascending breakpoints, the first at index 0."""
    leaves = -(-len(keys) // _FILL)
    inners, row = 0, leaves
    while row > 1:
        row = -(-row // _FILL)
        inners += row
    state = np.zeros((4, _DEEPEST), np.int64)
    state[0, [FREE_LEAF, FREE_INNER]] = -1
    state[0, STEPS] = len(keys)
    state[0, [LEAVES, FRESH_LEAF]] = leaves
    state[0, [INNERS, FRESH_INNER]] = inners
    tree = _with_room(state, leaves + leaves // 4 + 4, inners + inners // 4 + 4)
    _load(tree, keys, levels, np.empty(leaves, np.int32))
    return tree


def breakpoints_of(tree: Tree) -> tuple[U64, I32]:
    """Return the breakpoints of a tree, in ascending order: the inverse of `tree_of`."""
    count = int(tree.state[0, STEPS])
    keys, levels = np.empty(count, np.uint64), np.empty(count, np.int32)
    _read(tree, keys, levels)
    return keys, levels


@jit
def _read(tree: Tree, keys: U64, levels: I32) -> None:
    """Write the breakpoints leaf by leaf; the first leaf is always node 0."""
    node, count, level = 0, 0, 0
    while node >= 0:
        before = level
        for i in range(tree.leaf[node, SIZE]):
            level = before + tree.leaf[node, LEVEL + i]
            keys[count], levels[count] = tree.leaf_key[node, i], level
            count += 1
        node = tree.leaf[node, NEXT]


@jit
def _load(tree: Tree, keys: U64, levels: I32, before: I32) -> None:
    """Bulk-load an empty tree bottom-up; nodes of equal height have about the same size.

    before   working memory: the level before each node one height below
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
    begin, count, made = 0, leaves, 0  # one height below: the first node, and how many
    while count > 1:
        nodes = (count + _FILL - 1) // _FILL
        for number in range(nodes):
            node = made + number
            first, last = count * number // nodes, count * (number + 1) // nodes
            for j in range(last - first):
                child = begin + first + j
                inner[node, CHILD + j] = child
                inner[node, LEVEL + j] = before[first + j] - before[first]
                if made:
                    tree.key[node, j] = tree.key[child, 0]
                    inner[node, LOW + j] = lowest(inner, child)
                else:
                    tree.key[node, j] = tree.leaf_key[child, 0]
                    inner[node, LOW + j] = leaf_lowest(leaf, child)
            inner[node, SIZE] = last - first
            before[number] = before[first]
        begin, count = made, nodes
        made += nodes
        state[0, HEIGHT] += 1
    state[0, ROOT] = begin
