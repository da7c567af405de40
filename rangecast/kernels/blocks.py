"""Boxes in blocks of 64, grouped so that the hull of each block excludes many events."""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import I32, I64, U8
from rangecast.kernels.jit import jit

BLOCK = 64
"""Maximum number of boxes in a block: as many as one comparison takes."""
_SAMPLE = 512
"""Number of boxes sampled to choose a split."""


@jit
def _best_split(
    lo_codes: U8, hi_codes: U8, slots: I32, order: I64, counts: I64
) -> tuple[int, bool]:
    """Return the bound to halve by: the one that shrinks the hull of one half most.

    A half whose lower bounds are the larger ones keeps no event below their middle; how much that
    takes off is measured in slabs, which hold about as many bounds each.
    """
    stride = (len(order) + _SAMPLE - 1) // _SAMPLE
    best, by_lo, gained = 0, True, -1.0
    for s in range(len(slots)):
        j = slots[s]
        middles = np.zeros(2)
        ends = np.zeros(2)
        for side in range(2):
            side_codes = lo_codes if side == 0 else hi_codes
            counts[:] = 0
            sampled = 0
            for at in range(0, len(order), stride):
                counts[side_codes[order[at], j]] += 1
                sampled += 1
            below = 0
            lowest, highest, middle = -1, 0, -1
            for code in range(256):
                if counts[code]:
                    highest = code
                    if lowest < 0:
                        lowest = code
                    below += counts[code]
                    if middle < 0 and 2 * below >= sampled:
                        middle = code
            middles[side] = middle
            ends[side] = lowest if side == 0 else highest
        extent = ends[1] - ends[0] + 1.0
        low_gain = (middles[0] - ends[0]) / extent
        high_gain = (ends[1] - middles[1]) / extent
        if low_gain > gained:
            best, by_lo, gained = j, True, low_gain
        if high_gain > gained:
            best, by_lo, gained = j, False, high_gain
    return best, by_lo


@jit
def arrange(
    lo_codes: U8, hi_codes: U8, firsts: I64, slots: I32, first_slot: I64, order: I64
) -> None:
    """Reorder the boxes of each run so that each block of BLOCK boxes is close together.

    A run is halved by one bound after the other, as a k-d tree over lower and upper bounds. Equal
    boxes keep their order.
    """
    longest = 1
    for run in range(len(firsts) - 1):
        longest = max(longest, firsts[run + 1] - firsts[run])
    spare = np.empty(longest, np.int64)
    counts = np.zeros(256, np.int64)
    todo = np.empty((128, 2), np.int64)
    for run in range(len(firsts) - 1):
        mine = slots[first_slot[run] : first_slot[run + 1]]
        depth = 0
        if firsts[run + 1] - firsts[run] > BLOCK and len(mine):
            todo[0, 0], todo[0, 1] = firsts[run], firsts[run + 1]
            depth = 1
        while depth:
            depth -= 1
            begin, end = todo[depth, 0], todo[depth, 1]
            part = order[begin:end]
            j, by_lo = _best_split(lo_codes, hi_codes, mine, part, counts)
            side_codes = lo_codes if by_lo else hi_codes
            counts[:] = 0
            for at in range(len(part)):
                counts[side_codes[part[at], j]] += 1
            half = (len(part) + BLOCK - 1) // BLOCK // 2 * BLOCK
            pivot = 0
            below = 0
            while below + counts[pivot] <= half:
                below += counts[pivot]
                pivot += 1
            level = half - below  # this number with the pivot's own code go to the first half
            first, second = 0, half
            for at in range(len(part)):
                code = side_codes[part[at], j]
                left = code < pivot
                if code == pivot and level:
                    left = True
                    level -= 1
                if left:
                    spare[first] = part[at]
                    first += 1
                else:
                    spare[second] = part[at]
                    second += 1
            for at in range(len(part)):
                part[at] = spare[at]
            for a, b in ((begin, begin + half), (begin + half, end)):
                if b - a > BLOCK:
                    todo[depth, 0], todo[depth, 1] = a, b
                    depth += 1
