"""Bounds and values as codes of one byte: a slab number, or one of a few codes for open ends.

An attribute has at most SLABS - 2 edges (see `grid`). A value has a code from 1 to 252, or MISSING;
the codes between are those of bounds that no value touches, so that a side without a finite bound
is never in doubt. If the code of a value lies strictly between those of the bounds, the range holds
it; outside, it doesn't; on one of them, the value itself must be compared, unless all bounds of the
attribute are edges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I64, U8, Bool, offsets_of, readonly
from rangecast.kernels.grid import (
    MAX,
    edges_of_bounds,
    ends_cell,
    starts_cell,
    write_cells,
)
from rangecast.kernels.jit import jit

SLABS = 253
FREE_LO = 0
KNOWN = 253
MISSING = 254
FREE_HI = 255


class Codes(NamedTuple):
    """The codes of all bounds of some boxes, and the edges that define the codes."""

    edges: F64
    """The edges of attribute j are edges[first_edge[j]:first_edge[j + 1]]."""
    first_edge: I64
    lo: U8
    hi: U8
    rough: U8
    """Whether each attribute has a bound inside a slab."""


def codes_of(lo: F64, hi: F64, mentioned: Bool) -> Codes:
    """Return the codes of boxes (n, d); the edges are chosen among the bounds mentioned."""
    n, d = lo.shape
    edges = [
        edges_of_bounds(lo[mentioned[:, j], j], hi[mentioned[:, j], j], SLABS) for j in range(d)
    ]
    codes = Codes(
        readonly(np.concatenate(edges)),
        readonly(offsets_of([*map(len, edges)])),
        *(np.empty(shape, np.uint8) for shape in ((n, d), (n, d), d)),
    )
    _encode_bounds(readonly(lo), readonly(hi), *codes)
    return codes


@jit
def _encode_bounds(
    lo: F64,
    hi: F64,
    edges: F64,
    first_edge: I64,
    lo_codes: U8,
    hi_codes: U8,
    rough: U8,
) -> None:
    """Write the codes of all bounds, and whether each attribute has a bound inside a slab."""
    cells = np.empty((2, len(lo)), np.int32)
    for j in range(lo.shape[1]):
        mine = edges[first_edge[j] : first_edge[j + 1]]
        write_cells(mine, lo[:, j], cells[0])
        write_cells(mine, hi[:, j], cells[1])
        rough[j] = 0
        for i in range(len(lo)):
            low, high = lo[i, j], hi[i, j]
            if low <= -MAX:
                lo_codes[i, j] = FREE_LO
            elif low == np.inf:
                lo_codes[i, j] = KNOWN
            else:
                lo_codes[i, j] = cells[0, i] + 1
                if not rough[j]:
                    rough[j] = not starts_cell(mine, low)
            if high == np.inf:
                hi_codes[i, j] = FREE_HI
            elif high >= MAX:
                hi_codes[i, j] = KNOWN
            elif high == -np.inf:
                hi_codes[i, j] = FREE_LO
            else:
                hi_codes[i, j] = cells[1, i] + 1
                if not rough[j]:
                    rough[j] = not ends_cell(mine, high)


@jit
def encode_points(edges: F64, first_edge: I64, points: F64, codes: U8) -> None:
    """Write the codes of some events, (events, d)."""
    cells = np.empty(len(points), np.int32)
    for j in range(points.shape[1]):
        mine = edges[first_edge[j] : first_edge[j + 1]]
        write_cells(mine, points[:, j], cells)
        missing = len(mine) + 1
        for e in range(len(points)):
            codes[e, j] = MISSING if cells[e] == missing else cells[e] + 1
