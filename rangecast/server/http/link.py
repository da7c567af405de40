"""Where other servers connect: see `links`."""

from __future__ import annotations

import asyncio
import contextlib

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from rangecast.server.admission import check_name
from rangecast.server.http.access import DEFAULT, bearer, caller_of
from rangecast.server.links.links import Links
from rangecast.server.links.wire import HEADER, REFUSED, Wire, refusal, refusal_of
from rangecast.server.registry import RefusedError
from rangecast.server.service import Service

router = APIRouter()
_FIRST = 10.0
"""Seconds that the other server has to say something."""


@router.websocket("/v1/link")
async def link(socket: WebSocket) -> None:
    """Carry one connection of another server."""
    service: Service = socket.app.state.service
    try:
        links = _admitted(service, socket)
    except RefusedError as error:
        await socket.accept()
        await socket.send_text(refusal(str(error)))
        await socket.close(REFUSED, "refused")
        return
    await socket.accept(headers=[(HEADER.encode(), links.name.encode())])
    wire = Wire(links, socket.headers[HEADER])
    service.sessions.add(wire)
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
        async with asyncio.timeout(_FIRST):
            came = [await _received(socket, wire)]
        if came[0] is not None:  # the other server means it
            links.up(wire)
            await wire.run(
                lambda frame: _send(socket, frame),
                lambda: _next(came, socket, wire),
            )
    service.sessions.discard(wire)
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        if socket.application_state == WebSocketState.CONNECTED:
            await socket.close(REFUSED if wire.refused else 1012, "the text before says why")


def _admitted(service: Service, socket: WebSocket) -> Links:
    if "origin" in socket.headers:
        raise RefusedError(403, "this is for other servers, not for browsers")
    host = None if socket.client is None else socket.client.host
    caller = caller_of(service, bearer(socket), host)
    caller.need("link")
    if caller.tenant != DEFAULT:
        raise RefusedError(403, f"links are of the tenant {DEFAULT!r}; given: {caller.tenant!r}")
    if service.links is None:
        raise RefusedError(404, "this server takes no links\n  to do: start it with --broker NAME")
    check_name("broker", socket.headers.get(HEADER, ""))
    return service.links


async def _send(socket: WebSocket, frame: bytes | str) -> None:
    if isinstance(frame, str):
        await socket.send_text(frame)
    else:
        await socket.send_bytes(frame)


async def _next(came: list[bytes | None], socket: WebSocket, wire: Wire) -> bytes | None:
    return came.pop() if came else await _received(socket, wire)


async def _received(socket: WebSocket, wire: Wire) -> bytes | None:
    """Return the next frame; `None`: there won't be one."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        return None
    if message.get("text") is not None:
        wire.refused = f"refused there: {refusal_of(message['text'])}"
        return None
    frame: bytes = message["bytes"]
    return frame
