"""Stripes of longitude of a polygon with geodesic edges: each lists the edges that may meet it.

A point is located by a ray along its meridian, so only the edges matter that reach its longitude. A
stripe is wider than rounding moves a longitude, and edges are listed 1e-9 degrees beyond their
ends, so no edge is missing. Edges of half a turn, whose side isn't certain, are in every stripe.

    hulls   (3 numbers)        least longitude of all corners, width, stripes per degree
    cells   (stripes + 1,)     first edge of a stripe in the list
    listed  (edges,)           corner at which an edge starts
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.jit import jit
from rangecast.model.shapes.verification.grids import GRID

_SLACK = 1e-9
_HALF_TURN = 180.0 - 1e-6
_EDGES, _MAX_STRIPES = 2, 1 << 16
"""Edges for each stripe, and the greatest number of stripes."""
_MAX_ENTRIES = 12
"""Entries of lists per edge, on average, at most."""


class Stripes(NamedTuple):
    """Stripes of one polygon."""

    hull: F64
    cells: I32
    listed: I32


@jit
def stripe_at(hulls: Any, hull: int, stripes: int, x: float) -> int:
    """Return the stripe of a longitude; -1: none, as no edge reaches it."""
    along = (x - hulls[hull]) % 360.0
    if along > hulls[hull + 1]:
        return -1
    return int(min(along * hulls[hull + 2], stripes - 1.0))


@jit
def _stripes_met(hull: F64, stripes: int, x1: float, x2: float) -> tuple[int, int]:
    """Return the first stripe of an edge, and how many it meets, beyond the last from the first."""
    if abs(x2 - x1) >= _HALF_TURN:
        return 0, stripes
    low, high = min(x1, x2) - _SLACK - hull[0], max(x1, x2) + _SLACK - hull[0]
    first, last = int(np.floor(low * hull[2])), int(np.floor(high * hull[2]))
    return first, min(last - first + 1, stripes)


@jit
def _fill(xs: F64, edges: I64, hull: F64, stripes: int, counts: I64, ends: I64, listed: I32) -> int:
    """Count the edges of each stripe, and list them before `ends`; return how many there are."""
    entries = 0
    for e in edges:
        first, met = _stripes_met(hull, stripes, xs[e], xs[e + 1])
        for number in range(first, first + met):
            stripe = number % stripes
            counts[stripe] += 1
            if len(listed):
                listed[ends[stripe] - counts[stripe]] = e
            entries += 1
    return entries


def stripes_of(corners: F64, edges: I64) -> Stripes:
    """Return the stripes of a polygon, given its corners, (n, 2), and the start of each edge.

    The longitudes of a ring are continuous: they go on beyond 180.
    """
    xs = corners[:, 0].copy()
    low, high = float(xs.min()) - 2 * _SLACK, float(xs.max()) + 2 * _SLACK
    is_round = high - low >= 360.0 or bool((abs(np.diff(xs)[edges]) >= _HALF_TURN).any())
    width = 360.0 if is_round else high - low
    stripes = min(max(len(edges) // _EDGES, 1), _MAX_STRIPES)
    hull, none = np.zeros(GRID), np.zeros(0, np.int32)
    while True:
        hull[:3] = low, width, stripes / width
        counts = np.zeros(stripes, np.int64)
        entries = _fill(xs, edges, hull, stripes, counts, counts, none)
        if stripes == 1 or entries <= _MAX_ENTRIES * len(edges):
            break
        stripes //= 2
    ends, listed = np.cumsum(counts), np.empty(entries, np.int32)
    _fill(xs, edges, hull, stripes, np.zeros(stripes, np.int64), ends, listed)
    return Stripes(hull, np.append(0, ends).astype(np.int32), listed)
