"""HTTP as a client speaks it that notes everything: one connection, no retries."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
from typing import Any, NamedTuple

from tests.soak.chaos.processes import Server

UNANSWERED = 60.0
"""Seconds after which a request counts as unanswered."""


class Answer(NamedTuple):
    """An answer; the status is 0 if there is none."""

    status: int
    body: Any
    is_late: bool = False
    """Nothing came within `UNANSWERED`."""
    is_unsent: bool = False
    """There was no connection."""


class Connection:
    """One connection to a server, opened again when it is needed."""

    def __init__(self, server: Server, timeout: float = UNANSWERED):
        self._server, self._timeout = server, timeout
        self._http: http.client.HTTPConnection | None = None

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request, and return what came of it."""
        given = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            given.setdefault("Content-Type", "application/json")
        try:
            if self._http is None:
                self._http = http.client.HTTPConnection(
                    "127.0.0.1", self._server.port, timeout=self._timeout
                )
            self._http.request(method, f"/v1/{path}" if path[0] != "/" else path, body, given)
            answer = self._http.getresponse()
            text = answer.read()
            if answer.will_close:
                self.close()
            return Answer(answer.status, _parsed(text))
        except TimeoutError:
            self.close()
            return Answer(0, None, is_late=True)
        except ConnectionRefusedError:
            self.close()
            return Answer(0, None, is_unsent=True)
        except (OSError, http.client.HTTPException):
            self.close()
            return Answer(0, None)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        if self._http is not None:
            self._http.close()
            self._http = None


def ask(server: Server, method: str, path: str, body: Any = None) -> Answer:
    """Send one request over a connection of its own."""
    with Connection(server) as connection:
        return connection.ask(method, path, body)


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode(errors="replace")


def seq_of(position: str | None) -> int | None:
    """Return the seq of a position."""
    return None if position is None else int(position.rpartition(":")[2])


def outcome_of(answer: Answer, *, is_broken: bool) -> str:
    """Return what an answer to a write says; `is_broken`: the disk gives errors, and then a server
    that stops can't know what became of it.
    """
    if answer.status == 200:
        return "ok"
    if 400 <= answer.status < 500 or answer.status == 507 or answer.is_unsent:
        return "rejected"
    if answer.status == 503 and not is_broken:
        return "rejected"
    return "unknown"


def reset(connection: socket.socket) -> None:
    """Close a connection by a reset."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
