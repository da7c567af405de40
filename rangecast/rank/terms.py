"""Boxes by what they mention: the ranges of a box side by side, to look at it as a whole."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.model.boxes import Boxes, frozen


class Terms(NamedTuple):
    """Box b mentions the attributes axis[t], t from first[b] to before last[b], ascending."""

    first: I64
    last: I64
    axis: I32
    lo: F64
    hi: F64


def terms_of(boxes: Boxes) -> Terms:
    """Return the terms of all boxes."""
    mentioned = boxes.mentions
    box, axis = np.nonzero(mentioned)
    counts = mentioned.sum(axis=1)
    ends = np.cumsum(counts)
    return Terms(
        frozen(ends - counts, np.int64),
        frozen(ends, np.int64),
        frozen(axis, np.int32),
        frozen(boxes.lo[box, axis], np.float64),
        frozen(boxes.hi[box, axis], np.float64),
    )
