"""The share of a space that ranges cover: the probability that a random value passes.

Cells of the curve can't just be counted. Eight brands on an axis of 1,024 cells leave most of them
to no value at all, and cells at quantiles have different sizes. So a cell weighs what of its
attribute's domain lies in it:

    number                  its length
    integer, timestamp      how many of them it holds
    boolean, category,      how many values or leaves it holds
    hierarchy
    string                  how many words that subscriptions mention; all others are one word
    without min or max      1 if it holds any value: there is no length to go by

An event that lacks a value has a cell that weighs nothing: how many do is not for a space to say.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.kernels.curves.hilbert_measure import weight_of_ranges
from rangecast.kernels.grid import MAX
from rangecast.merge.cells import Cells
from rangecast.merge.ranges import Ranges
from rangecast.model.attributes.base import Attribute, Number
from rangecast.model.attributes.text import String
from rangecast.model.boxes import frozen
from rangecast.model.space import Space

_ROUNDING = 1e-12


def coverage_of(space: Space, cells: Cells, ranges: Ranges) -> float:
    """Return the fraction of the space's values, on the cells' attributes, that ranges contain."""
    below = []
    for axis, edges in zip(cells.axes, cells.edges, strict=True):
        sums = np.append(0.0, np.cumsum(weights_of(space.attributes[axis], edges)))
        below.append(sums / sums[-1])
    sum_at = frozen(np.cumsum([0, *map(len, below)]), np.int64)
    flat = frozen(np.concatenate(below), np.float64)
    starts, ends = (frozen(side, np.uint64) for side in ranges)
    out = np.empty(len(ranges))
    weight_of_ranges(starts, ends, cells.bits, flat, sum_at, out)
    share = float(out.sum())
    return share if share < 1 - _ROUNDING else 1.0  # all of it, but for the rounding of the sums


def weights_of(attribute: Attribute, edges: F64) -> F64:
    """Return the weight of each cell except that of missing values, which is last."""
    lo, hi = attribute.domain
    if isinstance(attribute, String):
        words = np.append(np.arange(float(len(attribute.vocabulary))), hi)
        counts = np.bincount(np.searchsorted(edges, words, "right"), minlength=len(edges) + 1)
        return counts.astype(np.float64)
    begins, ends = np.append(-MAX, edges), np.append(edges, np.inf)  # an end isn't in its cell
    if lo > -MAX and hi < MAX and lo < hi:
        if isinstance(attribute, Number):
            return np.asarray(np.clip(ends, lo, hi) / 2 - np.clip(begins, lo, hi) / 2)
        begins, ends = (np.clip(np.ceil(side), lo, hi + 1) for side in (begins, ends))
        return np.asarray(ends - begins)
    return ((begins <= hi) & (ends > lo)).astype(np.float64)
