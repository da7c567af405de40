"""Scores that depend on the event: a factor for each event and subscription, within known bounds.

What a subscription scores for an event is its own score times a factor that somebody computes: how
near the event is, how sure its values are. The factor isn't known beforehand, but the least and the
most that it can be are. So the best are found as without it, by score, some more of them each time;
as soon as the k-th best product is above what the next score could become, the rest can't matter.

Uncertain events are one use of this. A value lies between two ends with a probability, and may be
anything otherwise. A subscription that contains the spans of all attributes that it mentions holds
at least with the product of their probabilities, and that is its factor.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes, Floats, Rows
from rangecast.rank.result import Best, Longs, Work, checked, new_best
from rangecast.rank.slabs import Slabs

Factor = Callable[[int, Rows], npt.ArrayLike]
"""(event, rows) -> what the scores of these rows are multiplied with for this event."""
Search = Callable[[Longs, int], Best]
"""(events, k) -> the k best of these events by their own scores."""
_MORE = 4
"""Times as many are looked for in the next turn."""


def best_adjusted(
    search: Search, events: int, k: int, factor: Factor, least: float, most: float
) -> Best:
    """Return the k best by score times factor, where least <= factor <= most."""
    if not 0 <= least <= most < np.inf:
        raise UsageError(f"a factor lies between 0 and a finite most; given: {least} to {most}")
    rows, scores, counts = new_best(events, k)
    todo, ask = np.arange(events), 2 * k
    work = Work()
    while len(todo):
        found = search(todo, ask)
        work = work.plus(found.work)
        unfinished = []
        for place, event in enumerate(todo.tolist()):
            some, raw = found.of(place)
            times = np.broadcast_to(np.asarray(factor(event, some), np.float64), raw.shape)
            if len(times) and not ((least <= times) & (times <= most)).all():
                raise UsageError(
                    f"a factor of event {event} isn't within {least} and {most}: {times}"
                )
            products = raw * times
            order = np.lexsort((some, -products))[:k]
            if len(some) == ask:  # there may be more
                limit = raw[-1] * (most if raw[-1] >= 0 else least)
                if not (len(order) == k and products[order[-1]] > limit):
                    unfinished.append(event)
                    continue
            counts[event] = len(order)
            rows[event, : len(order)] = some[order]
            scores[event, : len(order)] = products[order]
        todo, ask = np.array(unfinished, np.int64), _MORE * ask
    return Best(rows, scores, counts, work)


def best_uncertain(
    slabs: Slabs, boxes: Boxes, lo: Floats, hi: Floats, probability: Floats, k: int
) -> Best:
    """Return the k best of uncertain events by score times the probability that they surely hold.

    lo, hi, probability   (events, d): the value lies within lo and hi with this probability
    """
    first, last = checked(lo, boxes.dimensions, k), checked(hi, boxes.dimensions, k)
    sure = checked(probability, boxes.dimensions, k)
    if sure.shape != first.shape or not ((sure >= 0) & (sure <= 1)).all():
        raise UsageError(f"probabilities lie between 0 and 1, of the shape {first.shape}")
    first_box, mentioned = boxes.first, boxes.mentioned

    def factor(event: int, rows: Rows) -> Floats:
        times = np.zeros(len(rows))
        for place, row in enumerate(rows.tolist()):
            some = slice(first_box[row], first_box[row + 1])
            held = (boxes.lo[some] <= first[event]) & (last[event] <= boxes.hi[some])
            each = np.where(mentioned[some][held.all(axis=1)], sure[event], 1.0)
            times[place] = np.multiply.reduce(each, axis=1).max()
        return times

    def search(events: Longs, ask: int) -> Best:
        return slabs.best_spans(first[events], last[events], ask, "contain")

    return best_adjusted(search, len(first), k, factor, 0.0, 1.0)
