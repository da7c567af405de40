"""What NATS and Kafka have in common: how what they bring gets into the log."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rangecast.errors import RangecastError, UsageError
from rangecast.server.log.base import LogError, LogFullError
from rangecast.server.pipeline.futures import answered
from rangecast.server.state.registry import RefusedError, SpaceEntry

if TYPE_CHECKING:
    from rangecast.server.service import Service

logger = logging.getLogger("rangecast.server")
AGAIN = 1.0
"""Seconds after which a source that couldn't go on tries again."""
TAKEN = 500
"""Messages that a source takes at a time."""
TENANT = "default"
DEAD_LETTERS = 100
"""Skipped messages that a source lists; all of them are counted and in the server's output."""
STUCK = 5
"""Attempts at the same messages that fail before a source is called stuck."""
_PACKAGES = {"nats": ("nats", "nats"), "kafka": ("confluent_kafka", "kafka")}


class BusError(RangecastError):
    """A message bus can't be reached, or refuses something."""


@dataclass(frozen=True)
class Source:
    """Where events come from, and which space they are of."""

    name: str
    """A subject of NATS, or a topic of Kafka."""
    space: str
    skips: bool = False
    """Whether messages that fail again and again are skipped."""

    @classmethod
    def parse(cls, text: str, *, skips: bool = False) -> Source:
        """Read NAME:SPACE."""
        name, _, space = text.rpartition(":")
        if not name or not space:
            raise UsageError(f"a source is NAME:SPACE, such as quotes:market; given: {text!r}")
        return cls(name, space, skips)


def said(error: BaseException) -> str:
    """Return what an error says; its name, if it says nothing."""
    return str(error) or type(error).__name__


class SourceState:
    """The state of a source, for people and monitoring."""

    def __init__(self, name: str):
        self.name = name
        self.skips = False
        """Whether messages are skipped that it is stuck at."""
        self.events = self.rejected = self.failures = self.skipped = 0
        """Events that were taken and rejected, attempts that failed, and messages that were
        skipped, since the start.
        """
        self.dead_letters: deque[dict[str, Any]] = deque(maxlen=DEAD_LETTERS)
        """The newest that were skipped: where they lie in the bus, and why."""
        self.gaps = self.missed = self.recreations = 0
        """Times that messages were gone before they were read, at most how many, and times that
        the topic or stream was made again; since the start.
        """
        self.last_gap = ""
        """The last of these, in words."""
        self.error = ""
        """Why the last attempt failed; empty once one succeeds."""
        self._identity = ""
        """The topic or stream that was read last."""
        self._taking = ""
        """The messages that are being taken."""
        self._failed_at, self._repeats = "", 0

    @property
    def is_stuck(self) -> bool:
        """Whether it fails at the same messages again and again."""
        return self._repeats >= STUCK

    def begin(self, place: str) -> None:
        """Note which messages are taken next."""
        self._taking = place

    def done(self, taken: int, rejected: int) -> None:
        """Note that they are in the log, or rejected."""
        self.events += taken
        self.rejected += rejected
        self._taking = self._failed_at = self.error = ""
        self._repeats = 0

    def failed(self, error: BaseException) -> None:
        """Note that an attempt failed. A bus that can't be reached isn't stuck: it has brought
        nothing.
        """
        self.failures += 1
        self.error = said(error)
        if not isinstance(error, RangecastError):
            self.error = f"internal error: {type(error).__name__}"
        if self._taking:
            self._repeats = self._repeats + 1 if self._taking == self._failed_at else 1
            self._failed_at, self._taking = self._taking, ""

    def skip(self, place: str, number: int, error: BaseException) -> None:
        """Note that a message is skipped."""
        self.skipped += 1
        reason = f"internal error: {type(error).__name__}: {error}"[:200]
        self.dead_letters.append({"source": place, "number": number, "error": reason})
        logger.warning("%s: the message %s is skipped: %s", place, number, reason)

    def missing(self, place: str, begin: int, end: int) -> None:
        """Report that messages from one number to another were deleted before they were read."""
        self.gaps += 1
        self.missed += end - begin + 1
        self._report(place, f"messages {begin} to {end} were deleted before they were read")

    def truncated(self, place: str, at: int, end: int) -> None:
        """Report that a bus has lost messages that were read."""
        self.gaps += 1
        self._report(
            place, f"was read up to {at}, and ends at {end} now: it is read from its beginning"
        )

    def identify(self, identity: str, known: Collection[str]) -> None:
        """Note which topic or stream is read; report one that was made again under its name.

        known   those that the log has places of
        """
        is_new = self._identity != identity if self._identity else bool(known)
        if is_new and identity not in known:
            self.recreations += 1
            self._report(self.name, "was deleted and made again: it is read from its beginning")
        self._identity = identity

    def _report(self, place: str, text: str) -> None:
        self.last_gap = f"{place}: {text}"
        logger.warning("%s", self.last_gap)

    def status(self) -> dict[str, Any]:
        """Return how it does."""
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


