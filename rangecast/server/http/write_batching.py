"""Batch the writes of a connection per turn of the event loop.

The head and body of a response, and the frames of a WebSocket, are written one by one. Each write
would be a system call, and a packet that wakes the peer. So they are buffered until the end of the
turn, and sent together.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MOST = 64 << 10
"""Bytes that wait at most: the connection must notice a peer that stops reading."""


class BatchingProtocol(HttpToolsProtocol):
    """HTTP protocol with batched writes; WebSockets inherit the transport."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving a connection."""
        super().connection_made(cast(Any, BatchingTransport(transport, self.loop)))


class BatchingTransport:
    """A transport that sends the writes of one event loop turn together."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop):
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0
        self.written = 0
        """Bytes written to the connection."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Queue bytes, to be sent at the end of this turn."""
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > _MOST:
            self.flush()

    def write_eof(self) -> None:
        """Flush pending data, and stop writing."""
        self.flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Flush pending data, then close."""
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Flush pending data."""
        if self._parts:
            self.written += self._size
            parts, self._parts, self._size = self._parts, [], 0
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
