"""Boxes by what they mention: the ranges of a box side by side, to look at it as a whole."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.model.boxes import Boxes, Floats, Rows, frozen
from rangecast.rank.result import Longs


class Terms(NamedTuple):
    """Box b mentions the attributes axis[t], t from first[b] to before last[b], ascending."""

    first: Longs
    last: Longs
    axis: Rows
    lo: Floats
    hi: Floats


def terms_of(boxes: Boxes) -> Terms:
    """Return the terms of all boxes."""
    mentioned = boxes.mentioned
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
