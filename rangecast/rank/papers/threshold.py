"""Relaxed ranking over one-dimensional structures: Fagin's Threshold Algorithm (paper 003, sec. 4).

Round by round, the walk of each attribute yields its next box that holds the event, by weight. Of a
subscription that is seen for the first time the whole score is looked up. What hasn't been seen yet
can't score more than the weights at which the walks now stand, combined; when the k-th best so far
scores more than that, nothing can change any more. (As much isn't enough: the unseen one may have
arrived earlier.) A walk that has ended stands at 0.

No box mentions more than `most` attributes, so the `most` largest of those weights are enough for
the bound. With hundreds of attributes, of which a box mentions a few, this is what makes it stop.

The usual combination is the sum, in attribute order. Any other one that never falls when a weight
grows will do: it is given as a function over arrays, and called for some rounds at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.jit import jit
from rangecast.model.boxes import Boxes
from rangecast.rank.life import Life, lives
from rangecast.rank.papers.cursor import Cursor, Walks, begin, getnext, walks_of, worth
from rangecast.rank.papers.source import Source
from rangecast.rank.result import TESTED, Best, Work, new_best, new_counters
from rangecast.rank.terms import Terms
from rangecast.rank.top import insert

Combine = Callable[[F64], F64]
"""(boxes, d) weights of the attributes that hold, 0 for the others -> (boxes,) scores."""

_SLACK = 1.0 + 1e-9
"""The bound is summed in another order than scores are: it must not come out lower."""
_ROUNDS = 8
"""Rounds before another combination than the sum is looked at; then twice as many, and so on."""


class Lookup(NamedTuple):
    """How to look a subscription up as a whole."""

    terms: Terms
    first_box: I64
    last_box: I64
    """(rows,) its boxes."""
    most: int
    """Attributes that a box mentions at most."""


class Seen(NamedTuple):
    """Which subscriptions an event has seen, and at which weights its walks stand."""

    marks: I32
    """(rows,) the last event that saw each."""
    heads: F64
    """(d,) 0: the walk has ended."""
    going: I32
    """(d,) 1 while a walk goes on."""


def new_seen(rows: int, dimensions: int) -> Seen:
    """Return the scratch of a batch."""
    return Seen(np.full(rows, -1, np.int32), np.zeros(dimensions), np.zeros(dimensions, np.int32))


@jit
def _begin_all(walks: Walks, point: F64, seen: Seen) -> None:
    for axis in range(len(point)):
        seen.going[axis] = walks.top[axis] >= 0
        seen.heads[axis] = 0.0
        if seen.going[axis]:
            begin(walks, axis, point[axis])


@jit
def _round(
    walks: Walks, point: F64, event: int, seen: Seen, found: I32, filled: int
) -> tuple[int, bool]:
    """Take the next box of each attribute; append rows not seen before to `found`.

    Returns how far `found` is filled, and whether some walk goes on.
    """
    some = False
    for axis in range(len(point)):
        if not seen.going[axis]:
            continue
        box = getnext(walks, axis, point[axis])
        if box < 0:
            seen.going[axis] = 0
            seen.heads[axis] = 0.0
            continue
        some = True
        seen.heads[axis] = worth(walks, axis, box)
        row = walks.owner[box]
        if seen.marks[row] != event:
            seen.marks[row] = event
            found[filled] = row
            filled += 1
    return filled, some


@jit
def _score(walks: Walks, lookup: Lookup, row: int, point: F64) -> float:
    """Return the score of a subscription's best box, at least one term of which holds."""
    best = -1.0
    terms = lookup.terms
    for box in range(lookup.first_box[row], lookup.last_box[row]):
        walks.counters[TESTED] += 1
        total = 0.0
        held = False
        for term in range(terms.first[box], terms.last[box]):
            axis = terms.axis[term]
            if terms.lo[term] <= point[axis] and point[axis] <= terms.hi[term]:
                total += worth(walks, axis, box)
                held = True
        if held:
            best = max(best, total)
    return best


