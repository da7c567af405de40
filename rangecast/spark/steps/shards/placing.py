"""Assign similar subscriptions to the same shard, so that the hulls of shards overlap little.

A sample of the subscriptions is cut in two, and each part again, until there are enough parts. A
part of an even number of shards is cut at the median of one attribute, one of three shards at a
third of them, and so on: so all shards are of about the same size. The attribute is the one on
which the hulls of both parts are then the shortest. Where that hardly helps, as some of its
subscriptions don't mention the attribute, the part is first dealt out by attribute: each
subscription goes with those that are narrowest on the same one. So an event lies in the hulls of
few shards, also where boxes mention few of many attributes.

Places are counted in bounds of the sample, never measured in coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.kernels.grid import cells_of
from rangecast.model.boxes import Boxes
from rangecast.spark.subscriptions.packed_boxes import RowBoxes

_BOUNDS = 2048
"""Bounds of an attribute that are kept, to count by."""
_HELPS = 0.75
"""The work that a cut must leave, of that of the part; where two halves don't overlap it is 0.5."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


class _Ranks(NamedTuple):
    """Hulls of subscriptions (n, d), counted in bounds: where they begin and end."""

    first: I64
    last: I64

    def of(self, rows: I64) -> _Ranks:
        return _Ranks(self.first[rows], self.last[rows])

    def middles(self, axis: int) -> I64:
        return self.first[:, axis] + self.last[:, axis]

    def middles_of(self, rows: I64, axis: int) -> I64:
        return self.first[:, axis][rows] + self.last[:, axis][rows]

    def narrowest(self) -> I64:
        """Return the attribute on which each holds the fewest bounds."""
        axes: I64 = np.argmin(self.last - self.first, axis=1)
        return axes


@dataclass(frozen=True)
class _Shard:
    """A part that is one shard, or several that are dealt out, where nothing tells them apart."""

    number: int
    shards: int


@dataclass(frozen=True)
class _Halves:
    """Part that is cut at a value of one attribute."""

    axis: int
    place: int
    """The least sum of both ends that belongs to the upper half."""
    lower: _Part
    upper: _Part


@dataclass(frozen=True)
class _ByAxis:
    """Part whose subscriptions are grouped by the attribute on which they are narrowest."""

    parts: dict[int, _Part]
    others: _Part
    """For attributes on which no subscription of the sample is narrowest."""


_Part = _Shard | _Halves | _ByAxis
"""Some of the subscriptions, and how they are cut further."""


class ShardAssignment(NamedTuple):
    """Assignment of subscriptions to shards."""

    bounds: tuple[F64, ...]
    """Of each attribute, ascending."""
    whole: _Part
    shards: int

    def shards_of(self, lo: F64, hi: F64, deal: I64) -> I64:
        """Return the shard of each hull (n, d) of a subscription's boxes.

        `deal`, any number of the subscription itself, decides where nothing tells them apart.
        """
        shards = np.empty(len(lo), np.int64)
        mixed = ((deal.astype(np.uint64) * _MIX) >> np.uint64(33)).astype(np.int64)
        _place(self.whole, _ranks(self.bounds, lo, hi), np.arange(len(lo)), mixed, shards)
        return shards

    def sorted_rows(self, shards: I64) -> I64:
        """Return rows by their shards, those of one shard ascending."""
        small = shards.astype(np.min_scalar_type(self.shards))  # 16 bits get a radix sort
        rows: I64 = np.argsort(small, kind="stable")
        return rows


def _place(part: _Part, ranks: _Ranks, rows: I64, deal: I64, shards: I64) -> None:
    """Write the shards of some rows; `ranks`, `deal` and `shards` are those of all rows."""
    if isinstance(part, _Shard):
        shards[rows] = part.number + (deal[rows] % part.shards if part.shards > 1 else 0)
    elif isinstance(part, _Halves):
        upper = ranks.middles_of(rows, part.axis) >= part.place
        for half, wanted in ((part.lower, ~upper), (part.upper, upper)):
            _place(half, ranks, rows[wanted], deal, shards)
    else:
        axes = ranks.of(rows).narrowest()
        for axis in np.unique(axes).tolist():
            _place(part.parts.get(axis, part.others), ranks, rows[axes == axis], deal, shards)


def place(sample: Boxes, wanted: int) -> ShardAssignment:
    """Plan about `wanted` shards from a sample of the subscriptions."""
    lo, hi = hulls(RowBoxes(sample.lo, sample.hi, np.diff(sample.box_offsets)))
    values = [np.concatenate([lo[:, axis], hi[:, axis]]) for axis in range(sample.dimensions)]
    bounds = tuple(_evenly_spaced(np.sort(value[np.isfinite(value)])) for value in values)
    ranks = _ranks(bounds, lo, hi)
    whole, shards = _cut(ranks, max(1, wanted), 0, mixed=True)
    return ShardAssignment(bounds, whole, shards)


