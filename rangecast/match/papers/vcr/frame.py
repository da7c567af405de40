"""Where VCRs lie on two attributes: grid points, sections of ids, the table of covering VCRs.

The grid of an attribute: `edges` (e of them, ascending) are its points 1 .. e. Point 0 is the
lowest double, point e + 1 the largest, point e + 2 is {+inf}, the values that events don't have.
A VCR side from x to x + l is the closed range between those two; an event lies on a point, or
past it and before the next. On the integers that is the paper's space, for whole and for real
events. Which point is left of a coordinate, `kernels/grid` says.

The VCRs come in four sections by which axes they take whole: none, y, x, both. Each has its own
ids (equation 1 where both are cut) and its own part of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.kernels.grid import cell_of, cells_of
from rangecast.kernels.jit import jit
from rangecast.match.papers.vcr.rectangles import covering_sides, covering_table
from rangecast.match.shared.candidates import Sample
from rangecast.model.boxes import frozen

_LONGEST_SIDE = 256
"""An event looks at a list for each VCR that covers it: a quarter of a million of them."""
SIDES = f"one or two powers of two up to {_LONGEST_SIDE}, such as 16 or 16x8"
"""Sides that `read_sides` accepts."""


class Frame(NamedTuple):
    """Where VCRs lie: fixed once built."""

    axes: I64
    """The two indexed attributes; the second is -1 if there is one only."""
    edges_x: F64
    edges_y: F64
    rules: I64
    """(kx, ky, overlapped, most pieces of a box)."""
    sections: Annotated[I64, 2]
    """(4, 4) by whole x * 2 + whole y: an id is base + ux (x + Lx) + uy (y + Ly) + uj j + i."""
    ends: I64
    """Where each section's part of the table begins, and the end."""
    distance: I64
    before: Annotated[I64, 2]
    """(table, 2): how far before the point a VCR begins."""
    sides: Annotated[I64, 2]
    """(table, 2): its sides; 0 for a whole axis."""
    apart: Bool
    """Whether all entries of a list at this place are reported by it and no other."""


@jit
def locate(edges: F64, value: float) -> tuple[int, bool]:
    """Return (the last grid point that isn't above a value, whether the value lies past it)."""
    cell = cell_of(edges, value)
    if value == np.inf:
        return cell + 1, False
    return cell, cell == 0 or bool(edges[cell - 1] != value)


def read_sides(text: str) -> tuple[int, int]:
    """Read the largest sides: `16`, or `16x8`."""
    sides = [int(side) if side.isascii() and side.isdigit() else 0 for side in text.split("x")]
    if len(sides) > 2 or not all(map(_is_side, sides)):
        raise ValueError
    return sides[0], sides[-1]


def _is_side(side: int) -> bool:
    return 1 <= side <= _LONGEST_SIDE and side & (side - 1) == 0


def levels_of(sides: tuple[int, int]) -> tuple[int, int]:
    """Return (kx, ky) of the largest sides (Lx, Ly); reject what aren't powers of two."""
    lx, ly = sides
    if not (_is_side(lx) and _is_side(ly)):
        expected = f"two powers of two up to {_LONGEST_SIDE}, such as (16, 8)"
        raise UsageError(f"sides takes {expected}; given: {sides}")
    return lx.bit_length() - 1, ly.bit_length() - 1


def edges_of(edges: Sequence[npt.ArrayLike], axes: int) -> tuple[F64, F64]:
    """Return the edges of two axes, checked; none for an axis that isn't there."""
    frozen_edges = [frozen(axis_edges, np.float64) for axis_edges in edges]
    if len(frozen_edges) != axes:
        raise UsageError(
            f"edges must have an array for each of {axes} axes; given: {len(frozen_edges)}"
        )
    for axis_edges in frozen_edges:
        if not np.isfinite(axis_edges).all() or not (axis_edges[1:] > axis_edges[:-1]).all():
            raise UsageError("edges must be finite and ascending")
    return frozen_edges[0], frozen_edges[1] if axes == 2 else frozen([], np.float64)


def grid_points(edges: F64, values: F64) -> tuple[I64, Bool]:
    """Return `locate` of many values."""
    cells = cells_of(edges, values)
    missing = values == np.inf
    on_edge = np.zeros(len(values), np.bool_)
    inside = (cells > 0) & ~missing
    on_edge[inside] = edges[cells[inside] - 1] == values[inside]
    return cells.astype(np.int64) + missing, ~on_edge & ~missing


def widths_on_grid(sample: Sample, axes: tuple[int, ...], edges: tuple[F64, F64]) -> I64:
    """Return the widths of the sampled boxes on the grid, (boxes, 2); -1 for a whole axis."""
    widths = np.full((len(sample.lo), 2), -1, np.int64)
    for y, axis in enumerate(axes):
        lo, hi = sample.lo[:, axis], sample.hi[:, axis]
        last, past = grid_points(edges[y], hi)
        width = last + past - grid_points(edges[y], lo)[0]
        widths[:, y] = np.where((lo == -np.inf) & (hi == np.inf), -1, width)
    return widths


def frame_of(
    axes: tuple[int, ...],
    edges: tuple[F64, F64],
    levels: tuple[int, int],
    overlapped: bool,
    pieces: int,
) -> Frame:
    """Return the frame for these attributes and edges, largest level and rules of cutting."""
    kx, ky = levels
    width, height = (len(e) + 3 + (1 << k) for e, k in zip(edges, levels, strict=True))
    b = (kx + 1) * (ky + 1)
    core, strips = b * width * height, (kx + 1) * width
    sections = [
        [0, b, b * width, kx + 1],
        [core, kx + 1, 0, 0],
        [core + strips, 0, ky + 1, 1],
        [core + strips + (ky + 1) * height, 0, 0, 0],
    ]
    both = covering_table(kx, ky, width)
    (dx, i), (dy, j) = covering_sides(kx), covering_sides(ky)
    none = np.zeros(1, np.int64)
    along_x, along_y = ((1 << kx) - dx) * (kx + 1) + i, ((1 << ky) - dy) * (ky + 1) + j
    distance = np.concatenate([both.distance, along_x, along_y, none])
    x = np.concatenate([both.dx, dx, 0 * dy, none])
    y = np.concatenate([both.dy, 0 * dx, dy, none])
    side_x = np.concatenate([both.lx, 1 << i, 0 * j, none])
    side_y = np.concatenate([both.ly, 0 * i, 1 << j, none])
    if overlapped:
        apart = (side_x == 0) & (side_y == 0)
    else:
        apart = ((x > 0) | (side_x == 0)) & ((y > 0) | (side_y == 0))
    return Frame(
        frozen([*axes, -1][:2], np.int64),
        *edges,
        frozen([kx, ky, overlapped, pieces], np.int64),
        frozen(sections, np.int64),
        frozen(np.cumsum([0, len(both.dx), len(dx), len(dy), 1]), np.int64),
        frozen(distance, np.int64),
        frozen(np.stack([x, y], axis=1), np.int64),
        frozen(np.stack([side_x, side_y], axis=1), np.int64),
        frozen(apart, np.bool_),
    )
