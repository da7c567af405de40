"""Edges of attributes, at quantiles of bounds, and the sort keys of events derived from them.

`cuda/codes.cu` defines codes. Edges affect only the speed, never the result: boxes added later are
coded by the existing edges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U16
from rangecast.kernels.grid import MAX

MAX_FINE = 16381
"""Fine edges of an attribute: codes of 15 bits."""
_KEY_BITS = 8
"""Bits of an attribute in the key of an event, at most."""
_EXTRA_BITS = 4
"""Bits of the key beyond those that number the tiles."""
_LEVELS = 2


class Edges(NamedTuple):
    """Edges of all filed attributes, in the form that kernels take."""

    fine: F64
    first: I32
    """Where each attribute's edges begin."""
    coarse_of: U16
    """The coarse cell of each fine cell, and of a missing value."""
    coarse: I32
    """Number of coarse edges of each attribute."""


class KeyPlan(NamedTuple):
    """Layout of the bits in the sort key of an event."""

    bits: int
    of_attribute: I32
    places: I32


def _ends(lo: F64, hi: F64) -> F64:
    """Return the lower bounds of ranges and the next values after their upper bounds, sorted."""
    starts = lo[(lo > -MAX) & (lo <= MAX)]
    after = np.nextafter(hi[(hi >= -MAX) & (hi < MAX)], np.inf)
    return np.sort(np.concatenate([starts, after]))


def distinct_edges(lo: F64, hi: F64) -> int:
    """Return the number of distinct edges from the bounds of an attribute."""
    return len(np.unique(_ends(lo, hi)))


def _quantiles(values: F64, count: int) -> F64:
    return values[np.arange(1, count + 1) * len(values) // (count + 1)]


def edges_of(bounds: list[tuple[F64, F64]], max_coarse: int) -> Edges:
    """Return the edges of attributes, given the bounds of some boxes on each."""
    fine_edges, first, coarse_of, coarse_counts = [], [0], [], []
    for lo, hi in bounds:
        ends = _ends(lo, hi)
        fine = np.unique(ends)
        if len(fine) > MAX_FINE:
            fine = np.unique(_quantiles(ends, MAX_FINE))
        coarse = fine
        if len(fine) > max_coarse:
            nearest = np.searchsorted(fine, _quantiles(ends, max_coarse), side="right")
            coarse = np.unique(fine[np.maximum(nearest, 1) - 1])
        fine_edges.append(fine)
        first.append(first[-1] + len(fine))
        coarse_counts.append(len(coarse))
        cells = np.searchsorted(coarse, fine, side="right")
        coarse_of.append(np.concatenate([[0], cells, [len(coarse) + 1]]))
    return Edges(
        np.concatenate(fine_edges),
        np.array(first, np.int32),
        np.concatenate(coarse_of).astype(np.uint16),
        np.array(coarse_counts, np.int32),
    )


def key_plan(coarse: I32, tiles: int) -> KeyPlan:
    """Return the key plan of a batch: the attributes' highest bits first, interleaved."""
    bits = (tiles - 1).bit_length() + _EXTRA_BITS if tiles > 1 else 0
    of_attribute = np.zeros(len(coarse), np.int32)
    places = np.zeros((len(coarse), _KEY_BITS), np.int32)
    left = bits
    for level in range(_KEY_BITS):
        for attribute in np.flatnonzero(coarse + 1 >= _LEVELS << level).tolist():
            if left:
                left -= 1
                places[attribute, level] = left
                of_attribute[attribute] = level + 1
    return KeyPlan(bits, of_attribute, places)


def cells_between(edges: Edges, attribute: I64, lo: F64, hi: F64) -> I64:
    """Return the number of fine cells between the bounds of each term."""
    between = np.zeros(len(lo), np.int64)
    for axis in np.unique(attribute).tolist():
        on_axis = attribute == axis
        own = edges.fine[edges.first[axis] : edges.first[axis + 1]]
        upper = np.searchsorted(own, hi[on_axis], side="right")
        between[on_axis] = upper - np.searchsorted(own, lo[on_axis], side="right")
    return between
