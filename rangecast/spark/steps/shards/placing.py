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

from rangecast.kernels.arrays import F64, I32, I64, offsets_of, readonly
from rangecast.kernels.grid import write_cells
from rangecast.kernels.jit import jit
from rangecast.model.boxes import Boxes
from rangecast.spark.subscriptions.packed_boxes import RowBoxes

_BOUNDS = 2048
"""Bounds of an attribute that are kept, to count by."""
_FEW_BOUNDS, _FEW_SHARDS = 255, 32
"""For up to 32 shards, 255 bounds suffice, and are faster to look up."""
_CHUNK = 4096
"""Subscriptions whose bounds are counted at a time."""
_HELPS = 0.75
"""The work that a cut must leave, of that of the part; where two halves don't overlap it is 0.5."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHARD, _HALVES, _BY_AXIS = range(3)
"""Kinds of nodes: their fields are the number and the count of shards; the attribute and the place
of the cut; the number of attributes. Children follow: the lower and the upper half, or one for each
attribute."""


class _Bounds(NamedTuple):
    """Bounds of each attribute j, ascending: values[begins[j]:begins[j + 1]]."""

    values: F64
    begins: I64


class _Ranks(NamedTuple):
    """Hulls of subscriptions (n, d), counted in bounds: where they begin and end."""

    first: I64
    last: I64

    def of(self, rows: I64) -> _Ranks:
        return _Ranks(self.first[rows], self.last[rows])

    def middles(self, axis: int) -> I64:
        return self.first[:, axis] + self.last[:, axis]

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

    bounds: _Bounds
    nodes: I64
    """(nodes, 3) the parts: the kind and two fields of each."""
    children: I64
    """(nodes + 1,) where those of each begin in `below`."""
    below: I64
    """Nodes."""
    shards: int

    def shards_of(self, lo: F64, hi: F64, deal: I64) -> I64:
        """Return the shard of each hull (n, d) of a subscription's boxes.

        `deal`, any number of the subscription itself, decides where nothing tells them apart.
        """
        shards = np.empty(len(lo), np.int64)
        mixed = ((deal.astype(np.uint64) * _MIX) >> np.uint64(33)).astype(np.int64)
        _place(
            readonly(lo),
            readonly(hi),
            readonly(mixed),
            readonly(self.bounds.values),
            readonly(self.bounds.begins),
            readonly(self.nodes),
            readonly(self.children),
            readonly(self.below),
            shards,
        )
        return shards

    def sorted_rows(self, shards: I64) -> I64:
        """Return rows by their shards, those of one shard ascending."""
        small = shards.astype(np.min_scalar_type(self.shards))  # 16 bits get a radix sort
        rows: I64 = np.argsort(small, kind="stable")
        return rows


@jit
def _place(
    lo: F64,
    hi: F64,
    deal: I64,
    values: F64,
    begins: I64,
    nodes: I64,
    children: I64,
    below: I64,
    shards: I64,
) -> None:
    """Write the shard of each hull (n, d): from part to part, as its bounds say."""
    d = lo.shape[1]
    cuts = np.zeros(d, np.bool_)  # whether an attribute is looked at
    for node in range(len(nodes)):
        if nodes[node, 0] == _HALVES:
            cuts[nodes[node, 1]] = True
        elif nodes[node, 0] == _BY_AXIS:
            cuts[:] = True
    first, last = np.empty((d, _CHUNK), np.int32), np.empty((d, _CHUNK), np.int32)
    for begin in range(0, len(lo), _CHUNK):
        end = min(begin + _CHUNK, len(lo))
        for j in range(d):
            if cuts[j]:
                known = values[begins[j] : begins[j + 1]]
                _write_ranks(known, lo[begin:end, j], hi[begin:end, j], first[j], last[j])
        for i in range(end - begin):
            node = 0
            while nodes[node, 0] != _SHARD:
                chosen = 0
                if nodes[node, 0] == _HALVES:
                    j = nodes[node, 1]
                    chosen = int(first[j, i] + last[j, i] >= nodes[node, 2])
                else:
                    for j in range(d):
                        if last[j, i] - first[j, i] < last[chosen, i] - first[chosen, i]:
                            chosen = j
                node = below[children[node] + chosen]
            shards[begin + i] = nodes[node, 1] + deal[begin + i] % nodes[node, 2]


@jit
def _write_ranks(bounds: F64, lo: F64, hi: F64, first: I32, last: I32) -> None:
    """Write ranges counted in bounds; one that isn't mentioned is wider than all bounds."""
    before = np.empty(len(lo))
    for i in range(len(lo)):
        before[i] = np.nextafter(lo[i], -np.inf)
    write_cells(bounds, before, first)
    write_cells(bounds, hi, last)
    for i in range(len(lo)):
        last[i] = min(last[i], len(bounds))
        if lo[i] == -np.inf and hi[i] == np.inf:
            first[i], last[i] = -1, _BOUNDS + 1


