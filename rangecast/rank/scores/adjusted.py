"""Score factors: scores that depend on the event, by a factor per event and subscription.

The score of a subscription for an event is its own score times a factor that the caller computes:
how near the event is, how certain its values are. The factor isn't known beforehand, but its bounds
are. So the best are found as without it, by score, more of them in each round; as soon as the k-th
best product is above the upper bound of the next one, the search ends.

Uncertain events are one use of this. A value lies between two ends with a probability, and may be
anything otherwise. A subscription that contains the spans of all attributes that it mentions holds
at least with the product of their probabilities, and that is its factor: the product with its score
is what it is expected to score, if it scores nothing where it doesn't hold. A negative score comes
nearer to 0 the less probable it is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.model.boxes import Boxes
from rangecast.model.validation.flags import flag
from rangecast.rank.result import Best, Work, check_k, new_best

RowFactors = Callable[[int, I32], npt.ArrayLike]
"""(event, rows) -> factors of the scores of these rows for this event."""
Search = Callable[[I64, int], Best]
"""(events, k) -> the top k of these events by their own scores."""
_MORE = 4
"""Growth of the search from one round to the next."""


def check_adjusted(
    *, relaxed: bool, span: str | None, probabilities: bool, score_factors: bool
) -> None:
    """Reject options of a ranking that exclude each other."""
    flag("relaxed", relaxed)
    flag("probabilities", probabilities)
    if span not in (None, "overlap", "contain"):
        raise UsageError(f"span must be 'overlap' or 'contain'; given: {span!r}")
    if probabilities and (score_factors or relaxed or span == "overlap"):
        raise UsageError(
            "uncertain events are ranked exactly, by the subscriptions that contain them\n"
            "  hint: with probabilities, give no score factors, no span other than 'contain', and "
            "no relaxed ranking"
        )
    if span is not None and relaxed:
        raise UsageError("events with spans are ranked exactly, not relaxed\n  hint: choose one")


def best_adjusted(
    search: Search,
    events: int,
    k: int,
    factor: RowFactors,
    bounds: tuple[float, float],
    arrival: I64 | None = None,
) -> Best:
    """Return the top k by score times factor.

    bounds    minimum and maximum of a factor
    arrival   of each row, which ties go by; `None`: by row
    """
    check_k(k)
    least, most = bounds
    if not 0 <= least <= most < np.inf:
        raise UsageError(
            f"factor bounds must be between 0 and a finite number; given: {least} to {most}"
        )
    best: dict[int, tuple[I32, F64]] = {}
    todo, ask = np.arange(events), 2 * k
    work = Work()
    while len(todo):
        answers = search(todo, ask)
        work = work.plus(answers.work)
        unfinished = []
        for index, event in enumerate(todo.tolist()):
            ranked, raw = answers.of(index)
            times = _checked_factors(factor(event, ranked), len(ranked), least, most)
            products = raw * times + 0.0  # a negative score times 0 is 0, not -0.0
            order = np.lexsort((ranked if arrival is None else arrival[ranked], -products))[:k]
            if len(ranked) == ask:  # there may be more
                limit = raw[-1] * (most if raw[-1] >= 0 else least)
                if not (len(order) == k and products[order[-1]] > limit):
                    unfinished.append(event)
                    continue
            best[event] = ranked[order], products[order]
        todo, ask = np.array(unfinished, np.int64), _MORE * ask
    widest = max((len(ranked) for ranked, _ in best.values()), default=0)
    rows, scores, counts = new_best(events, widest)
    for event, (ranked, products) in best.items():
        counts[event] = len(ranked)
        rows[event, : len(ranked)], scores[event, : len(ranked)] = ranked, products
    return Best(rows, scores, counts, work)


def _checked_factors(values: npt.ArrayLike, count: int, least: float, most: float) -> F64:
    factors = np.asarray(values, np.float64)
    if factors.shape not in ((), (count,)):
        raise UsageError(
            f"a factor must be one number, or one for each of {count} subscriptions; given: "
            f"{factors.shape}"
        )
    wrong = factors[~((least <= factors) & (factors <= most))]
    if len(wrong):
        raise UsageError(
            f"factors must be between the given bounds, {least} and {most}; given: {wrong[0]}"
        )
    return factors


def best_uncertain(
    search: Search,
    boxes_of: Callable[[I32], Boxes],
    spans: tuple[F64, F64, F64],
    k: int,
    arrival: I64 | None = None,
) -> Best:
    """Return the top k of uncertain events by score times probability of a certain match.

    search     among those that contain the spans
    boxes_of   the subscriptions of some rows, in their order
    spans      lo, hi and probability, (events, d): the value lies within lo and hi with this
               probability
    """
    lo, hi, sure = spans
    if sure.shape != lo.shape or not ((sure >= 0) & (sure <= 1)).all():
        raise UsageError(f"probabilities must be between 0 and 1 and have the shape {lo.shape}")

    def factor(event: int, rows: I32) -> F64:
        boxes = boxes_of(rows)
        held = ((boxes.lo <= lo[event]) & (hi[event] <= boxes.hi)).all(axis=1)
        probability = np.multiply.reduce(np.where(boxes.mentions, sure[event], 1.0), axis=1)
        times = np.zeros(len(rows))  # of several boxes the best counts
        np.maximum.at(times, boxes.owner[held], probability[held])
        return times

    return best_adjusted(search, len(lo), k, factor, (0.0, 1.0), arrival)
