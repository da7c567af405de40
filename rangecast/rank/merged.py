"""Merge the top k of one part of a set into those of another, by score, then by arrival."""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.jit import jit


@jit
def merge_into(
    rows: I32,
    scores: F64,
    counts: I64,
    other_rows: I32,
    other_scores: F64,
    other_counts: I64,
    other_set_rows: I32,
    arrival: I64,
) -> None:
    """Merge the other ranked list of each event into the first, in place.

    rows, scores     (events, k); what has no room is dropped
    other_set_rows   maps rows of the others to rows of the set (empty: the same)
    """
    room = rows.shape[1]
    my_rows, my_scores = np.empty(room, np.int32), np.empty(room)
    for event in range(len(counts)):
        mine, others = counts[event], other_counts[event]
        if others == 0:  # most often, as the other part is small
            continue
        my_rows[:mine], my_scores[:mine] = rows[event, :mine], scores[event, :mine]
        first = second = filled = 0
        while filled < room and (first < mine or second < others):
            other = np.int32(0)
            if second < others:
                other = other_rows[event, second]
                other = other_set_rows[other] if len(other_set_rows) else other
            take_first = second == others
            if first < mine and second < others:
                score, its = my_scores[first], other_scores[event, second]
                earlier = arrival[my_rows[first]] < arrival[other]
                take_first = score > its or (score == its and earlier)
            if take_first:
                rows[event, filled], scores[event, filled] = my_rows[first], my_scores[first]
                first += 1
            else:
                rows[event, filled], scores[event, filled] = other, other_scores[event, second]
                second += 1
            filled += 1
        counts[event] = filled
