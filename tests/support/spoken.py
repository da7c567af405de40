"""A service that is spoken to in HTTP's bytes, without sockets: both ways of the server, in one
process, on the event loop of a test.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from rangecast.server.http.app import make_app
from rangecast.server.http.fast_path import FastPathProtocol
from rangecast.server.service import Service


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_whole = asyncio.Event()
        self._is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known = {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}
        return known.get(name, default)

    def write(self, data: Any) -> None:
        self.written += bytes(data)
        head, end, body = self.written.partition(b"\r\n\r\n")
        if end and not head.startswith(b"HTTP/1.1 100"):
            sized = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
            if body.endswith(b"0\r\n\r\n") if not sized else len(body) >= int(sized):
                self.is_whole.set()

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self.is_whole.set()

    abort = close

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


class Spoken:
    """Speaks with a service as a client on a connection does."""

    def __init__(self, service: Service):
        protocol = partial(FastPathProtocol, core=service.core)
        self._config = uvicorn.Config(
            make_app(service),
            log_config=None,
            access_log=False,
            http=protocol,  # type: ignore[arg-type]
            lifespan="off",
            server_header=False,
        )
        self._config.load()
        self._protocol = protocol

    def connected(self) -> tuple[Any, _Transport]:
        """Return a connection: its protocol, and what that writes to."""
        protocol: Any = self._protocol(self._config, ServerState(), {})
        transport = _Transport()
        protocol.connection_made(transport)
        return protocol, transport

    async def ask(
        self, method: str, path: str, body: bytes = b"", **headers: str
    ) -> tuple[int, bytes]:
        """Send a request; return the status and the body of its answer."""
        named = {"Host": "127.0.0.1", "Content-Length": str(len(body))} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        protocol, transport = self.connected()
        data = f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body
        for begin in range(0, len(data), 256 << 10):
            protocol.data_received(data[begin : begin + (256 << 10)])
            await asyncio.sleep(0)
        async with asyncio.timeout(120):
            await transport.is_whole.wait()
        protocol.connection_lost(None)
        answer = transport.written
        head_bytes, _, content = answer.partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" in head_bytes.lower():
            content = _unchunked(content)
        return int(answer.split()[1]), content

    async def json(self, method: str, path: str, given: Any = None, **headers: str) -> Any:
        """Send JSON; return the JSON of the answer, which must be 200."""
        body = b"" if given is None else json.dumps(given).encode()
        status, content = await self.ask(
            method, path, body, **({"Content_Type": "application/json"} | headers)
        )
        assert status == 200, content
        return json.loads(content)


def _unchunked(content: bytes) -> bytes:
    parts = []
    while content:
        size, _, content = content.partition(b"\r\n")
        count = int(size, 16)
        parts.append(content[:count])
        content = content[count + 2 :]
    return b"".join(parts)
