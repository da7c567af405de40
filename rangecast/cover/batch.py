"""All of a set at once: what covers each subscription, and which are to be kept.

Subscriptions are taken the largest first, so that what covers one mostly comes before it, and the
index never holds much more than what is kept. Largest means by the sum of codes: a coordinate's
code is the number of its cell, 256 at most, and what covers has no lower one. Which order it is
changes the time only: the roots of the graph are what is to be kept, whatever comes first. Then,
for each of the others, the one kept that covers it and arrived first is looked for.
"""

from __future__ import annotations

import numpy as np

from rangecast.cover.choose import INDEXES
from rangecast.cover.live import Live
from rangecast.cover.relations import earliest_above
from rangecast.cover.store import NONE, Ints, Longs, points_of
from rangecast.kernels.grid import cells_of, edges_of_bounds
from rangecast.model.boxes import Boxes, frozen

_CELLS = 255
_SAMPLE = 1 << 14


def covered_by(boxes: Boxes) -> Ints:
    """Return for each subscription the row of the earliest kept one that covers it, -1 if kept.

    Kept are those that no other one covers; of those that cover each other, the earliest.
    """
    found = np.full(boxes.rows, NONE, np.int32)
    if boxes.rows == 0:
        return found
    plan = INDEXES["blocks"]
    live = Live(plan.build(boxes.dimensions), boxes.dimensions, 1, roots_only=plan.roots_only)
    rows = live.new_rows(boxes.lo, boxes.hi, boxes.owner, boxes.rows)
    live.do(rows[_largest_first(boxes)], np.ones(len(rows), np.uint8))
    covered = np.setdiff1d(rows, live.roots(), assume_unique=True)
    above = np.empty(len(covered), np.int32)
    earliest_above(live.index.state, live.store, covered, above)
    found[covered] = above
    return found


def _largest_first(boxes: Boxes) -> Longs:
    """Return the rows in an order in which a row mostly follows those that cover it."""
    points = points_of(boxes.lo, boxes.hi)
    some = np.random.default_rng(0).choice(len(points), min(len(points), _SAMPLE), replace=False)
    total = np.zeros(len(points), np.int64)
    cells = np.empty(len(points), np.int32)
    for column in points.T:
        edges = edges_of_bounds(column[some], np.empty(0), _CELLS)
        cells_of(frozen(edges, np.float64), frozen(column, np.float64), cells)
        total += cells
    largest = np.maximum.reduceat(total, boxes.first[:-1])
    return np.argsort(-largest, kind="stable")
