"""Cells of a line: the only module that maps a coordinate to a cell number.

`edges` are finite, distinct and ascending; e of them cut the line into e + 2 cells:

    cell 0           from the lowest finite double up to below edges[0]
    cell c           [edges[c - 1], edges[c])
    cell e           from edges[e - 1] up to the largest finite double
    cell e + 1       {+inf}: the values that an event doesn't have

Coordinates are only compared, so any edges are right for any data; good ones make it fast. A
closed range [lo, hi] meets the cells cell_of(lo) .. cell_of(hi), and wholly holds those strictly
between; `starts_cell` and `ends_cell` say whether it wholly holds the two at its ends as well.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, Bool, readonly
from rangecast.kernels.jit import jit

MAX = float(np.finfo(np.float64).max)
_SAMPLED = 1 << 16
"""Ranges whose bounds are sorted to choose edges, if there are more of them."""


@jit
def cell_of(edges: F64 | I64, value: float) -> int:
    """Return the cell of a coordinate."""
    if value == np.inf:
        return len(edges) + 1
    low, high = 0, len(edges)
    while low < high:
        middle = (low + high) >> 1
        if edges[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def cell_in_table(table: Any, begin: int, count: int, value: float, powers: int = 8) -> int:
    """Return the cell of a coordinate among `count` edges of a table.

    `table` is a pointer, and the edges begin at table[begin], padded by +inf to one less than this
    power of two. Takes a step for each power and no branch.
    """
    low = 0
    for power in range(powers - 1, -1, -1):
        step = 1 << power
        low += step * (table[begin + low + step - 1] <= value)
    return min(low, count) + (value == np.inf)


def cells_of(edges: F64, values: F64) -> I32:
    """Return the cell of each value."""
    cells = np.empty(len(values), np.int32)
    write_cells(readonly(edges), readonly(values), cells)
    return cells


@jit
def write_cells(edges: F64, values: F64, out: I32) -> None:
    """Write the cell of each value into `out`.

    Many values among up to 4,095 edges, the usual case, take a step for each halving and no branch,
    which a processor would guess wrong every other time.
    """
    if len(edges) > 4095 or len(values) < 64:
        for i in range(len(values)):
            out[i] = cell_of(edges, values[i])
        return
    if len(edges) == 0:
        for i in range(len(values)):
            out[i] = values[i] == np.inf
        return
    powers = 8 if len(edges) <= 255 else 12
    padded = np.empty((1 << powers) - 1)
    for i in range(len(padded)):  # a slice to assign to takes numba seconds to compile
        padded[i] = edges[i] if i < len(edges) else np.inf
    for i in range(len(values)):
        value = values[i]
        low = 0
        for power in range(powers - 1, -1, -1):
            step = 1 << power
            low += step * (padded[low + step - 1] <= value)
        out[i] = min(low, len(edges)) + (value == np.inf)


@jit
def starts_cell(edges: F64, lo: float) -> bool:
    """Return whether a range that begins at `lo` contains all of its first cell."""
    cell = cell_of(edges, lo)
    if cell == 0:
        return lo <= -MAX
    return bool(cell == len(edges) + 1 or lo == edges[cell - 1])


@jit
def ends_cell(edges: F64, hi: float) -> bool:
    """Return whether a range that ends at `hi` contains all of its last cell."""
    cell = cell_of(edges, hi)
    if cell >= len(edges):
        return hi >= MAX
    return bool(np.nextafter(hi, np.inf) == edges[cell])


class SortedBounds(NamedTuple):
    """Sorted starts of ranges and values just past their ends: the candidates for edges."""

    values: F64
    is_new: Bool
    """Whether each differs from the one before it."""

    @classmethod
    def of(cls, lo: F64, hi: F64) -> SortedBounds:
        """Sort the bounds of ranges."""
        starts = lo[(lo > -MAX) & (lo < np.inf)]
        ends = np.nextafter(hi[(hi > -np.inf) & (hi < MAX)], np.inf)
        values = np.concatenate([starts, ends])
        values.sort()
        is_new = np.ones(len(values), np.bool_)
        is_new[1:] = values[1:] != values[:-1]
        return cls(values, is_new)

    def edges(self, cells: int) -> F64:
        """Return edges for at most `cells` cells: all bounds, or quantiles of them."""
        most = max(cells - 2, 0)
        if np.count_nonzero(self.is_new) <= most:
            return self.values[self.is_new]
        return _quantiles(self.values, most)


def edges_of_bounds(lo: F64, hi: F64, cells: int) -> F64:
    """Return edges for at most `cells` cells, at quantiles of the starts and ends of these ranges.

    Each edge is the start of a range or just past the end of one, so that with few distinct
    bounds every range is a whole number of cells and nothing is left in doubt. If a sample of many
    ranges has more bounds than cells, its quantiles are taken.
    """
    most = max(cells - 2, 0)
    if len(lo) == len(hi) and len(lo) > _SAMPLED >= 16 * most:
        chosen = np.random.default_rng(0).integers(0, len(lo), _SAMPLED)
        sampled = SortedBounds.of(lo[chosen], hi[chosen])
        if np.count_nonzero(sampled.is_new) > most:
            return sampled.edges(cells)
    return SortedBounds.of(lo, hi).edges(cells)


def _quantiles(candidates: F64, max_values: int) -> F64:
    """Return at most `max_values` distinct quantiles of sorted candidates."""
    positions = (np.arange(1, max_values + 1) * len(candidates)) // (max_values + 1)
    return np.unique(candidates[positions])
