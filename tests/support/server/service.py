"""A service in this process: edits, events and what consumers get, and an oracle of deliveries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

from rangecast.server.delivery.listeners import Listener
from rangecast.server.delivery.messages import Message
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import (
    PutConsumer,
    PutSpace,
    PutSubscription,
)
from rangecast.workloads import generate
from tests.support.server.serving import HANGS, ids_of

MADE = generate("market", seed=5, subscriptions=120, events=300)
SPACE = MADE.space
SUBSCRIPTIONS = {row["id"]: row["filter"] for row in MADE.tables["subscriptions"].to_pylist()}
EVENTS = [
    json.dumps({k: v for k, v in row.items() if k != "id"}, default=str).encode()
    for row in MADE.tables["events"].to_pylist()
]
T = "default"


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, HANGS))


async def edit(service: Service, *edits: Any, **options: Any) -> int:
    return await result_of(service.core.edit(*edits, **options))


async def publish(service: Service, lines: list[bytes], **options: Any) -> Any:
    entry = service.core.registry.space(T, "market")
    return await result_of(service.core.publish(entry, lines, **options))


async def prepared(service: Service) -> None:
    service.start()
    await edit(service, PutSpace(T, "market", SPACE.definition()))
    await edit(service, PutConsumer(T, "one", "market"), PutConsumer(T, "two", "market"))


def put(name: str, consumer: str = "one", wanted: str | None = None) -> PutSubscription:
    return PutSubscription(T, name, "market", wanted or SUBSCRIPTIONS[name], consumer)


async def all_of(service: Service, consumer: str, after: int | None = None) -> list[Message]:
    listener = service.core.hub.open(service.core.registry.consumer(T, consumer), after)
    found = await taken(listener)
    service.core.hub.close(listener)
    return found


async def taken(listener: Listener) -> list[Message]:
    found: list[Message] = []
    while True:
        batch = await listener.next_batch(7, wait=0)
        found += batch.messages
        if not batch.messages and batch.gap is None:
            return found


def pairs(messages: list[Message]) -> set[tuple[int, str]]:
    return {(one.seq, name) for one in messages for name in ids_of(one)}
