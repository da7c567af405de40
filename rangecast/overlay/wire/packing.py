"""The boxes of a subscription as a few bytes, and those of many as arrays.

Boxes are packed as terms, one after the other: which box, which attribute, its range. No term at
all is one box that holds everything.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, AnyArray
from rangecast.model.boxes import Boxes
from rangecast.model.filters.regions import Box

TERM = np.dtype([("box", "<u4"), ("axis", "<u2"), ("lo", "<f8"), ("hi", "<f8")])
_TERM = struct.Struct("<IHdd")


def pack(boxes: Sequence[Box]) -> bytes:
    """Return boxes as terms."""
    return b"".join([_TERM.pack(number, *term) for number, box in enumerate(boxes) for term in box])


def pack_many(boxes: Boxes) -> list[bytes]:
    """Return the boxes of each subscription as terms."""
    box, axis = np.nonzero(boxes.mentions)
    terms = np.empty(len(box), TERM)
    owner = boxes.owner[box]
    terms["box"] = box - boxes.box_offsets[owner]
    terms["axis"] = axis
    terms["lo"], terms["hi"] = boxes.lo[box, axis], boxes.hi[box, axis]
    ends = TERM.itemsize * np.searchsorted(owner, np.arange(boxes.rows), "right")
    data, begin, packed = terms.tobytes(), 0, []
    for end in ends.tolist():
        packed.append(data[begin:end])
        begin = end
    return packed


def unpack(packed: bytes) -> tuple[Box, ...]:
    """Return boxes in the form of a filter."""
    boxes: list[list[tuple[int, float, float]]] = [[]]
    for box, axis, lo, hi in _TERM.iter_unpack(packed):
        if box == len(boxes):
            boxes.append([])
        boxes[box].append((axis, lo, hi))
    return tuple(map(tuple, boxes))


def unpack_many(packed: Sequence[bytes], dimensions: int) -> tuple[F64, F64, I32]:
    """Return the boxes of many items: `lo` and `hi`, (boxes, d), and `owner`, (boxes,)."""
    terms, item = terms_of(packed)
    counts = np.ones(len(packed), np.int64)
    np.maximum.at(counts, item, terms["box"].astype(np.int64) + 1)
    before = np.cumsum(counts) - counts
    box = before[item] + terms["box"]
    lo = np.full((int(counts.sum()), dimensions), -np.inf)
    hi = np.full(lo.shape, np.inf)
    lo[box, terms["axis"]], hi[box, terms["axis"]] = terms["lo"], terms["hi"]
    return lo, hi, np.repeat(np.arange(len(packed), dtype=np.int32), counts)


def terms_of(packed: Sequence[bytes]) -> tuple[AnyArray, I64]:
    """Return the terms of all items, and the index of the item of each."""
    sizes = np.fromiter(map(len, packed), np.int64, len(packed))
    terms = np.frombuffer(b"".join(packed), TERM)
    return terms, np.repeat(np.arange(len(packed)), sizes // TERM.itemsize)
