"""The scored R-tree (paper 003, section 2.2.3): boxes by score in pages of b, hulls above them.

A walk goes through it depth first, left first, so it finds boxes in the order of their scores. It
opens every page whose hull contains the value. Boxes with similar scores may lie far apart, so
hulls are wide and many visits find nothing. 20 bytes per box, and 1/(b - 1) of that for the upper
pages.
"""

from __future__ import annotations

import numpy as np

from rangecast.model.boxes import Boxes
from rangecast.model.index_options import Options, whole
from rangecast.rank.papers.source import Axis, AxisTree, Nodes, Source, axes_of, joined, packed

BRANCHING = 50
"""Slots of a page, as in the paper's Table 1."""
TREE_OPTIONS: Options = {"branching": whole("branching", 2)}
"""Options of an R-tree, an IR-tree and SOPT-R: children per node."""


def single_list(axis: Axis, branching: int) -> AxisTree | None:
    """Return the tree of one node whose list has the boxes of an attribute in the given order."""
    if not len(axis.box):
        return None
    root, pages = packed(axis.box, axis.lo, axis.hi, np.array([len(axis.box)]), branching)
    nowhere = np.array([-1])
    return AxisTree(Nodes(np.zeros(1), nowhere, nowhere), root, pages)


def rtree(boxes: Boxes, *, relaxed: bool = False, branching: int = BRANCHING) -> Source:
    """Build the scored R-trees of all attributes."""
    axes = axes_of(boxes, relaxed=relaxed)
    trees = [single_list(axis, branching) for axis in axes]
    return joined(trees, boxes, relaxed=relaxed)
