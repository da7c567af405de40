"""The best of several parts as one answer: by score, then arrival.

The kernel is short and keeps the GIL: giving it up beside a busy thread costs far more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rangecast.kernels.jit import jit_single
from rangecast.model.boxes import Floats, Rows
from rangecast.rank.result import Best, Longs, new_best


class Named(NamedTuple):
    """The best of a part, and the whole's row of each row of the part; none: the same."""

    best: Best
    names: Rows
    """Read-only."""


@jit_single
def _merge(
    rows: Rows,
    scores: Floats,
    counts: Longs,
    part_rows: Rows,
    part_scores: Floats,
    part_counts: Longs,
    names: Rows,
    arrival: Longs,
    out_rows: Rows,
    out_scores: Floats,
    out_counts: Longs,
) -> None:
    """Write the best of two lists an event, the second one in rows of its part.

    Ties go by arrival[row], or by row without `arrival`.
    """
    k = out_rows.shape[1]
    for event in range(len(counts)):
        first = second = filled = 0
        while filled < k and (first < counts[event] or second < part_counts[event]):
            take_first = second == part_counts[event]
            row = rows[event, first] if first < counts[event] else 0
            other = 0
            if second < part_counts[event]:
                other = part_rows[event, second]
                other = names[other] if len(names) else other
                if first < counts[event]:
                    mine, its = scores[event, first], part_scores[event, second]
                    earlier = arrival[row] < arrival[other] if len(arrival) else row < other
                    take_first = mine > its or (mine == its and earlier)
            if take_first:
                out_rows[event, filled], out_scores[event, filled] = row, scores[event, first]
                first += 1
            else:
                out_rows[event, filled] = other
                out_scores[event, filled] = part_scores[event, second]
                second += 1
            filled += 1
        out_counts[event] = filled


def merged(parts: Sequence[Named], arrival: Longs | None, k: int) -> Best:
    """Return the k best of all parts, at least one; without `arrival` ties go by row."""
    events = len(parts[0].best.counts)
    order = np.zeros(0, np.int64) if arrival is None else arrival.view()
    order.flags.writeable = False
    rows, scores, counts = new_best(events, 0)
    work = parts[0].best.work
    for place, (best, names) in enumerate(parts):
        room = min(k, rows.shape[1] + best.rows.shape[1])
        out = new_best(events, room)
        given = best.rows, best.scores, best.counts, names, order
        _merge(rows, scores, counts, *given, *out)
        rows, scores, counts = out
        work = work.plus(best.work) if place else work
    return Best(rows, scores, counts, work)
