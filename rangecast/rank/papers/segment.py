"""The scored segment tree (paper 003, section 2.2.1).

The bounds of all boxes cut an attribute into cells (`kernels.grid`), over which there is a balanced
binary tree. A box is in the lists of the highest nodes that it holds wholly, at most two per level.
So all boxes on an event's path hold it, and nothing is compared: k log log n for the top k after
log n to begin. The price is memory: up to 2 log n entries of 4 bytes per box, and the nodes.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import I32, I64
from rangecast.kernels.grid import cells_of, edges_of_bounds
from rangecast.kernels.jit import jit
from rangecast.model.boxes import Boxes
from rangecast.rank.papers.source import NONE, Axis, AxisTree, Nodes, Pages, Source, axes_of, joined


@jit
def _grow(cells: int, split: I64, left: I32, right: I32) -> int:
    """Make the balanced tree over some cells; return how many nodes it has.

    Node 0 is the top; `split` is filled with the first cell of each node's right half.
    """
    stack = np.empty((128, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, 0, cells
    waiting, nodes = 1, 1
    while waiting:
        waiting -= 1
        node, begin, end = stack[waiting, 0], stack[waiting, 1], stack[waiting, 2]
        left[node] = right[node] = -1
        split[node] = begin
        if end - begin > 1:
            middle = (begin + end) // 2
            split[node] = middle
            left[node], right[node] = nodes, nodes + 1
            stack[waiting, 0], stack[waiting, 1], stack[waiting, 2] = nodes, begin, middle
            waiting += 1
            stack[waiting, 0], stack[waiting, 1], stack[waiting, 2] = nodes + 1, middle, end
            waiting += 1
            nodes += 2
    return nodes


@jit
def _list_boxes(
    low: I32,
    high: I32,
    cells: int,
    split: I64,
    left: I32,
    right: I32,
    next_slot: I64,
    out: I32,
) -> None:
    """Write boxes to the lists of the highest nodes that they cover; without `out` only count.

    Box i covers the cells low[i] .. high[i]. `next_slot` of a node is advanced by each box.
    """
    stack = np.empty((128, 3), np.int64)
    writing = len(out) > 0
    for i in range(len(low)):
        stack[0, 0], stack[0, 1], stack[0, 2] = 0, 0, cells
        waiting = 1
        while waiting:
            waiting -= 1
            node, begin, end = stack[waiting, 0], stack[waiting, 1], stack[waiting, 2]
            if low[i] <= begin and end - 1 <= high[i]:
                if writing:
                    out[next_slot[node]] = i
                next_slot[node] += 1
                continue
            middle = split[node]
            if low[i] < middle:
                stack[waiting, 0], stack[waiting, 1], stack[waiting, 2] = left[node], begin, middle
                waiting += 1
            if high[i] >= middle:
                stack[waiting, 0], stack[waiting, 1], stack[waiting, 2] = right[node], middle, end
                waiting += 1


def _tree(axis: Axis) -> AxisTree | None:
    n = len(axis.box)
    if not n:
        return None
    edges = edges_of_bounds(axis.lo, axis.hi, 2 * n + 2)
    low, high = cells_of(edges, axis.lo), cells_of(edges, axis.hi)
    begins = np.concatenate([[-np.inf], edges, [np.inf]])
    cells = len(begins)
    split = np.empty(2 * cells, np.int64)
    left, right = np.empty(2 * cells, np.int32), np.empty(2 * cells, np.int32)
    nodes = _grow(cells, split, left, right)
    shape = cells, split[:nodes], left[:nodes], right[:nodes]
    counts = np.zeros(nodes, np.int64)
    _list_boxes(low, high, *shape, counts, np.empty(0, np.int32))
    first = np.cumsum(counts) - counts
    places = np.empty(counts.sum(), np.int32)
    _list_boxes(low, high, *shape, first.copy(), places)
    filled = counts > 0
    root = np.where(filled, np.cumsum(filled) - 1, -1)
    level = np.zeros(filled.sum(), np.uint8)
    pages = Pages(first[filled], counts[filled], level, axis.box[places], NONE, NONE)
    return AxisTree(Nodes(begins[split[:nodes]], left[:nodes], right[:nodes]), root, pages)


def segment(boxes: Boxes, *, relaxed: bool = False) -> Source:
    """Build the scored segment trees of all attributes."""
    trees = [_tree(axis) for axis in axes_of(boxes, relaxed=relaxed)]
    return joined(trees, boxes, relaxed=relaxed)
