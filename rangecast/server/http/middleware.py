"""Middleware around every request: limits body sizes and logs requests."""

from __future__ import annotations

import logging
import re
import secrets
import time

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rangecast.server.core import Core

MAX_BODY_BYTES = 8 << 20
TENANT = "rangecast.tenant"
"""Key of the tenant in a request's scope, once it is known."""
logger = logging.getLogger("rangecast.requests")
_REQUEST = re.compile(rb"[A-Za-z0-9_.-]{1,64}")


class Middleware:
    """Outermost ASGI application: limits body sizes and logs requests."""

    def __init__(self, app: ASGIApp, core: Core):
        self._app = app
        self._core = core

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or a WebSocket connection."""
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            receive = _bounded(receive)
        if scope["type"] == "lifespan" or not logger.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
        else:
            await self._logged(scope, receive, send)

    async def _logged(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = dict(scope["headers"]).get(b"x-request-id", b"")
        request = request_id if _REQUEST.fullmatch(request_id) else secrets.token_hex(8).encode()
        began, status = time.monotonic(), 403 if scope["type"] == "websocket" else 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request)]
            elif message["type"] == "websocket.accept":
                status = 101
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            logger.info(
                "request",
                extra={
                    "request": request.decode(),
                    "method": scope.get("method", "WEBSOCKET"),
                    "path": scope["path"],
                    "status": status,
                    "seconds": round(time.monotonic() - began, 6),
                    "tenant": scope.get(TENANT),
                    "seq": self._core.pipeline.durable,
                },
            )


def _bounded(receive: Receive) -> Receive:
    """Reject a body as soon as it is known to be too large."""
    left = MAX_BODY_BYTES

    async def bounded() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise HTTPException(
                413,
                f"a body may have at most {MAX_BODY_BYTES:,} bytes\n  hint: send several requests",
            )
        return message

    return bounded
