"""Sort result rows in ascending order, faster than a comparison sort.

Structures find rows in the order of their blocks, and a comparison sort takes longer than most
searches. Rows are small integers, all of them distinct.
A large share of a set is marked in a bitmap and read from it. Fewer rows are put into about as many
buckets and inserted within these; where one gets too many of them, they are sorted digit by digit.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import I32
from rangecast.kernels.bits import lowest_bit
from rangecast.kernels.jit import jit

_INSERTED = 24
"""Rows up to which insertion is the quickest."""
_SPARSE = 128
"""Rows of the set to a row found, up to which a bitmap is."""
_CROWDED = 16
"""Rows of a bucket beyond which insertion isn't quick any more."""
_DIGIT = 8
_MASK = (1 << _DIGIT) - 1


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
    """Mark rows in a bitmap and read them from it."""
    words = np.zeros((bound >> 6) + 1, np.uint64)
    for i in range(len(rows)):
        words[rows[i] >> 6] |= np.uint64(1) << np.uint64(rows[i] & 63)
    filled = 0
    for word in range(len(words)):
        mask = words[word]
        while mask:
            out[filled] = 64 * word + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            filled += 1


@jit
def _distribute(rows: I32, shift: int, counts: I32, out: I32) -> None:
    """Write rows in the order of one digit; those with the same one keep their order."""
    for digit in range(len(counts)):
        counts[digit] = 0
    for i in range(len(rows)):
        counts[(rows[i] >> shift) & _MASK] += 1
    begin = 0
    for digit in range(len(counts)):
        begin, counts[digit] = begin + counts[digit], begin
    for i in range(len(rows)):
        digit = (rows[i] >> shift) & _MASK
        out[counts[digit]] = rows[i]
        counts[digit] += 1


@jit
def _by_digits(rows: I32, bound: int, out: I32) -> None:
    """Sort rows digit by digit, the last one first."""
    counts, other = np.empty(_MASK + 1, np.int32), np.empty(len(rows), np.int32)
    passes = 1
    while bound >> (passes * _DIGIT):
        passes += 1
    source = rows
    for number in range(passes):
        target = out if (passes - number) & 1 else other
        _distribute(source, number * _DIGIT, counts, target)
        source = target


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
    begin = crowded = 0
    for bucket in range(len(counts)):
        crowded = max(crowded, counts[bucket])
        begin, counts[bucket] = begin + counts[bucket], begin
    if crowded > _CROWDED:
        return False
    for i in range(len(rows)):
        bucket = rows[i] >> shift
        out[counts[bucket]] = rows[i]
        counts[bucket] += 1
    _insert(out, out)
    return True


@jit
def sort_rows(rows: I32, bound: int, out: I32) -> None:
    """Write distinct rows below a bound into `out`, ascending."""
    count = len(rows)
    sorted_to = 1
    while sorted_to < count and rows[sorted_to - 1] < rows[sorted_to]:
        sorted_to += 1
    if sorted_to >= count:  # as many a list of a structure is
        for i in range(count):
            out[i] = rows[i]
    elif count <= _INSERTED:
        _insert(rows, out)
    elif bound <= _SPARSE * count:
        _read_marks(rows, bound, out)
    elif not _by_buckets(rows, bound, out):
        _by_digits(rows, bound, out)
