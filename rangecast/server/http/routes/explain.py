"""Explanations of the live set over HTTP; nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from rangecast.model.filters.compile import ANY_BOXES
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.tentative import TentativeSpace
from rangecast.model.validation.arguments import check_integer
from rangecast.server import explain
from rangecast.server.core import Core
from rangecast.server.http.auth import allowed, core_of
from rangecast.server.http.bodies.models import MAX_BYTES
from rangecast.server.http.bodies.read import off_loop, read_body
from rangecast.server.http.routes.spaces import arrival_after
from rangecast.server.json_text import decode
from rangecast.server.shapes import shapes_of
from rangecast.server.state.edits import NEVER
from rangecast.server.state.entries import SpaceEntry
from rangecast.server.state.registry import RequestError
from rangecast.server.state.space_index import SpaceIndex

router = APIRouter(prefix="/v1/spaces")


MAX_NEAREST = 100
"""Subscriptions that nearly match, in one answer."""


class ExplainRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a request."""

    event: dict[str, Any] | None = None
    subscription: str | int | None = None
    filter: str | None = None
    k: int = 10
    ignore_unknown: bool = False
    boxes: bool = False

    def query(self) -> explain.ExplainQuery:
        """Return the query; reject a body without an event."""
        if self.event is None:
            raise RequestError(422, 'give {"event": {...}}')
        return explain.ExplainQuery(self.event, self.ignore_unknown, self.boxes)


_decoder = msgspec.json.Decoder(ExplainRequest)


@router.post("/{space}/why")
async def why(request: Request, space: str) -> Any:
    """Explain why a subscription matches an event, or doesn't: `{"event": {}, "subscription": ""}`.

    With `"boxes": true`, all alternatives of its filter are in the answer.
    """
    core, entry, body = await _read_request(request, space)
    if body.event is None or body.subscription is None:
        raise RequestError(422, 'give {"event": {...}, "subscription": "its id"}')
    version = core.registry.subscription(entry.tenant, space, str(body.subscription))
    return await asyncio.to_thread(explain.why, entry.space, version, body.query())


@router.post("/{space}/why-not")
async def why_not(request: Request, space: str) -> Any:
    """Return the subscriptions that match an event, and k near misses: `{"event": {}, "k": 5}`.

    `k` is 10 if it isn't given, and at most 100.
    """
    core, entry, body = await _read_request(request, space)
    nearest = check_integer("k", body.k, 1, MAX_NEAREST)
    index = core.index(entry)
    return await _read(
        index, explain.recipients, body.query(), _session_numbers(core, entry), nearest
    )


@router.get("/{space}/explain")
async def explain_set(request: Request, space: str) -> Any:
    """Return the structures of the live set, the reasons for them, and their memory."""
    core = core_of(request)
    entry = core.registry.space(allowed(request, "read").tenant, space)
    return {"text": await asyncio.to_thread(core.index(entry).engine.explain)}


@router.post("/{space}/subscriptions:find-covering")
async def find_covering(request: Request, space: str) -> Any:
    """Return a subscription that covers `{"subscription": id}` or `{"filter": text}`, if any."""
    core, entry, body = await _read_request(request, space)
    number, sessions = None, _session_numbers(core, entry)
    with core.index(entry).reading() as index:
        # The words of a filter that isn't saved don't become words of the server's space.
        own = TentativeSpace(index.engine.space)
        if body.subscription is not None:
            version = core.registry.subscription(entry.tenant, space, str(body.subscription))
            number = version.number
            wanted = await asyncio.to_thread(Filter.parse, version.filter, own, max_boxes=ANY_BOXES)
        elif body.filter is not None:
            wanted = await asyncio.to_thread(core.quotas.parsed, entry.tenant, body.filter, own)
        else:
            raise RequestError(422, 'give {"subscription": "its id"} or {"filter": "..."}')
        return await asyncio.to_thread(explain.find_covering, index, wanted, number, sessions)


@router.get("/{space}/boxes")
async def boxes(request: Request, space: str, x: str = "", y: str = "", limit: int = 400) -> Any:
    """Return the boxes of subscriptions on two attributes, to draw them.

    `x`, `y`: the attributes; by default those that most subscriptions bound.
    """
    core = core_of(request)
    entry = core.registry.space(allowed(request, "read").tenant, space)
    check_integer("limit", limit, 1, 2000)
    index, sessions = core.index(entry), _session_numbers(core, entry)
    return await _read(index, explain.boxes_on_axes, x, y, sessions, limit)


@router.get("/{space}/shapes")
async def list_shapes(
    request: Request, space: str, place: str = "", after: str = "", limit: int = 1000
) -> Any:
    """Return the shapes of subscriptions as GeoJSON, a page at a time, to draw them.

    `place`: a location or point of the space, by default its first; `after`: the `next` of the page
    before. Longitudes beyond 180 are those of a shape that crosses the antimeridian.
    """
    core = core_of(request)
    entry = core.registry.space(allowed(request, "read").tenant, space)
    check_integer("limit", limit, 1, 10_000)
    index, sessions = core.index(entry), _session_numbers(core, entry)
    first = arrival_after(after)
    shapes = await _read(index, shapes_of, place, sessions, first, limit)
    shapes["tiles"] = request.app.state.map_tiles
    return Response(msgspec.json.encode(shapes), media_type="application/geo+json")


async def _read(
    index: SpaceIndex, work: Callable[..., dict[str, Any]], *arguments: Any
) -> dict[str, Any]:
    """Return what a function of an index returns, which runs in a thread of its own."""

    def run() -> dict[str, Any]:
        with index.reading() as now:
            return work(now, *arguments)

    return await asyncio.to_thread(run)


def _session_numbers(core: Core, entry: SpaceEntry) -> set[int]:
    """Return the numbers of a space's session subscriptions, such as those of the page."""
    return {
        version.number
        for consumer in list(core.registry.consumers.values())
        if consumer.source is entry and consumer.is_session
        for version in consumer.versions
        if version.died == NEVER
    }


async def _read_request(request: Request, space: str) -> tuple[Core, SpaceEntry, ExplainRequest]:
    core = core_of(request)
    entry = core.registry.space(allowed(request, "read").tenant, space)
    content = await read_body(request, MAX_BYTES)
    try:
        body = await off_loop(len(content), decode, content, _decoder)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(422, f"invalid body: {error}") from None
    return core, entry, body
