"""Endpoint from which a follower reads the log."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from rangecast.server.http.auth import core_of, granted
from rangecast.server.replication.follower import WAIT, piece_of

router = APIRouter()
_LOOK = 0.02


@router.get("/v1/log", include_in_schema=False)
async def log(request: Request, after: int, wait: float = 0.0) -> Response:
    """Return units of the log after a seq; wait for some if there are none."""
    grant = granted(request, "admin")
    core = core_of(request)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + min(wait, WAIT)
    hub = core.hub
    while core.pipeline.durable <= after and loop.time() < deadline and not hub.is_ended:
        await asyncio.sleep(_LOOK)
        grant.caller()
    body = await asyncio.to_thread(piece_of, core.log, max(0, after))
    return Response(body, media_type="application/vnd.msgpack")
