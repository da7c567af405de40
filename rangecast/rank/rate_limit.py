"""Rate limit: keep the notifications with the highest scores, up to a maximum per second.

The maximum per event is its k. The maximum per second is for all events of that second together: of
their notifications the ones with the best scores stay; equal ones go by event, then by rank. The
notifications that stay of an event are always a prefix of its list.

Notifications come in pieces, by event, then by rank. `RateLimiter` drops those that can no longer
stay as pieces come. If events are in order of time, a second is complete when a later one begins;
otherwise all candidates wait for the last event.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError, did_you_mean
from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.space import Space
from rangecast.model.validation.arguments import check_integer
from rangecast.rank.result import Best

_SECOND = 1_000_000
"""In microseconds, the unit of timestamps."""
WINDOW = "_window"
"""The column with the window of a notification."""
TIMELESS = np.iinfo(np.int64).min
"""The window of events that have no time."""


def time_axis(space: Space, max_per_second: int | None, time_attribute: str | None) -> int | None:
    """Return the axis of the timestamp for `max_per_second`; `None` if there is no maximum.

    `time_attribute` is optional if the space has a single timestamp.
    """
    if max_per_second is None:
        if time_attribute is not None:
            raise UsageError(
                "a time attribute requires a maximum per second\n"
                f"  given: time attribute {time_attribute!r}, and no maximum per second\n"
                "  hint: give both, or neither"
            )
        return None
    check_integer("max_per_second", max_per_second)
    timestamps = [attribute.name for attribute in space if isinstance(attribute, Timestamp)]
    if time_attribute is None and len(timestamps) == 1:
        return space.axis(timestamps[0])
    if time_attribute in timestamps:
        return space.axis(time_attribute)
    if time_attribute is None:
        problem = f"this space has {len(timestamps)} timestamps; give the time attribute"
    else:
        problem = f"{time_attribute!r} isn't a timestamp of this space"
    raise UsageError(
        f"maximum per second: {problem}: {did_you_mean(time_attribute or '', timestamps)}"
    )


def staying(windows: I64, scores: F64, max_per_window: int) -> Bool:
    """Return a mask of the notifications to keep: the best of each window, ties in input order."""
    if max_per_window < 1:
        raise UsageError(f"a maximum must be at least 1 notification; given: {max_per_window}")
    order = np.lexsort((-scores, windows))  # stable: equal ones stay as they come
    sorted_windows = windows[order]
    rank = np.arange(len(order)) - np.searchsorted(sorted_windows, sorted_windows)
    stay = np.empty(len(order), np.bool_)
    stay[order] = rank < max_per_window
    return stay


def limited(best: Best, windows: I64, max_per_window: int) -> Best:
    """Return the best notifications of each window, at most `max_per_window`."""
    event, _, _, scores = best.pairs()
    stay = staying(windows[event], scores, max_per_window)
    return best._replace(counts=np.bincount(event[stay], minlength=len(best.counts)))


class RateLimiter:
    """Rate limiter for tables with the columns `WINDOW` and `score`."""

    def __init__(self, max_per_window: int, *, in_order: bool):
        """Create a limiter; `in_order`: the input is sorted by window."""
        self.max_per_window = max_per_window
        self.in_order = in_order
        self.max_held = 0
        """Maximum of notifications held at once."""
        self._held: pa.Table | None = None
        self._left = 0
        """Notifications left after the last drop."""
        self._window = TIMELESS
        """Window of the last notification."""

    def add(self, piece: pa.Table) -> pa.Table:
        """Add notifications; return those that are final, in input order.

        If the input is sorted by time, all windows but the last are final; otherwise none is.
        """
        held = piece if self._held is None else pa.concat_tables([self._held, piece])
        self.max_held = max(self.max_held, len(held))
        over = self._over(piece, len(held) - len(piece))
        if over == 0 and len(held) <= 2 * self._left:  # looking at all each time is slow
            self._held = held
            return piece.slice(0, 0)
        done = self._staying(held.slice(0, over))
        self._held = self._staying(held.slice(over))
        self._left = len(self._held)
        return done

    def _over(self, piece: pa.Table, before: int) -> int:
        """Return the number of notifications in completed windows, including a new chunk."""
        if not self.in_order or not len(piece):
            return 0
        windows = piece[WINDOW].to_numpy()
        if windows[0] < self._window or (windows[1:] < windows[:-1]).any():
            raise UsageError("events aren't in order of time; pass in_order=False")
        same = windows[-1] == self._window
        self._window = windows[-1]
        return 0 if same else before + int(np.searchsorted(windows, windows[-1]))

    def end(self) -> list[pa.Table]:
        """Return the remaining notifications: one table, or an empty list if there are none."""
        return [] if self._held is None else [self._staying(self._held)]

    def _staying(self, held: pa.Table) -> pa.Table:
        windows, scores = held[WINDOW].to_numpy(), held["score"].to_numpy()
        return held.filter(pa.array(staying(windows, scores, self.max_per_window))).combine_chunks()


def seconds_of(times: F64) -> I64:
    """Convert timestamps in microseconds to seconds; TIMELESS where one is missing."""
    known = np.isfinite(times)
    return np.where(known, np.where(known, times, 0).astype(np.int64) // _SECOND, TIMELESS)
