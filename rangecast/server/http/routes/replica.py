"""The log for another server that follows this one."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from rangecast.server.http.auth import granted
from rangecast.server.replication.follower import WAIT, piece_of
from rangecast.server.service import Service

router = APIRouter()
_LOOK = 0.02


@router.get("/v1/log", include_in_schema=False)
async def log(request: Request, after: int, wait: float = 0.0) -> Response:
    """Return units of the log after a seq; wait for some if there are none."""
    grant = granted(request, "admin")
    service: Service = request.app.state.service
    loop = asyncio.get_running_loop()
    deadline = loop.time() + min(wait, WAIT)
    hub = service.hub
    while service.pump.durable <= after and loop.time() < deadline and not hub.is_ended:
        await asyncio.sleep(_LOOK)
        grant.caller()
    body = await asyncio.to_thread(piece_of, service.log, max(0, after))
    return Response(body, media_type="application/vnd.msgpack")
