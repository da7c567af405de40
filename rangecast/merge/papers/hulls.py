"""Imperfect merging by bounding boxes (paper 004, section 3.6, figure 5b).

Boxes are put in the order of a Hilbert curve through their middles, so that neighbours are alike.
Neighbouring groups are then joined, those first whose bounding box holds the least that neither of
the two held, until few enough are left. What a box holds is counted in cells, cut at quantiles of
the bounds: coordinates are only compared.

The result is a set of plain boxes. It holds all that the subscriptions hold, and more. Unlike
ranges on the curve, anything that understands filters can use it.

Cost: some rounds over all groups, each of which joins a part of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64, readonly
from rangecast.kernels.curves.hilbert import axes_by_selectivity, indexes_of, turns_of
from rangecast.kernels.grid import cells_of, edges_of_bounds
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.model.validation.inputs import as_boxes

_BITS = 6
_AXES = 64 // _BITS
"""Maximum number of attributes that determine the order."""


def bounding_boxes(subscriptions: Any, space: Space, max_boxes: int) -> Boxes:
    """Return at most `max_boxes` boxes that together contain all subscriptions.

    subscriptions   as `Engine.subscribe_many` takes them
    """
    if max_boxes < 1:
        raise UsageError(
            f"the maximum number of bounding boxes must be at least 1; given: {max_boxes}"
        )
    boxes = as_boxes(subscriptions, space)
    first, last, counts = _cells(boxes)
    order = _order(boxes, first, last)
    lo, hi, first, last = boxes.lo[order], boxes.hi[order], first[order], last[order]
    rng = np.random.default_rng(0)
    while len(lo) > max_boxes:
        starts = _joined(first, last, counts, len(lo) - max_boxes, rng)
        lo, first = np.minimum.reduceat(lo, starts), np.minimum.reduceat(first, starts)
        hi, last = np.maximum.reduceat(hi, starts), np.maximum.reduceat(last, starts)
    # A range from a value up to the missing one is no filter: the attribute isn't mentioned then.
    return Boxes.of(np.where((hi == np.inf) & (lo < np.inf), -np.inf, lo), hi, space=space)


def _cells(boxes: Boxes) -> tuple[I64, I64, I64]:
    """Return the first and the last cell of each box (n, d), and the cells of each attribute."""
    first, last = np.empty(boxes.lo.shape, np.int64), np.empty(boxes.lo.shape, np.int64)
    counts = np.empty(boxes.dimensions, np.int64)
    for axis in range(boxes.dimensions):
        lo, hi = boxes.lo[:, axis], boxes.hi[:, axis]
        edges = edges_of_bounds(lo, hi, 1 << _BITS)
        first[:, axis], last[:, axis] = cells_of(edges, lo), cells_of(edges, hi)
        counts[axis] = len(edges) + 2
    return first, last, counts


def _order(boxes: Boxes, first: I64, last: I64) -> I64:
    """Return the boxes in an order that keeps similar boxes together."""
    axes = axes_by_selectivity(boxes.lo, boxes.hi)[:_AXES]
    middles = (first[:, axes] + last[:, axes]) >> 1
    cells = np.minimum(middles, (1 << _BITS) - 1).astype(np.uint64)
    index = np.empty(len(cells), np.uint64)
    indexes_of(readonly(cells), _BITS, turns_of(len(axes)), index)
    return np.argsort(index, kind="stable")


def _joined(first: I64, last: I64, counts: I64, surplus: int, rng: np.random.Generator) -> I64:
    """Return the starts of groups after a round that joins up to `surplus` pairs of neighbours.

    A pair is joined if it is among the cheaper half, and cheaper than both pairs beside it. Ties
    are broken at random, as runs of equal boxes would otherwise take one round each.
    """
    held = _share(first, last, counts)
    both = _share(np.minimum(first[1:], first[:-1]), np.maximum(last[1:], last[:-1]), counts)
    growth = both - held[1:] - held[:-1]
    by_cost = np.lexsort((rng.random(len(growth)), growth))
    rank = np.empty(len(growth), np.int64)
    rank[by_cost] = np.arange(len(growth))
    beside = np.pad(rank, 1, constant_values=len(rank))
    is_least = (rank < beside[:-2]) & (rank < beside[2:]) & (rank <= len(rank) // 2)
    cheapest = by_cost[is_least[by_cost]][:surplus]
    begins = np.ones(len(first), np.bool_)
    begins[cheapest + 1] = False
    return np.flatnonzero(begins)


def _share(first: I64, last: I64, counts: I64) -> F64:
    """Return the share of the cells of the space in each box."""
    share: F64 = np.prod((last - first + 1) / counts, axis=1)
    return share
