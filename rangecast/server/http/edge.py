"""Around every request: its body is bounded, whoever sends it and whatever reads it."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 8 << 20


class Edge:
    """The outermost part of the application that is ours."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; a body that is too large is refused as soon as that is known."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        left = MOST_BYTES

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(
                    413, f"a body has at most {MOST_BYTES:,} bytes\n  to do: send several requests"
                )
            return message

        await self._app(scope, bounded, send)
