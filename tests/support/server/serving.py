"""A service in the process of a test, and what tests do with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from rangecast.model.space import Space
from rangecast.server.delivery.messages import Message
from rangecast.server.http.app import make_app
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import PutSpace, PutSubscription

T = "default"
SPACE = Space.from_toml('attribute = [{ name = "price", type = "number" }]')
HANGS = 1800.0
"""Seconds after which a test hangs: a busy machine that compiles takes minutes."""
WANTED = {"low": "price > 0 and price < 30", "high": "price > 60", "all": "price > 0"}


class Client:
    """Speaks HTTP with a service in this process."""

    def __init__(self, service: Service):
        transport = httpx.ASGITransport(make_app(service))
        self._http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    async def __call__(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = await self._http.request(method, f"/v1/{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def put_out(self, status: int = 200, **out: Any) -> Any:
        return await self("PUT", "consumers/out", {"space": "s", "delivery": out}, status)

    async def webhook(self, url: str, *, status: int = 200, **options: Any) -> Any:
        out = {"kind": "webhook", "url": url, "allow_private": True} | options
        return await self.put_out(status, **out)


@asynccontextmanager
async def serving(folder: Path | None = None, **options: Any) -> AsyncIterator[Service]:
    service = Service(folder, allow_private_webhooks=True, **options)
    service.start()
    if not service.core.registry.spaces:
        await result_of(service.core.edit(PutSpace(T, "s", SPACE.definition())))
    try:
        yield service
    finally:  # as a crash: no snapshot
        await service.deliveries.stop()
        service.maintenance.stop()
        service.core.pipeline.stop()
        service.close()


def ids_of(message: Message) -> list[str]:
    """Return the ids of the subscriptions that a message is for."""
    found: list[str] = json.loads(b"[%s]" % message.subscriptions)
    return found


async def publish(service: Service, *prices: float) -> int:
    lines = [b'{"price": %g}' % price for price in prices]
    entry = service.core.registry.space(T, "s")
    return (await result_of(service.core.publish(entry, lines))).first


async def subscribe(service: Service) -> None:
    edits = [PutSubscription(T, one, "s", WANTED[one], "out") for one in WANTED]
    await result_of(service.core.edit(*edits))


async def until(is_so: Callable[[], Any], seconds: float = 600) -> None:
    for _ in range(int(seconds / 0.01)):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it didn't come about")


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), HANGS))  # type: ignore[arg-type]
