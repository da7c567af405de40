"""Helpers for tests of summaries: sets of ranges, and a table that counts per cell."""

from __future__ import annotations

import numpy as np

from rangecast import Integer, Number, Space
from rangecast.merge import RangeForward, Ranges

LINE = Space([Integer("x", min=0, max=(1 << 12) - 1)])
PLACES = 1 << 12


def runs(mask):
    """Maximal runs of true places, as pairs."""
    padded = np.concatenate([[False], mask, [False]])
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    return list(zip(edges[::2].tolist(), (edges[1::2] - 1).tolist(), strict=True))


def closed(counts, gap):
    """Held places, with gaps between two ranges that are no longer than `gap`."""
    mask = counts > 0
    for first, last in runs(~mask):
        if first and last + 1 < len(mask) and last - first < gap:
            mask[first : last + 1] = True
    return mask


def pairs(ranges):
    return list(zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True))


def some_ranges(rng, most, longest):
    cuts = np.sort(rng.choice(PLACES, 2 * rng.integers(1, most + 1), replace=False))
    starts, ends = cuts[::2], np.minimum(cuts[1::2], cuts[::2] + rng.integers(0, longest))
    apart = np.append(True, starts[1:] > ends[:-1] + 1)
    return Ranges(starts[apart].astype(np.uint64), ends[apart].astype(np.uint64))


def shift(table, ranges, by):
    """Let a neighbour add ranges or drop them; return what the union gained or lost."""
    add = table.apply(RangeForward(add=ranges) if by > 0 else RangeForward(drop=ranges))
    assert not len(add.drop if by > 0 else add.add)
    return add.add if by > 0 else add.drop


class Counted:
    """The oracle: how many hold each place, and what was told."""

    def __init__(self, gap):
        self.counts = np.zeros(PLACES, np.int64)
        self.gap = gap

    def shift(self, ranges, by):
        before = closed(self.counts, self.gap)
        for first, last in pairs(ranges):
            self.counts[first : last + 1] += by
        return runs(before != closed(self.counts, self.gap))

    def agrees(self, table):
        held = closed(self.counts, self.gap)
        assert pairs(table.ranges()) == runs(held)
        points = np.arange(PLACES, dtype=float)[:, None]
        levels = table._levels
        bits, levels._bits = levels._bits, None
        halves = [table.may_match_many(half) for half in np.array_split(points, 2)]  # by the tree
        np.testing.assert_array_equal(np.concatenate(halves), held)
        levels._bits = bits
        np.testing.assert_array_equal(table.may_match_many(points), held)  # by bits, kept up since
        assert levels._bits is not None
        steps = np.count_nonzero(np.diff(self.counts)) + 1
        assert table.breakpoints == steps


def matched(boxes, rows, points):
    """Which points a live subscription holds, by comparing coordinates."""
    mine = np.isin(boxes.owner, rows)
    inside = (boxes.lo[mine] <= points[:, None]) & (points[:, None] <= boxes.hi[mine])
    return inside.all(axis=2).any(axis=1)


def space_of(dimensions):
    kinds = [Number("a", min=-3, max=7), Number("b"), Integer("c", min=-8, max=8), Number("e")]
    return Space(kinds[:dimensions])
