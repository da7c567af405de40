"""Exact ranking over one-dimensional structures: the iterators of all attributes, intersected.

Every attribute's walk yields the boxes that hold the event there, all in one order: by score, then
arrival. A box that all of them yield holds the event. So the walks that are behind are moved on to
the one that is furthest, until all stand at the same box (paper 003, section 1).
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.jit import jit
from rangecast.model.boxes import Floats, Rows
from rangecast.rank.cursor import Cursor, before, begin, getnext, worth
from rangecast.rank.life import Life, lives
from rangecast.rank.result import Counters, Longs
from rangecast.rank.source import Source


@jit
def _agree(source: Source, point: Floats, heads: Longs, cursor: Cursor, counters: Counters) -> bool:
    """Move all walks on until they stand at one box; false if one of them ends before."""
    d = len(heads)
    furthest = heads[0]
    agreed = 0  # so many walks in a row stand at the furthest box
    axis = 0
    while agreed < d:
        box = heads[axis]
        while box >= 0 and box != furthest and before(source, axis, box, furthest):
            box = getnext(source, axis, point[axis], cursor, counters)
        heads[axis] = box
        if box < 0:
            return False
        agreed = agreed + 1 if box == furthest else 1
        furthest = box
        axis = axis + 1 if axis + 1 < d else 0
    return True


@jit
def best_exact(
    source: Source,
    points: Floats,
    life: Life,
    cursor: Cursor,
    rows: Rows,
    scores: Floats,
    counts: Longs,
    counters: Counters,
) -> None:
    """Write the best of those that hold each event on all attributes, as many as there is room."""
    d = points.shape[1]
    heads = np.empty(d, np.int64)
    k = rows.shape[1]
    for event in range(len(points)):
        point = points[event]
        filled = 0
        last = -1
        going = k > 0
        for axis in range(d):
            if going:
                begin(source, axis, point[axis], cursor, counters)
                heads[axis] = getnext(source, axis, point[axis], cursor, counters)
                going = heads[axis] >= 0
        while going and _agree(source, point, heads, cursor, counters):
            row = source.owner[heads[0]]
            if row != last and lives(life, row):  # the boxes of a row follow one another
                rows[event, filled] = row
                scores[event, filled] = worth(source, 0, heads[0])
                filled += 1
            last = row
            if filled == k:
                break
            heads[0] = getnext(source, 0, point[0], cursor, counters)
            going = heads[0] >= 0
        counts[event] = filled