def _cut(ranks: _Ranks, wanted: int, number: int, *, mixed: bool) -> tuple[_Part, int]:
    """Cut a part into this many shards; return it, and the number of the next shard.

    mixed whether its subscriptions may be distributed by attribute
    """
    rows = len(ranks.first)
    if wanted < 2 or rows < 2:
        return _Shard(number, wanted), number + wanted
    lower = wanted // 2 / wanted
    halves = [(*_quantile(ranks, axis, lower), axis) for axis in range(ranks.first.shape[1])]
    work, cut, axis = min(halves, key=lambda half: (half[0], half[2]))
    if mixed and work > _HELPS:
        return _cut_by_axis(ranks, wanted, number)
    if work == np.inf:  # all are the same: nothing tells them apart
        return _Shard(number, wanted), number + wanted
    upper = ranks.middles(axis) >= cut
    share = min(wanted - 1, max(1, round(wanted * float((~upper).mean()))))
    below, number = _cut(ranks.of(np.flatnonzero(~upper)), share, number, mixed=mixed)
    above, number = _cut(ranks.of(np.flatnonzero(upper)), wanted - share, number, mixed=mixed)
    return _Halves(axis, cut, below, above), number


def _cut_by_axis(ranks: _Ranks, wanted: int, number: int) -> tuple[_Part, int]:
    """Split a part by the attribute on which each subscription is narrowest."""
    axes = ranks.narrowest()
    parts: dict[int, _Part] = {}
    for axis in np.unique(axes).tolist():
        some = np.flatnonzero(axes == axis)
        share = max(1, round(wanted * len(some) / len(axes)))
        parts[axis], number = _cut(ranks.of(some), share, number, mixed=False)
    return _ByAxis(parts, next(iter(parts.values()))), number


def _quantile(ranks: _Ranks, axis: int, lower: float) -> tuple[float, int]:
    """Return the work that a cut in two leaves, and where to cut; infinite: it can't be.

    lower   the share of subscriptions below the cut

    Work is subscriptions times the length of the hull that they are in.
    """
    middles = ranks.middles(axis)
    cut = int(np.quantile(middles, lower))
    if not (middles < cut).any():
        cut += 1
    upper = middles >= cut
    if upper.all() or not upper.any():
        return np.inf, cut
    first, last = ranks.first[:, axis], ranks.last[:, axis]
    left = sum(
        int(half.sum()) * int(last[half].max() - first[half].min()) for half in (upper, ~upper)
    )
    return left / (len(middles) * max(1, int(last.max() - first.min()))), cut


def _ranks(bounds: tuple[F64, ...], lo: F64, hi: F64) -> _Ranks:
    """Return hulls counted in bounds. What isn't mentioned is wider than all bounds."""
    first, last = (np.empty(lo.shape, np.int64, order="F") for _ in range(2))
    for axis, known in enumerate(bounds):
        with np.errstate(over="ignore"):  # below the lowest double
            first[:, axis] = cells_of(known, np.nextafter(lo[:, axis], -np.inf))
        last[:, axis] = np.minimum(cells_of(known, hi[:, axis]), len(known))
        unmentioned = (lo[:, axis] == -np.inf) & (hi[:, axis] == np.inf)
        first[unmentioned, axis], last[unmentioned, axis] = -1, _BOUNDS + 1
    return _Ranks(first, last)


def hulls(boxes: RowBoxes) -> tuple[F64, F64]:
    """Return the hull of each row's boxes; without boxes, the whole space."""
    if (boxes.sizes == 1).all():
        return boxes.lo, boxes.hi
    shape = len(boxes.sizes), boxes.lo.shape[1]
    lo, hi = np.full(shape, -np.inf), np.full(shape, np.inf)
    some = boxes.sizes > 0
    if some.any():
        begins = (np.cumsum(boxes.sizes) - boxes.sizes)[some]
        lo[some] = np.minimum.reduceat(boxes.lo, begins)
        hi[some] = np.maximum.reduceat(boxes.hi, begins)
    return lo, hi


def _evenly_spaced(values: F64) -> F64:
    """Return at most `_BOUNDS` evenly spaced elements of ascending values."""
    if len(values) <= _BOUNDS:
        return values
    return values[np.arange(_BOUNDS) * len(values) // _BOUNDS]
