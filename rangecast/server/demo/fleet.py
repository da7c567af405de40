"""The fleet demo: vehicles in a city, and geofences of every kind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec

from rangecast.server.core import Core
from rangecast.server.demo.city import City
from rangecast.server.http.auth import DEFAULT
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.edits import PutConsumer, PutSpace, PutSubscription

SPACE, CONSUMER = "fleet", "dispatch"
TRACK = {"key": "vehicle", "time": "at"}
FASTER = 15.0
"""Seconds of the city in one second."""
_encode = msgspec.json.Encoder().encode


def demo(vehicles: int = 40, seed: int = 1) -> Callable[[Core], Awaitable[None]]:
    """Return a task that creates geofences, then publishes each vehicle's position every second."""

    async def run(core: Core) -> None:
        city = City(seed, vehicles)
        definition = city.space().definition()
        await result_of(
            core.edit(
                PutSpace(DEFAULT, SPACE, definition, TRACK), PutConsumer(DEFAULT, CONSUMER, SPACE)
            )
        )
        fences = [
            PutSubscription(DEFAULT, name, SPACE, text, CONSUMER, track={})
            for name, text in city.fences().items()
        ]
        await result_of(await asyncio.to_thread(core.edit, *fences))
        entry = core.registry.space(DEFAULT, SPACE)
        while True:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            events = [event | {"at": now} for event in city.advance(FASTER)]
            await result_of(core.publish(entry, [_encode(event) for event in events]))
            await asyncio.sleep(1.0)

    return run