@jit
def bound(heads: F64, most: int, largest: F64) -> float:
    """Return what the sum of the `most` largest heads is at most; `largest` is scratch."""
    total = 0.0
    if 2 * most >= len(heads):
        for axis in range(len(heads)):
            total += heads[axis]
        return total * _SLACK
    filled = 0
    for axis in range(len(heads)):
        value = heads[axis]
        if filled == most and value <= largest[most - 1]:
            continue
        place = filled if filled < most else most - 1
        while place and largest[place - 1] < value:
            largest[place] = largest[place - 1]
            place -= 1
        largest[place] = value
        filled = min(filled + 1, most)
    for place in range(filled):
        total += largest[place]
    return total * _SLACK


@jit
def best_relaxed(
    source: Source,
    lookup: Lookup,
    points: F64,
    life: Life,
    cursor: Cursor,
    seen: Seen,
    rows: I32,
    scores: F64,
    counts: I64,
    counters: I64,
) -> None:
    """Write the best by the sum of the weights that hold, as many as there is room."""
    d = points.shape[1]
    walks = walks_of(source, cursor, counters)
    found = np.empty(d, np.int32)
    largest = np.empty(lookup.most + 1)
    k = rows.shape[1]
    for event in range(len(points)):
        point = points[event]
        _begin_all(walks, point, seen)
        filled = 0
        going = k > 0
        while going:
            fresh, going = _round(walks, point, event, seen, found, 0)
            for i in range(fresh):
                if lives(life, found[i]):
                    score = _score(walks, lookup, found[i], point)
                    filled = insert(rows[event], scores[event], filled, found[i], score)
            if filled == k and scores[event, k - 1] > bound(seen.heads, lookup.most, largest):
                break
        counts[event] = filled


@jit
def _rounds(
    source: Source,
    cursor: Cursor,
    counters: I64,
    point: F64,
    event: int,
    rounds: int,
    seen: Seen,
    found: I32,
    fresh: bool,
) -> tuple[int, bool]:
    """Do some rounds, the first of an event if `fresh`; return as `_round` does."""
    walks = walks_of(source, cursor, counters)
    if fresh:
        _begin_all(walks, point, seen)
    filled, going = 0, True
    while rounds and going:
        filled, going = _round(walks, point, event, seen, found, filled)
        rounds -= 1
    return filled, going


def best_combined(
    source: Source,
    boxes: Boxes,
    points: F64,
    k: int,
    combine: Combine,
    cursor: Cursor,
) -> Best:
    """Return the best by any combination that never falls when a weight grows."""
    d = boxes.dimensions
    mentioned, first_box = boxes.mentions, boxes.box_offsets
    weights = np.ones((boxes.rows, d)) if boxes.weights is None else boxes.weights
    rows, scores, counts = new_best(len(points), k)
    seen, counters = new_seen(boxes.rows, d), new_counters()
    for event, point in enumerate(points):
        best: list[tuple[float, int]] = []
        rounds, going = _ROUNDS, True
        while going:
            found = np.empty(rounds * d, np.int32)
            begun = rounds == _ROUNDS
            filled, going = _rounds(
                source, cursor, counters, point, event, rounds, seen, found, begun
            )
            for row in found[:filled].tolist():
                some = slice(first_box[row], first_box[row + 1])
                held = (boxes.lo[some] <= point) & (point <= boxes.hi[some]) & mentioned[some]
                held = held[held.any(axis=1)]
                counters[TESTED] += len(held)
                score = combine(np.where(held, weights[row], 0.0)).max()
                best.append((-float(score), row))
            best = sorted(best)[:k]
            limit = float(combine(seen.heads[None, :])[0])
            if len(best) == k and -best[-1][0] > limit:
                break
            rounds *= 2
        counts[event] = len(best)
        rows[event, : len(best)] = [row for _, row in best]
        scores[event, : len(best)] = [-score for score, _ in best]
    return Best(rows, scores, counts, Work.of(counters))
