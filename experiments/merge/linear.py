"""The algorithms of brokers without an index (paper 004, section 7): compiled loops."""

from __future__ import annotations

from rangecast.kernels.arrays import F64, Bool
from rangecast.kernels.jit import jit


@jit
def covered(lo: F64, hi: F64, new_lo: F64, new_hi: F64, out: Bool) -> None:
    """Write whether each new box lies inside a single one of the boxes (n, d).

    A point is a box, too: its two corners are the same.
    """
    for new in range(len(new_lo)):
        out[new] = False
        for box in range(len(lo)):
            inside = True
            for axis in range(lo.shape[1]):
                if lo[box, axis] > new_lo[new, axis] or hi[box, axis] < new_hi[new, axis]:
                    inside = False
                    break
            if inside:
                out[new] = True
                break
