"""Tickets: let a page open a stream without a token in its URL.

A browser can't set headers on a WebSocket or an EventSource. Instead it requests a ticket with its
token, and passes it as `?ticket=`. A ticket works once, expires within seconds, and has the rights
of the token.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from starlette.requests import HTTPConnection

from rangecast.server.http.auth import Grant, core_of, digest_of, grant_of, known, peer_of
from rangecast.server.state.registry import RequestError

SECONDS = 30
MOST = 10_000
"""Tickets that wait to be used; the oldest go first."""
router = APIRouter()


class Tickets:
    """Unused tickets."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._waiting: OrderedDict[str, tuple[str | None, float]] = OrderedDict()
        """By digest: the digest of the token, and until when it works."""

    def issue(self, token: str | None) -> str:
        """Return a new ticket for the token with this digest; `None`: no token is required."""
        ticket = secrets.token_urlsafe(32)
        until = self._clock() + SECONDS
        self._waiting[digest_of(ticket)] = token, until
        while len(self._waiting) > MOST:
            self._waiting.popitem(last=False)
        return ticket

    def used(self, ticket: str) -> str | None:
        """Invalidate a ticket, and return the digest of its token."""
        token, until = self._waiting.pop(digest_of(ticket), (None, 0.0))
        if until < self._clock():
            raise RequestError(
                401, "this ticket is unknown, already used, or expired\n  hint: request a new one"
            )
        return token


@router.post("/v1/tickets")
async def make_ticket(request: Request) -> Any:
    """Create a ticket: `?ticket=` opens one WebSocket or stream, within 30 seconds."""
    known(request)
    ticket = request.app.state.tickets.issue(grant_of(request).digest)
    return {"ticket": ticket, "seconds": SECONDS}


def grant_by_ticket(connection: HTTPConnection) -> Grant:
    """Return the grant of a connection, from the ticket in its URL or from its header.

    A ticket works once. Its rights end with its token.
    """
    ticket = connection.query_params.get("ticket")
    if ticket is None:
        return grant_of(connection)
    digest = connection.app.state.tickets.used(ticket)
    return Grant(core_of(connection), digest, peer_of(connection))
