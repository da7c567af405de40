"""The grid of a summary: the cells of a few attributes, and the index of a point on the curve.

An axis has up to 2^bits cells (a million at most), cut at edges by `kernels/grid.py`: the first and
the last reach to the ends of the line, so a value outside the domain has a cell, and a missing
value has one of its own. Only if a discrete attribute has exactly 2^bits values does the missing
one share the cell of the largest: then nothing is lost, a little more is let through. Cells that
are left over go with the missing value: a box that holds it holds them, so that an attribute which
isn't mentioned is the whole axis, and the whole space is one range.

Cells of equal size need the domain of an attribute; cells at quantiles of publications are small
where publications are many, so that the parts of boundary cells that no subscription asked for
hold few of them (paper 004, section 6.3). `moved` says how far later publications are from those
that the cells were made for.

A client that holds the cells makes the same ranges as the broker (section 6.1); `digest` tells
whether two sides hold the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64, U32, U64, AnyArray
from rangecast.kernels.curves.hilbert import axes_by_selectivity, check_curve, index_of, turns_of
from rangecast.kernels.grid import MAX, edges_of_bounds, write_cells
from rangecast.kernels.jit import jit
from rangecast.model.attributes.base import Attribute, Number
from rangecast.model.attributes.residuals import Residual
from rangecast.model.attributes.text import String
from rangecast.model.boxes import Boxes, frozen
from rangecast.model.space import Space
from rangecast.model.validation.inputs import as_boxes

_MAX_EDGES = (1 << 20) - 2
"""Maximum edges of an attribute: they are stored one by one, and more would take more memory than a
table.
"""
_BLOCK = 4096


@jit
def cells_of_points(
    points: F64, axes: I64, edges: F64, edge_at: I64, top: np.uint64, out: U64
) -> None:
    """Write the cells (n, axes) of points (n, d); numbers beyond `top` become `top`."""
    column = np.empty(len(points), np.int32)
    for i in range(len(axes)):
        write_cells(edges[edge_at[i] : edge_at[i + 1]], points[:, axes[i]], column)
        for row in range(len(points)):
            out[row, i] = min(np.uint64(column[row]), top)


@jit
def places_of_points(
    points: F64,
    axes: I64,
    edges: F64,
    edge_at: I64,
    bits: int,
    turns: U32,
    cells: U64,
    out: U64,
) -> None:
    """Write the index of each point on the curve; `cells` is working memory for a block."""
    top = np.uint64(0xFFFF_FFFF_FFFF_FFFF) >> np.uint64(64 - bits)
    for begin in range(0, len(points), len(cells)):
        block = points[begin : begin + len(cells)]
        cells_of_points(block, axes, edges, edge_at, top, cells)
        for row in range(len(block)):
            out[begin + row] = index_of(cells[row], bits, turns)


@dataclass(frozen=True, eq=False)
class Cells:
    """A grid over some attributes of a space, made by `uniform`, `quantiles` or `bounds`."""

    axes: tuple[int, ...]
    bits: int
    edges: tuple[F64, ...]
    sample: tuple[F64, ...] | None = None
    """By axis: the share of the sampled events below each edge, if the cells were made
    from some.
    """

    def __reduce__(self) -> tuple[type[Cells], tuple[object, ...]]:
        return Cells, (self.axes, self.bits, self.edges, self.sample)  # nothing that is cached

    @classmethod
    def uniform(cls, space: Space, bits: int, attributes: Sequence[str] | None = None) -> Cells:
        """Return cells of equal size, one for each value where a domain has few enough.

        A number without a domain gets cells that grow with its magnitude: correct, but coarse.
        """
        axes = axes_of(space, attributes)
        check_curve(len(axes), bits)
        return cls(axes, bits, tuple(_uniform(space.attributes[axis], bits) for axis in axes))

    @classmethod
    def quantiles(
        cls, space: Space, bits: int, points: F64, attributes: Sequence[str] | None = None
    ) -> Cells:
        """Return cells that each contain about the same number of these events, (events, d)."""
        axes = axes_of(space, attributes)
        check_curve(len(axes), bits)
        edges = tuple(_quantiles(points[:, axis], bits) for axis in axes)
        below = (_below(own, points[:, axis]) for own, axis in zip(edges, axes, strict=True))
        return cls(axes, bits, edges, tuple(below))

    @classmethod
    def bounds(
        cls, space: Space, bits: int, boxes: Boxes, attributes: Sequence[str] | None = None
    ) -> Cells:
        """Return cells whose edges are at the bounds of these subscriptions."""
        axes = axes_of(space, attributes)
        check_curve(len(axes), bits)
        bounds = (
            edges_of_bounds(boxes.lo[:, i], boxes.hi[:, i], _max_edges(bits) + 2) for i in axes
        )
        return cls(axes, bits, tuple(frozen(edges, np.float64) for edges in bounds))

    @classmethod
    def chosen(
        cls, space: Space, bits: int, attributes: Sequence[str] | None, cells: Cells | None
    ) -> Cells:
        """Return the given cells, or uniform ones, from the options of a summary."""
        if cells is None:
            return cls.uniform(space, bits, attributes)
        if attributes is not None:
            raise UsageError("give either attributes or cells, which already have attributes")
        cells.check(space)
        return cells

    def check(self, space: Space) -> None:
        """Reject a space that lacks the attributes of the cells."""
        if max(self.axes) >= len(space):
            raise UsageError(
                f"the cells belong to another space: they divide attribute {max(self.axes)}, "
                "counted "
                f"from 0, of {space}\n  hint: create them with this space"
            )

    @property
    def width(self) -> int:
        """Bits of an index on the curve."""
        return len(self.axes) * self.bits

    @property
    def top(self) -> np.uint64:
        """The last index of the curve."""
        return np.uint64((1 << self.width) - 1)

    def arrays(self) -> dict[str, AnyArray]:
        """Return the cells as plain arrays, for a snapshot."""
        _, edges, edge_at = self._flat
        arrays = {"axes": np.array(self.axes), "bits": np.array([self.bits])}
        arrays |= {"edges": edges, "edge_at": edge_at}
        if self.sample is not None:
            arrays["sample"] = np.concatenate(self.sample)
        return arrays

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, AnyArray]) -> Cells:
        """Return the cells from the result of `arrays`."""
        cuts = arrays["edge_at"][1:-1]

        def by_axis(flat: F64) -> tuple[F64, ...]:
            return tuple(frozen(own, np.float64) for own in np.split(flat, cuts))

        sample = by_axis(arrays["sample"]) if "sample" in arrays else None
        axes = tuple(arrays["axes"].tolist())
        return cls(axes, int(arrays["bits"][0]), by_axis(arrays["edges"]), sample)

    @cached_property
    def digest(self) -> str:
        """Hash of the cells."""
        sha = hashlib.sha256(repr((self.axes, self.bits)).encode())
        for own in self.edges:
            sha.update(own.tobytes() + b"/")
        return sha.hexdigest()[:16]

    @cached_property
    def _flat(self) -> tuple[I64, F64, I64]:
        sizes = [len(own) for own in self.edges]
        edge_at = frozen(np.concatenate([[0], np.cumsum(sizes)]), np.int64)
        return frozen(self.axes, np.int64), frozen(np.concatenate(self.edges), np.float64), edge_at

    def cells(self, points: F64) -> U64:
        """Return the cells (n, axes) of points (n, d)."""
        out = np.empty((len(points), len(self.axes)), np.uint64)
        cells_of_points(_fixed(points), *self._flat, np.uint64((1 << self.bits) - 1), out)
        return out

    def spans(self, lo: F64, hi: F64) -> tuple[U64, U64]:
        """Return the first and the last cells (n, axes) of boxes (n, d)."""
        last = self.cells(hi)
        last[np.isposinf(hi[:, list(self.axes)])] = np.uint64((1 << self.bits) - 1)
        return self.cells(lo), last

    def places(self, points: F64) -> U64:
        """Return the indexes of points (n, d) on the curve."""
        out = np.empty(len(points), np.uint64)
        block = np.empty((min(len(points), _BLOCK) or 1, len(self.axes)), np.uint64)
        turns = turns_of(len(self.axes))
        places_of_points(_fixed(points), *self._flat, self.bits, turns, block, out)
        return out

    def moved(self, points: F64) -> float:
        """Return how far the events have shifted since the cells were made, from 0 to 1.

        It is the largest change, over all edges, of the share of events below the edge.
        """
        if self.sample is None:
            raise UsageError("these cells weren't made from publications; use Cells.quantiles")
        if not len(points):
            return 0.0
        return max(
            float(np.abs(_below(edges, points[:, axis]) - before).max(initial=0.0))
            for axis, edges, before in zip(self.axes, self.edges, self.sample, strict=True)
        )


def axes_of(space: Space, attributes: Sequence[str] | None) -> tuple[int, ...]:
    """Return the axes of some attributes, of all by default.

    Shapes, arithmetic and patterns are summarized by their bounding ranges: they are not axes.
    """
    places = {attribute.name for attribute in space if isinstance(attribute, Residual)}
    if attributes is None:
        names = tuple(name for name in space.names if name not in places)
    else:
        names = tuple(attributes)
    if isinstance(attributes, str) or not names or len(set(names)) < len(names):
        raise UsageError(f"attributes must be a list of distinct names; given: {attributes!r}")
    axes = tuple(space.axis(name) for name in names)
    if chosen := sorted(places.intersection(names)):
        declared = space[chosen[0]]
        assert isinstance(declared, Residual)
        coordinates = " and ".join(repr(axis.name) for axis in declared.coordinates)
        if not coordinates:
            raise UsageError(
                f"{declared.name!r} is {declared.type}, which has no ranges: leave it out"
            )
        raise UsageError(
            f"{declared.name!r} is a {declared.type}: name its coordinates, {coordinates}"
        )
    return axes


def chosen_attributes(
    subscriptions: Any, space: Space, most: int, events: F64 | None = None
) -> tuple[str, ...]:
    """Return the most selective attributes, the best first.

    Selectivity is measured on events (m, d), or on the bounds of the subscriptions.
    """
    if not 1 <= most <= len(space):
        raise UsageError(
            f"a summary takes 1 to {len(space)} attributes of this space; given: {most}"
        )
    boxes = as_boxes(subscriptions, space)
    order = axes_by_selectivity(boxes.lo, boxes.hi, events)
    names = (
        space.names[axis] for axis in order if not isinstance(space.attributes[axis], Residual)
    )
    return tuple(islice(names, most))


def _fixed(points: F64) -> F64:
    """Return points as kernels take them: contiguous and read-only."""
    fixed = np.ascontiguousarray(points, np.float64).view()
    fixed.flags.writeable = False
    return fixed


def _max_edges(bits: int) -> int:
    """Return the maximum number of edges that leaves a separate cell for a missing value."""
    return min((1 << bits) - 2, _MAX_EDGES)


def _uniform(attribute: Attribute, bits: int) -> F64:
    lo, hi = attribute.domain
    most = _max_edges(bits)
    if isinstance(attribute, String):  # words by their number, all others together
        edges = np.append(np.arange(1.0, most), MAX)[: max(most, 1)]
    elif lo == -MAX or hi == MAX:
        powers = 2.0 ** np.linspace(-10, 60, max(most, 2) // 2)
        edges = np.concatenate([-powers[::-1], [0.0], powers])
        edges = edges[(edges > lo) & (edges <= hi)]
        edges = edges[np.linspace(0, len(edges) - 1, min(most, len(edges))).astype(np.int64)]
    elif not isinstance(attribute, Number) and hi - lo <= most + 1:
        edges = np.arange(lo + 1, hi + 1)
    else:
        share = np.arange(1, most + 1) / (most + 1)
        edges = lo * (1 - share) + hi * share
        if not isinstance(attribute, Number):
            edges = np.ceil(edges)
    return frozen(np.unique(edges), np.float64)


def _quantiles(values: F64, bits: int) -> F64:
    """Return edges between cells that minimize the load of the fullest one.

    Plain quantiles would waste edges on a frequent value, which needs only one cell.
    """
    distinct, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    most = _max_edges(bits)
    if len(distinct) <= most:
        return frozen(distinct, np.float64)
    before = np.concatenate([[0], np.cumsum(counts)])
    first = np.empty(most, np.int64)
    low, high = 0, int(before[-1])  # too little and enough room in a cell
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fill_cells(before, middle, first) else (middle, high)
    _fill_cells(before, high, first)
    return frozen(np.unique(distinct[first]), np.float64)


@jit
def _fill_cells(before: I64, room: int, first: I64) -> bool:
    """Put values into cells with a bounded number of events, or a single value.

    Writes the first value of each cell after the lowest one; returns whether the cells suffice.
    """
    begin = 0
    for cell in range(len(first)):
        begin = max(begin + 1, np.searchsorted(before, before[begin] + room, side="right") - 1)
        if begin >= len(before) - 1:
            first[cell:] = first[cell - 1] if cell else 0
            return True
        first[cell] = begin
    return bool(before[-1] - before[begin] <= room)


def _below(edges: F64, values: F64) -> F64:
    return frozen(np.searchsorted(np.sort(values), edges) / max(len(values), 1), np.float64)
