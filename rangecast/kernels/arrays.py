"""Array types, one name per type; annotations use only these."""

from __future__ import annotations

from math import isnan
from typing import Any

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
I16 = npt.NDArray[np.int16]
I8 = npt.NDArray[np.int8]
U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U16 = npt.NDArray[np.uint16]
U8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]
AnyArray = npt.NDArray[Any]


def readonly(array: AnyArray) -> AnyArray:
    """Return a contiguous, read-only view of an array, so that a kernel has one signature."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def has_nan(points: F64) -> bool:
    """Return whether any coordinate of the events, (events, d), is NaN."""
    if len(points) > 1:
        return bool(np.isnan(points).any())
    # Of one point: quicker than two calls of NumPy.
    return any(map(isnan, points.ravel().tolist()))


def grown(array: AnyArray, size: int, fill: float = 0) -> AnyArray:
    """Return the array itself if it has `size` items, else a larger copy; readers keep the old one.

    The copy has room for at least twice as much, so that an item costs amortised constant time.
    """
    if size <= len(array):
        return array
    larger = np.full((max(size, 2 * len(array), 64), *array.shape[1:]), fill, array.dtype)
    larger[: len(array)] = array
    return larger


def offsets_of(counts: npt.ArrayLike) -> I64:
    """Return the offset of each run, from the lengths of the runs, and the end of the last one."""
    lengths = np.asarray(counts)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def ranges_of(first: I64, counts: I64) -> I64:
    """Return the numbers of some ranges, concatenated: `counts` numbers each, from `first` on."""
    before = np.cumsum(counts) - counts
    return np.asarray(np.repeat(first - before, counts) + np.arange(counts.sum()), np.int64)
