"""NATS and Kafka: events in, matches out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from rangecast.errors import UsageError
from rangecast.server.connectors.base import Source, require_package
from rangecast.server.connectors.kafka import kafka_source
from rangecast.server.connectors.nats import nats_source
from rangecast.server.core import Core


def sources(
    nats: str | None,
    nats_subjects: Sequence[str],
    kafka: str | None,
    kafka_topics: Sequence[str],
    *,
    skips: bool = False,
) -> list[Callable[[Core], Awaitable[None]]]:
    """Return a reader task for each requested source, given as NAME:SPACE.

    skips   skip messages that fail repeatedly
    """
    sources_: list[Callable[[Core], Awaitable[None]]] = []
    for bus, url, names, made in (
        ("nats", nats, nats_subjects, nats_source),
        ("kafka", kafka, kafka_topics, kafka_source),
    ):
        if url is not None:
            require_package(bus)
            sources_ += [made(url, Source.parse(name, skips=skips)) for name in names]
        elif names:
            raise UsageError(f"--{bus}-source requires --{bus}, the address")
    return sources_
