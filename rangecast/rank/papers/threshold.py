"""Relaxed ranking over one-dimensional structures: Fagin's Threshold Algorithm (paper 003, sec. 4).

Round by round, the walk of each attribute yields its next box that contains the event, by weight.
Of a subscription that is seen for the first time the whole score is looked up. What hasn't been
seen yet can't score more than the weights at which the walks now stand, combined; when the k-th
best so far scores more than that, nothing can change. A walk that has ended stands at 0.

No box mentions more than `most` attributes, so the `most` largest of those weights are enough for
the bound. With hundreds of attributes, of which a box mentions a few, this is what makes it stop.

A tie with the bound can be decided as well, by arrival. Take a list whose head is needed for the
bound: with the next lower weight that there is in its place, the sum would be less. Let an unseen
subscription u score exactly the bound. No weight of u is above the head of its list, so in a needed
list u has the very weight of the head. A list is in order of weight, then arrival, and u hasn't
been taken from it: so u stands behind the head, and arrived after it. Hence u arrived after the
latest head of the needed lists, and the search may also stop if the k-th best scores the bound and
arrived no later than that one. If more heads are positive than a box mentions attributes (`most`),
the same is done where the `most` largest heads are equal, w: u has w in `most` of the lists at w,
and arrived after the `most`-th earliest of their heads. Without this, subscriptions of one weight
(the usual case) would be fetched to the last one.

Sums are in attribute order, as scores are. Rounding keeps the order of two such sums of which one
has no larger weight anywhere, so all of this holds of the rounded sums; only the bound by the
`most` largest, which are added in another order, needs some slack.

The usual combination is the sum. Of the others (`rank.combine`), too, the most that the heads can
give is what an unseen subscription can score at most. The least or the largest of its weights is
as much as that, the largest head, only if one of its weights is a head of that size: it stands
behind it in that list, and so arrived after the earliest of the largest heads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64, U8, offsets_of
from rangecast.kernels.bundle import Bundle, edited, opened
from rangecast.kernels.jit import jit
from rangecast.model.boxes import Boxes
from rangecast.rank.liveness import is_live, live_rows
from rangecast.rank.papers.cursor import Walks, begin, getnext, walks_of, worth
from rangecast.rank.result import TESTED
from rangecast.rank.scores.combine import PRODUCT, SUM, initial_value, joined, limit_of
from rangecast.rank.top import insert

_SLACK = 1.0 + 1e-9
"""The bound is summed in another order than scores are: it must not come out lower."""
_MAX_LEVELS = 1024


class Lookup(NamedTuple):
    """Look-up of whole subscriptions."""

    first_box: I64
    """(rows + 1,) its boxes."""
    first_term: I64
    """(boxes + 1,) the terms of each: the attributes that it mentions, ascending."""
    axis: I32
    lo: F64
    hi: F64
    """(terms,)"""
    levels: F64
    """The distinct weights, ascending from 0; empty if there are too many: ties are rare then."""
    most: int
    """Attributes that a box mentions at most."""


def lookup_of(boxes: Boxes) -> Bundle[Lookup]:
    """Return how to look the subscriptions of some boxes up."""
    box, axis = np.nonzero(boxes.mentions)
    counts = boxes.mentions.sum(axis=1)
    lookup = Lookup(
        boxes.box_offsets,
        offsets_of(counts),
        axis.astype(np.int32),
        boxes.lo[box, axis],
        boxes.hi[box, axis],
        levels_of(boxes.weights),
        int(counts.max(initial=1)),
    )
    return Bundle(lookup)


def levels_of(weights: F64 | None) -> F64:
    """Return the `levels` of some weights; `None`: all are 1."""
    levels = np.unique(np.append(0.0, 1.0 if weights is None else weights))
    return levels if len(levels) <= _MAX_LEVELS else levels[:0]


@edited
class SeenSubscriptions(NamedTuple):
    """Which subscriptions an event has seen, and at which weights its walks stand."""

    marks: I32
    """(rows,) the last event that saw each."""
    heads: F64
    """(d,) 0: the walk has ended."""
    going: I32
    """(d,) 1 while a walk goes on."""
    rows: I32
    """(d,) the subscription at which a walk stands, while it goes on."""


def new_seen(rows: int, dimensions: int) -> Bundle[SeenSubscriptions]:
    """Return the scratch of a batch."""
    going, at = np.zeros(dimensions, np.int32), np.zeros(dimensions, np.int32)
    return Bundle(SeenSubscriptions(np.full(rows, -1, np.int32), np.zeros(dimensions), going, at))


@jit
def _begin_all(walks: Walks, point: F64, seen: SeenSubscriptions) -> None:
    for axis in range(len(point)):
        seen.going[axis] = walks.source.top[axis] >= 0
        seen.heads[axis] = 0.0
        if seen.going[axis]:
            begin(walks, axis, point[axis], point[axis])


@jit
def _round(
    walks: Walks, point: F64, event: int, seen: SeenSubscriptions, rows: I32, filled: int
) -> tuple[int, bool]:
    """Read the next box of each attribute; append rows not seen before to `rows`.

    Returns how far `rows` is filled, and whether some walk goes on.
    """
    has_more = False
    for axis in range(len(point)):
        if not seen.going[axis]:
            continue
        box = getnext(walks, axis, point[axis], point[axis])
        if box < 0:
            seen.going[axis] = 0
            seen.heads[axis] = 0.0
            continue
        has_more = True
        seen.heads[axis] = worth(walks.source, axis, box)
        row = walks.source.owner[box]
        seen.rows[axis] = row
        if seen.marks[row] != event:
            seen.marks[row] = event
            rows[filled] = row
            filled += 1
    return filled, has_more


@jit
def _score(walks: Walks, lookup: Lookup, combine: int, row: int, point: F64) -> float:
    """Return the score of a subscription's best box, at least one term of which holds."""
    best = -1.0
    for box in range(lookup.first_box[row], lookup.first_box[row + 1]):
        walks.counters[TESTED] += 1
        total = initial_value(combine)
        held = False
        for term in range(lookup.first_term[box], lookup.first_term[box + 1]):
            axis = lookup.axis[term]
            if lookup.lo[term] <= point[axis] and point[axis] <= lookup.hi[term]:
                total = joined(combine, total, worth(walks.source, axis, box))
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
        slot = filled if filled < most else most - 1
        while slot and largest[slot - 1] < value:
            largest[slot] = largest[slot - 1]
            slot -= 1
        largest[slot] = value
        filled = min(filled + 1, most)
    for slot in range(filled):
        total += largest[slot]
    return total * _SLACK


