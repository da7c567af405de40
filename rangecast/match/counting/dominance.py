"""Counts of points in a quadrant: how many have x among the first i, and y among the r lowest.

A wavelet matrix. The points are in the order of x, and each has the rank of its y. Level by level,
from the highest bit of the ranks, those with a zero move before those with a one, both in their
order. To count, the first i points are followed down the levels of r: where r has a one, those with
a zero are below it, and counted. A level has a bit for each point, and how many zeros there are
before each word of 64.

Cost: two looks into a bit vector for each of the log n levels, whatever is counted; log n / 8 bytes
a point, and half as much for the numbers of zeros.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U64
from rangecast.kernels.bits import bits_set
from rangecast.kernels.bundle import Bundle
from rangecast.kernels.jit import jit

_ONE = np.uint64(1)


class Quadrants(NamedTuple):
    """A wavelet matrix; levels from the highest bit."""

    bits: Annotated[U64, 2]
    """(levels, words) one bit for each point."""
    zeros: Annotated[I32, 2]
    """(levels, words) zeros before each word."""
    split: I64
    """(levels,) all zeros of a level."""
    size: int


@jit
def _fill(ranks: I64, spare: I64, bits: U64, zeros: I32, split: I64) -> None:
    """Fill the levels; `ranks` is in the order of x, and lost."""
    levels = len(bits)
    for level in range(levels):
        shift = levels - 1 - level
        zero = 0
        for i in range(len(ranks)):
            if i % 64 == 0:
                zeros[level, i // 64] = zero
            if (ranks[i] >> shift) & 1:
                bits[level, i // 64] |= _ONE << np.uint64(i % 64)
            else:
                zero += 1
        if len(ranks) % 64 == 0 and len(ranks):
            zeros[level, len(ranks) // 64] = zero
        split[level] = zero
        low, high = 0, zero
        for i in range(len(ranks)):
            if (ranks[i] >> shift) & 1:
                spare[high] = ranks[i]
                high += 1
            else:
                spare[low] = ranks[i]
                low += 1
        for i in range(len(ranks)):
            ranks[i] = spare[i]


@jit
def _zeros_before(matrix: Quadrants, level: int, i: int) -> int:
    word = i // 64
    below = (_ONE << np.uint64(i % 64)) - _ONE
    ones = bits_set(matrix.bits[level, word] & below)
    return int(matrix.zeros[level, word]) + i % 64 - int(ones)


@jit
def count_below(matrix: Quadrants, i: int, rank: int) -> int:
    """Return how many of the first i points, by x, are among the `rank` lowest, by y."""
    if rank >= matrix.size:
        return i
    begin, end, count = 0, i, 0
    levels = len(matrix.split)
    for level in range(levels):
        first, last = _zeros_before(matrix, level, begin), _zeros_before(matrix, level, end)
        if (rank >> (levels - 1 - level)) & 1:
            count += last - first
            begin += matrix.split[level] - first
            end += matrix.split[level] - last
        else:
            begin, end = first, last
    return count


def quadrants_of(x: F64, y: F64) -> Bundle[Quadrants]:
    """Build the matrix of some points."""
    n = len(x)
    levels = max(1, (max(n, 1) - 1).bit_length())
    ranks = np.empty(n, np.int64)
    ranks[np.argsort(y, kind="stable")] = np.arange(n)
    bits = np.zeros((levels, n // 64 + 1), np.uint64)
    zeros, split = np.zeros(bits.shape, np.int32), np.zeros(levels, np.int64)
    in_order = ranks[np.argsort(x, kind="stable")]
    _fill(in_order, np.empty(n, np.int64), bits, zeros, split)
    return Bundle(Quadrants(bits, zeros, split, n))
