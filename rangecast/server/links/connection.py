"""One connection to another server.

Binary messages are frames of `overlay.messages`; a text message gives the reason for a rejection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from rangecast.server.json_text import decode

HEADER = "rangecast-broker"
"""In both directions: the name of the broker that speaks."""
REJECTED = 1008
"""The code that closes a rejected connection."""
_ROOM = 16
MAX_HELD_BYTES = 32 << 20
"""Maximum frames waiting for the broker, and their bytes; beyond it the connection isn't read."""
MAX_WAITING_BYTES = 64 << 20
"""Bytes that may wait to be sent; a neighbour that reads more slowly is cut off."""
CLOGGED_BYTES = 8 << 20
"""Bytes that may wait to be sent before the broker tells its neighbour less at a time."""
CLOSE_SECONDS = 5.0
"""Seconds for sending pending data when the connection ends."""


class LinkHandler(Protocol):
    """Callbacks for connections; called on the event loop."""

    name: str
    """Name of this server among its neighbours."""

    def wrong_with(self, connection: LinkConnection) -> str:
        """Return why a link to this neighbour is impossible; empty if it is possible."""

    def up(self, connection: LinkConnection) -> None:
        """Handle a new connection."""

    def down(self, connection: LinkConnection) -> None:
        """Handle the end of a connection."""

    def received(self, connection: LinkConnection, frame: bytes) -> None:
        """Handle a frame."""

    def drained(self, connection: LinkConnection) -> None:
        """Handle a clogged connection that has room again."""


class LinkConnection:
    """A connection, as used by the broker's thread."""

    def __init__(self, handler: LinkHandler, peer: str, url: str = ""):
        self.peer = peer
        self.url = url
        """URL of the other server, if this one connected; "" otherwise."""
        self.rejected = ""
        """Why this side ended it."""
        self.first = b""
        """The first frame that came over it, if the other server made it."""
        self.is_clogged = False
        """More waits to be sent than should."""
        self._posted = self._gone = 0
        """Bytes queued for sending, and bytes sent."""
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._going: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self._going_bytes = 0
        self._is_over = asyncio.Event()
        self._room = asyncio.Semaphore(_ROOM)
        self._held_bytes, self._has_room = 0, asyncio.Event()

    # ---- for the broker's thread

    def send(self, frame: bytes) -> None:
        """Queue a frame for sending."""
        self._posted += len(frame)
        self.is_clogged = self.is_clogged or self._posted - self._gone > CLOGGED_BYTES
        self._call(self._put, frame)

    def end(self, why: str = "") -> None:
        """Close the connection after sending pending data and, if given, the reason."""
        if why:
            self.rejected = why
            self._call(self._put, why)
        self._call(self._put, None)

    def handled(self, frame: bytes) -> None:
        """Record that the broker has handled a frame, so that more can be received."""
        self._call(self._admit_peer, len(frame))

    def _call(self, *what: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(*what)  # type: ignore[arg-type]

    # ---- on the event loop

    async def run(
        self,
        send: Callable[[bytes | str], Awaitable[None]],
        receive: Callable[[], Awaitable[bytes | None]],
    ) -> None:
        """Transfer frames until either side ends; `receive` returns `None` at the end."""
        both = self._write(send), self._read(receive), self._wait_for_deadline()
        tasks = [asyncio.create_task(job) for job in both]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._handler.down(self)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def cut(self) -> None:
        """Close the connection immediately, dropping pending data."""
        self._is_over.set()

    def _admit_peer(self, size: int) -> None:
        self._held_bytes -= size
        self._has_room.set()
        self._room.release()

    def _put(self, what: bytes | str | None) -> None:
        self._going.put_nowait(what)
        self._going_bytes += len(what or b"")
        if self._going_bytes > MAX_WAITING_BYTES:
            self.rejected = self.rejected or "the neighbour doesn't read its messages"
            what = None
        if what is None:
            self._loop.call_later(CLOSE_SECONDS, self._is_over.set)

    async def _wait_for_deadline(self) -> None:
        """Wait until the deadline for sending pending data has passed."""
        await self._is_over.wait()

    async def _write(self, send: Callable[[bytes | str], Awaitable[None]]) -> None:
        while True:
            frame = await self._going.get()
            if frame is None:
                return
            await send(rejection(frame) if isinstance(frame, str) else frame)
            self._going_bytes -= len(frame)
            if isinstance(frame, bytes):
                self._gone += len(frame)
            if self.is_clogged and self._posted - self._gone < CLOGGED_BYTES // 4:
                self.is_clogged = False
                self._handler.drained(self)

    async def _read(self, receive: Callable[[], Awaitable[bytes | None]]) -> None:
        while True:
            frame = await receive()
            if frame is None:
                return
            await self._room.acquire()
            while self._held_bytes > MAX_HELD_BYTES:
                self._has_room.clear()
                await self._has_room.wait()
            self._held_bytes += len(frame)
            self._handler.received(self, frame)


def rejection(why: str) -> str:
    """Return the text message that rejects a connection for a reason."""
    return msgspec.json.encode({"type": "rejected", "detail": why}).decode()


def rejection_of(text: str) -> str:
    """Return the reason from a rejection message."""
    try:
        return str(decode(text.encode())["detail"])[:1000]
    except (msgspec.DecodeError, KeyError, TypeError):
        return text[:200]
