"""Sort result rows in ascending order, faster than a comparison sort.

Structures find rows in the order of their blocks, and a comparison sort takes longer than most
searches. Rows are small integers, all of them distinct.
A large share of a set is marked in a bitmap and read from it. Of fewer rows, few are put into about
as many buckets and inserted within these; many, or those of which one bucket gets too many, are
sorted by the lower and then by the upper half of their bits.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import I32
from rangecast.kernels.bits import ZERO, bits_set, lowest_bit
from rangecast.kernels.jit import jit

_INSERTED = 24
"""Rows up to which insertion is the quickest."""
_SPARSE = 64
"""Rows of the set to a row found, up to which a bitmap is."""
_PARTS = 4
_BUCKETED = 256
"""Rows up to which buckets are."""
_CROWDED = 16
"""Rows of a bucket beyond which insertion isn't quick any more."""


@jit
def _insert(rows: I32, out: I32) -> None:
    """Sort rows by insertion into `out`, which may be the same array."""
    for i in range(len(rows)):
        row, at = rows[i], i
        while at > 0 and out[at - 1] > row:
            out[at] = out[at - 1]
            at -= 1
        out[at] = row


@jit
def _read_marks(rows: I32, bound: int, out: I32) -> None:
    """Mark rows in a bitmap and read them from it.

    Neighbouring rows, which often ascend, would wait for one another's word: they are marked in
    parts, in turn. Most words have up to four rows, which are read without a branch.
    """
    words = np.zeros((bound >> 6) + 1, np.uint64)
    part = len(rows) // _PARTS
    for i in range(part):
        for number in range(_PARTS):
            row = rows[number * part + i]
            words[row >> 6] |= np.uint64(1) << np.uint64(row & 63)
    for i in range(_PARTS * part, len(rows)):
        words[rows[i] >> 6] |= np.uint64(1) << np.uint64(rows[i] & 63)
    filled = ZERO
    for word in range(len(words)):
        mask, first = words[word], 64 * word
        end = filled + bits_set(mask)
        for ahead in range(4):
            out[filled + ahead] = first + lowest_bit(mask)
            mask &= mask - np.uint64(1)
        filled += 4
        while mask:
            out[filled] = first + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            filled += 1
        filled = end


@jit
def _add_up(counts: I32) -> None:
    """Replace the sizes of digits by where each begins."""
    begin = 0
    for digit in range(len(counts)):
        begin, counts[digit] = begin + counts[digit], begin


@jit
def _by_halves(rows: I32, bound: int, out: I32) -> None:
    """Sort rows by the lower half of their bits, then by the upper one."""
    bits = 0
    while bound >> bits:
        bits += 1
    shift = (bits + 1) // 2
    mask = (1 << shift) - 1
    lower, upper = np.zeros(mask + 1, np.int32), np.zeros((bound >> shift) + 1, np.int32)
    for i in range(len(rows)):
        lower[rows[i] & mask] += 1
        upper[rows[i] >> shift] += 1
    _add_up(lower)
    _add_up(upper)
    half_sorted = np.empty(len(rows), np.int32)
    for i in range(len(rows)):
        digit = rows[i] & mask
        half_sorted[lower[digit]] = rows[i]
        lower[digit] += 1
    for i in range(len(rows)):
        digit = half_sorted[i] >> shift
        out[upper[digit]] = half_sorted[i]
        upper[digit] += 1


@jit
def _by_buckets(rows: I32, bound: int, out: I32) -> bool:
    """Sort rows by buckets; return whether none of these is crowded: otherwise nothing is done."""
    bits = shift = 0
    while (1 << bits) < len(rows):
        bits += 1
    while bound >> (shift + bits):
        shift += 1
    counts = np.zeros(1 << bits, np.int32)
    for i in range(len(rows)):
        counts[rows[i] >> shift] += 1
    crowded = 0
    for bucket in range(len(counts)):
        crowded = max(crowded, counts[bucket])
    if crowded > _CROWDED:
        return False
    _add_up(counts)
    for i in range(len(rows)):
        bucket = rows[i] >> shift
        out[counts[bucket]] = rows[i]
        counts[bucket] += 1
    _insert(out[: len(rows)], out)
    return True


@jit
def sort_rows(rows: I32, bound: int, out: I32) -> None:
    """Write distinct rows below a bound into `out`, ascending; it needs room for four more."""
    count = len(rows)
    sorted_to = 1
    while sorted_to < count and rows[sorted_to - 1] < rows[sorted_to]:
        sorted_to += 1
    if sorted_to >= count:  # already sorted, which is common
        for i in range(count):
            out[i] = rows[i]
    elif count <= _INSERTED:
        _insert(rows, out)
    elif bound <= _SPARSE * count:
        _read_marks(rows, bound, out)
    elif count > _BUCKETED or not _by_buckets(rows, bound, out):
        _by_halves(rows, bound, out)
