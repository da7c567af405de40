"""uvicorn's WebSocket protocol, bounded where a peer doesn't read.

uvicorn closes a connection by `transport.close()`, which first sends pending data: with a peer that
doesn't read, that never ends. It also answers every ping, even while nothing can be sent.
"""

from __future__ import annotations

from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

LINGER = 0.5
"""Seconds that a peer has to confirm the end of its connection."""
DROPPING = 2.0
"""Seconds that a peer has to read why its frames are rejected."""
RESTARTS = "the server is restarting"


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that closes within a bounded time, regardless of its peer."""

    def __init__(self, *args: Any, **more: Any):
        super().__init__(*args, **more)
        self._pong = b""
        """The answer to the last ping, while nothing can be sent: RFC 6455 asks for no other."""

    def handle_ping(self) -> None:
        """Answer a ping once the peer reads."""
        pong = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            self.transport.write(pong)
        else:
            self._pong = pong

    def resume_writing(self) -> None:
        """Resume writing when the peer reads again."""
        super().resume_writing()
        if self._pong and not (self.close_sent or self.transport.is_closing()):
            self.transport.write(self._pong)
        self._pong = b""

    def keepalive_timeout(self) -> None:
        """Abort a connection whose peer doesn't answer pings, dropping pending data."""
        super().keepalive_timeout()
        self._abort_later()

    def data_received(self, data: bytes) -> None:
        """Parse incoming data; drop it after an invalid frame."""
        if self.conn.parser_exc is None:
            super().data_received(data)

    def handle_parser_exception(self) -> None:
        """Close a connection after an invalid frame, with the reason in the close frame.

        Incoming data is read and dropped for a while: a reset would discard the close frame.
        """
        closed = self.conn.close_sent
        if closed is not None:
            gone = {"type": "websocket.disconnect", "code": closed.code, "reason": closed.reason}
            self.queue.put_nowait(cast(Any, gone))
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.resume_reading()
        self.close_timer = self.loop.call_later(DROPPING, self.transport.close)

    def shutdown(self) -> None:
        """Announce the shutdown to the peer, and give it a moment to confirm."""
        self.stop_keepalive()
        if not self.handshake_complete or self.close_sent or self.transport.is_closing():
            super().shutdown()
            return
        code = CloseCode.SERVICE_RESTART
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": RESTARTS})
        self.conn.send_close(code, RESTARTS)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER, self.transport.close)

    def _abort_later(self) -> None:
        if self.transport.get_write_buffer_size():
            self.loop.call_later(LINGER, self.transport.abort)
