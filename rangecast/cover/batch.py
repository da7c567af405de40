"""Covering of a whole set at once: the coverer of each subscription, and the uncovered ones.

Subscriptions are taken the largest first, so that what covers one mostly comes before it, and the
index never holds much more than the kept ones. Largest means by the sum of codes: a coordinate's
code is the number of its cell, 255 at most, and what covers has no lower one. The order changes the
time only: the result is always the roots of the graph.

Then, for each of the others, the one kept that covers it and arrived first is looked for: among a
few of the earliest, then twice as many, and so on until one is found. So rows with many coverers
are resolved among the first few, and only rows with few coverers need a full search.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rangecast.cover.blocks.index import Blocks
from rangecast.cover.graph import kernels_for
from rangecast.cover.live import Live
from rangecast.cover.store import NONE, Store, boxes_of, points_of
from rangecast.errors import UsageError
from rangecast.kernels.arrays import I32, I64
from rangecast.kernels.bundle import Bundle
from rangecast.kernels.grid import cells_of, edges_of_bounds
from rangecast.model.boxes import Boxes
from rangecast.model.shapes.nesting import with_nested

_CELLS = 255
_SAMPLE = 1 << 14
_SHARE, _FEW = 256, 1024
"""The first pass samples one in this many of the uncovered boxes, but at least `_FEW`."""


def covered_by(boxes: Boxes) -> I32:
    """Return for each subscription the row of the earliest uncovered one that covers it, else -1.

    Uncovered are those that no other one covers; of those that cover each other, the earliest.
    """
    coverers = np.full(boxes.rows, NONE, np.int32)
    if boxes.rows == 0:
        return coverers
    boxes = with_nested(boxes)
    live = Live(Blocks(boxes.dimensions), boxes.dimensions, 1, roots_only=True)
    rows = live.new_rows(boxes.lo, boxes.hi, boxes.owner, boxes.rows)
    live.do(rows[_largest_first(boxes)], np.ones(len(rows), np.uint8))
    kept = live.roots()
    covered = np.setdiff1d(rows, kept, assume_unique=True)
    coverers[covered] = _earliest(live.store, boxes.dimensions, kept, covered)
    return coverers


def earliest_coverers(kept: Boxes, kept_arrival: I64, boxes: Boxes, arrival: I64) -> I32:
    """Return for each of `boxes` the position in `kept` of the earliest one that covers it, or -1.

    Of two that cover each other only the one that arrived first counts. A subscription may be in
    both sets: it doesn't cover itself.
    """
    if kept.dimensions != boxes.dimensions or kept_arrival.shape != (kept.rows,):
        raise UsageError("both sets must belong to the same space and have one arrival per row")
    live = Live(Blocks(kept.dimensions), kept.dimensions, 1, roots_only=True)
    above = live.new_rows(kept.lo, kept.hi, kept.owner, kept.rows)
    below = live.new_rows(boxes.lo, boxes.hi, boxes.owner, boxes.rows)
    came = live.store.arrays.arrival
    came[above], came[below] = kept_arrival, arrival
    return _earliest(live.store, kept.dimensions, live.by_arrival(above), below)


def _earliest(store: Bundle[Store], dimensions: int, kept: I64, rows: I32) -> I32:
    """Return for each row the first of `kept`, which is in order of arrival, that is above it."""
    coverers = np.full(len(rows), NONE, np.int32)
    open_places = np.arange(len(rows))
    index = Blocks(dimensions)
    index.reserve(len(store.arrays.owner))
    kernels = kernels_for(index)
    for piece in _doubling_slices(kept):
        index.hold(store, boxes_of(store.arrays, piece))
        above = np.empty(len(open_places), np.int32)
        kernels.earliest_above(index.state.table, store.table, rows[open_places], above)
        coverers[open_places] = above
        open_places = open_places[above == NONE]
    return coverers


def _doubling_slices(rows: I64) -> Iterator[I64]:
    """Yield the first few rows, then twice as many, and so on."""
    begin, size = 0, max(_FEW, len(rows) // _SHARE)
    while begin < len(rows):
        yield rows[begin : begin + size]
        begin, size = begin + size, 2 * size


def _largest_first(boxes: Boxes) -> I64:
    """Return the rows in an order in which a row mostly follows those that cover it."""
    points = points_of(boxes.lo, boxes.hi)
    sampled = np.random.default_rng(0).choice(len(points), min(len(points), _SAMPLE), replace=False)
    total = np.zeros(len(points), np.int64)
    for column in points.T:
        edges = edges_of_bounds(column[sampled], np.empty(0), _CELLS)
        total += cells_of(edges, column)
    largest = np.maximum.reduceat(total, boxes.box_offsets[:-1])
    return np.argsort(-largest, kind="stable")
