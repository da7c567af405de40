"""Ranking of subscriptions with shapes: an index finds candidates, which are verified.

Exact ranking asks an index over the boxes for more than k candidates, until k of them are verified
or none is left. Relaxed ranking scores every subscription: a single matching attribute is enough,
so an index would exclude few. Work: compared candidates and subscriptions count as tested.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, Bool
from rangecast.kernels.bundle import opened, pointer, pointers
from rangecast.kernels.jit import jit
from rangecast.model.boxes import Boxes
from rangecast.model.sets.rowstore import Bounds
from rangecast.model.shapes.verification.candidates import Verifier, bounds_of_boxes
from rangecast.model.shapes.verification.places import places_of
from rangecast.model.shapes.verification.programs import Programs, holds
from rangecast.rank.liveness import ALL, Liveness
from rangecast.rank.result import Best, Work, checked, new_best
from rangecast.rank.scores.combine import initial_value, joined, number_of
from rangecast.rank.scores.tolerances import NO_TOLERANCES, share_of
from rangecast.rank.top import insert

_MORE = 4
"""Factor by which more candidates are requested when too few were verified."""


class Unverified(Protocol):
    """Protocol of an index that ranks candidates."""

    name: str

    def best(self, points: F64, k: int, *, liveness: Liveness = ALL) -> Best:
        """Return the top k candidates of each event, best first."""

    @property
    def memory(self) -> int:
        """Size of its arrays in bytes."""


class Verified:
    """Ranking index by score that verifies the candidates of another index."""

    def __init__(self, index: Unverified, boxes: Boxes):
        assert boxes.space is not None
        self.index = index
        self.name = index.name
        self.rows = boxes.rows
        self.space = boxes.space
        self._verifier = Verifier(boxes.space)
        self._bounds = bounds_of_boxes(boxes)

    @property
    def memory(self) -> int:
        """Size in bytes of the index and of the boxes used to verify candidates."""
        return self.index.memory + self._bounds.memory + self._verifier.memory

    def best(self, points: F64, k: int, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of each event, best first."""
        points = checked(points, len(self.space), k)
        k = min(k, self.rows)
        rows, scores, counts = new_best(len(points), k)
        left, ask, work = np.arange(len(points)), min(2 * k, self.rows), Work()
        while len(left):
            unfilled = np.ascontiguousarray(points[left])
            unfilled.flags.writeable = False
            best = self.index.best(unfilled, ask, liveness=liveness)
            work = work.plus(best.work)
            filled = self._fill(best, unfilled, left, rows, scores, counts)
            left = left[(filled < k) & (best.counts == ask)] if ask < self.rows else left[:0]
            ask = min(_MORE * ask, self.rows)
        return Best(rows, scores, counts, work)

    def _fill(
        self, best: Best, points: F64, events: I64, rows: I32, scores: F64, counts: I64
    ) -> I64:
        """Write the first verified candidates; return their number per event."""
        event, _, candidate, score = best.pairs()
        ends = np.concatenate([[0], np.cumsum(best.counts)])
        read, alive = self._verifier.places.readable(points)
        held, _ = self._verifier.are_held(self._bounds, self.rows, read, ends, candidate)
        del alive  # the texts that were read
        event, candidate, score = event[held], candidate[held], score[held]
        rank = np.arange(len(event)) - np.searchsorted(event, event)
        fits = rank < rows.shape[1]
        at = events[event[fits]], rank[fits]
        rows[at], scores[at] = candidate[fits], score[fits]
        number = np.bincount(event[fits], minlength=len(points))
        counts[events] = number
        return number


@jit
def _score(
    table: I64,
    place_of_axis: I64,
    place_of_coordinate: I64,
    word_of: I64,
    programs_table: I64,
    alive: Bool,
    combine: int,
    tolerances: F64,
    weights: F64,
    points: F64,
    rows: I32,
    scores: F64,
    counts: I64,
) -> None:
    """Score all rows for each event by the weights of matching attributes; write the best.

    The bounding box of a shape is not a condition itself, so its coordinates don't count.
    """
    bounds = pointers(opened(table, Bounds))
    programs = pointers(opened(programs_table, Programs))
    at = pointer(points, 0)
    d = points.shape[1]
    for event in range(len(points)):
        filled = 0
        for row in range(len(alive)):
            if not alive[row]:
                continue
            best, is_matched = 0.0, False
            for box in range(bounds.first_box[row], bounds.first_box[row + 1]):
                total, some_hold, shapes = initial_value(combine), False, 0
                for term in range(bounds.first_term[box], bounds.first_term[box + 1]):
                    place = place_of_axis[bounds.axis[term]]
                    if place >= 0:
                        shapes |= 1 << place
                for term in range(bounds.first_term[box], bounds.first_term[box + 1]):
                    axis = bounds.axis[term]
                    place = place_of_coordinate[axis]
                    if place >= 0 and shapes >> place & 1:
                        continue
                    place = place_of_axis[axis]
                    if place >= 0:
                        held = holds(programs, word_of[place, int(bounds.lo[term])], at, event * d)
                        share = 1.0 if held else 0.0
                    else:
                        width = tolerances[axis] if len(tolerances) else 0.0
                        value = points[event, axis]
                        share = share_of(value, bounds.lo[term], bounds.hi[term], width)
                    if share > 0.0:
                        some_hold = True
                        weight = weights[row, axis] if weights.shape[1] else 1.0
                        total = joined(combine, total, weight * share)
                if some_hold:
                    best = max(best, total) if is_matched else total
                    is_matched = True
            if is_matched:
                filled = insert(rows[event], scores[event], filled, row, best)
        counts[event] = filled


class VerifiedScan:
    """Relaxed ranking of subscriptions with shapes, by scoring all of them."""

    name = "scan"

    def __init__(self, boxes: Boxes, combine: str):
        assert boxes.space is not None
        self.boxes = boxes
        self.combine = combine
        self._bounds = bounds_of_boxes(boxes)

    @property
    def memory(self) -> int:
        """Size of the boxes in bytes."""
        return self._bounds.memory

    def best(self, points: F64, k: int, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of each event, best first."""
        return self.best_near(points, k, NO_TOLERANCES, liveness=liveness)

    def best_near(self, points: F64, k: int, tolerances: F64, *, liveness: Liveness = ALL) -> Best:
        """Return the top k of each event, with a tolerance per attribute."""
        boxes = self.boxes
        points = checked(points, boxes.dimensions, k)
        rows, scores, counts = new_best(len(points), min(k, boxes.rows))
        every = np.arange(boxes.rows)
        set_rows = liveness.set_rows if len(liveness.set_rows) else every
        alive = liveness.died[set_rows] > liveness.edit if len(liveness.died) else every >= 0
        weights = np.empty((boxes.rows, 0)) if boxes.weights is None else boxes.weights
        assert boxes.space is not None
        places = places_of(boxes.space)
        assert places is not None
        tables = places.tables()
        tables_ = self._bounds.table, *tables[:3], tables.programs.table
        read, texts = places.readable(points)
        how = number_of(self.combine), tolerances, weights
        _score(*tables_, alive, *how, read, rows, scores, counts)
        del texts  # which were read
        return Best(rows, scores, counts, Work(tested=len(points) * boxes.rows))
