"""Latency and number of deliveries of the server, to WebSockets that this process reads."""

from __future__ import annotations

import asyncio
import json
import time
from urllib.parse import urlsplit

import msgspec
import numpy as np
import websockets

from benchmarks.server_load import EVENTS, LINES, Connection, Measured
from experiments.timing import DisagreementError
from rangecast.client import Client

_AWAY = 2.0
"""A value that none of the other subscriptions wants."""
_CONNECTIONS = 8


async def delivery(url: str, client: Client, bodies: list[bytes], *, quick: bool) -> list[Measured]:
    """Return both measurements; `bodies` are 99 events each, for nobody who listens."""
    sessions, events = (3, 50) if quick else (50, 4_000)
    return [
        *await _delays(url, client, bodies, turns=16 if quick else 1_000),
        await _fanned_out(url, client, sessions, events),
    ]


async def _delays(url: str, client: Client, bodies: list[bytes], turns: int) -> list[Measured]:
    """Publish 20,000 events per second in bodies of 100, of which one goes to a session."""
    client.put_consumer("delays")
    client.subscribe("delays", f"a0 >= {_AWAY}", consumer="delays")
    sent, delays = [0.0] * turns, [0.0] * turns
    began = time.perf_counter() + 0.5

    async def publish(first: int) -> None:
        connection = await _connection(url)
        for turn in range(first, turns, _CONNECTIONS):
            await asyncio.sleep(began + turn * 100 / 20_000 - time.perf_counter())
            event = {"a0": _AWAY, "a1": turn, "a2": 0.0, "a3": 0.0}
            body = bodies[turn % len(bodies)] + b"\n" + json.dumps(event).encode()
            sent[turn] = time.perf_counter()
            await connection.ask("POST", EVENTS, body, LINES)
        connection.close()

    async def hear() -> None:
        for _ in range(turns):
            while (frame := json.loads(await socket.recv()))["type"] != "match":
                pass
            turn = int(frame["event"]["a1"])
            delays[turn] = time.perf_counter() - sent[turn]

    async with websockets.connect(_stream(url), proxy=None) as socket:
        await socket.send('{"type": "attach", "consumer": "delays"}')
        async with asyncio.TaskGroup() as group:
            group.create_task(hear())
            for first in range(_CONNECTIONS):
                group.create_task(publish(first))
    rate = turns * 100 / (time.perf_counter() - began)
    if not all(delays):
        raise DisagreementError("messages came twice, and others not at all")
    p50, p99 = (float(np.quantile(delays, share)) * 1000 for share in (0.5, 0.99))
    name = f"sent to delivered by WebSocket, {rate:,.0f} events/s of 20,000"
    return [
        Measured(f"{name}: p50", p50, "ms", most=3),
        Measured("the same: p99", p99, "ms", most=20),
    ]


async def _fanned_out(url: str, client: Client, sessions: int, events: int) -> Measured:
    """Publish events that all sessions get, for ten subscriptions of each."""
    client.unsubscribe("delays")
    names = [f"session{n}" for n in range(sessions)]
    for name in names:
        client.put_consumer(name)
    client.upsert_many(
        {"id": f"{name}-{n}", "filter": f"a0 >= {_AWAY}", "consumer": name}
        for name in names
        for n in range(10)
    )
    lines = [json.dumps({"a0": _AWAY, "a1": n}).encode() for n in range(events)]
    ready = asyncio.Barrier(sessions + 1)

    async def session(name: str) -> None:
        async with websockets.connect(_stream(url), proxy=None, max_size=None) as socket:
            await socket.send(json.dumps({"type": "attach", "consumer": name, "batch": True}))
            await socket.recv()
            await ready.wait()
            heard = 0
            while heard < events:
                frame = msgspec.json.decode(await socket.recv())
                for one in frame.get("messages", ()):
                    if one["event"]["a1"] != heard or len(one["subscriptions"]) != 10:
                        raise DisagreementError(f"{name} got {one} as message {heard}")
                    heard += 1

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(session(name))
        connection = await _connection(url)
        await ready.wait()
        began = time.perf_counter()
        for at in range(0, events, 1_000):
            await connection.ask("POST", EVENTS, b"\n".join(lines[at : at + 1_000]), LINES)
        connection.close()
    seconds = time.perf_counter() - began
    rate = events * sessions * 10 / seconds
    name = f"matches to {sessions} sessions, {events * sessions / seconds:,.0f} messages/s"
    return Measured(name, rate, least=400_000)


async def _connection(url: str) -> Connection:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return await Connection.opened(parts.hostname, parts.port)


def _stream(url: str) -> str:
    return url.replace("http", "ws", 1) + "/v1/stream"
