"""Ranges in UTF-8 order that text conditions imply, over which an index is built."""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.model.attributes.patterns import Patterns
from rangecast.model.space import Space
from rangecast.model.text.conditions import bounds_of


def narrow(space: Space, lo: F64, hi: F64) -> None:
    """Narrow boxes, (boxes, d), in place, by their text conditions.

    A box whose own range excludes all matching texts is empty and stays unchanged.
    """
    for axis in space.patterns.values():
        attribute = space.attributes[axis]
        assert isinstance(attribute, Patterns)
        mentioned = np.flatnonzero(lo[:, axis] > -np.inf)
        if not len(mentioned):
            continue
        known, at = np.unique(lo[mentioned, axis], return_inverse=True)
        bounds = [bounds_of(attribute, attribute.literal(code)) for code in known.tolist()]
        lows, highs = np.array(bounds)[at].T
        order = space.axis(f"{attribute.of} order")
        lows, highs = (
            np.maximum(lo[mentioned, order], lows),
            np.minimum(hi[mentioned, order], highs),
        )
        valid = lows <= highs
        lo[mentioned[valid], order], hi[mentioned[valid], order] = lows[valid], highs[valid]
