"""Partial changes of subscriptions over HTTP: fields not given stay unchanged.

The log has only whole subscriptions. So an edit merges the given fields into the current
subscription, on condition that it hasn't changed in the meantime; if it has, the edit is retried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from rangecast.server.http.auth import allowed, core_of
from rangecast.server.http.bodies.models import ModelRoute
from rangecast.server.http.routes.spaces import condition, edit_of, etag, shown_put
from rangecast.server.pipeline.commands import Outcome
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.admission import ONLY_NEW, ChangedError
from rangecast.server.state.edits import PutSubscription
from rangecast.server.state.registry import Registry, RequestError
from rangecast.server.state.versions.version import Version

router = APIRouter(prefix="/v1/spaces", route_class=ModelRoute)
_ATTEMPTS = 20
"""Maximum retries of an edit that loses against concurrent ones."""


class SubscriptionPatch(BaseModel):
    """Changed fields of a subscription."""

    model_config = ConfigDict(extra="forbid")

    id: StrictInt | StrictStr | None = Field(None, description="An integer, if the id is one.")
    filter: str | None = Field(None, examples=["price < 20 and sector = 'tech'"])
    score: float | None = None
    weights: dict[str, float] = {}
    consumer: str | None = None
    ttl: float | None = Field(None, gt=0, description="Seconds after which it expires.")
    track: dict[str, Any] | None = Field(
        None, description="Rule for transitions, which its consumer gets instead of matches."
    )


@router.patch("/{space}/subscriptions/{name:path}")
async def patch_subscription(
    request: Request, space: str, name: str, definition: SubscriptionPatch
) -> Response:
    """Change fields of a subscription: its filter, score, weights, consumer, ttl or track.

    It keeps its place in ties. Weights that aren't given stay, too.
    """
    caller = allowed(request, "subscribe")
    core = core_of(request)
    entry = core.registry.space(caller.tenant, space)
    values, if_match = definition.model_dump(), condition(request)
    if if_match == ONLY_NEW:
        raise RequestError(422, "a subscription must exist to be changed: leave out If-None-Match")
    edit = edit_of(caller, entry, name, values | {"filter": definition.filter or ""}, core.clock)
    made: list[PutSubscription] = []

    async def submit() -> int:
        version = core.registry.subscription(caller.tenant, space, name)
        made[:] = [merged(core.registry, version, edit, values)]
        mark = etag(version.born) if if_match in (None, "*") else if_match
        return await result_of(core.edit(*made, if_match=mark))

    is_fixed = if_match not in (None, "*")
    seq = await submit() if is_fixed else await unless_changed(submit)
    shown = shown_put(core, made[0], seq, Outcome())
    return JSONResponse(shown, headers={"ETag": etag(seq)})


async def unless_changed(submit: Callable[[], Awaitable[int]]) -> int:
    """Submit a read-modify-write edit, retrying while others get in first; return its seq."""
    for _ in range(_ATTEMPTS):
        try:
            return await submit()
        except ChangedError:
            continue
    raise RequestError(503, "it is changed concurrently too often\n  hint: try again")


def merged_many(
    registry: Registry,
    space: str,
    edits: Sequence[PutSubscription],
    definitions: Sequence[Mapping[str, Any]],
) -> tuple[list[PutSubscription], list[str]]:
    """Return complete edits, and the ETag that each is based on; reject unknown ids."""
    versions = [registry.subscription(change.tenant, space, change.name) for change in edits]
    rows = zip(versions, edits, definitions, strict=True)
    whole = [merged(registry, version, edit, values) for version, edit, values in rows]
    return whole, [etag(version.born) for version in versions]


def merged(
    registry: Registry, version: Version, edit: PutSubscription, definition: Mapping[str, Any]
) -> PutSubscription:
    """Return the edit that applies the given fields to a subscription."""
    owner = registry.owner(version)
    has = {name for name, value in definition.items() if value is not None}
    return replace(
        edit,
        filter=edit.filter if "filter" in has else version.filter,
        score=edit.score if "score" in has else version.score,
        weights={**version.weights, **edit.weights},
        consumer=edit.consumer or ("" if owner is None else owner.name),
        expires=edit.expires if "ttl" in has else version.expires,
        is_integer=edit.is_integer if "id" in has else version.is_integer,
        track=edit.track if "track" in has else version.track,
    )
