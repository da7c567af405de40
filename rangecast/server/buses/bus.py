"""What NATS and Kafka have in common: how what they bring gets into the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rangecast.errors import RangecastError, UsageError
from rangecast.server.log import LogError, LogFullError
from rangecast.server.registry import RefusedError, SpaceEntry
from rangecast.server.waiting import answered

if TYPE_CHECKING:
    from rangecast.server.service import Service

logger = logging.getLogger("rangecast.server")
AGAIN = 1.0
"""Seconds after which a source that couldn't go on tries again."""
TAKEN = 500
"""Messages that a source takes at a time."""
TENANT = "default"
_PACKAGES = {"nats": ("nats", "nats"), "kafka": ("confluent_kafka", "kafka")}


class BusError(RangecastError):
    """A message bus can't be reached, or refuses something."""


@dataclass(frozen=True)
class Source:
    """Where events come from, and which space they are of."""

    name: str
    """A subject of NATS, or a topic of Kafka."""
    space: str

    @classmethod
    def parse(cls, text: str) -> Source:
        """Read NAME:SPACE."""
        name, _, space = text.rpartition(":")
        if not name or not space:
            raise UsageError(f"a source is NAME:SPACE, such as quotes:market; given: {text!r}")
        return cls(name, space)


def need(bus: str) -> None:
    """Refuse to go on without the client of a bus."""
    package, extra = _PACKAGES[bus]
    if find_spec(package) is None:
        raise UsageError(
            f"this needs {package}, which isn't installed\n"
            f"  to do: pip install 'rangecast[{extra}]'"
        )


async def entry_of(service: Service, space: str) -> SpaceEntry:
    """Return a space; wait until there is one of this name."""
    while (TENANT, space) not in service.registry.spaces:
        await asyncio.sleep(AGAIN)
    return service.registry.spaces[TENANT, space]


async def published(
    service: Service, space: str, lines: Sequence[bytes], source: str, upto: int
) -> None:
    """Publish what a source brought, and with it how far it was read: both are in one unit.

    While the server can't take more, wait.
    """
    while True:
        entry = await entry_of(service, space)
        try:
            future = await asyncio.to_thread(
                service.publish, entry, lines, ignore_unknown=True, source=source, upto=upto
            )
            accepted = await answered(future)
        except (RefusedError, LogError, LogFullError) as error:
            logger.warning("%s: waits: %s", source, error)
            await asyncio.sleep(AGAIN)
            continue
        if accepted.refused:
            count, reason = len(accepted.refused), accepted.refused[0][1]
            logger.warning("%s: %s events before %s can't be used: %s", source, count, upto, reason)
        return


def known(service: Service, source: str, space: str) -> int | None:
    """Return how far a source has been read, by the log."""
    return service.repeats.offsets.get(f"{TENANT}/{space}/{source}")
