"""Progress lines while a process waits for kernels to compile.

Most sets answer by plain comparison until another process has compiled their kernels (`ahead`).
What has no such answer waits: boards, texts, shapes, large sets. The first line comes after
`_PATIENCE` seconds of compiling, one more every `_INTERVAL` seconds. They are logged; where logging
isn't set up, they go to stderr. Nothing is said of kernels in the disk cache.
"""

from __future__ import annotations

import logging
import sys
import time
from functools import cache

from numba.core import event

LOGGER = logging.getLogger(__name__)
_PATIENCE, _INTERVAL = 1.5, 10.0


class _Progress(event.Listener):  # type: ignore[misc]
    """Listener that counts the kernels compiled by this process."""

    def __init__(self) -> None:
        self._seconds = 0.0
        """Compiling so far, without the kernels that are being compiled."""
        self._began = self._next = 0.0
        self._count = self._depth = 0
        self._module = ""
        """Module of the kernel that the process waits for; it may compile others, of numba too."""

    def on_start(self, event: event.Event) -> None:
        """Log a line if the process has compiled for long enough; kernels may be nested."""
        now = time.perf_counter()
        if not self._depth:
            self._began = now
            self._module = event.data["dispatcher"].py_func.__module__
        self._depth += 1
        self._count += 1
        seconds = self._seconds + now - self._began
        if seconds >= max(_PATIENCE, self._next):
            _say(self._module, self._count, seconds, is_first=not self._next)
            self._next = seconds + _INTERVAL

    def on_end(self, _event: event.Event) -> None:
        """Count the time of a kernel that isn't nested in another."""
        self._depth -= 1
        if not self._depth:
            self._seconds += time.perf_counter() - self._began


@cache
def report_compiling() -> None:
    """Log progress whenever this process compiles for long."""
    event.register("numba:compile", _Progress())


def _say(module: str, count: int, seconds: float, *, is_first: bool) -> None:
    text = f"compiling kernels: {count} in {seconds:.0f} s, now {module}"
    if is_first:
        text += "; once per installation, up to two minutes; `rangecast precompile` does it ahead"
    LOGGER.warning(text)
    if not LOGGER.disabled and not logging.getLogger().handlers:  # nothing shows logs
        print(text, file=sys.stderr, flush=True)
