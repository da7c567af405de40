"""Subscriptions that are individually redundant in a summary, found without removing any.

Where a subscription is the only one that holds a place, the level is 1. Without it these places
would be a gap, together with the gaps that they touch. The union stays the same exactly if every
gap made that way lies between two ranges and is no longer than `gap`, so that it would be closed.

Cost: one search for each range, and one step for each run of level 1 under it, up to the first gap
that would show.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import I32, I64, U64, Bool
from rangecast.kernels.jit import jit

_ZERO, _ONE = np.uint64(0), np.uint64(1)


def needless(
    places: U64,
    levels: I32,
    top: np.uint64,
    gap: np.uint64,
    starts: U64,
    ends: U64,
    offsets: I64,
) -> Bool:
    """Return which subscriptions are redundant; ranges as in `RangeSets`, all in the tree."""
    alone = np.append(np.flatnonzero(levels == 1), len(levels))
    out = np.empty(len(offsets) - 1, np.bool_)
    _fill(places, levels, alone, top, gap, starts.copy(), ends.copy(), offsets, out)
    return out


@jit
def _fill(
    places: U64,
    levels: I32,
    alone: I64,
    top: np.uint64,
    gap: np.uint64,
    starts: U64,
    ends: U64,
    offsets: I64,
    out: Bool,
) -> None:
    """Write which subscriptions are redundant.

    `alone` are the ascending breakpoints of level 1, followed by their number.
    """
    for number in range(len(out)):
        out[number] = True
        first, behind = _ZERO, _ZERO  # the gap so far, and the place behind it
        for i in range(offsets[number], offsets[number + 1]):
            at = np.searchsorted(alone, np.searchsorted(places, starts[i], "right") - 1)
            while out[number] and alone[at] < len(places) and places[alone[at]] <= ends[i]:
                step = alone[at]
                at += 1
                low, high = max(places[step], starts[i]), ends[i]
                if low == places[step] and step and levels[step - 1] == 0:
                    low = places[step - 1]
                follows = step + 1 < len(places)
                if follows:
                    high = min(places[step + 1] - _ONE, high)
                if follows and high == places[step + 1] - _ONE and levels[step + 1] == 0:
                    follows = step + 2 < len(places)
                    high = places[step + 2] - _ONE if follows else top
                if low > behind:
                    first = low
                behind = high + _ONE
                out[number] = low > _ZERO and high < top and high - first < gap
            if not out[number]:
                break
