"""The clock of a log: strictly increasing.

It follows the system clock while that is ahead of everything written. If the system clock is
behind, because it was corrected or because the log was written on a host whose clock was ahead,
this clock runs slower than real time until the system clock has caught up.
"""

from __future__ import annotations

import threading
import time

SLOWER = 0.9
"""Seconds of this clock per second while it waits for the system's."""


class Clock:
    """Strictly increasing clock; any thread may read it."""

    def __init__(self, after: int = 0):
        """`after`: time of the last unit, in microseconds since 1970."""
        self._change = threading.Lock()
        self._now = after
        self._seen = time.monotonic_ns()

    def now(self) -> int:
        """Return the time in microseconds since 1970."""
        with self._change:
            seen, wall = time.monotonic_ns(), time.time_ns() // 1000
            slow = self._now + int((seen - self._seen) // 1000 * SLOWER)
            if wall >= slow:
                self._now, self._seen = wall, seen
            elif slow > self._now:  # fractions of a microsecond carry over
                self._now, self._seen = slow, seen
            return self._now

    def advance(self, after: int) -> None:
        """Advance past a time that another server has written."""
        with self._change:
            if after > self._now:
                self._now, self._seen = after, time.monotonic_ns()
