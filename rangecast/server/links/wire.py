"""One connection to another server. Binary messages are frames of `overlay.messages`; a text says
why the connection is refused, for people.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from rangecast.server.links.links import Links

HEADER = "rangecast-broker"
"""In both directions: the name of the broker that speaks."""
REFUSED = 1008
"""The code that closes a refused connection."""
_ROOM = 16
"""Frames that may wait for the broker; then the connection isn't read."""


class Wire:
    """A connection, for the broker's thread."""

    def __init__(self, links: Links, peer: str, url: str = ""):
        self.peer = peer
        self.url = url
        """Where it leads, if this server made it; "": the other one did."""
        self.refused = ""
        """Why this side ended it."""
        self._links = links
        self._loop = asyncio.get_running_loop()
        self._going: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(_ROOM)

    # ---- for the broker's thread

    def send(self, frame: bytes) -> None:
        """Send a frame, when its turn comes."""
        self._call(self._going.put_nowait, frame)

    def end(self, why: str = "") -> None:
        """Close the connection after what waits; tell the other side why, if that is given."""
        if why:
            self.refused = why
            self._call(self._going.put_nowait, why)
        self._call(self._going.put_nowait, None)

    def handled(self) -> None:
        """Note that there is room for one frame more."""
        self._call(self._room.release)

    def _call(self, *what: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(*what)  # type: ignore[arg-type]

    # ---- on the event loop

    async def run(
        self,
        send: Callable[[bytes | str], Awaitable[None]],
        receive: Callable[[], Awaitable[bytes | None]],
    ) -> None:
        """Carry frames until either side ends; `receive` returns `None` then."""
        tasks = [asyncio.create_task(one) for one in (self._write(send), self._read(receive))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._links.down(self)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Close it: the server stops."""
        self.end()

    async def _write(self, send: Callable[[bytes | str], Awaitable[None]]) -> None:
        while True:
            one = await self._going.get()
            if one is None:
                return
            await send(refusal(one) if isinstance(one, str) else one)

    async def _read(self, receive: Callable[[], Awaitable[bytes | None]]) -> None:
        while True:
            frame = await receive()
            if frame is None:
                return
            await self._room.acquire()
            self._links.received(self, frame)


def refusal(why: str) -> str:
    """Return the text that says why a connection is refused."""
    return msgspec.json.encode({"type": "refused", "detail": why}).decode()


def refusal_of(text: str) -> str:
    """Return why the other side refuses."""
    try:
        return str(msgspec.json.decode(text)["detail"])[:1000]
    except (msgspec.DecodeError, KeyError, TypeError):
        return text[:200]
