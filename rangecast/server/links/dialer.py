"""Outgoing connections to other servers, retried with backoff."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from urllib.parse import urlsplit

import websockets
from websockets.asyncio.client import connect

from rangecast.errors import UsageError
from rangecast.overlay.wire.frames import MAX_BYTES
from rangecast.server.links.connection import HEADER, LinkConnection, LinkHandler, rejection_of
from rangecast.server.security.trust import trusted

logger = logging.getLogger("rangecast.server")
FIRST = 0.2
LAST = 15.0
"""Seconds between two attempts: they double from the first to the last."""
STEADY = 1.0
"""Seconds after which a connection counts as good: the next pause is short again."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def checked_url(url: str, token: str | None, *, insecure: bool) -> str:
    """Return the URL of a link; reject an invalid one, or one that would reveal a token."""
    parts = urlsplit(url)
    try:
        is_good = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or parts.username or parts.query or parts.fragment:
        raise UsageError(
            f"--link must be the address of another server, wss://HOST:PORT/v1/link; given: {url!r}"
        )
    if parts.path not in ("", "/", "/v1/link"):
        raise UsageError(f"--link must end with /v1/link; given: {url!r}")
    is_near = parts.hostname in _LOOPBACK
    if token and parts.scheme == "ws" and not is_near and not insecure:
        raise UsageError(
            f"--link {url} would send the token without TLS\n"
            "  hint: use wss://, or --insecure if a proxy provides TLS"
        )
    return f"{parts.scheme}://{parts.netloc}/v1/link"


class LinkDialer:
    """Keeps a connection to one address."""

    def __init__(self, handler: LinkHandler, url: str, token: str | None):
        self.url = url
        self.peer = ""
        """Name of the broker there, once known."""
        self.error = ""
        """Reason for having no connection."""
        self._handler = handler
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def run(self) -> None:
        """Connect, and reconnect after failures, until cancelled."""
        pause = FIRST
        while True:
            begun = time.monotonic()
            try:
                await self._connected()
            except (OSError, TimeoutError, websockets.WebSocketException) as error:
                plain = error.strerror if isinstance(error, OSError) else None  # without its number
                self.error = (plain or str(error) or type(error).__name__)[:500]
            except Exception as error:
                logger.exception("link %s: failed; retrying", self.url)
                self.error = f"internal error: {type(error).__name__}"
            if time.monotonic() - begun > STEADY:
                pause = FIRST
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LAST)

    async def _connected(self) -> None:
        secure = trusted() if self.url.startswith("wss:") else None
        async with connect(
            self.url,
            additional_headers={HEADER: self._handler.name, **self._headers},
            max_size=MAX_BYTES,
            compression=None,
            ssl=secure,
            proxy=None,
            open_timeout=10,
            close_timeout=2,
        ) as socket:
            response = socket.response
            self.peer = "" if response is None else response.headers.get(HEADER, "")
            rejected = ""

            async def send(frame: bytes | str) -> None:
                await socket.send(frame)

            async def receive() -> bytes | None:
                nonlocal rejected
                try:
                    frame = await socket.recv()
                except websockets.ConnectionClosed as closed:
                    if closed.rcvd is not None and closed.rcvd.code not in (1000, 1001, 1012):
                        rejected = rejected or f"{closed.rcvd.code} {closed.rcvd.reason}"
                    return None
                if isinstance(frame, str):
                    rejected = rejection_of(frame)
                    return None
                return frame

            if not self.peer:  # it says why not, or it isn't a server of ours
                await receive()
                self.error = rejected or "the peer has no --server-name"
                return
            connection = LinkConnection(self._handler, self.peer, self.url)
            self.error = self._handler.wrong_with(connection)
            if self.error:
                return
            self._handler.up(connection)
            await connection.run(send, receive)
            self.error = rejected or connection.rejected or "the connection was lost"
