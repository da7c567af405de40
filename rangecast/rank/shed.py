"""Load shedding: no more notifications than a budget allows, the best of them first.

A budget per event is just its k. A budget per second is for all events of that second together: of
their notifications the ones with the best scores stay; equal ones go by event, then by rank. What
stays of an event is always the beginning of its list. Events may come in batches: all batches are
noted first, then cut.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rangecast.errors import UsageError
from rangecast.model.boxes import Floats
from rangecast.rank.result import Best, Longs

_SECOND = 1_000_000
"""Microseconds: what timestamps are counted in."""
TIMELESS = -1
"""The window of events that have no time."""


class _Cut(NamedTuple):
    """The best notifications of a window, best first, and never more than the budget."""

    scores: Floats
    events: Longs
    ranks: Longs


class Budget:
    """So many notifications for each window."""

    def __init__(self, budget: int):
        if budget < 1:
            raise UsageError(f"a budget is at least 1 notification; given: {budget}")
        self.budget = budget
        self._cuts: dict[int, _Cut] = {}

    def note(self, best: Best, windows: Longs, first_event: int = 0) -> None:
        """Take the answers to some events into account; `windows` says to which each belongs."""
        event, rank, _, scores = best.pairs()
        window = windows[event]
        for one in np.unique(window).tolist():
            mine = window == one
            new = _Cut(scores[mine], event[mine] + first_event, rank[mine])
            old = self._cuts.get(one, _Cut(scores[:0], event[:0], rank[:0]))
            both = [np.concatenate(pair) for pair in zip(old, new, strict=True)]
            order = np.lexsort((both[2], both[1], -both[0]))[: self.budget]
            self._cuts[one] = _Cut._make(column[order] for column in both)

    def cut(self, best: Best, windows: Longs, first_event: int = 0) -> Best:
        """Return what is left of answers that were noted."""
        event, rank, _, scores = best.pairs()
        kept = np.zeros(len(event), np.bool_)
        for one, (cut_scores, events, ranks) in self._cuts.items():
            mine = windows[event] == one
            if len(cut_scores) < self.budget:
                kept |= mine
                continue
            score, last, place = cut_scores[-1], events[-1], ranks[-1]
            at = event + first_event
            level = (at < last) | ((at == last) & (rank <= place))
            kept |= mine & ((scores > score) | ((scores == score) & level))
        return best._replace(counts=np.bincount(event[kept], minlength=len(best.counts)))


def seconds_of(times: Floats) -> Longs:
    """Return the second of each timestamp, which counts microseconds; TIMELESS if it is missing."""
    known = np.isfinite(times)
    return np.where(known, np.where(known, times, 0).astype(np.int64) // _SECOND, TIMELESS)


def shed(best: Best, windows: Longs, budget: int) -> Best:
    """Return the best notifications of each window, as many as the budget allows."""
    cutting = Budget(budget)
    cutting.note(best, windows)
    return cutting.cut(best, windows)