@jit
def _next_lower(levels: F64, weight: float) -> float:
    """Return the next lower weight that there is."""
    level = int(np.searchsorted(levels, weight))
    return float(levels[max(level - 1, 0)])


@jit
def _latest_needed(seen: SeenSubscriptions, levels: F64, total: float) -> int:
    """Return the latest row at which a walk stands that the sum of the heads needs; -1: none."""
    heads = seen.heads
    latest = -1
    for axis in range(len(heads)):
        if heads[axis] <= 0.0 or seen.rows[axis] <= latest:
            continue
        lower = 0.0
        for other in range(len(heads)):
            lower += _next_lower(levels, heads[axis]) if other == axis else heads[other]
        if lower < total:
            latest = seen.rows[axis]
    return latest


@jit
def _earliest_of_equal(
    seen: SeenSubscriptions, levels: F64, most: int, score: float, earliest: I32
) -> int:
    """Return the `most`-th earliest row of the walks at the largest head; -1: undecided.

    It decides if the score is the sum of `most` such heads, and each of them is needed for it.
    """
    head = seen.heads.max()
    lower = _next_lower(levels, head)
    for without in range(-1, most):
        total = 0.0
        for slot in range(most):
            total += lower if slot == without else head
        if (total == score) != (without < 0):
            return -1
    filled = 0
    for axis in range(len(seen.heads)):
        row = seen.rows[axis]
        if seen.heads[axis] != head or (filled == most and row >= earliest[most - 1]):
            continue
        slot = filled if filled < most else most - 1
        while slot and earliest[slot - 1] > row:
            earliest[slot] = earliest[slot - 1]
            slot -= 1
        earliest[slot] = row
        filled = min(filled + 1, most)
    return int(earliest[most - 1]) if filled == most else -1


@jit
def _earliest_of_largest(seen: SeenSubscriptions) -> int:
    """Return the earliest row at which a walk stands that has the largest head; -1: all ended."""
    head, earliest = seen.heads.max(), -1
    for axis in range(len(seen.heads)):
        if seen.going[axis] and seen.heads[axis] == head:
            row = int(seen.rows[axis])
            earliest = row if earliest < 0 else min(earliest, row)
    return earliest


@jit
def _is_final(
    seen: SeenSubscriptions,
    lookup: Lookup,
    combine: int,
    largest: F64,
    earliest: I32,
    score: float,
    row: int,
) -> bool:
    """Return whether no unseen subscription comes before one with this score and row.

    `largest` and `earliest` are scratch for the `most` largest heads, and for rows of such.
    """
    if combine != SUM:
        limit = limit_of(combine, seen.heads)
        if score != limit or combine == PRODUCT:
            return score > limit
        return row <= _earliest_of_largest(seen)
    positive = 0
    total = 0.0
    for head in seen.heads:
        positive += head > 0.0
        total += head
    if positive > lookup.most:
        if score > bound(seen.heads, lookup.most, largest):
            return True
        if len(lookup.levels) == 0:
            return False
        return row <= _earliest_of_equal(seen, lookup.levels, lookup.most, score, earliest)
    if score != total or len(lookup.levels) == 0:
        return score > total
    return row <= _latest_needed(seen, lookup.levels, total)


@jit
def best_relaxed(
    source: I64,
    lookup_table: I64,
    combine: int,
    points: F64,
    set_rows: I32,
    died: I64,
    edit: int,
    dead_bits: U8,
    cursor: I64,
    seen_table: I64,
    rows: I32,
    scores: F64,
    counts: I64,
    counters: I64,
) -> None:
    """Write the best by the weights that hold, as many as there is room.

    source, lookup_table, cursor, seen_table   tables of bundles
    combine                                    the number of the combination
    set_rows, died, edit, dead_bits            see `Liveness`
    """
    d = points.shape[1]
    walks, live = walks_of(source, cursor, counters), live_rows(set_rows, died, edit, dead_bits)
    lookup, seen = opened(lookup_table, Lookup), opened(seen_table, SeenSubscriptions)
    scratch = np.empty(d, np.int32)
    largest = np.empty(lookup.most + 1)
    earliest = np.empty(lookup.most + 1, np.int32)
    k = rows.shape[1]
    for event in range(len(points)):
        point = points[event]
        _begin_all(walks, point, seen)
        filled = 0
        going = k > 0
        while going:
            fresh, going = _round(walks, point, event, seen, scratch, 0)
            for i in range(fresh):
                if is_live(live, scratch[i]):
                    score = _score(walks, lookup, combine, scratch[i], point)
                    filled = insert(rows[event], scores[event], filled, scratch[i], score)
            if filled == k:
                score, row = scores[event, k - 1], rows[event, k - 1]
                if _is_final(seen, lookup, combine, largest, earliest, score, row):
                    break
        counts[event] = filled
