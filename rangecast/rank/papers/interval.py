"""Scored interval trees (paper 003, section 2.2.2), of both kinds, and the tree under the IR-tree.

A node takes the median of the bounds of its boxes as its split; its list has the boxes that hold
the split, its children those wholly on one side. A box is in one list, and there are at most
log 2n nodes on a path.

    score-sorted     a list is by score; boxes that don't contain the value are skipped. A node has
                     the lowest and the highest bound of its list: it is skipped outside of them
    endpoint-sorted  a list is held twice, by lower and by upper bound; all boxes of the path that
                     contain the value are found, and put into a heap
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.jit import jit
from rangecast.model.boxes import Boxes, frozen
from rangecast.rank.papers.source import NONE, Axis, AxisTree, Nodes, Pages, Source, axes_of, joined


@jit
def _part(lo: F64, hi: F64, order: I64, first: I64, split: F64, left: I32, right: I32) -> int:
    """Put boxes into the nodes of an interval tree; return how many nodes it has.

    Reorders `order`, the boxes from the best on, node by node; those of a node stay in order and
    begin at first[node].
    """
    n = len(order)
    spare = np.empty(n, np.int64)
    ends = np.empty(2 * n, np.float64)
    todo = np.empty((2 * 64 + 2, 4), np.int64)  # begin, end, parent, side
    todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3] = 0, n, -1, 0
    waiting = 1
    nodes = 0
    filled = 0  # boxes that are in their place; those still to do lie behind, in any order of nodes
    placed = np.empty(n, np.int64)
    while waiting:
        waiting -= 1
        begin, end = todo[waiting, 0], todo[waiting, 1]
        parent, side = todo[waiting, 2], todo[waiting, 3]
        count = end - begin
        for i in range(count):
            ends[2 * i] = lo[order[begin + i]]
            ends[2 * i + 1] = hi[order[begin + i]]
        middle = np.partition(ends[: 2 * count], count)[count]
        node = nodes
        nodes += 1
        split[node] = middle
        left[node] = right[node] = -1
        first[node] = filled
        if parent >= 0 and side == 0:
            left[parent] = node
        elif parent >= 0:
            right[parent] = node
        low, high = begin, 0
        for i in range(begin, end):
            box = order[i]
            if hi[box] < middle:
                order[low] = box
                low += 1
            elif lo[box] > middle:
                spare[high] = box
                high += 1
            else:
                placed[filled] = box
                filled += 1
        for i in range(high):
            order[low + i] = spare[i]
        if low > begin:
            todo[waiting, 0], todo[waiting, 1] = begin, low
            todo[waiting, 2], todo[waiting, 3] = node, 0
            waiting += 1
        if high:
            todo[waiting, 0], todo[waiting, 1] = low, low + high
            todo[waiting, 2], todo[waiting, 3] = node, 1
            waiting += 1
    for i in range(len(order)):
        order[i] = placed[i]
    first[nodes] = n
    return nodes


def parted(lo: F64, hi: F64) -> tuple[I64, I64, Nodes]:
    """Return the boxes node by node, the first of each node, and the nodes."""
    n = len(lo)
    order = np.arange(n)
    first = np.empty(n + 1, np.int64)
    nodes = Nodes(np.empty(n), np.empty(n, np.int32), np.empty(n, np.int32))
    count = _part(frozen(lo, np.float64), frozen(hi, np.float64), order, first, *nodes) if n else 0
    return order, first[: count + 1], Nodes._make(column[:count] for column in nodes)


def _tree(axis: Axis, *, by_ends: bool) -> AxisTree | None:
    if not len(axis.box):
        return None
    order, first, nodes = parted(axis.lo, axis.hi)
    counts = np.diff(first)
    root, level = np.arange(len(counts)), np.zeros(len(counts), np.uint8)
    if not by_ends:
        lo, hi = axis.lo[order], axis.hi[order]
        pages = Pages(first[:-1], counts, level, axis.box[order], lo, hi)
        lowest = np.minimum.reduceat(lo, first[:-1])
        highest = np.maximum.reduceat(hi, first[:-1])
        return AxisTree(nodes, root, pages, hull_lo=lowest, hull_hi=highest)
    node = np.repeat(root, counts)
    rising = order[np.lexsort((axis.lo[order], node))]
    falling = order[np.lexsort((-axis.hi[order], node))]
    pages = Pages(first[:-1], counts, level, axis.box[rising], axis.lo[rising], NONE)
    return AxisTree(nodes, root, pages, axis.box[falling], axis.hi[falling])


def interval(boxes: Boxes, *, relaxed: bool = False, by_ends: bool = False) -> Source:
    """Build the scored interval trees of all attributes; `by_ends`: the endpoint-sorted ones."""
    trees = [_tree(axis, by_ends=by_ends) for axis in axes_of(boxes, relaxed=relaxed)]
    return joined(trees, boxes, relaxed=relaxed)
