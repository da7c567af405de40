"""A receiver of webhooks, and addresses that must not be called."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Receiver:
    """A tiny web server: what it answers depends on the path."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 200
        self.more = ""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                path = line.split()[1].decode()
                headers = {}
                while (header := (await reader.readline()).strip()) != b"":
                    name, _, value = header.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.got.append((path, headers, body))
                if path == "/slow":
                    while True:
                        writer.write(b"H")
                        await asyncio.sleep(0.02)
                elif path == "/slow-body":
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
                    await asyncio.sleep(60)
                elif path == "/endless":
                    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                    while True:
                        writer.write(b"x" * 65536)
                        await writer.drain()
                elif path == "/headers":
                    writer.write(b"HTTP/1.1 200 OK\r\n" + b"X-Y: zzzzzzzzzzzzzzzz\r\n" * 20_000)
                elif path == "/nonsense":
                    writer.write(b"\0\1\2\r\n\r\n")
                    return
                else:
                    head = f"HTTP/1.1 {self.status} X\r\n{self.more}Content-Length: 6\r\n\r\nsecret"
                    writer.write(head.encode())
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiver(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    made = Receiver()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(made.serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
