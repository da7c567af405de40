"""Load shedding: no more notifications than a budget allows, the best of them first.

A budget per event is just its k. A budget per second is for all events of that second together: of
their notifications the ones with the best scores stay; equal ones go by event, then by rank. What
stays of an event is always the beginning of its list.

Notifications come in pieces, by event, then by rank. What can't stay any more is dropped as pieces
come (`Budget`). If events are in order of time, a second is over when a later one begins, and what
stays of it is known; else everything that may stay waits for the last event.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.space import Space
from rangecast.model.validation.arguments import whole
from rangecast.rank.result import Best

_SECOND = 1_000_000
"""Microseconds: what timestamps are counted in."""
WINDOW = "_window"
"""The column with the window of a notification."""
TIMELESS = np.iinfo(np.int64).min
"""The window of events that have no time."""


def limits(space: Space, k: int, limit: int | None, clock: str | None) -> tuple[int, int | None]:
    """Return how many an event gets at most, and the axis of the clock, if there is one."""
    if limit is not None:
        k = min(whole("k", k), whole("limit", limit))
    if clock is None:
        return k, None
    attribute = space[clock]
    if limit is None or not isinstance(attribute, Timestamp):
        raise UsageError(
            "a clock is a timestamp attribute, and each of its seconds has a limit\n"
            f"  given: {clock!r}, a {attribute.type}, and limit={limit}\n"
            "  hint: give both, such as limit=1000 and the name of a timestamp; or no clock"
        )
    return k, space.axis(clock)


def staying(windows: I64, scores: F64, budget: int) -> Bool:
    """Return which notifications stay: the best of each window; equal ones as they come."""
    if budget < 1:
        raise UsageError(f"a budget is at least 1 notification; given: {budget}")
    order = np.lexsort((-scores, windows))  # stable: equal ones stay as they come
    sorted_windows = windows[order]
    place = np.arange(len(order)) - np.searchsorted(sorted_windows, sorted_windows)
    stay = np.empty(len(order), np.bool_)
    stay[order] = place < budget
    return stay


def shed(best: Best, windows: I64, budget: int) -> Best:
    """Return the best notifications of each window, as many as the budget allows."""
    event, _, _, scores = best.pairs()
    stay = staying(windows[event], scores, budget)
    return best._replace(counts=np.bincount(event[stay], minlength=len(best.counts)))


class Budget:
    """At most this many notifications per window, of tables with the columns `WINDOW`, `score`."""

    def __init__(self, budget: int, *, in_order: bool):
        """Say whether no notification is of an earlier window than the one before it."""
        self.budget = budget
        self.in_order = in_order
        self.most_held = 0
        """The most notifications that were held at once."""
        self._held: pa.Table | None = None
        self._left = 0
        """How many were left when some were dropped last."""
        self._window = TIMELESS
        """The last window that came."""

    def add(self, piece: pa.Table) -> pa.Table:
        """Take some notifications; return those that surely stay, in the order in which they came.

        In order of time, that is all but the last window; otherwise none before the end.
        """
        held = piece if self._held is None else pa.concat_tables([self._held, piece])
        self.most_held = max(self.most_held, len(held))
        over = self._over(piece, len(held) - len(piece))
        if over == 0 and len(held) <= 2 * self._left:  # looking at all each time is slow
            self._held = held
            return piece.slice(0, 0)
        done = self._staying(held.slice(0, over))
        self._held = self._staying(held.slice(over))
        self._left = len(self._held)
        return done

    def _over(self, piece: pa.Table, before: int) -> int:
        """Return how many notifications are of windows that are over, with a piece put last."""
        if not self.in_order or not len(piece):
            return 0
        windows = piece[WINDOW].to_numpy()
        if windows[0] < self._window or (windows[1:] < windows[:-1]).any():
            raise UsageError("events aren't in order of time, as was said; say in_order=False")
        same = windows[-1] == self._window
        self._window = windows[-1]
        return 0 if same else before + int(np.searchsorted(windows, windows[-1]))

    def end(self) -> list[pa.Table]:
        """Return what stays of those that are held: a table, or none if there was none."""
        return [] if self._held is None else [self._staying(self._held)]

    def _staying(self, held: pa.Table) -> pa.Table:
        windows, scores = held[WINDOW].to_numpy(), held["score"].to_numpy()
        return held.filter(pa.array(staying(windows, scores, self.budget))).combine_chunks()


def seconds_of(times: F64) -> I64:
    """Return the second of each timestamp, which counts microseconds; TIMELESS if it is missing."""
    known = np.isfinite(times)
    return np.where(known, np.where(known, times, 0).astype(np.int64) // _SECOND, TIMELESS)
