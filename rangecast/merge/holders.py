"""Ranges by subscription, found by overlap.

Ranges are kept in static parts of growing size; new ones are a part of their own, which is joined
with those that are no larger. A part is ordered by start and carries an implicit binary tree over
its places: `reach` of a place is the largest end in the tree below it, so that a search leaves out
whatever ends too early. A removed subscription is marked and goes when parts are joined.

    start, end, row   (ranges,) uint64, uint64, int32, by start
    reach             (ranges,) uint64    largest end among the places first .. i of the subtree

Cost: log(ranges) a part and one for each range found; an addition moves each range log(n) times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import I32, I64, U64, Bool
from rangecast.kernels.jit import jit
from rangecast.merge.ranges import Ranges


class _Part(NamedTuple):
    start: U64
    end: U64
    row: I32
    reach: U64


@jit
def _fill_reach(end: U64, reach: U64) -> None:
    """Fill the tree over places: the middle of a run is its root, halves are its subtrees."""
    stack = np.empty((64, 3), np.int64)
    depth = 0
    stack[0] = (0, len(end), 0)
    while depth >= 0:
        low, high, visited = stack[depth]
        middle = (low + high) >> 1
        if low >= high:
            depth -= 1
        elif visited == 0:
            stack[depth, 2] = 1
            stack[depth + 1] = (low, middle, 0)
            depth += 1
        elif visited == 1:
            stack[depth, 2] = 2
            stack[depth + 1] = (middle + 1, high, 0)
            depth += 1
        else:
            most = end[middle]
            if low < middle:
                most = max(most, reach[(low + middle) >> 1])
            if middle + 1 < high:
                most = max(most, reach[(middle + 1 + high) >> 1])
            reach[middle] = most
            depth -= 1


@jit
def _overlapping(
    start: U64,
    end: U64,
    row: I32,
    reach: U64,
    first: np.uint64,
    last: np.uint64,
    live: Bool,
    out: I32,
    filled: int,
) -> tuple[int, int]:
    """Append the live rows of ranges that overlap first .. last; rows may repeat.

    Returns the fill that the output would have, and the ranges visited; rows that don't fit are
    omitted.
    """
    stack = np.empty((64, 2), np.int64)
    stack[0] = (0, len(start))
    depth = looked = 0
    while depth >= 0:
        low, high = stack[depth]
        depth -= 1
        middle = (low + high) >> 1
        if low >= high or reach[middle] < first:
            continue
        looked += 1
        depth += 1
        stack[depth] = (low, middle)
        if start[middle] <= last:
            if end[middle] >= first and live[row[middle]]:
                if filled < len(out):
                    out[filled] = row[middle]
                filled += 1
            depth += 1
            stack[depth] = (middle + 1, high)
    return filled, looked


class Holders:
    """Ranges by subscription, which is identified by its row."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._live = np.zeros(64, np.bool_)
        self._out = np.empty(1024, np.int32)
        self._rows = self._dead = 0

    def add(self, rows: I64, ranges: Ranges) -> None:
        """Add ranges, each with its row; the rows are new."""
        most = int(rows.max())
        if most >= len(self._live):
            self._live = np.concatenate([self._live, np.zeros(most + 64, np.bool_)])
        self._live[rows] = True
        self._rows += len(np.unique(rows))
        order = np.argsort(ranges.starts, kind="stable")
        part = _part(ranges.starts[order], ranges.ends[order], rows[order].astype(np.int32))
        while self._parts and len(self._parts[-1].start) <= len(part.start):
            part = self._joined([self._parts.pop(), part])
        self._parts.append(part)

    def remove(self, row: int) -> None:
        """Remove a row permanently."""
        self._live[row] = False
        self._rows -= 1
        self._dead += 1
        if self._dead > 64 and self._dead > self._rows:
            self._parts = [self._joined(self._parts)]
            self._dead = 0

    def overlapping(self, ranges: Ranges) -> tuple[I64, int]:
        """Return the rows with a range that overlaps a given one, and the ranges visited."""
        while True:
            filled = looked = 0
            for part in self._parts:
                for first, last in zip(*ranges, strict=True):
                    filled, more = _overlapping(*part, first, last, self._live, self._out, filled)
                    looked += more
            if filled <= len(self._out):
                return np.unique(self._out[:filled]).astype(np.int64), looked
            self._out = np.empty(2 * filled, np.int32)

    @property
    def memory(self) -> int:
        """Bytes of all arrays."""
        return self._live.nbytes + sum(array.nbytes for part in self._parts for array in part)

    def _joined(self, parts: list[_Part]) -> _Part:
        row = np.concatenate([part.row for part in parts])
        kept = self._live[row]
        start = np.concatenate([part.start for part in parts])[kept]
        end = np.concatenate([part.end for part in parts])[kept]
        order = np.argsort(start, kind="stable")
        return _part(start[order], end[order], row[kept][order])


def _part(start: U64, end: U64, row: I32) -> _Part:
    reach = np.empty(len(end), np.uint64)
    end = end.copy()
    _fill_reach(end, reach)
    return _Part(start.copy(), end, row, reach)