def need(bus: str) -> None:
    """Refuse to go on without the client of a bus."""
    package, extra = _PACKAGES[bus]
    if find_spec(package) is None:
        raise UsageError(
            f"this needs {package}, which isn't installed\n  hint: pip install 'rangecast[{extra}]'"
        )


async def entry_of(service: Service, space: str) -> SpaceEntry:
    """Return a space; wait until there is one of this name."""
    while (TENANT, space) not in service.registry.spaces:
        await asyncio.sleep(AGAIN)
    return service.registry.spaces[TENANT, space]


async def published(
    service: Service,
    space: str,
    lines: Sequence[bytes],
    source: str,
    upto: int,
    state: SourceState,
    *,
    numbers: Sequence[int] = (),
) -> None:
    """Publish what a source brought, and with it how far it was read: both are in one unit.

    While the server can't take more, wait.

    numbers   those of the messages in the bus
    """
    while True:
        # Not by `upto`: an attempt may bring more messages than the one before.
        state.begin(f"{source} {known(service, source, space)}")
        entry = await entry_of(service, space)
        if state.skips and state.is_stuck:
            lines = await asyncio.to_thread(_usable, service, entry, lines, source, numbers, state)
        try:
            future = await asyncio.to_thread(
                service.publish, entry, lines, ignore_unknown=True, source=source, upto=upto
            )
            accepted = await answered(future)
        except (RefusedError, LogError, LogFullError) as error:
            logger.warning("%s: waits: %s", source, error)
            state.failed(error)
            await asyncio.sleep(AGAIN)
            continue
        state.done(len(lines) - len(accepted.refused), len(accepted.refused))
        if accepted.refused:
            count, reason = len(accepted.refused), accepted.refused[0][1]
            logger.warning("%s: %s events before %s can't be used: %s", source, count, upto, reason)
        return


def _usable(
    service: Service,
    entry: SpaceEntry,
    lines: Sequence[bytes],
    source: str,
    numbers: Sequence[int],
    state: SourceState,
) -> list[bytes]:
    """Return messages with nothing in the place of those that fail: that is rejected, as all that
    is no event.
    """
    found = []
    for at, line in enumerate(lines):
        try:
            service.encode(entry, [line], ignore_unknown=True)
            found.append(line)
        except Exception as error:
            state.skip(source, numbers[at], error)
            found.append(b"")
    return found


def known(service: Service, source: str, space: str) -> int | None:
    """Return how far a source has been read, by the log."""
    return service.repeats.offsets.get(f"{TENANT}/{space}/{source}")


def places(service: Service, prefix: str, space: str) -> dict[str, int]:
    """Return how far all sources have been read whose names begin with this, by the rest of it."""
    return service.repeats.read_from(TENANT, space, prefix)
