"""The lists of `slabs` on one attribute: for each of many cells, the best boxes that meet it.

The idea. The line is cut into cells, each with a list of the 64 best boxes that meet it, best
first. Most of them hold all of their cell; of the others, which are in doubt, the bounds are kept
beside the list. So an event finds its cell, compares itself with a few bounds, and copies the first
k that are left. Nothing grows with the set but the search for the cell.

Cells are as small as they must be. All of the line is one cell at first. A cell whose list is full
and has too many boxes in doubt is cut in two, at about the median of where boxes begin and end
inside it; and so on, level by level. A box that comes after 64 others which hold all of a cell is
in no list below: it isn't handed down. So a level looks at n boxes at first, in the end at those
that matter. A list that isn't full has all boxes that meet its cell.

Memory is bounded by the number of cells: a cell for 16 boxes, and 2,048. What isn't cut any
more has more boxes in doubt. 12 bytes per item, 16 if it is in doubt, 32 per cell; in any case at
most 85 bytes per box, and 2 megabytes.

A cell is half-open, and a missing value has a cell of its own, as in `kernels.grid`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, Bool, offsets_of
from rangecast.kernels.jit import jit
from rangecast.model.boxes import frozen

_BOXES_PER_CELL = 16
"""There is at most a cell for this many boxes, and a few more."""
_BOXES_PER_SURE_CELL = 64
"""While there are no more than one for this many, cells are cut until nothing is in doubt, which is
the fastest."""
CELL = 4
"""Numbers of a cell: its first item, the number of items, which are in doubt (bits), and where
their bounds begin."""
_SAMPLE = 63
"""Bounds whose median cuts a cell."""
_LEVELS = 60
"""A cell isn't cut more often than this, whatever the samples say."""


class CellResolution(NamedTuple):
    """Resolution of the cells."""

    length: int = 64
    """Boxes of a list at most, 64 or fewer: for a larger k it isn't of use."""
    doubtful: int = 32
    """Boxes of a full list that may be in doubt."""
    few: int = 2048
    """Cells that there may be however few the boxes are."""


class Lists(NamedTuple):
    """The arrays; all are read-only."""

    edges: F64
    """Where the cells but the first begin, padded by +inf to one less than a power of two."""
    shape: I64
    """(3,) edges, that power, and boxes of a list at most; or none: there are no lists."""
    cells: I64
    """(cells * CELL,)"""
    rows: I32
    scores: F64
    """(items,) the subscriptions of all lists, best first."""
    bounds: F64
    """(2 * in doubt,) lower and upper bound of each."""


@jit
def _count_partial(
    lo: F64, past: F64, length: int, cells: F64, first: I64, ranks: I32, doubts: I64
) -> None:
    """Write how many of the list of each cell don't hold all of it."""
    for cell in range(len(cells)):
        begin, end = cells[cell, 0], cells[cell, 1]
        for i in range(first[cell], min(first[cell] + length, first[cell + 1])):
            doubts[cell] += not (lo[ranks[i]] <= begin and end <= past[ranks[i]])


