"""Normal form of the boxes of a set, as for filters.

In a filter, no box lies inside another one, and no two can be merged. Covering and relaxed ranking
consider single boxes, so their results depend on this form. Arrays from a caller are normalized the
same way, so a set of boxes is equivalent to a filter of these boxes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, Bool
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.regions import absorbed, sparse
from rangecast.model.filters.regions import boxes as merged
from rangecast.model.space import Space


def simplest(boxes: Boxes, space: Space) -> Boxes:
    """Drop boxes that lie inside others of their subscription, and merge those that form one box.

    Bounds stay unchanged, even if no value of the space has them.
    """
    if len(boxes.lo) == boxes.rows:
        return boxes
    first, parts, sizes = boxes.box_offsets, [], np.diff(boxes.box_offsets)
    done = 0
    for row in _rows_to_simplify(boxes, space).tolist():
        begin, end = int(first[row]), int(first[row + 1])
        lo, hi = _simplest(boxes.lo[begin:end], boxes.hi[begin:end], space)
        parts += [(boxes.lo[done:begin], boxes.hi[done:begin]), (lo, hi)]
        sizes[row], done = len(lo), end
    if not parts:
        return boxes
    parts.append((boxes.lo[done:], boxes.hi[done:]))
    lo, hi = (np.concatenate(side) for side in zip(*parts, strict=True))
    owner = np.repeat(np.arange(boxes.rows, dtype=np.int32), sizes)
    for array in (lo, hi, owner):
        array.flags.writeable = False
    return replace(boxes, lo=lo, hi=hi, owner=owner)


def _simplest(lo: F64, hi: F64, space: Space) -> tuple[F64, F64]:
    """Return the boxes of one subscription in normal form."""
    region = absorbed(
        tuple(
            (axis, (ends,))
            for axis, ends in enumerate(zip(low, high, strict=True))
            if ends != (-np.inf, np.inf)
        )
        for low, high in zip(lo.tolist(), hi.tolist(), strict=True)
    )
    low, high, _ = _on_grid(lo, hi, space)
    if np.array_equal(lo, low) and np.array_equal(hi, high):  # else no value has these bounds
        region = merged(space.attributes, region)
    filter_ = Filter(space, sparse(region))
    return filter_.arrays()


def _rows_to_simplify(boxes: Boxes, space: Space) -> I64:
    """Return the rows with boxes that are nested or may be mergeable."""
    sizes = np.diff(boxes.box_offsets)
    several = np.flatnonzero((sizes > 1)[boxes.owner])
    owner: I32 = boxes.owner[several]
    lo, hi, step = _on_grid(boxes.lo[several], boxes.hi[several], space)
    rows = [np.zeros(0, np.int64)]
    for apart in range(1, int(sizes.max())):
        near = np.flatnonzero(owner[apart:] == owner[:-apart])
        if not len(near):
            break
        a, b, c, d = lo[near], hi[near], lo[near + apart], hi[near + apart]
        inside = ((a <= c) & (d <= b)).all(axis=1) | ((c <= a) & (b <= d)).all(axis=1)
        differ: Bool = (a != c) | (b != d)
        with np.errstate(over="ignore"):
            end = np.minimum(b, d)
            after = np.where(step, end + 1, np.nextafter(end, np.inf))
        touch = (np.maximum(a, c) <= after) | ~differ
        rows.append(owner[near[inside | ((differ.sum(axis=1) == 1) & touch.all(axis=1))]])
    return np.unique(np.concatenate(rows)).astype(np.int64)


def _on_grid(lo: F64, hi: F64, space: Space) -> tuple[F64, F64, Bool]:
    """Snap bounds to the grids and domains; also return which attributes have integer steps."""
    mentioned = ~((lo == -np.inf) & (hi == np.inf))
    step = np.array([attribute.type != "number" for attribute in space])
    least, most = np.array([attribute.domain for attribute in space]).T
    low = np.where(step, np.ceil(lo), lo)
    high = np.where(step, np.floor(hi), hi)
    low = np.where(mentioned, np.maximum(low, least), lo)
    high = np.where(mentioned & (lo < np.inf) & (hi < np.inf), np.minimum(high, most), high)
    return low, high, step
