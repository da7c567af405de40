"""Exact unions of boxes: whether a box lies inside several, and whether two boxes form one.

Whether a box lies inside a union of boxes is co-NP complete. Here the others are cut out of it one
by one, and past `PIECES` pieces the answer is "not known to".
"""

from __future__ import annotations

from math import nextafter

import numpy as np

from rangecast.kernels.arrays import F64, Bool

PIECES = 256
Box = tuple[F64, F64]
"""The bounds of one box, (d,) each."""


def not_empty(low: F64, high: F64, discrete: Bool) -> Bool:
    """Return whether each piece contains a value: on a discrete axis an integer, or missing."""
    whole = np.where(discrete, np.ceil(low) <= np.floor(high), low <= high)
    return np.asarray((whole & (high > -np.inf)).all(axis=1))


def cut_out(low: F64, high: F64, lo: F64, hi: F64, discrete: Bool) -> list[int] | None:
    """Cut boxes (n, d) out of pieces; return those that overlapped, `None` if a piece is left."""
    took_part = []
    for piece in range(len(lo)):
        meets = ((low <= hi[piece]) & (lo[piece] <= high)).all(axis=1)
        if not meets.any():
            continue
        took_part.append(piece)
        kept_low, kept_high = [low[~meets]], [high[~meets]]
        low, high = low[meets], high[meets]
        for axis in range(low.shape[1]):
            if lo[piece, axis] > -np.inf:
                kept_low.append(low.copy())
                kept_high.append(high.copy())
                kept_high[-1][:, axis] = nextafter(lo[piece, axis], -np.inf)
            if hi[piece, axis] < np.inf:
                kept_low.append(low.copy())
                kept_high.append(high.copy())
                kept_low[-1][:, axis] = nextafter(hi[piece, axis], np.inf)
            low[:, axis] = np.maximum(low[:, axis], lo[piece, axis])
            high[:, axis] = np.minimum(high[:, axis], hi[piece, axis])
        low, high = np.concatenate(kept_low), np.concatenate(kept_high)
        full = not_empty(low, high, discrete)
        low, high = low[full], high[full]
        if not len(low):
            return took_part
        if len(low) > PIECES:
            return None
    return None


def united(box: Box, other: Box, discrete: Bool) -> Box | None:
    """Return the union of two boxes if it is a box, else `None`: perfect merging.

    It is a box if they differ on a single axis, and no value lies between them there.
    """
    axes = np.flatnonzero((box[0] != other[0]) | (box[1] != other[1]))
    if len(axes) != 1:
        return None
    axis = axes[0]
    below, above = (box, other) if box[0][axis] <= other[0][axis] else (other, box)
    between = nextafter(below[1][axis], np.inf), nextafter(above[0][axis], -np.inf)
    low, high = (np.array([[end]]) for end in between)
    if below[1][axis] < above[0][axis] and not_empty(low, high, discrete[axis : axis + 1])[0]:
        return None
    return np.minimum(box[0], other[0]), np.maximum(box[1], other[1])


def widened(lo: F64, hi: F64, discrete: Bool) -> tuple[F64, F64]:
    """Return boxes (n, d) extended by one value on each side, so that neighbours overlap."""
    with np.errstate(over="ignore"):  # behind the largest number comes the missing value
        below, above = np.nextafter(lo, -np.inf), np.nextafter(hi, np.inf)
    below = np.where(discrete, np.minimum(below, lo - 1), below)
    return below, np.where(discrete, np.maximum(above, hi + 1), above)
