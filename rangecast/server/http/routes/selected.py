"""Subscriptions by a list of ids over HTTP: shown, or deleted as one edit."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from rangecast.model.sets.members import as_id
from rangecast.server.delivery.messages import position
from rangecast.server.http.auth import allowed, core_of
from rangecast.server.http.bodies.read import off_loop, read_body
from rangecast.server.http.routes.spaces import shown
from rangecast.server.json_text import decode
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.edits import DeleteSubscription
from rangecast.server.state.registry import RequestError

router = APIRouter(prefix="/v1/spaces")
MAX_IDS = 10_000
"""Ids of one request."""


class Ids(msgspec.Struct, forbid_unknown_fields=True):
    """Ids of subscriptions."""

    ids: list[str | int]


_ids = msgspec.json.Decoder(Ids)


@router.post("/{space}/subscriptions:select")
async def select(request: Request, space: str) -> Response:
    """Return these subscriptions, in the order of the ids, each with its `arrival`."""
    caller = allowed(request, "read")
    core = core_of(request)
    names = await names_of(request)
    registry = core.registry
    versions = [registry.subscription(caller.tenant, space, name) for name in names]
    items = [shown(request, version) | {"arrival": version.number} for version in versions]
    return Response(msgspec.json.encode({"items": items}), media_type="application/json")


@router.post("/{space}/subscriptions:delete")
async def delete(request: Request, space: str) -> Any:
    """Delete these subscriptions, all of them or none; a repeated id counts once."""
    caller = allowed(request, "subscribe")
    core = core_of(request)
    names = list(dict.fromkeys(await names_of(request)))
    core.registry.space(caller.tenant, space)
    seen_at = None
    if names:
        edits = [DeleteSubscription(caller.tenant, name, space) for name in names]
        seq = await result_of(core.edit(*edits))
        seen_at = position(core.epoch, seq + len(names) - 1)
    return {"deleted": len(names), "position": seen_at}


async def names_of(request: Request) -> list[str]:
    """Return the ids in a body, as text."""
    body = await read_body(request)
    try:
        ids = await off_loop(len(body), decode, body, _ids)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(422, f'give {{"ids": ["an id", ...]}}: {error}') from None
    if len(ids.ids) > MAX_IDS:
        raise RequestError(
            413,
            f"a request may have at most {MAX_IDS:,} ids; given: {len(ids.ids):,}\n"
            "  hint: send several requests",
        )
    return [str(as_id(id_)) for id_ in ids.ids]
