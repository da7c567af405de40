"""The union as one bit per cell of a short curve: a lookup is one memory read.

A tree of many subscriptions is larger than the cache, and a lookup waits for memory at every node;
the bits of a curve of 24 bits are 2 MB. They are built for the first large batch of events, and
updated with the change of the union that every edit reports.

    bits   (places / 64,) uint64    bit p & 63 of word p >> 6: whether place p is held
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import U64, Bool
from rangecast.kernels.jit import jit

WIDEST = 24
"""Maximum bits of an index: longer curves have no bitmap."""
MIN_EVENTS = 4096
"""Batch size from which building a bitmap pays off."""

_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_SIX = np.uint64(6)
_LAST = np.uint64(63)
_ONE = np.uint64(1)


def empty_bits(width: int) -> U64:
    """Return the bits of a curve of 2^width places, none set."""
    return np.zeros(max((1 << width) >> 6, 1), np.uint64)


@jit
def mark(bits: U64, starts: U64, ends: U64, held: bool) -> None:
    """Set or clear the places of ranges."""
    for i in range(len(starts)):
        first, last = starts[i] >> _SIX, ends[i] >> _SIX
        for word in range(first, last + _ONE):
            mask = _ALL
            if np.uint64(word) == first:
                mask <<= starts[i] & _LAST
            if np.uint64(word) == last:
                mask &= _ALL >> (_LAST - (ends[i] & _LAST))
            bits[word] = bits[word] | mask if held else bits[word] & ~mask


@jit
def marked(bits: U64, places: U64, out: Bool) -> None:
    """Write whether each cell is in the union."""
    for i in range(len(places)):
        out[i] = (bits[places[i] >> _SIX] >> (places[i] & _LAST)) & _ONE
