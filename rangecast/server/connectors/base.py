"""Code shared by the NATS and Kafka connectors: publishing a source's messages to the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from rangecast.errors import RangecastError, UsageError
from rangecast.server.core import Core
from rangecast.server.log.base import LogError, LogFullError
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.entries import SpaceEntry
from rangecast.server.state.registry import RequestError
from rangecast.server.state.sources import SourceState

logger = logging.getLogger("rangecast.server")
AGAIN = 1.0
"""Seconds after which a source that failed is retried."""
TAKEN = 500
"""Messages that a source takes at a time."""
TENANT = "default"
_PACKAGES = {"nats": ("nats", "nats"), "kafka": ("confluent_kafka", "kafka")}


class BusError(RangecastError):
    """A message bus can't be reached, or rejects a request."""


@dataclass(frozen=True)
class Source:
    """Name of a source, and the space that its events go to."""

    name: str
    """A subject of NATS, or a topic of Kafka."""
    space: str
    skips: bool = False
    """Whether messages that fail repeatedly are skipped."""

    @classmethod
    def parse(cls, text: str, *, skips: bool = False) -> Source:
        """Parse NAME:SPACE."""
        name, _, space = text.rpartition(":")
        if not name or not space:
            raise UsageError(
                f"a source must have the form NAME:SPACE, such as quotes:market; given: {text!r}"
            )
        return cls(name, space, skips)


def source_task(
    bus: str,
    source: Source,
    read: Callable[[Core, SourceState], Awaitable[None]],
    reason: Callable[[Exception], str | None],
) -> Callable[[Core], Awaitable[None]]:
    """Return the task that reads a source, and retries after errors.

    read    reads until an error
    reason  the text of an error of the bus, `None` for other errors
    """

    async def run(core: Core) -> None:
        state = core.source(f"{bus.lower()}:{source.name}")
        state.skips = source.skips
        while True:
            try:
                await read(core, state)
            except Exception as error:
                text = str(error) if isinstance(error, RangecastError) else reason(error)
                state.failed(error if text is None else BusError(text))
                if text is None:
                    logger.exception("%s, %s: failed; retrying", bus, source.name)
                else:
                    logger.warning("%s, %s: %s; retrying", bus, source.name, text)
            await asyncio.sleep(AGAIN)

    return run


def error_text(error: BaseException) -> str:
    """Return the message of an error, or its class name if it has none."""
    return str(error) or type(error).__name__


def require_package(bus: str) -> None:
    """Fail early if the client package of a bus is missing."""
    package, extra = _PACKAGES[bus]
    if find_spec(package) is None:
        raise UsageError(
            f"this needs {package}, which isn't installed\n  hint: pip install 'rangecast[{extra}]'"
        )


async def entry_of(core: Core, space: str) -> SpaceEntry:
    """Return a space by name; wait until it exists."""
    while (TENANT, space) not in core.registry.spaces:
        await asyncio.sleep(AGAIN)
    return core.registry.spaces[TENANT, space]


async def published(
    core: Core,
    space: str,
    lines: Sequence[bytes],
    source: str,
    upto: int,
    state: SourceState,
    *,
    numbers: Sequence[int] = (),
) -> None:
    """Publish messages of a source together with its read position, as one unit.

    Wait while the server applies back-pressure.

    numbers   sequence numbers of the messages in the bus
    """
    while True:
        # Not by `upto`: an attempt may bring more messages than the one before.
        state.begin(f"{source} {read_position(core, source, space)}")
        entry = await entry_of(core, space)
        if state.skips and state.is_stuck:
            lines = await asyncio.to_thread(_usable, core, entry, lines, source, numbers, state)
        try:
            future = await asyncio.to_thread(
                core.publish, entry, lines, ignore_unknown=True, source=source, upto=upto
            )
            accepted = await result_of(future)
        except (RequestError, LogError, LogFullError) as error:
            logger.warning("%s: waits: %s", source, error)
            state.failed(error)
            await asyncio.sleep(AGAIN)
            continue
        state.done(len(lines) - len(accepted.rejected), len(accepted.rejected))
        if accepted.rejected:
            count, reason = len(accepted.rejected), accepted.rejected[0][1]
            logger.warning("%s: %s events before %s were rejected: %s", source, count, upto, reason)
        return


def _usable(
    core: Core,
    entry: SpaceEntry,
    lines: Sequence[bytes],
    source: str,
    numbers: Sequence[int],
    state: SourceState,
) -> list[bytes]:
    """Return the messages with failing ones emptied, so that they are rejected as events."""
    usable = []
    for at, line in enumerate(lines):
        try:
            core.encode(entry, [line], ignore_unknown=True)
            usable.append(line)
        except Exception as error:
            state.skip(source, numbers[at], error)
            usable.append(b"")
    return usable


def read_position(core: Core, source: str, space: str) -> int | None:
    """Return the read position of a source according to the log."""
    return core.deduplicator.offsets.get(f"{TENANT}/{space}/{source}")


def read_positions(core: Core, prefix: str, space: str) -> dict[str, int]:
    """Return the read positions of all sources with this name prefix, by the rest of the name."""
    return core.deduplicator.read_from(TENANT, space, prefix)
