"""Abort connections whose peers don't read.

A task that writes to a connection waits while its peer doesn't read, and so does closing the
connection, which first flushes pending data. Neither has a timeout.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

logger = logging.getLogger("rangecast.server")
MAX_STALL = 30.0
"""Maximum seconds that a peer may read none of its pending data."""


class StallGuard:
    """Aborts connections that make no progress. Call `sweep` periodically."""

    def __init__(self) -> None:
        self._seen: dict[Any, tuple[int, float]] = {}
        """Connections with pending data: the bytes sent, and since when."""

    def sweep(self, connections: Iterable[Any], now: float, linger: float | None = None) -> None:
        """Abort connections that have sent none of their pending data for `MAX_STALL` seconds.

        `linger`: seconds after which a closed connection that has sent everything is aborted; over
        TLS it stays open until its peer confirms the close.
        """
        seen: dict[Any, tuple[int, float]] = {}
        for connection in list(connections):
            transport = connection.transport
            waiting, is_closing = transport.get_write_buffer_size(), transport.is_closing()
            if not waiting and not is_closing:
                continue
            sent = transport.written - waiting
            before, since = self._seen.get(connection, (-1, now))
            if before != sent:
                since = now
            limit = MAX_STALL if waiting or linger is None else linger
            if now - since >= limit:
                if waiting:
                    text = "closing a connection: the peer has read nothing for %g seconds"
                    logger.warning(text, limit)
                transport.abort()
            else:
                seen[connection] = sent, since
        self._seen = seen
