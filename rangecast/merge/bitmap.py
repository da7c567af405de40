"""The union once more, as one bit for each place of a short curve: a look-up is one read of memory.

A table of many subscriptions is larger than the cache, and a look-up waits for memory at every
node; the bits of a curve of 24 bits are 2 MB. They are made when the first large batch of events
comes and kept up with what every edit changes about the union, which an edit says anyway.

    bits   (places / 64,) uint64    bit p & 63 of word p >> 6: whether place p is held
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import U64, Bool
from rangecast.kernels.jit import jit

WIDEST = 24
"""Bits of a place: longer curves have no bitmap."""
MIN_EVENTS = 4096
"""A batch of this size is worth making one."""

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
    """Write whether each place is held."""
    for i in range(len(places)):
        out[i] = (bits[places[i] >> _SIX] >> (places[i] & _LAST)) & _ONE
