"""State of the sources that the server polls, for users and monitoring."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection
from typing import Any

from rangecast.errors import RangecastError

logger = logging.getLogger("rangecast.server")
DEAD_LETTERS = 100
"""Skipped messages that a source lists; all of them are counted and in the server's output."""
STUCK = 5
"""Failed attempts at the same messages before a source is called stuck."""


class SourceState:
    """State of a source, for users and monitoring."""

    def __init__(self, name: str):
        self.name = name
        self.skips = False
        """Whether messages that it is stuck at are skipped."""
        self.events = self.rejected = self.failures = self.skipped = 0
        """Events that were taken and rejected, attempts that failed, and messages that were
        skipped, since the start.
        """
        self.dead_letters: deque[dict[str, Any]] = deque(maxlen=DEAD_LETTERS)
        """Newest skipped messages: their positions in the source, and the reasons."""
        self.gaps = self.missed = self.recreations = 0
        """Times that messages were gone before they were read, at most how many, and times that
        the topic or stream was made again; since the start.
        """
        self.last_gap = ""
        """Description of the last gap or recreation."""
        self.error = ""
        """Why the last attempt failed; empty once one succeeds."""
        self._identity = ""
        """Identity of the topic or stream last read."""
        self._taking = ""
        """The messages that are being taken."""
        self._failed_at, self._repeats = "", 0

    @property
    def is_stuck(self) -> bool:
        """Whether the source fails repeatedly at the same messages."""
        return self._repeats >= STUCK

    def begin(self, name: str) -> None:
        """Record which messages are read next."""
        self._taking = name

    def done(self, taken: int, rejected: int) -> None:
        """Record that the current messages are in the log, or rejected."""
        self.events += taken
        self.rejected += rejected
        self._taking = self._failed_at = self.error = ""
        self._repeats = 0

    def failed(self, error: BaseException) -> None:
        """Record a failed attempt. An unreachable source isn't stuck: it delivered nothing."""
        self.failures += 1
        self.error = f"internal error: {type(error).__name__}"
        if isinstance(error, RangecastError):
            self.error = str(error)
        if self._taking:
            self._repeats = self._repeats + 1 if self._taking == self._failed_at else 1
            self._failed_at, self._taking = self._taking, ""

    def skip(self, name: str, number: int, error: BaseException) -> None:
        """Record that a message is skipped."""
        self.skipped += 1
        reason = f"internal error: {type(error).__name__}: {error}"[:200]
        self.dead_letters.append({"source": name, "number": number, "error": reason})
        logger.warning("%s: skipping the message %s: %s", name, number, reason)

    def missing(self, name: str, begin: int, end: int) -> None:
        """Report that a range of messages was deleted before it was read."""
        self.gaps += 1
        self.missed += end - begin + 1
        self._report(name, f"messages {begin} to {end} were deleted before they were read")

    def truncated(self, name: str, at: int, end: int) -> None:
        """Report that a source has lost messages that were already read."""
        self.gaps += 1
        self._report(
            name, f"was read up to {at}, but now ends at {end}: reading it from its beginning"
        )

    def identify(self, identity: str, known: Collection[str]) -> None:
        """Record which topic or stream is read; report one recreated under the same name.

        known   identities that have positions in the log
        """
        is_new = self._identity != identity if self._identity else bool(known)
        if is_new and identity not in known:
            self.recreations += 1
            self._report(self.name, "was deleted and recreated: reading it from its beginning")
        self._identity = identity

    def _report(self, name: str, text: str) -> None:
        self.last_gap = f"{name}: {text}"
        logger.warning("%s", self.last_gap)

    def status(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {
            "source": self.name,
            "state": "stuck" if self.is_stuck else "failing" if self.error else "running",
            "events": self.events,
            "rejected": self.rejected,
            "failures": self.failures,
            "skipped": self.skipped,
            "dead_letters": [*self.dead_letters],
            "gaps": self.gaps,
            "missed": self.missed,
            "recreations": self.recreations,
            "last_gap": self.last_gap or None,
            "error": self.error or None,
        }
