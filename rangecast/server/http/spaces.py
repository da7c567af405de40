"""Spaces and subscriptions over HTTP."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field

from rangecast.errors import BadRowError, FilterError, RangecastError, SpaceError
from rangecast.model.arguments import score_of, weights_of
from rangecast.model.filters.tentative import TentativeSpace
from rangecast.model.members import as_id
from rangecast.model.space import Space
from rangecast.server.admission import ONLY_NEW
from rangecast.server.http.access import Caller, allowed
from rangecast.server.http.bodies import read_body, rows_of_body
from rangecast.server.messages import position
from rangecast.server.records import DeleteSubscription, PutSpace, PutSubscription
from rangecast.server.registry import Read, RefusedError, SpaceEntry, Version
from rangecast.server.service import Service
from rangecast.server.waiting import answered

router = APIRouter(prefix="/v1/spaces")
PAGE = 1000
SETTLING = 30.0
"""Seconds that a request waits for other servers."""


class Given(BaseModel):
    """A subscription as it is put."""

    model_config = ConfigDict(extra="forbid")

    filter: str = Field(examples=["price < 20 and sector = 'tech'"])
    score: float = 0.0
    weights: dict[str, float] = {}
    consumer: str = ""
    ttl: float | None = Field(None, gt=0, description="Seconds after which it ends by itself.")


@router.get("")
async def list_spaces(request: Request) -> Any:
    """List the spaces."""
    caller = allowed(request, "read")
    mine = [one for one in _registry(request).spaces.values() if one.tenant == caller.tenant]
    return {"items": [_shown_space(one) for one in mine]}


@router.get("/{space}")
async def get_space(request: Request, space: str) -> Response:
    """Return a space: its attributes, as JSON or (Accept: application/toml) as TOML."""
    caller = allowed(request, "read")
    found = _registry(request).space(caller.tenant, space)
    if "toml" in request.headers.get("accept", ""):
        return PlainTextResponse(found.space.to_toml(), media_type="application/toml")
    return JSONResponse(_shown_space(found))


@router.put("/{space}")
async def put_space(request: Request, space: str) -> Any:
    """Make a space, or add attributes and categories to it: TOML, or JSON of the same shape."""
    caller = allowed(request, "admin")
    text = (await read_body(request)).decode("utf-8", "replace")
    if "json" in request.headers.get("content-type", ""):
        given = rows_of_body(text.encode())
        if not isinstance(given, dict):
            raise SpaceError("a space is an object with a list 'attribute'")
        made = Space.from_definition(given)
    else:
        made = Space.from_toml(text)
    seq = await _edited(request, PutSpace(caller.tenant, space, made.definition()))
    return {"name": space, "position": position(_service(request).log.epoch, seq)}


@router.get("/{space}/subscriptions")
async def list_subscriptions(
    request: Request,
    space: str,
    after: str = "",
    limit: int = PAGE,
    consumer: str | None = None,
    contains: str = "",
) -> Any:
    """List subscriptions by id, a page at a time: `after` is the last id of the page before.

    `contains`: only those with this text in their id or filter, whatever its case.
    """
    caller = allowed(request, "read")
    entry = _registry(request).space(caller.tenant, space)
    wanted = [one for one in list(entry.live.values()) if one.id > after]
    if consumer is not None:
        number = _registry(request).consumer(caller.tenant, consumer).number
        wanted = [one for one in wanted if one.consumer == number]
    if text := contains.casefold():
        wanted = [one for one in wanted if text in f"{one.id}\n{one.filter}".casefold()]
    page = heapq.nsmallest(max(1, min(limit, PAGE)), wanted, key=lambda one: one.id)
    more = page[-1].id if len(wanted) > len(page) else None
    return {"items": [_shown(request, one) for one in page], "next": more, "count": len(entry.live)}


@router.get("/{space}/subscriptions/{name:path}")
async def get_subscription(request: Request, space: str, name: str, wait: str = "") -> Response:
    """Return a subscription; with `wait=settled` when all linked servers know of it, as for PUT."""
    caller = allowed(request, "read")
    found = _registry(request).subscription(caller.tenant, space, name)
    settled = await _settled(request, wait, found.born)
    return JSONResponse(_shown(request, found) | settled, headers={"ETag": etag(found.born)})


@router.put("/{space}/subscriptions/{name:path}")
async def put_subscription(
    request: Request, space: str, name: str, given: Given, wait: str = ""
) -> Response:
    """Make a subscription, or replace it; every event after the answer is matched with it.

    `wait=settled`: the answer comes when all linked servers know of it, or after 30 seconds; then
    `settled` is false, and a GET with the same asks again.
    """
    caller = allowed(request, "subscribe")
    entry = _registry(request).space(caller.tenant, space)
    seq = await _edited(
        request,
        edit_of(caller, entry, name, given.model_dump()),
        if_match=condition(request),
    )
    settled = await _settled(request, wait, seq)
    return JSONResponse(
        shown_put(_service(request), name, seq) | settled, headers={"ETag": etag(seq)}
    )


def shown_put(service: Service, name: str, seq: int) -> dict[str, str]:
    """Return the answer to a subscription that was made or replaced by the edit of this seq."""
    return {"id": name, "position": position(service.log.epoch, seq)}


def etag(seq: int) -> str:
    """Return the mark of a subscription as the edit of this seq made it."""
    return f'"{seq}"'


@router.delete("/{space}/subscriptions/{name:path}")
async def delete_subscription(request: Request, space: str, name: str) -> Any:
    """End a subscription; no event after the answer is matched with it."""
    caller = allowed(request, "subscribe")
    edit = DeleteSubscription(caller.tenant, name, space)
    seq = await _edited(request, edit, if_match=condition(request))
    return {"id": name, "position": position(_service(request).log.epoch, seq)}


@router.post("/{space}/subscriptions:bulk")
async def bulk(request: Request, space: str, strict: bool = False) -> Response:
    """Make or replace many: NDJSON or a JSON list of `{"id", "filter", "score", ...}`; those that
    can't be used are refused one by one, or (`?strict=true`) all are. With `If-None-Match: *` all
    of them must be new, with `If-Match: *` none may be.
    """
    caller = allowed(request, "subscribe")
    entry = _registry(request).space(caller.tenant, space)
    wanted = condition(request)
    if wanted not in (None, ONLY_NEW, "*"):
        raise RefusedError(422, "of many subscriptions, If-Match is * or left out")
    body, service = await read_body(request), _service(request)
    edits, read, refused = await asyncio.to_thread(_bulk_edits, service, caller, entry, body)
    taken: list[PutSubscription] = [] if strict and refused else edits
    seq = 0
    if taken:
        seq = await answered(service.subscribe_many(taken, read, wanted))
    answer = {
        "accepted": len(taken),
        "refused": [{"row": row, "reason": reason} for row, reason in refused],
        "position": position(service.log.epoch, seq + len(taken) - 1) if taken else None,
    }
    return JSONResponse(answer, 200 if taken or not refused else 422)


@router.post("/{space}/subscriptions:check")
async def check(request: Request, space: str) -> Any:
    """Look at a filter without saving it: what it means, and what it would have matched."""
    caller = allowed(request, "read")
    entry = _registry(request).space(caller.tenant, space)
    given = rows_of_body(await read_body(request))
    if not isinstance(given, dict) or not isinstance(given.get("filter"), str):
        raise RefusedError(422, 'give a JSON object {"filter": "..."}')
    from rangecast.server.trial import tried

    service = _service(request)
    return await asyncio.to_thread(tried, service.log, entry, given["filter"])


def edit_of(caller: Caller, entry: SpaceEntry, name: str, given: dict[str, Any]) -> PutSubscription:
    """Return the edit that makes a subscription, after a check of all but its filter."""
    as_id(name)
    if not name:
        raise RefusedError(422, "a subscription needs an id")
    weights = given.get("weights") or {}
    if not isinstance(weights, dict):
        raise RefusedError(422, "weights are an object: attribute to weight")
    if weights:
        weights_of(entry.space, weights, None)
    consumer = given.get("consumer") or ""
    if not isinstance(consumer, str):
        raise RefusedError(422, f"a consumer is given by its name; given: {consumer!r}")
    ttl = given.get("ttl")
    if ttl is not None and (not isinstance(ttl, int | float) or not 0 < ttl < 1e9):
        raise RefusedError(422, f"ttl is a number of seconds; given: {ttl!r}")
    return PutSubscription(
        caller.tenant,
        name,
        entry.name,
        given["filter"],
        consumer,
        score_of(given.get("score") or 0.0),
        {one: float(weight) for one, weight in weights.items()},
        0 if ttl is None else int((time.time() + ttl) * 1e6),
    )


class _Row(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A subscription of a bulk that has nothing but these, as most have."""

    id: Annotated[str, msgspec.Meta(min_length=1)]
    filter: str
    consumer: str = ""
    score: float = 0.0


