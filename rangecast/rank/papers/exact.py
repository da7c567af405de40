"""Exact ranking over one-dimensional structures: the iterators of all attributes, intersected.

Every attribute's walk yields the boxes that contain the event there, all in one order: by score,
then arrival. A box that all of them yield contains the event. So the walks that are behind are
moved on to the one that is furthest, until all stand at the same box (paper 003, section 1).

Of an event that is a span, boxes must hold both ends. Lists that have one end of a box, or none,
can't tell: there a walk looks for the first end, and the boxes it yields are looked up for the
other one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8
from rangecast.kernels.bundle import pointer
from rangecast.kernels.jit import jit
from rangecast.rank.liveness import LiveRows, is_live, live_rows
from rangecast.rank.papers.cursor import Walks, before, begin, getnext, walks_of, worth


class Query(NamedTuple):
    """Events as pointers; a box holds one if lo <= above and below <= hi on each of d axes."""

    above: Any
    below: Any
    upper: Any
    """(boxes, d) upper bounds, where they are looked up."""
    is_looked_up: bool
    d: int


@jit
def _next(walks: Walks, query: Query, event: int, axis: int) -> int:
    """Return the next best box that contains an event on an axis, -1 when there is none."""
    above, below = query.above[event + axis], query.below[event + axis]
    if not query.is_looked_up:
        return getnext(walks, axis, above, below)
    box = getnext(walks, axis, above, above)
    while box >= 0 and query.upper[box * query.d + axis] < below:
        box = getnext(walks, axis, above, above)
    return box


@jit
def _begin(walks: Walks, query: Query, event: int, axis: int) -> int:
    """Start a walk; return its first box."""
    above = query.above[event + axis]
    begin(walks, axis, above, above if query.is_looked_up else query.below[event + axis])
    return _next(walks, query, event, axis)


@jit
def _align_walks(walks: Walks, query: Query, event: int, heads: Any) -> bool:
    """Move all walks on until they stand at one box; false if one of them ends before.

    heads   pointer; the event begins at query.above[event]
    """
    furthest = heads[0]
    agreed = 0  # number of successive walks that stand at the furthest box
    axis = 0
    while agreed < query.d:
        box = heads[axis]
        while box >= 0 and box != furthest and before(walks.source, axis, box, furthest):
            box = _next(walks, query, event, axis)
        heads[axis] = box
        if box < 0:
            return False
        agreed = agreed + 1 if box == furthest else 1
        furthest = box
        axis = axis + 1 if axis + 1 < query.d else 0
    return True


@jit
def _best_exact(
    walks: Walks,
    live: LiveRows,
    query: Query,
    boxes: I64,
    rows: I32,
    scores: F64,
    counts: I64,
) -> None:
    """Write the top k as `best_exact` does; `boxes` (d,) is scratch: the position of each walk."""
    k = rows.shape[1]
    heads = pointer(boxes, 0)
    for e in range(len(counts)):
        event = e * query.d
        filled = 0
        last = -1
        going = k > 0
        for axis in range(query.d):
            if going:
                heads[axis] = _begin(walks, query, event, axis)
                going = heads[axis] >= 0
        while going and _align_walks(walks, query, event, heads):
            row = walks.source.owner[heads[0]]
            if row != last and is_live(live, row):  # the boxes of a row follow one another
                rows[e, filled] = row
                scores[e, filled] = worth(walks.source, 0, heads[0])
                filled += 1
            last = row
            if filled == k:
                break
            heads[0] = _next(walks, query, event, 0)
            going = heads[0] >= 0
        counts[e] = filled


@jit
def best_exact(
    source: I64,
    above: F64,
    below: F64,
    upper: F64,
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
    above, below                      (events, d): a box holds if lo <= above and below <= hi
    upper                             (boxes, d) upper bounds; (0, d): lists have both ends
    set_rows, died, edit, dead_bits   see `Liveness`
    """
    walks, live = walks_of(source, cursor, counters), live_rows(set_rows, died, edit, dead_bits)
    boxes = np.empty(above.shape[1], np.int64)
    ends = pointer(above, 0), pointer(below, 0), pointer(upper, 0)
    query = Query(*ends, len(upper) > 0, above.shape[1])
    _best_exact(walks, live, query, boxes, rows, scores, counts)
