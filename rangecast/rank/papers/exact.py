"""Exact ranking over one-dimensional structures: the iterators of all attributes, intersected.

Every attribute's walk yields the boxes that contain the event there, all in one order: by score,
then arrival. A box that all of them yield contains the event. So the walks that are behind are
moved on to the one that is furthest, until all stand at the same box (paper 003, section 1).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8
from rangecast.kernels.bundle import pointer
from rangecast.kernels.jit import jit
from rangecast.rank.liveness import LiveRows, is_live, live_rows
from rangecast.rank.papers.cursor import Walks, before, begin, getnext, walks_of, worth


@jit
def _align_walks(walks: Walks, points: Any, event: int, heads: Any, d: int) -> bool:
    """Move all walks on until they stand at one box; false if one of them ends before.

    points, heads   pointers; the event begins at points[event]
    """
    furthest = heads[0]
    agreed = 0  # number of successive walks that stand at the furthest box
    axis = 0
    while agreed < d:
        box = heads[axis]
        while box >= 0 and box != furthest and before(walks.source, axis, box, furthest):
            box = getnext(walks, axis, points[event + axis])
        heads[axis] = box
        if box < 0:
            return False
        agreed = agreed + 1 if box == furthest else 1
        furthest = box
        axis = axis + 1 if axis + 1 < d else 0
    return True


@jit
def _best_exact(
    walks: Walks,
    live: LiveRows,
    points: F64,
    boxes: I64,
    rows: I32,
    scores: F64,
    counts: I64,
) -> None:
    """As `best_exact`; `boxes` (d,) is room for where each walk stands."""
    d = points.shape[1]
    k = rows.shape[1]
    heads, values = pointer(boxes, 0), pointer(points, 0)
    for e in range(len(points)):
        event = e * d
        filled = 0
        last = -1
        going = k > 0
        for axis in range(d):
            if going:
                begin(walks, axis, values[event + axis])
                heads[axis] = getnext(walks, axis, values[event + axis])
                going = heads[axis] >= 0
        while going and _align_walks(walks, values, event, heads, d):
            row = walks.source.owner[heads[0]]
            if row != last and is_live(live, row):  # the boxes of a row follow one another
                rows[e, filled] = row
                scores[e, filled] = worth(walks.source, 0, heads[0])
                filled += 1
            last = row
            if filled == k:
                break
            heads[0] = getnext(walks, 0, values[event])
            going = heads[0] >= 0
        counts[e] = filled


@jit
def best_exact(
    source: I64,
    points: F64,
    set_rows: I32,
    died: I64,
    edit: int,
    dead_bits: U8,
    cursor: I64,
    rows: I32,
    scores: F64,
    counts: I64,
    counters: I64,
) -> None:
    """Write the best of those that match each event on all attributes, as many as there is room.

    source, cursor                    tables of bundles
    set_rows, died, edit, dead_bits   see `Liveness`
    """
    walks, live = walks_of(source, cursor, counters), live_rows(set_rows, died, edit, dead_bits)
    boxes = np.empty(points.shape[1], np.int64)
    _best_exact(walks, live, points, boxes, rows, scores, counts)
