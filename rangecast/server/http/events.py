"""Events over HTTP: published, or only asked about."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from rangecast.model.arguments import whole
from rangecast.server.encoding import encoded
from rangecast.server.fanout import ids_by_event
from rangecast.server.http.access import allowed
from rangecast.server.http.bodies import lines_of, read_body
from rangecast.server.messages import position, seq_of
from rangecast.server.records import EVENTS, events_of
from rangecast.server.registry import RefusedError
from rangecast.server.requests import Accepted
from rangecast.server.service import Service
from rangecast.server.waiting import answered

router = APIRouter(prefix="/v1/spaces")
_encode = msgspec.json.Encoder().encode
FEW = 256
"""Events that are read on the event loop: another thread would take longer to begin."""


@router.post("/{space}/events")
async def publish(
    request: Request,
    space: str,
    wait: str = "",
    strict: bool = False,
    dedup: str = "",
    ignore_unknown: bool = False,
) -> Response:
    """Publish events: JSON, NDJSON, CloudEvents or an Arrow stream.

    The answer comes when they are durable (`?wait=matches`: and matched). Events that can't be used
    are refused one by one; with `?strict=true` all are.
    """
    caller = allowed(request, "publish")
    service: Service = request.app.state.service
    entry = service.registry.space(caller.tenant, space)
    if wait not in ("", "durable", "matches") or dedup not in ("", "id"):
        raise RefusedError(422, "wait is 'durable' or 'matches'; dedup is 'id'")
    body = await read_body(request)
    lines, form = lines_of(request, body)
    service.quotas.publish(caller.tenant, len(lines), len(body))
    key = request.headers.get("idempotency-key", "")
    options: dict[str, Any] = {
        "ignore_unknown": ignore_unknown,
        "wants_matches": wait == "matches",
        "strict": strict,
        "dedup": dedup == "id",
        "form": form,
        "key": key,
        "digest": digest_for(key, body),
    }
    if len(lines) <= FEW:
        future = service.publish(entry, lines, **options)
    else:
        future = await asyncio.to_thread(service.publish, entry, lines, **options)
    accepted = await answered(future)
    status, kind = status_and_type(accepted)
    return Response(_encode(shown_accepted(service, accepted)), status, media_type=kind)


@router.post("/{space}/events:match")
async def match(request: Request, space: str, ignore_unknown: bool = False) -> Any:
    """Return which subscriptions match events; nothing is stored."""
    found, names = await _asked(request, space, ignore_unknown=ignore_unknown)
    return {"matches": names, "refused": found}


@router.post("/{space}/events:rank")
async def rank(
    request: Request, space: str, k: int = 10, relaxed: bool = False, ignore_unknown: bool = False
) -> Any:
    """Return the k best subscriptions of events, with their scores; nothing is stored."""
    whole("k", k, 1, 10_000)
    found, best = await _asked(request, space, k, relaxed=relaxed, ignore_unknown=ignore_unknown)
    return {"best": best, "refused": found}


async def _asked(
    request: Request,
    space: str,
    k: int | None = None,
    *,
    relaxed: bool = False,
    ignore_unknown: bool = False,
) -> tuple[list[dict[str, Any]], list[Any]]:
    caller = allowed(request, "read")
    service: Service = request.app.state.service
    entry = service.registry.space(caller.tenant, space)
    lines, form = lines_of(request, await read_body(request))

    def work() -> tuple[list[dict[str, Any]], list[Any]]:
        index = service.indexes[entry.number]
        given, refused = encoded(
            lines, index.engine.space, ignore_unknown=ignore_unknown, form=form
        )
        wrong = [{"row": row, "reason": reason} for row, reason in refused]
        points = given.points_in(index.engine.space)
        if k is None:
            return wrong, ids_by_event(index.match(points), index, 0, len(points))
        best = index.engine.best_points(points, k, relaxed=relaxed)
        return wrong, [
            [{"subscription": index.name(int(number)), "score": score} for number, score in one]
            for one in best
        ]

    return await asyncio.to_thread(work)


@router.get("/{space}/events")
async def read(request: Request, space: str, after: str = "", limit: int = 1000) -> Response:
    """Return the log itself: events after a position, as NDJSON of `{"position", "event"}`."""
    caller = allowed(request, "read")
    service: Service = request.app.state.service
    entry = service.registry.space(caller.tenant, space)
    log, last = service.log, service.pump.durable
    begin = seq_of(after, log.epoch, last) if after else log.first - 1
    prefix = f'{{"position":"{log.epoch}:'.encode()

    def lines() -> Iterator[bytes]:
        at, left = begin, whole("limit", limit)
        while at < last and left:
            units = log.read(at, 1 << 20)
            for unit in units:
                if unit.kind == EVENTS and left:
                    head, texts = events_of(unit)
                    if (head.tenant, head.space) == (entry.tenant, entry.name):
                        skip = max(0, at + 1 - unit.first)
                        some = texts[skip : skip + left]
                        left -= len(some)
                        yield b"".join(
                            b'%s%d","event":%s}\n' % (prefix, unit.first + skip + place, text)
                            for place, text in enumerate(some)
                        )
                at = max(at, unit.last)
            if not units:
                return

    return StreamingResponse(lines(), media_type="application/x-ndjson")


def digest_for(key: str, body: bytes) -> str:
    """Return what tells the body of a request with an Idempotency-Key from others."""
    if len(key) > 200:
        raise RefusedError(422, "an Idempotency-Key has at most 200 characters")
    return hashlib.blake2b(body, digest_size=16).hexdigest() if key else ""


def status_and_type(accepted: Accepted) -> tuple[int, str]:
    """Return the status and the content type of the answer to events."""
    if accepted.refused and not accepted.count and not accepted.skipped:
        return 422, "application/problem+json"
    return 200, "application/json"


def shown_accepted(service: Service, accepted: Accepted) -> dict[str, Any]:
    """Return what became of events as an answer."""
    epoch, count = service.log.epoch, accepted.count
    shown: dict[str, Any] = {
        "accepted": count,
        "first": position(epoch, accepted.first) if count else None,
        "last": position(epoch, accepted.first + count - 1) if count else None,
        "refused": [{"row": row, "reason": reason} for row, reason in accepted.refused],
        "durability": service.durability,
    }
    if accepted.repeated:
        shown["repeated"] = True
    if accepted.skipped:
        shown["skipped"] = accepted.skipped
    if accepted.matches is not None:
        shown["matches"] = accepted.matches
    return shown