def _flat(whole: _Part, dimensions: int) -> tuple[I64, I64, I64]:
    """Return the nodes of a part, the part itself first; where their children begin; these."""
    nodes: list[tuple[int, int, int]] = []
    children: list[list[int]] = []

    def add(part: _Part) -> int:
        number = len(nodes)
        children.append([])
        if isinstance(part, _Shard):
            nodes.append((_SHARD, part.number, part.shards))
        elif isinstance(part, _Halves):
            nodes.append((_HALVES, part.axis, part.place))
            children[number] = [add(part.lower), add(part.upper)]
        else:
            nodes.append((_BY_AXIS, dimensions, 0))
            others = add(part.others)
            found = {axis: add(one) for axis, one in part.parts.items()}
            children[number] = [found.get(axis, others) for axis in range(dimensions)]
        return number

    add(whole)
    below = np.array([node for some in children for node in some], np.int64)
    return np.array(nodes, np.int64), offsets_of([*map(len, children)]), below


def plan_shards(sample: Boxes, wanted: int) -> ShardAssignment:
    """Plan about `wanted` shards from a sample of the subscriptions."""
    lo, hi = hulls(RowBoxes(sample.lo, sample.hi, np.diff(sample.box_offsets)))
    values = [np.concatenate([lo[:, axis], hi[:, axis]]) for axis in range(sample.dimensions)]
    samples = [_evenly_spaced(np.sort(value[np.isfinite(value)]), wanted) for value in values]
    bounds = _Bounds(np.concatenate(samples), offsets_of([*map(len, samples)]))
    ranks = _ranks(bounds, lo, hi)
    whole, shards = _cut(ranks, max(1, wanted), 0, mixed=True)
    return ShardAssignment(bounds, *_flat(whole, sample.dimensions), shards)


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
        rows = np.flatnonzero(axes == axis)
        share = max(1, round(wanted * len(rows) / len(axes)))
        parts[axis], number = _cut(ranks.of(rows), share, number, mixed=False)
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


def _ranks(bounds: _Bounds, lo: F64, hi: F64) -> _Ranks:
    """Return hulls counted in bounds."""
    first, last = (np.empty(lo.shape, np.int32, order="F") for _ in range(2))
    for axis in range(lo.shape[1]):
        known = bounds.values[bounds.begins[axis] : bounds.begins[axis + 1]]
        ends = readonly(known), readonly(lo[:, axis]), readonly(hi[:, axis])
        _write_ranks(*ends, first[:, axis], last[:, axis])
    return _Ranks(first.astype(np.int64), last.astype(np.int64))


def hulls(boxes: RowBoxes) -> tuple[F64, F64]:
    """Return the hull of each row's boxes; without boxes, the whole space."""
    if (boxes.sizes == 1).all():
        return boxes.lo, boxes.hi
    shape = len(boxes.sizes), boxes.lo.shape[1]
    lo, hi = np.full(shape, -np.inf), np.full(shape, np.inf)
    nonempty = boxes.sizes > 0
    if nonempty.any():
        begins = (np.cumsum(boxes.sizes) - boxes.sizes)[nonempty]
        lo[nonempty] = np.minimum.reduceat(boxes.lo, begins)
        hi[nonempty] = np.maximum.reduceat(boxes.hi, begins)
    return lo, hi


def _evenly_spaced(values: F64, shards: int) -> F64:
    """Return evenly spaced elements of ascending values, a few hundred for a few shards."""
    count = _FEW_BOUNDS if shards <= _FEW_SHARDS else _BOUNDS
    if len(values) <= count:
        return values
    return values[np.arange(count) * len(values) // count]
