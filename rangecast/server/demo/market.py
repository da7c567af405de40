"""The market demo: saved searches, and quotes published at a steady rate."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec

from rangecast.server.core import Core
from rangecast.server.http.auth import DEFAULT
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.edits import AnyEdit, PutConsumer, PutSpace, PutSubscription
from rangecast.workloads import generate

SPACE, CONSUMER = "market", "alerts"
_encode = msgspec.json.Encoder().encode


def demo(subscriptions: int = 2_000, rate: float = 200.0) -> Callable[[Core], Awaitable[None]]:
    """Return a task that creates searches, then publishes `rate` quotes per second."""

    async def run(core: Core) -> None:
        made = await asyncio.to_thread(
            generate, "market", seed=1, subscriptions=subscriptions, events=20_000
        )
        rows = made.tables["subscriptions"].to_pylist()
        edits: list[AnyEdit] = [
            PutSpace(DEFAULT, SPACE, made.space.definition()),
            PutConsumer(DEFAULT, CONSUMER, SPACE),
        ]
        await result_of(core.edit(*edits))
        wanted = [
            PutSubscription(
                DEFAULT, str(row["id"]), SPACE, row["filter"], CONSUMER, row["score"] or 0.0
            )
            for row in rows
        ]
        await result_of(await asyncio.to_thread(core.edit, *wanted))
        entry = core.registry.space(DEFAULT, SPACE)
        quotes = made.tables["events"].drop_columns(["id", "time"]).to_pylist()
        turn = random.Random(1)
        begun, sent = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - begun) * rate) - sent
            if due > 0:
                now = datetime.now(UTC).isoformat()
                chosen = [turn.choice(quotes) | {"time": now} for _ in range(min(due, 500))]
                await result_of(core.publish(entry, [_encode(quote) for quote in chosen]))
                sent += due
            await asyncio.sleep(0.05)

    return run
