"""Endpoint for links from other servers; see `links`."""

from __future__ import annotations

import asyncio
import contextlib

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from rangecast.server.http.auth import DEFAULT, Grant, grant_of
from rangecast.server.links.connection import (
    HEADER,
    REJECTED,
    LinkConnection,
    rejection,
    rejection_of,
)
from rangecast.server.links.manager import Links
from rangecast.server.state.admission import check_name
from rangecast.server.state.registry import RequestError

router = APIRouter()
_FIRST = 10.0
"""Seconds within which the other server must send something."""


@router.websocket("/v1/link")
async def link(socket: WebSocket) -> None:
    """Serve one connection of another server."""
    try:
        links, grant = _admitted(socket)
    except RequestError as error:
        await socket.accept()
        await socket.send_text(rejection(str(error)))
        await socket.close(REJECTED, "rejected")
        return
    await socket.accept(headers=[(HEADER.encode(), links.name.encode())])
    connection = LinkConnection(links, socket.headers[HEADER])
    revoked: list[str] = []

    def revoke(error: RequestError) -> None:
        revoked.append(str(error))
        connection.cut()

    with (
        socket.app.state.grants.watched(grant, revoke),
        contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError),
    ):
        async with asyncio.timeout(_FIRST):
            came = [await _received(socket, connection)]
        if came[0] is not None:  # the other server means it
            connection.first = came[0]
            links.up(connection)
            await connection.run(
                lambda frame: _send(socket, frame),
                lambda: _next(came, socket, connection),
            )
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        if revoked and socket.application_state == WebSocketState.CONNECTED:
            await socket.send_text(rejection(revoked[0]))
            await socket.close(REJECTED, "see the preceding message")
        elif socket.application_state == WebSocketState.CONNECTED:
            await socket.close(
                REJECTED if connection.rejected else 1012, "see the preceding message"
            )


def _admitted(socket: WebSocket) -> tuple[Links, Grant]:
    if "origin" in socket.headers:
        raise RequestError(403, "this endpoint is for other servers, not for browsers")
    grant = grant_of(socket)
    caller = grant.caller()
    caller.require_scope("link")
    if caller.tenant != DEFAULT:
        raise RequestError(403, f"links belong to the tenant {DEFAULT!r}; given: {caller.tenant!r}")
    links: Links | None = socket.app.state.links
    if links is None:
        raise RequestError(
            404, "this server doesn't accept links\n  hint: start it with --server-name NAME"
        )
    check_name("broker", socket.headers.get(HEADER, ""))
    return links, grant


async def _send(socket: WebSocket, frame: bytes | str) -> None:
    if isinstance(frame, str):
        await socket.send_text(frame)
    else:
        await socket.send_bytes(frame)


async def _next(
    came: list[bytes | None], socket: WebSocket, connection: LinkConnection
) -> bytes | None:
    return came.pop() if came else await _received(socket, connection)


async def _received(socket: WebSocket, connection: LinkConnection) -> bytes | None:
    """Return the next frame; `None` at the end of the connection."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        return None
    if message.get("text") is not None:
        connection.rejected = f"rejected there: {rejection_of(message['text'])}"
        return None
    frame: bytes = message["bytes"]
    return frame
