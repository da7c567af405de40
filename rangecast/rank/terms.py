"""Boxes by what they mention: the ranges of a box side by side, to look at it as a whole."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.jit import jit
from rangecast.model.boxes import Boxes, Floats, Rows, frozen
from rangecast.rank.result import Longs


class Terms(NamedTuple):
    """Box b mentions the attributes axis[t], t from first[b] to before first[b + 1], ascending."""

    first: Longs
    axis: Rows
    lo: Floats
    hi: Floats


def terms_of(boxes: Boxes) -> Terms:
    """Return the terms of all boxes."""
    mentioned = boxes.mentioned
    box, axis = np.nonzero(mentioned)
    return Terms(
        frozen(np.concatenate([[0], np.cumsum(mentioned.sum(axis=1))]), np.int64),
        frozen(axis, np.int32),
        frozen(boxes.lo[box, axis], np.float64),
        frozen(boxes.hi[box, axis], np.float64),
    )


@jit
def holds(terms: Terms, box: int, above: Floats, below: Floats) -> bool:
    """Whether a box holds an event: lo <= above and below <= hi on all it mentions."""
    for term in range(terms.first[box], terms.first[box + 1]):
        axis = terms.axis[term]
        if not ((terms.lo[term] <= above[axis]) & (below[axis] <= terms.hi[term])):
            return False
    return True
