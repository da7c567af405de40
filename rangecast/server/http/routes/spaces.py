"""Spaces and subscriptions over HTTP."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import msgspec
import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from rangecast.errors import SpaceError, UsageError
from rangecast.model.filters.tentative import TentativeSpace
from rangecast.model.sets.members import as_id
from rangecast.model.space import Space
from rangecast.model.validation.arguments import score_of, weights_of
from rangecast.server.core import Core
from rangecast.server.delivery.messages import position
from rangecast.server.http.auth import Caller, allowed, core_of
from rangecast.server.http.bodies.models import MAX_BYTES, ModelRoute
from rangecast.server.http.bodies.read import off_loop, read_body, rows_of_body
from rangecast.server.http.routes.new_consumers import subscribed
from rangecast.server.log.clock import Clock
from rangecast.server.pipeline.commands import Outcome
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.admission import ONLY_NEW
from rangecast.server.state.edits import DeleteSubscription, PutConsumer, PutSpace, PutSubscription
from rangecast.server.state.entries import SpaceEntry
from rangecast.server.state.registry import RequestError
from rangecast.server.state.tracks.options import check_rule_of, check_track, space_and_track
from rangecast.server.state.versions.version import Version

router = APIRouter(prefix="/v1/spaces", route_class=ModelRoute)
PAGE = 1000
_ROW = 64
"""Cost of one row of a searched list, as bytes of a body: see `off_loop`."""
Item = TypeVar("Item")
SPACE_BYTES = 1 << 20
"""Bytes of the definition of a space."""
MAX_PROPAGATION = 30.0
"""Seconds that a request waits for other servers."""


class SubscriptionRequest(BaseModel):
    """Request for a subscription."""

    model_config = ConfigDict(extra="forbid")

    id: StrictInt | StrictStr | None = Field(None, description="An integer, if the id is one.")
    filter: str = Field(examples=["price < 20 and sector = 'tech'"])
    score: float = 0.0
    weights: dict[str, float] = {}
    consumer: str = ""
    ttl: float | None = Field(None, gt=0, description="Seconds after which it expires.")
    track: dict[str, Any] | None = Field(
        None, description="Rule for transitions, which its consumer gets instead of matches."
    )


@router.get("")
async def list_spaces(request: Request) -> Any:
    """List the spaces."""
    caller = allowed(request, "read")
    spaces = list(_registry(request).spaces.values())
    mine = [space for space in spaces if space.tenant == caller.tenant]
    return {"items": [_shown_space(entry) for entry in mine]}


@router.get("/{space}")
async def get_space(request: Request, space: str) -> Response:
    """Return a space: its attributes, as JSON or (Accept: application/toml) as TOML."""
    caller = allowed(request, "read")
    entry = _registry(request).space(caller.tenant, space)
    if "toml" in request.headers.get("accept", ""):
        return PlainTextResponse(entry.space.to_toml(), media_type="application/toml")
    tracks = core_of(request).tracks.spaces.get(entry.number)
    tracked = {} if tracks is None else {"tracked": tracks.status()}
    return JSONResponse(_shown_space(entry) | tracked)


@router.put("/{space}")
async def put_space(request: Request, space: str) -> Any:
    """Create a space, or add attributes and categories to it: TOML, or JSON of the same shape.

    `track`: the key and time columns by which objects are tracked.
    """
    caller = allowed(request, "admin")
    body = await read_body(request, SPACE_BYTES)
    is_json = "json" in request.headers.get("content-type", "")
    made, track = await off_loop(len(body), _space_of, body, is_json)
    seq = await _edited(request, PutSpace(caller.tenant, space, made.definition(), track))
    return {"name": space, "position": position(core_of(request).epoch, seq)}


def _space_of(body: bytes, is_json: bool) -> tuple[Space, dict[str, Any] | None]:
    """Return the space in a body, and its track settings."""
    if not is_json:
        return space_and_track(body.decode("utf-8", "replace"))
    rows = rows_of_body(body)
    if not isinstance(rows, dict):
        raise SpaceError("a space must be an object with a list 'attribute'")
    track = rows.pop("track", None)
    space = Space.from_definition(rows)
    if track is not None:
        check_track(track, space)
    return space, track


@router.get("/{space}/subscriptions")
async def list_subscriptions(
    request: Request,
    space: str,
    after: str = "",
    limit: int = PAGE,
    consumer: str | None = None,
    contains: str = "",
) -> Any:
    """List subscriptions in order of arrival, a page at a time.

    `after` is the `next` of the page before.

    `contains`: only those with this text in their id or filter, whatever its case. Those of live
    tails, which end with their connection, aren't listed.
    """
    caller = allowed(request, "read")
    entry = _registry(request).space(caller.tenant, space)
    number = None
    if consumer is not None:
        number = _registry(request).consumer(caller.tenant, consumer).number
    text, limit = contains.casefold(), max(1, min(limit, PAGE))
    first = arrival_after(after)

    def work() -> bytes:
        # A subscription that is replaced keeps its number, and its place in the dict.
        tails = {consumer.number for consumer in list(consumers.values()) if consumer.is_session}
        wanted, owners = entry.live.numbers()
        is_listed = ~np.isin(owners, list(tails))
        count = int(np.count_nonzero(is_listed))
        is_listed &= wanted >= first
        if number is not None:
            is_listed &= owners == number
        wanted = wanted[is_listed]
        if text:
            hits = [
                subscription.number
                for subscription in entry.live.values()
                if text in f"{subscription.name}\n{subscription.filter}".casefold()
            ]
            wanted = wanted[np.isin(wanted, np.array(hits, np.int64))]
        page = entry.live.at(wanted[:limit])
        more = str(wanted[limit - 1]) if len(wanted) > limit else None
        items = [shown(request, subscription) for subscription in page]
        return msgspec.json.encode({"items": items, "next": more, "count": count})

    consumers = _registry(request).consumers
    listed = await off_loop(_ROW * len(entry.live), work)
    return Response(listed, media_type="application/json")


def arrival_after(after: str) -> int:
    """Return the first subscription number after the end of a page."""
    if not after:
        return 0
    if not (after.isascii() and after.isdigit() and len(after) < 20):
        raise UsageError(
            f"'after' must be the 'next' of the previous page\n  given: {after[:80]!r}\n"
            "  hint: leave it out for the first page"
        )
    return int(after) + 1


def page_of(named: Mapping[str, Item], after: str, limit: int) -> tuple[list[Item], str | None]:
    """Return up to `limit` items after a name, and the last name if there are more."""
    names = [name for name in named if name > after]
    page = heapq.nsmallest(limit, names)
    return [named[name] for name in page], page[-1] if len(names) > len(page) else None


@router.get("/{space}/subscriptions/{name:path}")
async def get_subscription(request: Request, space: str, name: str, wait: str = "") -> Response:
    """Return a subscription; `wait=propagated`: when all linked servers know of it, as for PUT."""
    caller = allowed(request, "read")
    subscription = _registry(request).subscription(caller.tenant, space, name)
    propagated = await _propagated(request, wait, subscription.born)
    return JSONResponse(
        shown(request, subscription) | propagated, headers={"ETag": etag(subscription.born)}
    )


@router.put("/{space}/subscriptions/{name:path}")
async def put_subscription(
    request: Request,
    space: str,
    name: str,
    definition: SubscriptionRequest,
    wait: str = "",
    create_consumer: bool = False,
) -> Response:
    """Create or replace a subscription; every event after the answer is matched with it.

    `create_consumer=true`: its consumer is created with it, if there is none of this name.

    `wait=propagated`: the answer comes when all linked servers know of it, or after 30 seconds with
    `propagated` false; a GET with `wait=propagated` asks again.
    """
    caller = allowed(request, "subscribe")
    entry = _registry(request).space(caller.tenant, space)
    edit = edit_of(caller, entry, name, definition.model_dump(), core_of(request).clock)
    if_match, outcome = condition(request), Outcome()

    def submit(consumers: list[PutConsumer]) -> Future[int]:
        return core_of(request).edit(*consumers, edit, if_match=if_match, outcome=outcome)

    seq = await subscribed(_registry(request), [edit], submit, create_consumer=create_consumer)
    propagated = await _propagated(request, wait, seq)
    return JSONResponse(
        shown_put(core_of(request), edit, seq, outcome) | propagated, headers={"ETag": etag(seq)}
    )


def shown_put(core: Core, edit: PutSubscription, seq: int, outcome: Outcome) -> dict[str, Any]:
    """Return the response to a put subscription, given the seq of its edit."""
    seen_at = position(core.epoch, seq)
    return {"id": edit.id, "position": seen_at, "created": bool(outcome.inserted)}


def etag(seq: int) -> str:
    """Return the ETag of a subscription, given the seq of its last edit."""
    return f'"{seq}"'


@router.delete("/{space}/subscriptions/{name:path}")
async def delete_subscription(request: Request, space: str, name: str) -> Any:
    """Delete a subscription; no event after the answer is matched with it."""
    caller = allowed(request, "subscribe")
    edit = DeleteSubscription(caller.tenant, name, space)
    seq = await _edited(request, edit, if_match=condition(request))
    return {"id": name, "position": position(core_of(request).epoch, seq)}


@router.post("/{space}/filters:preview")
async def preview(request: Request, space: str) -> Any:
    """Preview a filter without saving it: its boxes, and the past events that it matches."""
    caller = allowed(request, "read")
    entry = _registry(request).space(caller.tenant, space)
    body = await read_body(request, MAX_BYTES)
    rows = await off_loop(len(body), rows_of_body, body)
    if not isinstance(rows, dict) or not isinstance(rows.get("filter"), str):
        raise RequestError(422, 'give a JSON object {"filter": "..."}')
    from rangecast.server.explain import preview_filter

    core = core_of(request)
    parse = partial(core.quotas.parsed, caller.tenant)
    return await asyncio.to_thread(
        preview_filter, core.log, core.epoch, entry, rows["filter"], parse
    )


def edit_of(
    caller: Caller, entry: SpaceEntry, name: str, definition: dict[str, Any], clock: Clock
) -> PutSubscription:
    """Return the edit that puts a subscription; everything but the filter is checked."""
    is_integer = is_integer_id(name, definition.get("id"))
    weights = definition.get("weights") or {}
    if not isinstance(weights, dict):
        raise RequestError(422, "weights must be an object from attribute to weight")
    if weights:
        weights_of(entry.space, weights, None)
    consumer = definition.get("consumer") or ""
    if not isinstance(consumer, str):
        raise RequestError(422, f"consumer must be a name; given: {consumer!r}")
    ttl = definition.get("ttl")
    if ttl is not None and (not isinstance(ttl, int | float) or not 0 < ttl < 1e9):
        raise RequestError(422, f"ttl must be a number of seconds; given: {ttl!r}")
    return PutSubscription(
        caller.tenant,
        name,
        entry.name,
        definition["filter"],
        consumer,
        score_of(definition.get("score") or 0.0),
        {attribute: float(weight) for attribute, weight in weights.items()},
        0 if ttl is None else clock.now() + int(ttl * 1e6),
        is_integer,
        _track_of(definition.get("track"), entry),
    )


def _track_of(track: Any, entry: SpaceEntry) -> dict[str, Any] | None:
    if track is None:
        return None
    if not isinstance(track, dict):
        raise RequestError(422, f"track must be an object with a rule's fields; given: {track!r}")
    check_rule_of(track, TentativeSpace(entry.space))
    return track


def is_integer_id(name: str, value: Any, noun: str = "subscription") -> bool:
    """Return whether an id was given as an integer; reject one that differs from the path."""
    as_id(name, noun)
    if value is None:
        return False
    if str(as_id(value, noun)) != name:
        raise UsageError(
            "the id in the body differs from the one in the path\n"
            f"  given: {value!r} and {name!r}\n"
            "  hint: leave it out, or give the same"
        )
    return isinstance(value, int)


async def _propagated(request: Request, wait: str, seq: int) -> dict[str, bool]:
    """If requested, wait until an edit has propagated; return the outcome as a response field."""
    if wait not in ("", "propagated"):
        raise RequestError(422, f"'wait' must be 'propagated', or left out; given: {wait[:80]!r}")
    links = request.app.state.links
    if not wait or links is None:
        return {"propagated": True} if wait else {}
    try:
        async with asyncio.timeout(MAX_PROPAGATION):
            return {"propagated": await result_of(links.propagated(seq))}
    except TimeoutError:
        return {"propagated": False}


def condition(request: Request) -> str | None:
    """Return the precondition of a request: an ETag, existence, or absence."""
    if request.headers.get("if-none-match") == "*":
        return ONLY_NEW
    return request.headers.get("if-match")


async def _edited(request: Request, edit: Any, if_match: str | None = None) -> int:
    return await result_of(core_of(request).edit(edit, if_match=if_match))


def _registry(request: Request) -> Any:
    return core_of(request).registry


def _shown_space(entry: SpaceEntry) -> dict[str, Any]:
    shown = {"name": entry.name, "subscriptions": len(entry.live), **entry.space.definition()}
    return shown if entry.track is None else shown | {"track": entry.track}


def shown(request: Request, version: Version) -> dict[str, Any]:
    """Return a subscription in the format of responses."""
    owner = _registry(request).owner(version)
    return {
        "id": version.id,
        "filter": version.filter,
        "score": version.score,
        "weights": version.weights,
        "consumer": None if owner is None else owner.name,
        "expires": version.expires / 1e6 if version.expires else None,
        "position": position(core_of(request).epoch, version.born),
        **({} if version.track is None else {"track": version.track}),
    }
