"""The Z-curve: the bits of a cell's coordinates interleaved, behind a leading 1.

The leading 1 tells cells of different sizes apart, so that one number names any cell: the key of
the cell that a smaller one lies in is the smaller one's without its last bits. Coordinate 0 has
the highest bit of each level. A key has 1 + axes * bits bits, 64 at most.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.kernels.jit import jit


@jit
def key_of(cell: Any, axes: int, bits: int) -> np.uint64:
    """Return the key of a cell; `cell` has `axes` coordinates of `bits` bits, or points to them."""
    bit = np.uint64(1)
    key = bit
    for plane in range(bits - 1, -1, -1):
        for axis in range(axes):
            key = (key << bit) | ((np.uint64(cell[axis]) >> np.uint64(plane)) & bit)
    return key
