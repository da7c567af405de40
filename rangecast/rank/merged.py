"""Merge the top k of several parts, by score, then by arrival.

The kernel is short and keeps the GIL: releasing it next to a busy thread costs far more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I32, I64
from rangecast.kernels.jit import jit_single
from rangecast.model.boxes import frozen
from rangecast.rank.result import Best, new_best


class PartBest(NamedTuple):
    """Top k of a part, and the set's row number of each of its rows (empty: the same)."""

    best: Best
    set_rows: I32
    """Read-only."""


_SAME = frozen([], np.int32)
_PIECE = 4096
"""Events that are merged at a time."""


@jit_single
def _merge(
    rows: I32,
    scores: F64,
    counts: I64,
    set_rows: I32,
    other_rows: I32,
    other_scores: F64,
    other_counts: I64,
    other_set_rows: I32,
    arrival: I64,
    out_rows: I32,
    out_scores: F64,
    out_counts: I64,
) -> None:
    """Merge two ranked lists per event; `set_rows` maps to the set's rows (empty: the same)."""
    room = out_rows.shape[1]
    for event in range(len(counts)):
        if other_counts[event] == 0:  # most often, as the other part is small
            out_counts[event] = counts[event]
            for i in range(counts[event]):
                row = rows[event, i]
                out_rows[event, i] = set_rows[row] if len(set_rows) else row
            for i in range(counts[event]):
                out_scores[event, i] = scores[event, i]
            continue
        first = second = filled = 0
        while filled < room and (first < counts[event] or second < other_counts[event]):
            take_first = second == other_counts[event]
            row = other = np.int32(0)
            if first < counts[event]:
                row = rows[event, first]
                row = set_rows[row] if len(set_rows) else row
            if second < other_counts[event]:
                other = other_rows[event, second]
                other = other_set_rows[other] if len(other_set_rows) else other
            if first < counts[event] and second < other_counts[event]:
                mine, its = scores[event, first], other_scores[event, second]
                take_first = mine > its or (mine == its and arrival[row] < arrival[other])
            if take_first:
                out_rows[event, filled], out_scores[event, filled] = row, scores[event, first]
                first += 1
            else:
                out_rows[event, filled] = other
                out_scores[event, filled] = other_scores[event, second]
                second += 1
            filled += 1
        out_counts[event] = filled


def merged(parts: Sequence[PartBest], arrival: I64, k: int) -> Best:
    """Return the top k of one or more parts; `arrival`, read-only, breaks ties."""
    (rows, scores, counts, work), set_rows = parts[0]
    for best, its_set_rows in parts[1:]:
        room = min(k, rows.shape[1] + best.rows.shape[1])
        out = new_best(len(counts), room)
        if len(counts) <= _PIECE:
            mine = rows, scores, counts, set_rows
            _merge(*mine, best.rows, best.scores, best.counts, its_set_rows, arrival, *out)
        else:
            for first in range(0, len(counts), _PIECE):  # between pieces other threads may run
                some = slice(first, first + _PIECE)
                my = rows[some], scores[some], counts[some], set_rows
                its = best.rows[some], best.scores[some], best.counts[some], its_set_rows
                _merge(*my, *its, arrival, out[0][some], out[1][some], out[2][some])
        rows, scores, counts = out
        set_rows = _SAME
        work = work.plus(best.work)
    if len(set_rows):  # of rows that aren't there, any will do
        rows = set_rows.take(rows, mode="clip")
    return Best(rows, scores, counts, work)
