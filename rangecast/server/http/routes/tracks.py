"""Tracks of a space over HTTP."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from rangecast.server.delivery.messages import position
from rangecast.server.http.auth import allowed, core_of
from rangecast.server.state.tracks.spaces import RECENT

router = APIRouter(prefix="/v1/spaces")


@router.get("/{space}/transitions")
async def list_transitions(request: Request, space: str, limit: int = RECENT) -> Any:
    """List the most recent transitions of a space since the server started, newest first.

    Use it for inspection; to receive every transition, use a consumer.
    """
    caller = allowed(request, "read")
    core = core_of(request)
    entry = core.registry.space(caller.tenant, space)
    tracks = core.tracks.spaces.get(entry.number)
    transitions = [] if tracks is None else list(tracks.recent)[: -max(1, limit) - 1 : -1]
    items = [
        {"position": position(core.epoch, seq), "subscriptions": derived.ids} | derived.fields()
        for seq, derived in transitions
    ]
    return {"items": items}