_listed, _lines = msgspec.json.Decoder(list[_Row]), msgspec.json.Decoder(_Row)
_KNOWN = {"id", "filter", "score", "weights", "consumer", "ttl"}


def _bulk_edits(
    service: Service, caller: Caller, entry: SpaceEntry, body: bytes
) -> tuple[list[PutSubscription], Read, list[tuple[int, str]]]:
    """Return the edits of a body, their filters, and the place and the fault of each bad row."""
    places, edits, refused = _edits_of_body(caller, entry, body)
    space = TentativeSpace(entry.space)
    read, wrong = service.quotas.read_many(caller.tenant, [one.filter for one in edits], space)
    if wrong:
        refused = sorted([*refused, *((places[at], str(why)) for at, why in wrong.items())])
        edits = [one for at, one in enumerate(edits) if at not in wrong]
        if space.has_news:  # some may be of the refused ones: numbers are given without
            return edits, None, refused
    return edits, read, refused


def _edits_of_body(
    caller: Caller, entry: SpaceEntry, body: bytes
) -> tuple[Sequence[int], list[PutSubscription], list[tuple[int, str]]]:
    """Return the edits of a body, their places in it, and the place and the fault of each bad row:
    of all but their filters.
    """
    tenant, space = caller.tenant, entry.name
    try:
        rows = _listed.decode(body) if body[:1] == b"[" else _lines.decode_lines(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # the usual way says what is wrong, if something is
    else:
        edits = [
            PutSubscription(tenant, one.id, space, one.filter, one.consumer, one.score)
            for one in rows
        ]
        return range(len(edits)), edits, []
    edits = []
    found = rows_of_body(body)
    places: list[int] = []
    refused: list[tuple[int, str]] = []
    for place, row in enumerate(found if isinstance(found, list) else [found]):
        try:
            if not isinstance(row, dict) or not isinstance(row.get("filter"), str):
                raise FilterError('a subscription is an object {"id": ..., "filter": ...}')
            if strange := row.keys() - _KNOWN:
                known = ", ".join(sorted(_KNOWN))
                raise FilterError(f"unknown field {min(strange)!r}; there is: {known}")
            edits.append(edit_of(caller, entry, str(row.get("id", "")), row))
            places.append(place)
        except (RangecastError, BadRowError) as error:
            refused.append((place, str(error)))
    return places, edits, refused


async def _settled(request: Request, wait: str, seq: int) -> dict[str, bool]:
    """Return whether all servers know of an edit, if that is asked for."""
    if wait not in ("", "settled"):
        raise RefusedError(422, f"'wait' is 'settled', or left out; given: {wait[:80]!r}")
    links = _service(request).links
    if not wait or links is None:
        return {"settled": True} if wait else {}
    try:
        async with asyncio.timeout(SETTLING):
            return {"settled": await answered(links.settled(seq))}
    except TimeoutError:
        return {"settled": False}


def condition(request: Request) -> str | None:
    """Return what must hold of the one before: its ETag, that there is one, or none."""
    if request.headers.get("if-none-match") == "*":
        return ONLY_NEW
    return request.headers.get("if-match")


async def _edited(request: Request, edit: Any, if_match: str | None = None) -> int:
    return await answered(_service(request).edit(edit, if_match=if_match))


def _service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


def _registry(request: Request) -> Any:
    return _service(request).registry


def _shown_space(entry: SpaceEntry) -> dict[str, Any]:
    return {"name": entry.name, "subscriptions": len(entry.live), **entry.space.definition()}


def _shown(request: Request, version: Version) -> dict[str, Any]:
    owner = _registry(request).owner(version)
    return {
        "id": version.id,
        "filter": version.filter,
        "score": version.score,
        "weights": version.weights,
        "consumer": None if owner is None else owner.name,
        "expires": version.expires / 1e6 if version.expires else None,
        "position": position(_service(request).log.epoch, version.born),
    }
