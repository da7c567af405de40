"""Scan of the newest rows of a live set, too few to index, 64 rows at a time.

Layout. Boxes are in row order, in blocks of 64. A block has two columns of 64 doubles,
lower and upper bounds, for each attribute that one of its boxes mentions. Making it takes as long
as comparing a few events, so each view makes its own, of the rows that live in it.

Cost of an event: one step per block and attribute. Work: boxes tested. `match.single_event` has
single events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, Bool
from rangecast.kernels.bits import ZERO, holding, lowest_bit
from rangecast.kernels.blocks import BLOCK
from rangecast.kernels.bundle import Bundle, opened, pointer, pointers
from rangecast.kernels.jit import jit
from rangecast.match.result import MatchRows, collect
from rangecast.model.boxes import as_points
from rangecast.model.sets.rowstore import RowArrays, bounds_of


class Columns(NamedTuple):
    """Arrays of the newest rows, in blocks of 64."""

    bounds: F64
    """2 * BLOCK for each block and attribute: lower bounds, then upper ones."""
    attributes: I32
    first: I64
    """(blocks + 1,) first of a block's attributes."""
    owner: I32
    """(boxes,) the row of the set."""
    rows: int
    """Number of rows, the most that an event can match."""


@jit
def _fill(lo: F64, hi: F64, mentioned: Bool, bounds: F64) -> None:
    """Fill the columns block by block; `mentioned` is (blocks, d)."""
    column = 0
    for block in range(len(mentioned)):
        first = block * BLOCK
        size = min(BLOCK, len(lo) - first)
        for j in range(lo.shape[1]):
            if mentioned[block, j]:
                for i in range(BLOCK):
                    bounds[column + i] = lo[first + i, j] if i < size else np.inf
                    bounds[column + BLOCK + i] = hi[first + i, j] if i < size else -np.inf
                column += 2 * BLOCK


@jit
def _holders(at: Any, block: int, points: Any, event: int) -> np.uint64:
    """Return a bitmap of the boxes in a block that contain the event at points[event]."""
    mask = ~np.uint64(0)
    for a in range(at.first[block], at.first[block + 1]):
        value = points[event + at.attributes[a]]
        column = a * 2 * BLOCK
        mask &= holding(at.bounds, column, column + BLOCK, value, value)
        if mask == 0:
            break
    return mask


@jit
def list_recent(columns: Columns, points: Any, event: int, rows: I32, filled: int) -> int:
    """Append the rows that match an event; return the new length of `rows`."""
    at = pointers(columns)
    boxes, last = len(columns.owner), -1
    for block in range(len(columns.first) - 1):
        mask = _holders(at, block, points, event)
        while mask:
            box = block * BLOCK + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            if box < boxes and at.owner[box] != last:  # the boxes of a row lie side by side
                last = at.owner[box]
                rows[filled] = last
                filled += 1
    return filled


@jit
def _scan(
    table: I64, points: F64, event: int, rows: I32, counts: I64
) -> tuple[int, int, int, int, int]:
    """`Step` of `match.result`; it doesn't start an event that may not fit into the buffer."""
    columns = opened(table, Columns)
    d, boxes = points.shape[1], len(columns.owner)
    filled = tested = ZERO
    while event < len(points) and filled + columns.rows <= len(rows):
        begun = filled
        filled = list_recent(columns, pointer(points, 0), event * d, rows, filled)
        counts[event] = filled - begun
        tested += boxes
        event += 1
    return event, ZERO, filled, ZERO, tested


class Recent:
    """Rows in [start, end) that are live at an edit."""

    def __init__(
        self,
        rows: RowArrays,
        edit: int,
        start: int,
        end: int,
        dimensions: int,
        unbounded: Sequence[int] = (),
    ):
        """Copy the live rows into columns; axes in `unbounded` aren't compared."""
        live = start + np.flatnonzero(rows.died[start:end] > edit)
        lo, hi, owner = bounds_of(rows, live, dimensions)
        if unbounded:
            lo, hi = lo.copy(), hi.copy()
            lo[:, unbounded], hi[:, unbounded] = -np.inf, np.inf
        mentioned = ~((lo == -np.inf) & (hi == np.inf))
        starts = np.arange(0, len(lo), BLOCK)
        in_block = np.logical_or.reduceat(mentioned, starts) if len(starts) else mentioned
        block, attributes = np.nonzero(in_block)
        bounds = np.empty(2 * BLOCK * len(block))
        _fill(lo, hi, in_block, bounds)
        first = np.searchsorted(block, np.arange(len(starts) + 1))
        kinds = attributes.astype(np.int32), first.astype(np.int64), live.astype(np.int32)[owner]
        self.columns = Bundle(Columns(bounds, *kinds, len(live)))

    def match(self, points: F64) -> MatchRows:
        """Return all matches of all events."""
        table = self.columns.table
        points = as_points(points, points.shape[1])

        def step(event: int, _: int, hits: I32, counts: I64) -> tuple[int, int, int, int, int]:
            return _scan(table, points, event, hits, counts)

        return collect(step, len(points), len(points))