@jit
def _middle(lo: F64, past: F64, begin: float, end: float, ranks: I32, sample: F64) -> float:
    """Return a place inside a cell, about the median of the bounds that lie inside it."""
    filled = 0
    step = max(1, len(ranks) // len(sample))
    while filled == 0:  # a sample may have none of them; the list has
        for i in range(0, len(ranks), step):
            low, high = lo[ranks[i]], past[ranks[i]]
            if begin < low and filled < len(sample):
                sample[filled] = low
                filled += 1
            if high < end and filled < len(sample):
                sample[filled] = high
                filled += 1
        step = 1
    sample[:filled].sort()
    return float(sample[filled // 2])


@jit
def _halve(
    lo: F64,
    past: F64,
    length: int,
    cells: F64,
    first: I64,
    ranks: I32,
    is_cut: Bool,
    halves: F64,
    half_first: I64,
    half_ranks: I32,
    sample: F64,
) -> None:
    """Write the halves of some cells, and the boxes that meet each, as far as they matter."""
    filled = half = 0
    for cell in range(len(cells)):
        if not is_cut[cell]:
            continue
        begin, end = cells[cell, 0], cells[cell, 1]
        mine = ranks[first[cell] : first[cell + 1]]
        middle = _middle(lo, past, begin, end, mine, sample)
        for a, b in ((begin, middle), (middle, end)):
            halves[half, 0], halves[half, 1] = a, b
            holding = 0
            for i in range(len(mine)):
                rank = mine[i]
                low, high = lo[rank], past[rank]
                half_ranks[filled] = rank
                filled += low < b and a < high
                holding += low <= a and b <= high
                if holding == length:
                    break
            half += 1
            half_first[half] = filled


@jit
def _write(
    lo: F64,
    hi: F64,
    past: F64,
    owner: I32,
    worth: F64,
    limits: F64,
    first: I64,
    ranks: I32,
    order: I64,
    cells: I64,
    rows: I32,
    scores: F64,
    bounds: F64,
) -> int:
    """Write the lists of final cells, in this order; return how many boxes are in doubt."""
    item = doubts = 0
    for index in range(len(order)):
        cell = order[index]
        count, doubt = first[cell + 1] - first[cell], np.uint64(0)
        cells[index * CELL], cells[index * CELL + 1] = item, count
        cells[index * CELL + 3] = doubts
        for i in range(count):
            rank = ranks[first[cell] + i]
            rows[item], scores[item] = owner[rank], worth[rank]
            item += 1
            if not (lo[rank] <= limits[cell, 0] and limits[cell, 1] <= past[rank]):
                doubt |= np.uint64(1) << np.uint64(i)
                bounds[2 * doubts], bounds[2 * doubts + 1] = lo[rank], hi[rank]
                doubts += 1
        cells[index * CELL + 2] = np.int64(doubt)
    return doubts


class _Cells(NamedTuple):
    """Cells, and the boxes that meet them."""

    limits: F64
    """(cells, 2) start, inclusive, and end, exclusive"""
    first: I64
    """(cells + 1,)"""
    ranks: I32

    def truncated(self, selected: Bool, length: int) -> _Cells:
        """Return the selected cells, with the best boxes of each, which will be its list."""
        starts, counts = (
            self.first[:-1][selected],
            np.minimum(np.diff(self.first)[selected], length),
        )
        first = offsets_of(counts)
        at = np.arange(first[-1]) + np.repeat(starts - first[:-1], counts)
        return _Cells(self.limits[selected], first, self.ranks[at])


def no_lists() -> Lists:
    """Return what there is with several attributes."""
    none = frozen([], np.int64)
    empty = frozen([], np.float64)
    return Lists(empty, none, none, frozen([], np.int32), empty, empty)


def lists_of(lo: F64, hi: F64, owner: I32, worth: F64, fineness: CellResolution) -> Lists:
    """Return the lists of some boxes on one attribute, which are given best first."""
    n, (length, doubtful, few) = len(lo), fineness
    lo, hi = frozen(lo, np.float64), frozen(hi, np.float64)
    with np.errstate(over="ignore"):  # past the largest double comes infinity
        past = frozen(np.nextafter(hi, np.inf), np.float64)
    known, unknown = np.flatnonzero(lo < np.inf), np.flatnonzero(hi == np.inf)[:length]
    missing = np.full((1, 2), np.inf), np.array([0, len(unknown)]), unknown.astype(np.int32)
    cells = _Cells(np.array([[-np.inf, np.inf]]), np.array([0, len(known)]), known.astype(np.int32))
    final, count = [_Cells(*missing)], 2
    sure, most = few + n // _BOXES_PER_SURE_CELL, few + n // _BOXES_PER_CELL
    sample = np.empty(_SAMPLE)
    for level in range(_LEVELS):
        doubts = np.zeros(len(cells.limits), np.int64)
        _count_partial(lo, past, length, *cells, doubts)
        is_full = np.diff(cells.first) >= length
        is_cut = is_full & (doubts > 0)
        if count + is_cut.sum() > sure:
            is_cut = is_full & (doubts > doubtful)
        if count + is_cut.sum() > most or level == _LEVELS - 1:
            is_cut[:] = False
        final.append(cells.truncated(~is_cut, length))
        if not is_cut.any():
            break
        count += is_cut.sum()
        halves = 2 * is_cut.sum()
        room = 2 * np.diff(cells.first)[is_cut].sum() + 1
        half = np.empty((halves, 2)), np.zeros(halves + 1, np.int64), np.empty(room, np.int32)
        _halve(lo, past, length, *cells, is_cut, *half, sample)
        cells = _Cells(*half)
    return _written(final, length, lo, hi, past, owner, worth)


def _written(
    final: list[_Cells], length: int, lo: F64, hi: F64, past: F64, owner: I32, worth: F64
) -> Lists:
    limits = np.concatenate([lists.limits for lists in final])
    first = offsets_of(np.concatenate([np.diff(lists.first) for lists in final]))
    ranks = np.concatenate([lists.ranks for lists in final])
    order = np.argsort(limits[:, 0])
    cells, rows = np.empty(len(order) * CELL, np.int64), np.empty(len(ranks), np.int32)
    scores, bounds = np.empty(len(ranks)), np.empty(2 * len(ranks))
    arguments = lo, hi, past, owner, worth, limits, first, ranks, order
    doubts = _write(*arguments, cells, rows, scores, bounds)
    edges = limits[order[1:-1], 0]
    power = len(edges).bit_length()
    padded = np.full((1 << power) - 1, np.inf)
    padded[: len(edges)] = edges
    return Lists(
        frozen(padded, np.float64),
        frozen([len(edges), power, length], np.int64),
        frozen(cells, np.int64),
        frozen(rows, np.int32),
        frozen(scores, np.float64),
        frozen(bounds[: 2 * doubts].copy(), np.float64),
    )
