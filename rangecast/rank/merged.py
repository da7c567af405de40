"""The best of several parts as one answer: by score, then arrival."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rangecast.model.boxes import Rows
from rangecast.rank.result import Best, Longs, Work


def renamed(best: Best, names: Rows) -> Best:
    """Return an answer in the rows of the whole; places that aren't filled stay undefined."""
    if not len(names):
        return best
    places = np.arange(best.rows.shape[1]) < best.counts[:, None]
    return best._replace(rows=names[np.where(places, best.rows, 0)])


def merged(parts: Sequence[Best], arrival: Longs | None, k: int) -> Best:
    """Return the k best of all parts, whose rows are those of the whole.

    Ties go by `arrival[row]`; by row without it.
    """
    events = len(parts[0].counts)
    rows = np.concatenate([part.rows for part in parts], axis=1)
    scores = np.concatenate([part.scores for part in parts], axis=1)
    there = np.concatenate(
        [np.arange(part.rows.shape[1]) < part.counts[:, None] for part in parts], axis=1
    )
    event, place = np.nonzero(there)
    row, score = rows[event, place], scores[event, place]
    order = np.lexsort((row if arrival is None else arrival[row], -score, event))
    counts = there.sum(axis=1)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = order[rank < k]
    rank = rank[rank < k]
    out_rows, out_scores = np.zeros((events, k), np.int32), np.zeros((events, k))
    out_rows[event[kept], rank] = row[kept]
    out_scores[event[kept], rank] = score[kept]
    work = Work()
    for part in parts:
        work = work.plus(part.work)
    return Best(out_rows, out_scores, np.minimum(counts, k), work)
