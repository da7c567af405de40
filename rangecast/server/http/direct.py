"""The requests that come most often, taken past the router.

Its layers, finding a path and checking its parameters take FastAPI longer than all that the server
does for one event. So the plain forms of two requests, events and a subscription without options in
the query, go straight to the functions of their paths. Every other form, and whatever isn't as
expected, takes the usual way to the same functions.
"""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from rangecast.errors import RangecastError
from rangecast.server.http import events, spaces
from rangecast.server.http.bodies import read_body
from rangecast.server.http.problems import problem_of

_PREFIX = "/v1/spaces/"
_SUBSCRIPTIONS = "subscriptions/"


class _Given(msgspec.Struct, forbid_unknown_fields=True):
    """A subscription as it is put, in the types of JSON."""

    filter: str
    score: float = 0.0
    weights: dict[str, float] = {}
    consumer: str = ""


_given = msgspec.json.Decoder(_Given)


class Direct:
    """A short way for what comes most often, in front of all that FastAPI does."""

    def __init__(self, app: FastAPI):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http" and not scope["query_string"]:
            path: str = scope["path"]
            if path.startswith(_PREFIX):
                space, _, rest = path[len(_PREFIX) :].partition("/")
                scope["app"] = self._app
                if rest == "events" and scope["method"] == "POST" and space:
                    request = Request(scope, receive)
                    await _answer(events.publish(request, space), request, send)
                    return
                if rest.startswith(_SUBSCRIPTIONS) and scope["method"] == "PUT" and space:
                    await self._put(space, rest[len(_SUBSCRIPTIONS) :], scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _put(self, space: str, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.headers.get("content-type") != "application/json":
            await self._app(scope, receive, send)
            return
        try:
            body = await read_body(request)
            given = _given.decode(body)
        except (RangecastError, HTTPException) as error:
            await problem_of(error)(scope, receive, send)
        except (msgspec.DecodeError, UnicodeDecodeError):

            async def again() -> Message:
                return {"type": "http.request", "body": body, "more_body": False}

            await self._app(scope, again, send)
        else:
            fields = msgspec.structs.asdict(given)
            await _answer(spaces.put(request, space, name, fields), request, send)


async def _answer(work: Awaitable[Response], request: Request, send: Send) -> None:
    try:
        response = await work
    except (RangecastError, HTTPException) as error:
        response = problem_of(error)
    await response(request.scope, request.receive, send)
