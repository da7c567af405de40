"""Which shard a subscription goes to: near its like on the attribute that it is narrowest on.

Each subscription is put on one attribute, the one on which the fewest bounds of a sample lie within
its boxes, at the middle of these bounds. The subscriptions of an attribute are cut into shards of
about equal size. So the hull of a shard is short on its attribute, and most events lie outside the
hulls of most shards, also where boxes mention few of many attributes. Attributes with few
subscriptions, and those that mention nothing, share shards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.model.boxes import Boxes

_EDGES = 2048
"""Bounds of an attribute that are kept, to measure by."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_OWN = 0.5
"""The part of a shard that an attribute must fill to have shards of its own."""


class Placing(NamedTuple):
    """How subscriptions are dealt out to shards."""

    bounds: tuple[F64, ...]
    """Of each attribute, ascending."""
    own: I64
    """The group of each attribute: 0 is shared, others have shards of their own."""
    starts: F64
    """The places where shards begin, but the first: the group, and a part of 1 within it."""

    @property
    def shards(self) -> int:
        """How many there are."""
        return len(self.starts) + 1

    def shards_of(self, lo: F64, hi: F64, deal: I64) -> I64:
        """Return the shard of each hull (n, d) of a subscription's boxes.

        Where very many lie at one place, several shards begin there: `deal`, any number of the
        subscription itself, decides among them.
        """
        places = self._places(lo, hi)
        first = np.searchsorted(self.starts, places, "left")
        last = np.searchsorted(self.starts, places, "right")
        mixed = (deal.astype(np.uint64) * _MIX) >> np.uint64(33)
        return first + (mixed % (last - first + 1).astype(np.uint64)).astype(np.int64)

    def _places(self, lo: F64, hi: F64) -> F64:
        narrowest = np.full(len(lo), np.inf)
        axes, middle = np.zeros(len(lo), np.int64), np.zeros(len(lo))
        for axis, bounds in enumerate(self.bounds):
            mentioned = (lo[:, axis] > -np.inf) | (hi[:, axis] < np.inf)
            first = np.searchsorted(bounds, lo[:, axis], "left")
            last = np.searchsorted(bounds, hi[:, axis], "right")
            width = np.where(mentioned, (last - first) / max(1, len(bounds)), np.inf)
            closer = width < narrowest
            narrowest[closer], axes[closer] = width[closer], axis
            middle[closer] = ((first + last) / (2 * max(1, len(bounds))))[closer]
        group = np.where(np.isinf(narrowest), 0, self.own[axes])
        # In the shared group by attribute, and no place is that of the next group.
        shared = (axes + middle) / len(self.bounds)
        return group + np.minimum(np.where(group == 0, shared, middle), 1 - 2**-20)


def place(sample: Boxes, wanted: int) -> Placing:
    """Return a placing into about this many shards, by a sample of the subscriptions."""
    lo, hi = hulls(sample)
    values = [np.concatenate([lo[:, axis], hi[:, axis]]) for axis in range(sample.dimensions)]
    bounds = tuple(_some(np.sort(each[np.isfinite(each)])) for each in values)
    alone = Placing(bounds, np.arange(1, sample.dimensions + 1), np.empty(0))
    groups = np.floor(alone._places(lo, hi)).astype(np.int64)
    share = np.bincount(groups, minlength=sample.dimensions + 1) * wanted / max(1, len(groups))
    has_own = share[1:] >= _OWN
    placing = alone._replace(own=np.where(has_own, np.arange(1, sample.dimensions + 1), 0))
    places = np.sort(placing._places(lo, hi))
    starts: list[float] = []
    for group in np.unique(np.floor(places)).tolist():
        some = places[np.floor(places) == group]
        parts = max(1, round(len(some) * wanted / len(places)))
        starts += [group, *some[np.arange(1, parts) * len(some) // parts].tolist()]
    return placing._replace(starts=np.array(starts[1:]))


def hulls(boxes: Boxes) -> tuple[F64, F64]:
    """Return the hull of the boxes of each subscription; of none, everything."""
    lo = np.full((boxes.rows, boxes.dimensions), -np.inf)
    hi = np.full((boxes.rows, boxes.dimensions), np.inf)
    begins, ends = boxes.box_offsets[:-1], boxes.box_offsets[1:]
    some = begins < ends
    if some.any():
        lo[some] = np.minimum.reduceat(boxes.lo, begins[some])
        hi[some] = np.maximum.reduceat(boxes.hi, begins[some])
    return lo, hi


def _some(values: F64) -> F64:
    """Return at most `_EDGES` of ascending values, evenly spread."""
    if len(values) <= _EDGES:
        return values
    return values[np.arange(_EDGES) * len(values) // _EDGES]
