"""Connections that load a server: no more of HTTP than that needs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from rangecast.experiments.timing import DisagreementError


async def race(
    host: str,
    port: int,
    connections: int,
    turns: int,
    work: Callable[[Connection, int], Awaitable[None]],
) -> tuple[float, list[float]]:
    """Return the seconds that all connections took for their turns, and each answer's."""
    made = [await Connection.opened(host, port) for _ in range(connections)]
    await asyncio.gather(*(work(one, 1) for one in made))
    for one in made:
        one.times.clear()
    began = time.perf_counter()
    await asyncio.gather(*(work(one, turns) for one in made))
    seconds = time.perf_counter() - began
    for one in made:
        one.close()
    return seconds, [one for connection in made for one in connection.times]


class Connection:
    """One kept connection: no more of HTTP than a load needs."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader = reader
        self._writer = writer
        self.times: list[float] = []

    @classmethod
    async def opened(cls, host: str, port: int) -> Connection:
        return cls(*await asyncio.open_connection(host, port))

    async def ask(self, method: str, path: str, body: bytes, kind: str) -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        found = await self._reader.readexactly(length)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise DisagreementError(f"{method} {path}: {answer[:15]!r} {found[:200]!r}")
        return found

    def close(self) -> None:
        self._writer.close()
