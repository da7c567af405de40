"""Connection limits: size of the request head, time to receive a request, number of connections.

A client that sends nothing, half a request, or single bytes holds a file descriptor, and its
data is buffered before it is authenticated. So these limits apply to every connection. They are
checked periodically for all connections together, and a wait counts from the first check that sees
it: a timer or a clock read per request would cost more than it is worth.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from rangecast.server.http.problems import problem
from rangecast.server.http.write_batching import BatchingProtocol

logger = logging.getLogger("rangecast.server")
MAX_HEAD = 64 << 10
"""Bytes of the request line and all headers."""
MIN_RATE = 1 << 10
"""Bytes per second that a body needs to make, once `body_seconds` are over."""
_LINGER = 2.0
"""Seconds that a rejected client has to read why."""
_SLACK = 64
"""Connections above the limit that get an error response; further ones are dropped."""
_RESERVE = 256
"""Descriptors that are left for files and for connections to elsewhere."""
# What a connection waits for:
_IDLE, _HEAD, _BODY, _ANSWER, _END, _REJECTED = range(6)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits that apply to every connection."""

    header_seconds: float = 10.0
    """For a request's head to come, and for the first byte of a connection."""
    body_seconds: float = 30.0
    """Maximum pause within a body."""
    max_connections: int = 10_000
    """Connections that are open, WebSockets included."""

    def with_room(self) -> ConnectionLimits:
        """Return limits that fit the file descriptors; raise the process's limit if necessary."""
        limit, (soft, hard) = self.max_connections, resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < limit + _RESERVE:
            soft = (
                limit + _RESERVE if hard == resource.RLIM_INFINITY else min(limit + _RESERVE, hard)
            )
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            if soft < limit + _RESERVE:
                limit = max(soft - _RESERVE, soft // 2)
                logger.warning(
                    "%s file descriptors allow %s connections, not %s\n"
                    "  hint: raise the limit (ulimit -n), or lower --max-connections",
                    soft,
                    limit,
                    self.max_connections,
                )
        return replace(self, max_connections=limit)


class BoundedProtocol(BatchingProtocol):
    """HTTP protocol with connection limits."""

    def __init__(self, *args: Any, limits: ConnectionLimits | None = None, **more: Any):
        super().__init__(*args, **more)
        self._limits = limits or ConnectionLimits()
        self._phase = _IDLE
        self._since = self._began = 0.0
        """Start of the current wait, and of the body; 0: after the last check."""
        self._head = self._chunk = self._received = 0
        """Bytes of the earlier head, of the part being read, and of the body."""
        self._is_fresh = False
        """Whether the current data began with a head, so that all of it counts."""
        self._rejection: tuple[int, str] | None = None

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving a connection, unless there are too many."""
        super().connection_made(transport)
        over = len(self.connections) - self._limits.max_connections
        if over > _SLACK:
            self.transport.abort()
        elif over > 0:
            limit = self._limits.max_connections
            self.reject(503, f"this server has {limit:,} connections open\n  hint: try again later")

    def data_received(self, data: bytes) -> None:
        """Parse incoming data; reject a head that is too long before it is complete."""
        if self._phase == _REJECTED:
            return
        self._chunk = len(data)
        self._is_fresh = self._phase == _IDLE
        super().data_received(data)
        if self._phase <= _HEAD:
            self._head += len(data)
            if self._head > MAX_HEAD:
                self._reject_head()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Answer a client that has closed its sending side."""
        cycle = self.cycle
        cast(Any, self.transport).flush()  # the last answer may wait for the end of this turn
        if self._phase != _ANSWER or self.scheme == "https" or cycle is None:
            return None
        if getattr(cycle, "response_started", False):
            return None  # whether the client of a stream still reads is not known
        cycle.keep_alive = False
        self._wait_for(_END)
        return True

    # ---- the parser; those that override these call them

    def on_message_begin(self) -> None:
        """Start a request."""
        super().on_message_begin()
        self._phase, self._since = _HEAD, 0.0
        self._head = 0 if self._is_fresh else -self._chunk
        self._is_fresh = False

    def end_head(self) -> None:
        """Process the end of the request head; reject one that is too long."""
        if self._chunk + max(self._head, 0) > MAX_HEAD:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > MAX_HEAD:
                self._rejection = 431, _LONG_HEAD
                raise ValueError(_LONG_HEAD)  # the parser stops, and `send_400_response` is called
        self._received = 0
        self._phase, self._head = _BODY, -self._chunk
        self._since = self._began = 0.0

    def end_body(self, *, is_answered: bool) -> None:
        """Process the end of a request, which may already have been answered."""
        self._wait_for(_IDLE if is_answered else _ANSWER)

    def on_body(self, body: bytes) -> None:
        """Receive a part of a body."""
        self.note_body(body)
        super().on_body(body)

    def note_body(self, body: bytes) -> None:
        """Process a part of a body."""
        self._received += len(body)
        self._since = 0.0

    def on_response_complete(self) -> None:
        """Continue after a response."""
        if self._phase == _ANSWER:
            self._wait_for(_IDLE)
        super().on_response_complete()

    def _wait_for(self, phase: int) -> None:
        self._phase, self._since = phase, 0.0
        self._head = -self._chunk  # what is being read began with something else

    # ---- rejections

    def send_400_response(self, msg: str) -> None:
        """Reject a malformed request."""
        status, detail = self._rejection or (400, msg)
        self.reject(status, detail)

    def _reject_head(self) -> None:
        self.reject(431, _LONG_HEAD)

    def reject(self, status: int, detail: str) -> None:
        """Respond in place of the application, and close the connection."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            if getattr(cycle, "response_started", False):
                self.transport.abort()
                return
        made = problem(status, detail)
        named = [*self.server_state.default_headers, *made.raw_headers, (b"connection", b"close")]
        head = b"".join(b"%s: %s\r\n" % header for header in named)
        self.transport.write(b"".join([STATUS_LINE[status], head, b"\r\n", bytes(made.body)]))
        self._unset_keepalive_if_required()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # What comes is read and dropped for a while: a reset would take the answer away.
        self.flow.resume_reading()
        self._wait_for(_REJECTED)

    def check_time(self, now: float) -> None:
        """Close the connection if it has waited too long."""
        self._since, self._began = self._since or now, self._began or now
        waited, limits, cycle = now - self._since, self._limits, self.cycle
        if self._phase <= _HEAD:
            if waited > limits.header_seconds and (cycle is None or cycle.response_complete):
                if self._phase == _HEAD:
                    self.reject(
                        408, f"the request headers took more than {limits.header_seconds:g} s"
                    )
                else:
                    self.transport.close()
        elif self._phase == _BODY:
            if self.flow.read_paused:  # this server doesn't read
                self._since = self._began = now
                self._received = 0
            elif (
                waited > limits.body_seconds
                or now - self._began > limits.body_seconds + self._received / MIN_RATE
            ):
                self.reject(408, f"the body stalled for {limits.body_seconds:g} s, or is too slow")
        elif self._phase == _END:
            if waited > limits.header_seconds and not getattr(cycle, "response_started", False):
                self.transport.abort()
        elif self._phase == _REJECTED and waited > _LINGER:
            self.transport.close()


_LONG_HEAD = f"the request line and headers may have at most {MAX_HEAD:,} bytes"


def check_times(connections: Iterable[Any], now: float) -> None:
    """Close the connections that have waited too long."""
    for connection in list(connections):
        if isinstance(connection, BoundedProtocol):
            connection.check_time(now)
