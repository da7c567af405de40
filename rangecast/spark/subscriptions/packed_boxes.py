"""Encode boxes as bytes: only the mentioned attributes, so that wide spaces stay small.

A row's bytes are entries of 18 bytes, one for each attribute that a box mentions: the axis, lo and
hi. The first entry of each box is marked. A box that mentions nothing has one entry without bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64, AnyArray

_ENTRY = np.dtype([("axis", "<u2"), ("lo", "<f8"), ("hi", "<f8")])
_FIRST = 1 << 15


class RowBoxes(NamedTuple):
    """Boxes of some rows, (boxes, d), one row after the other."""

    lo: F64
    hi: F64
    sizes: I64
    """Number of boxes of each row."""


class BoxCounts(NamedTuple):
    """Number of boxes of some rows, and of the attributes that they mention."""

    boxes: int
    mentions: int


def pack(lo: F64, hi: F64, sizes: I64) -> pa.Array:
    """Return the boxes of rows, `sizes` of each, as bytes."""
    if lo.shape[1] >= _FIRST:
        raise UsageError(
            f"on Spark, a space may have at most {_FIRST:,} attributes; given: {lo.shape[1]:,}"
        )
    kept = (lo > -np.inf) | (hi < np.inf)
    kept[~kept.any(axis=1), 0] = True
    box, axis = np.nonzero(kept)
    entries = np.empty(len(box), _ENTRY)
    entries["axis"], entries["lo"], entries["hi"] = axis, lo[kept], hi[kept]
    ends = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    entries["axis"][ends[:-1]] |= _FIRST
    return binary_of(ends[np.concatenate([[0], np.cumsum(sizes)])] * _ENTRY.itemsize, entries)


def unpack(packed: pa.Array | pa.ChunkedArray, dimensions: int) -> RowBoxes:
    """Return the boxes of rows."""
    chunks = packed.chunks if isinstance(packed, pa.ChunkedArray) else [packed]
    none = RowBoxes(np.empty((0, dimensions)), np.empty((0, dimensions)), np.empty(0, np.int64))
    parts = [_unpack(chunk, dimensions) for chunk in chunks] or [none]
    if len(parts) == 1:
        return parts[0]
    return RowBoxes(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _unpack(packed: pa.Array, dimensions: int) -> RowBoxes:
    entries, ends = _entries(packed)
    whole = np.arange(dimensions)
    whole[0] |= _FIRST
    if len(entries) % dimensions == 0 and (
        (entries["axis"].reshape(-1, dimensions) == whole).all()
    ):  # every box mentions all attributes
        lo, hi = (np.ascontiguousarray(entries[end]) for end in ("lo", "hi"))
        sizes = np.diff(ends) // dimensions
        return RowBoxes(lo.reshape(-1, dimensions), hi.reshape(-1, dimensions), sizes)
    first = entries["axis"] >= _FIRST
    box = np.cumsum(first) - 1
    axis = entries["axis"] & (_FIRST - 1)
    count = int(first.sum())
    lo, hi = np.full((count, dimensions), -np.inf), np.full((count, dimensions), np.inf)
    lo[box, axis], hi[box, axis] = entries["lo"], entries["hi"]
    return RowBoxes(lo, hi, _sizes(first, ends))


def sizes_of(packed: pa.Array | pa.ChunkedArray) -> I64:
    """Return the number of boxes per row."""
    entries, ends = _entries(packed)
    return _sizes(entries["axis"] >= _FIRST, ends)


def counts_of(packed: pa.Array | pa.ChunkedArray) -> BoxCounts:
    """Return the total number of boxes and mentions."""
    entries, _ = _entries(packed)
    mentioned = (entries["lo"] > -np.inf) | (entries["hi"] < np.inf)
    return BoxCounts(int((entries["axis"] >= _FIRST).sum()), int(mentioned.sum()))


def _entries(packed: pa.Array | pa.ChunkedArray) -> tuple[AnyArray, I64]:
    """Return all entries, and where those of each row end."""
    flat, ends = _bytes_of(packed)
    return flat.view(_ENTRY), (ends - ends[0]) // _ENTRY.itemsize


def _sizes(first: AnyArray, ends: I64) -> I64:
    counted = np.concatenate([[0], np.cumsum(first)])
    sizes: I64 = np.diff(counted[ends])
    return sizes


def binary_of(ends: I64, values: AnyArray) -> pa.Array:
    """Return values of bytes: those of `values` from ends[i] to ends[i + 1], below 2 GB."""
    if ends[-1] >= 2**31:
        raise UsageError(f"{ends[-1]:,} bytes are too many for one Arrow batch; use smaller ones")
    flat = np.ascontiguousarray(values)
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(flat)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def floats_of(binary: pa.Array | pa.ChunkedArray, width: int) -> F64:
    """Return the doubles of all values of bytes, in rows of `width`."""
    flat, _ = _bytes_of(binary)
    if flat.ctypes.data % 8:
        flat = flat.copy()  # a slice of a batch may begin anywhere
    return flat.view(np.float64).reshape(-1, width)


def _bytes_of(binary: pa.Array | pa.ChunkedArray) -> tuple[AnyArray, I64]:
    """Return the bytes of all values, and where each begins and ends in those of the first."""
    whole = binary.cast(pa.large_binary())
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.combine_chunks()
    _, offsets, data = whole.buffers()
    if not len(whole) or data is None:
        return np.empty(0, np.uint8), np.zeros(len(whole) + 1, np.int64)
    ends = np.frombuffer(offsets, np.int64)[whole.offset : whole.offset + len(whole) + 1]
    return np.frombuffer(data, np.uint8)[ends[0] : ends[-1]], ends
