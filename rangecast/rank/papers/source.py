"""The arrays of every structure of the paper: a tree over each attribute, whose nodes have lists.

All of them are one thing in two parts, so that one cursor walks them all:

    a tree     binary, one for each attribute; an event goes down one path of it, to the left of
               a node's `split` or, from the split on, to the right. Each node has a list.
    a list     boxes by score, then arrival, cut into pages: leaves that hold boxes, and above
               them pages that hold pages with the hull of each.

    structure      tree                            a node's list holds           pages
    segment        over the cells between bounds   boxes that hold all of it     one leaf
    interval       over medians of bounds          boxes that hold the split     one leaf
    ir             the same                        the same                      b slots a page
    rtree          a single node                   all boxes, by score           b slots a page
    sopt           a single node                   all boxes, arranged           b slots a page

Of the endpoint-sorted interval tree a list is held twice, by lower and by upper bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, AnyArray
from rangecast.model.boxes import Boxes, frozen


class Source(NamedTuple):
    """The trees of all attributes in one set of arrays."""

    top: I32
    """(d,) first node of each attribute's tree, -1 if it has none."""
    split: F64
    left: I32
    right: I32
    """(nodes,) where to go on, -1: nowhere."""
    root: I32
    """(nodes,) the highest page of the node's list, -1 if the list is empty."""
    first: I64
    filled: I32
    level: U8
    """(pages,) its slots, and its level: 0 is a leaf."""
    item: I32
    """(slots,) a box, or a page in a page above the leaves."""
    lo: F64
    hi: F64
    """(slots,) the range of the box, the hull of the page; none if boxes hold by construction."""
    ends: I32
    ends_hi: F64
    """The slots once more, those of a list by upper bound from the highest; else none."""
    hull_lo: F64
    hull_hi: F64
    """(nodes,) the lowest and the highest bound of the node's list: outside of them it isn't looked
    at. None if lists have pages above their leaves, or need no comparison."""
    owner: I32
    """(boxes,) the subscription."""
    worth: F64
    by_row: int
    by_axis: int
    """The score of a box on an axis is worth[by_row * owner + by_axis * axis]."""
    is_arranged: int
    """1 if of the boxes of a list only those that meet are in the order of their scores; else 0."""


NONE: AnyArray = np.zeros(0)


class Nodes(NamedTuple):
    """The tree of one attribute, as `Source` has them for all."""

    split: AnyArray
    left: AnyArray
    right: AnyArray


class Pages(NamedTuple):
    """The lists of one attribute, as `Source` has them for all."""

    first: AnyArray
    filled: AnyArray
    level: AnyArray
    item: AnyArray
    lo: AnyArray
    hi: AnyArray


class AxisTree(NamedTuple):
    """Tree of one attribute: its nodes, root, pages and hulls."""

    nodes: Nodes
    root: AnyArray
    pages: Pages
    ends: AnyArray = NONE
    ends_hi: AnyArray = NONE
    hull_lo: AnyArray = NONE
    hull_hi: AnyArray = NONE


class Axis(NamedTuple):
    """The boxes that are indexed on one attribute, best first."""

    box: I64
    lo: F64
    hi: F64


def worth_of(boxes: Boxes, *, relaxed: bool) -> tuple[F64, int, int]:
    """Return `worth`, `by_row`, `by_axis`: what a box is worth on an attribute."""
    if not relaxed:
        return boxes.scores, 1, 0
    if boxes.weights is None:
        return frozen(np.ones(1), np.float64), 0, 0
    return frozen(boxes.weights.reshape(-1), np.float64), boxes.dimensions, 1


def axes_of(boxes: Boxes, *, relaxed: bool) -> list[Axis]:
    """Return the boxes of each attribute, best first; relaxed only those that mention it."""
    mentioned = boxes.mentions
    made = []
    for j in range(boxes.dimensions):
        those = np.flatnonzero(mentioned[:, j]) if relaxed else np.arange(len(boxes.lo))
        if relaxed and boxes.weights is not None:
            worth = boxes.weights[boxes.owner[those], j]
        elif relaxed:
            worth = np.ones(len(those))
        else:
            worth = boxes.scores[boxes.owner[those]]
        order = those[np.argsort(-worth, kind="stable")]
        made.append(Axis(order, boxes.lo[order, j], boxes.hi[order, j]))
    return made


