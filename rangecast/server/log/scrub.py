"""Background verification of the part of the log that isn't read at start-up.

Start-up reads only the log after the newest snapshot. Damage before it would be found by the first
consumer that reads there, perhaps weeks later. So everything is read once, at half speed, and
damage is reported early: in the log lines, the status, the metrics and by `/readyz`.
"""

from __future__ import annotations

import logging
import threading
import time

from rangecast.server.log.base import Log, LogError

logger = logging.getLogger("rangecast.server")
_PIECE = 1 << 20
"""Bytes that are read at a time."""


class Scrub:
    """Reads a log up to a seq in its own thread. Reading verifies every unit."""

    def __init__(self, log: Log, upto: int):
        self._log = log
        self._upto = upto
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rangecast-scrub", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        if self._log.first <= self._upto:
            self._thread.start()

    def stop(self) -> None:
        """Stop after the current piece."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def wait(self) -> None:
        """Wait until the whole log is verified."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        at = self._log.first - 1
        while at < self._upto and not self._ending.is_set():
            began = time.monotonic()
            try:
                units = self._log.read(at, _PIECE)
                if not units:
                    return
                at = units[-1].last
            except LogError as error:
                logger.error("%s", error)
                at = max(at, min((seq for seq in self._log.damage if seq > at), default=at)) + 1
            except Exception:  # reading of others goes on, and says what it meets
                logger.exception("verification of the log stopped at seq %s", at)
                return
            self._ending.wait(time.monotonic() - began)
