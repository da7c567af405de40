"""What brokers do without an index (paper 004, section 7): loops over all of them, compiled."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@numba.njit(nogil=True, error_model="numpy")
def covered(lo: Floats, hi: Floats, new_lo: Floats, new_hi: Floats, out: Mask) -> None:
    """Write whether each new box lies inside a single one of the boxes (n, d)."""
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


@numba.njit(nogil=True, error_model="numpy")
def matched(lo: Floats, hi: Floats, points: Floats, out: Mask) -> None:
    """Write whether each point lies in one of the boxes (n, d)."""
    for point in range(len(points)):
        out[point] = False
        for box in range(len(lo)):
            inside = True
            for axis in range(lo.shape[1]):
                if lo[box, axis] > points[point, axis] or hi[box, axis] < points[point, axis]:
                    inside = False
                    break
            if inside:
                out[point] = True
                break