_KINDS = (
    *(np.float64, np.int32, np.int32, np.int32),
    *(np.int64, np.int32, np.uint8),
    *(np.int32, np.float64, np.float64, np.int32, np.float64, np.float64, np.float64),
)
"""The types of the arrays of a source, from `split` to `hull_hi`."""


def joined(
    trees: Sequence[AxisTree | None], boxes: Boxes, *, relaxed: bool, is_arranged: bool = False
) -> Source:
    """Return the trees of all attributes as one source; `None` has no boxes."""
    top = np.full(len(trees), -1)
    nodes = pages = slots = 0
    columns: list[list[AnyArray]] = [[] for _ in _KINDS]
    for j, tree in enumerate(trees):
        if tree is None:
            continue
        top[j] = nodes
        inner = np.repeat(tree.pages.level, tree.pages.filled) > 0
        shifted = (
            tree.nodes.split,
            np.where(tree.nodes.left >= 0, tree.nodes.left + nodes, -1),
            np.where(tree.nodes.right >= 0, tree.nodes.right + nodes, -1),
            np.where(tree.root >= 0, tree.root + pages, -1),
            tree.pages.first + slots,
            tree.pages.filled,
            tree.pages.level,
            tree.pages.item + np.where(inner, pages, 0),
            tree.pages.lo,
            tree.pages.hi,
            tree.ends,
            tree.ends_hi,
            tree.hull_lo,
            tree.hull_hi,
        )
        for column, array in zip(columns, shifted, strict=True):
            column.append(array)
        nodes += len(tree.nodes.split)
        pages += len(tree.pages.first)
        slots += len(tree.pages.item)
    arrays = (
        frozen(np.concatenate(column) if column else NONE, kind)
        for column, kind in zip(columns, _KINDS, strict=True)
    )
    scores = worth_of(boxes, relaxed=relaxed)
    return Source._make((frozen(top, np.int32), *arrays, boxes.owner, *scores, int(is_arranged)))


def packed(
    items: AnyArray, lo: F64, hi: F64, sizes: AnyArray, branching: int
) -> tuple[AnyArray, Pages]:
    """Cut lists into pages of `branching` slots, with pages of pages above them.

    Returns the root page of each list (-1: an empty list), and the pages: those of a level lie
    together, leaves first. The lists lie one after the other in `items`, `sizes` long.
    """
    roots = np.full(len(sizes), -1)
    firsts: list[AnyArray] = []
    counts: list[AnyArray] = []
    levels: list[AnyArray] = []
    all_items: list[AnyArray] = []
    all_lo: list[AnyArray] = []
    all_hi: list[AnyArray] = []
    lists = np.flatnonzero(sizes)
    sizes = sizes[lists]
    level = pages = slots = 0
    while len(lists):
        per_list = -(-sizes // branching)
        starts = np.cumsum(sizes) - sizes
        within = np.arange(per_list.sum()) - np.repeat(np.cumsum(per_list) - per_list, per_list)
        begin = np.repeat(starts, per_list) + within * branching
        count = np.minimum(branching, np.repeat(starts + sizes, per_list) - begin)
        firsts.append(begin + slots)
        counts.append(count)
        levels.append(np.full(len(begin), level))
        all_items.append(items)
        all_lo.append(lo)
        all_hi.append(hi)
        single = per_list == 1
        page = pages + np.arange(len(begin))
        roots[lists[single]] = page[np.cumsum(per_list) - 1][single]
        goes_on = np.repeat(~single, per_list)
        slots += len(items)
        pages += len(begin)
        items = page[goes_on]
        lo = np.minimum.reduceat(lo, begin)[goes_on]
        hi = np.maximum.reduceat(hi, begin)[goes_on]
        lists, sizes = lists[~single], per_list[~single]
        level += 1
    columns = (firsts, counts, levels, all_items, all_lo, all_hi)
    return roots, Pages._make(np.concatenate(c) if c else NONE for c in columns)
