"""The clocks of a server in the process of a test: they go on, and jump, when told."""

from __future__ import annotations

import pytest


class SetClock:
    """Stands for the module `time`; the monotonic clock never jumps."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self._steady = 5.0

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds
        self._steady += seconds

    def jump(self, seconds: float) -> None:
        """Set the system's clock to another time."""
        self.seconds += seconds

    def time_ns(self) -> int:
        return int(self.seconds * 1e9)

    def monotonic_ns(self) -> int:
        return int(self._steady * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    made = SetClock()
    monkeypatch.setattr("rangecast.server.log.clock.time", made)
    return made
