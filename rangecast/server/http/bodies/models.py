"""Request bodies of one JSON object with known fields: bounded and decompressed like all others."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from rangecast.server.http.bodies.read import off_loop, read_body
from rangecast.server.json_text import DepthError, decode
from rangecast.server.state.registry import RequestError

MAX_BYTES = 1 << 20
"""Maximum bytes of such a body: no object of known fields needs more."""


_FORM = "application/x-www-form-urlencoded"
"""Content type that `curl -d` sends: taken for JSON, as is a missing one."""


class _ModelRequest(Request):
    """A request whose `body` and `json` follow this server's limits."""

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            try:
                self._body = await read_body(self, MAX_BYTES)
            except RequestError as error:  # FastAPI would say that something is wrong, not what
                raise HTTPException(error.status, str(error)) from None
        return self._body

    async def json(self) -> Any:
        body = await self.body()
        try:
            return await off_loop(len(body), decode, body)
        except DepthError as error:
            raise HTTPException(400, str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise json.JSONDecodeError(str(error), "", 0) from None


class ModelRoute(APIRoute):
    """A route whose body, if any, is a JSON object with known fields."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route."""
        handle = super().get_route_handler()

        async def handle_read(request: Request) -> Response:
            scope, kind = request.scope, request.headers.get("content-type", "")
            if kind.partition(";")[0].strip().lower() == _FORM:
                named = [header for header in scope["headers"] if header[0] != b"content-type"]
                scope = {**scope, "headers": named}
            return await handle(_ModelRequest(scope, request.receive))

        return handle_read
