"""The IR-tree (paper 003, section 3.1): an interval tree whose lists are scored R-trees.

All boxes of a list hold the node's split, so in its pages there are no holes, and the k best take
(k + log n) b log_b n. 20 bytes a box and an attribute, and a few for the pages above. The paper
edits it in place, too; here a live set takes the edits, whatever the structure (see `live`).
"""

from __future__ import annotations

import numpy as np

from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes
from rangecast.rank.papers.interval import parted
from rangecast.rank.papers.rtree import BRANCHING
from rangecast.rank.papers.source import Axis, AxisTree, Source, axes_of, joined, packed


def _tree(axis: Axis, branching: int) -> AxisTree | None:
    if not len(axis.box):
        return None
    order, first, nodes = parted(axis.lo, axis.hi)
    slots = axis.box[order], axis.lo[order], axis.hi[order]
    return AxisTree(nodes, *packed(*slots, np.diff(first), branching))


def ir(boxes: Boxes, *, relaxed: bool = False, branching: int = BRANCHING) -> Source:
    """Build the IR-trees of all attributes."""
    if branching < 2:
        raise UsageError(f"a page has at least 2 slots; given: {branching}")
    trees = [_tree(axis, branching) for axis in axes_of(boxes, relaxed=relaxed)]
    return joined(trees, boxes, relaxed=relaxed)
