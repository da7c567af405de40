"""Virtual construct rectangles: their ids, how boxes are cut into them, which cover a point.

The geometry of VCR indexing (paper 002, sections 2.1 to 2.3) on whole numbers. A VCR
(x, y, 2^i, 2^j) is the closed rectangle from (x, y) to (x + 2^i, y + 2^j), with 0 <= i <= kx and
0 <= j <= ky; so sides reach L = 2^k. A predicate (a, b, w, h) is closed too: [a, a+w] x [b, b+h].

Two traps of the text are avoided here:
- The distance table is the same for all points only if no id of the covering set runs into
  another row. So the ids are those of a space with a margin of L at the left and at the bottom,
  where no VCR ever begins: `vcr_id` takes x + Lx, y + Ly and the width with its margin.
- A side of width 0 would be cut into nothing: the caller widens it to 1 and checks.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from rangecast.kernels.arrays import I64
from rangecast.kernels.jit import jit

Whole = TypeVar("Whole", int, I64)


def vcr_id(x: Whole, y: Whole, i: Whole, j: Whole, kx: int, ky: int, rx: int) -> Whole:
    """Return the id of the VCR (x, y, 2^i, 2^j) in a space `rx` wide: equation 1."""
    return (kx + 1) * (ky + 1) * (x + y * rx) + j * (kx + 1) + i


@jit
def level_of(width: int, k: int) -> int:
    """Return the level of the largest VCR side that fits into a width, at most k."""
    level = 0
    while level < k and (2 << level) <= width:
        level += 1
    return level


@jit
def cut(start: int, width: int, k: int, overlapped: bool, starts: I64, levels: I64) -> int:
    """Cut [start, start + width], width >= 1, into VCR sides; return how many.

    Simple: the largest that fits, repeatedly. Overlapped: all of the size of the first one,
    the last shifted back. A box is cut along both axes; its VCRs are all the pairs.
    """
    level = level_of(width, k)
    end = start + width
    pieces = 0
    while start < end:
        if start + (1 << level) > end:
            if overlapped:
                start = end - (1 << level)
            else:
                level = level_of(end - start, level)
        starts[pieces] = start
        levels[pieces] = level
        pieces += 1
        start += 1 << level
    return pieces


@jit
def lap_of(start: int, x: int, level: int) -> int:
    """Return how far the side before reaches into a side [x, x + 2^level] of a box, -1 if none is.

    Of the sides of a box that cover a point, the first is the one that the point lies in by more
    than its lap. `start` is where the box starts: in both cuts the side before ends a multiple of
    2^level after it.
    """
    if x == start:
        return -1
    side = 1 << level
    return start + ((x - start + side - 1) & -side) - x


def pieces_of(widths: I64, k: int, overlapped: bool) -> I64:
    """Return into how many VCR sides each width is cut, without cutting."""
    full = widths >> k
    if not overlapped:
        rest = np.bitwise_count(widths & ((1 << k) - 1))
        return np.asarray(full + rest, np.int64)
    level = np.minimum(np.frexp(np.maximum(widths, 1).astype(np.float64))[1] - 1, k)
    return np.asarray(-(-widths // (1 << level.astype(np.int64))), np.int64)


class Table(NamedTuple):
    """The covering set of every point, relative to it: one entry a VCR, ids ascending."""

    distance: I64
    """Id of the VCR less the id of the pivot (a - Lx, b - Ly, 1, 1)."""
    dx: I64
    """Distance from the left side of the VCR to the point."""
    dy: I64
    lx: I64
    """Width of the VCR."""
    ly: I64


def covering_table(kx: int, ky: int, rx: int) -> Table:
    """Return the distance table for a space `rx` wide, margin included (section 2.3).

    It has (2 Lx + kx)(2 Ly + ky) entries: theorem 1.
    """
    (dx, i), (dy, j) = covering_sides(kx), covering_sides(ky)
    dx, dy = np.tile(dx, len(dy)), np.repeat(dy, len(dx))
    i, j = np.tile(i, len(j)), np.repeat(j, len(i))
    distance = vcr_id((1 << kx) - dx, (1 << ky) - dy, i, j, kx, ky, rx)
    order = np.argsort(distance)
    return Table(*(part[order] for part in (distance, dx, dy, 1 << i, 1 << j)))


def covering_sides(k: int) -> tuple[I64, I64]:
    """Return (how far before a point, level) of the 2L + k VCR sides that cover it."""
    levels = np.repeat(np.arange(k + 1), (1 << np.arange(k + 1)) + 1).astype(np.int64)
    before = np.concatenate([np.arange((1 << i) + 1) for i in range(k + 1)]).astype(np.int64)
    return before, levels


_LIST_COST, _ENTRY_COST, _DOUBT_COST = 15.0, 3.0, 15.0
"""Of looking at a list, of an entry in it, of a box compared, in about nanoseconds: fitted to 54
settings of the paper's workload (n 8,000 to 128,000, W 20 and 40, L 2 to 16)."""


def choose_sides(
    widths: I64,
    cells: tuple[int, int],
    matches: float,
    scale: float,
    overlapped: bool,
    limit: int,
) -> tuple[int, int]:
    """Return (kx, ky) for boxes of these widths, (boxes, 2), -1 where one takes a whole axis.

    The paper leaves the choice to the reader. Time is taken as the lists of a covering set, and
    the entries in them: a side of width w in p pieces turns up at w + p cells instead of w + 1.
    A box of more than `limit` pieces is compared with all events. `matches` is the mean per
    event among all boxes; each given box stands for `scale` of them. Of the choices within 5% of
    the best time, the one that stores least wins: 8 bytes per entry, 9 per VCR there could be.
    """
    whole = widths < 0
    spans = np.where(whole, np.asarray(cells), widths + 1).astype(np.float64)
    held = spans.prod(axis=1)
    share = matches / max(1.0, float(held.sum()))
    core = not whole.any(axis=1).all()
    choices = []
    for kx in range(max(1, cells[0].bit_length() - 1)):
        for ky in range(max(1, cells[1].bit_length() - 1)):
            pieces = np.stack(
                [
                    pieces_of(np.maximum(widths[:, a], 1), k, overlapped)
                    for a, k in enumerate((kx, ky))
                ],
                axis=1,
            )
            pieces = np.where(whole, 1, pieces)
            fits = pieces.prod(axis=1) <= limit
            x, y = 2 * (1 << kx) + kx, 2 * (1 << ky) + ky
            lists = x * y * core + x * bool(whole[:, 1].any()) + y * bool(whole[:, 0].any())
            time = _LIST_COST * lists
            time += _ENTRY_COST * share * float((spans + pieces - 1).prod(axis=1)[fits].sum())
            time += _DOUBT_COST * scale * np.count_nonzero(~fits)
            entries = scale * float(np.where(fits, pieces.prod(axis=1), 1).sum())
            stored = 8 * entries + 9 * (kx + 1) * (ky + 1) * cells[0] * cells[1]
            choices.append((time, stored, kx, ky))
    good = 1.05 * min(choices)[0]
    _, kx, ky = min((stored, kx, ky) for time, stored, kx, ky in choices if time <= good)
    return kx, ky
