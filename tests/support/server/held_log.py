"""A log whose appends a test holds up, or lets fail."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from rangecast.server.log.base import Draft, MemoryLog, Unit


class HeldLog(MemoryLog):
    """Counts the appends that are under way; each goes on when the test says how."""

    def __init__(self) -> None:
        super().__init__()
        self.is_held = False
        self.arrived = threading.Semaphore(0)
        """Released by each append that is held."""
        self._released = threading.Semaphore(0)
        self._error: BaseException | None = None

    def append(self, drafts: Sequence[Draft]) -> list[Unit]:
        if self.is_held:
            self.arrived.release()
            assert self._released.acquire(timeout=60)
            error, self._error = self._error, None
            if error is not None:
                raise error
        return super().append(drafts)

    def release(self, error: BaseException | None = None) -> None:
        """Let the append that is held go on, or fail."""
        self._error = error
        self._released.release()
