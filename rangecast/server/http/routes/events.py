"""Events over HTTP: publish, match and rank."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Annotated, Any

import msgspec
import numpy as np
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from rangecast.device_copy import DeviceCopies
from rangecast.errors import RangecastError, for_interface
from rangecast.kernels.arrays import F64
from rangecast.model.sets.members import Id
from rangecast.model.validation.arguments import check_integer
from rangecast.rank.scores.tolerances import read_tolerances
from rangecast.server.core import Core
from rangecast.server.delivery.messages import position
from rangecast.server.encoding import code_of, encoded
from rangecast.server.http.auth import allowed, core_of, granted
from rangecast.server.http.bodies.read import lines_of, off_loop, read_body, weight
from rangecast.server.http.middleware import MAX_BODY_BYTES
from rangecast.server.http.problems import status_of
from rangecast.server.pipeline.apply import MAX_PAIRS, ids_by_event
from rangecast.server.pipeline.commands import PublishedEvents
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.edits import EVENTS, events_of
from rangecast.server.state.registry import RequestError
from rangecast.server.state.space_index import SpaceIndex
from rangecast.server.state.tracks.options import track_columns

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

    The response is sent when they are durable (with `?wait=matches`, when they are also matched).
    Invalid events are rejected individually; with `?strict=true` one invalid event rejects all.
    """
    caller = allowed(request, "publish")
    core = core_of(request)
    entry = core.registry.space(caller.tenant, space)
    if wait not in ("", "durable", "matches") or dedup not in ("", "id"):
        raise RequestError(422, "wait must be 'durable' or 'matches'; dedup must be 'id'")
    body, headers = await read_body(request), request.headers

    def work() -> Future[PublishedEvents]:
        lines, form = lines_of(headers, body)
        core.quotas.publish(caller.tenant, len(lines), sum(map(len, lines)))
        key = headers.get("idempotency-key", "")
        return core.publish(
            entry,
            lines,
            ignore_unknown=ignore_unknown,
            wants_matches=wait == "matches",
            strict=strict,
            dedup=dedup == "id",
            form=form,
            key=key,
            digest=digest_for(key, body),
        )

    accepted = await result_of(await off_loop(weight(headers, body), work))
    status, kind = status_and_type(accepted)
    answer = shown_accepted(core, accepted, matches=wait == "matches")
    size = 0 if accepted.matches is None else MAX_BODY_BYTES  # there may be a million matches
    return Response(await off_loop(size, _encode, answer), status, media_type=kind)


@router.post("/{space}/events:match")
async def match(
    request: Request, space: str, ignore_unknown: bool = False, as_of: str = ""
) -> Response:
    """Return the subscriptions that match each event, up to 1,000,000 in all; nothing is stored.

    `as_of`: a seq, a position or a timestamp with a zone: match with the subscriptions as they were
    then.
    """
    device = None if as_of else core_of(request).device  # it has copies of current indexes

    def matches(index: SpaceIndex, points: F64) -> list[Any]:
        return _matches(index, points, device)

    return await _answer(request, space, ("matches", matches), as_of, ignore_unknown=ignore_unknown)


@router.post("/{space}/events:count")
async def count(
    request: Request, space: str, ignore_unknown: bool = False, as_of: str = ""
) -> Response:
    """Return the number of subscriptions that match each event; nothing is stored."""

    def counts(index: SpaceIndex, points: F64) -> list[Any]:
        return list(map(int, index.engine.count_points(points)))

    return await _answer(request, space, ("counts", counts), as_of, ignore_unknown=ignore_unknown)


@router.post("/{space}/events:rank")
async def rank(
    request: Request,
    space: str,
    k: int = 10,
    relaxed: bool = False,
    combine: str = "sum",
    tolerance: Annotated[list[str], Query()] = [],  # noqa: B006
    ignore_unknown: bool = False,
    as_of: str = "",
) -> Response:
    """Return the top k subscriptions of each event, with their scores; nothing is stored.

    `k` times the number of events is at most 1,000,000. `combine`: how a relaxed ranking combines
    weights: `sum`, `product`, `min` or `max`. `tolerance`, as in `price=5`, once per attribute:
    distance below which a value outside its range counts in part.
    """
    check_integer("k", k, 1, 10_000)
    tolerances = read_tolerances(tolerance)
    options: Any = {"relaxed": relaxed, "combine": combine, "tolerances": tolerances}

    def best(index: SpaceIndex, points: F64) -> list[list[dict[str, Any]]]:
        if k * len(points) > MAX_PAIRS:
            raise _too_many(f"k is {k:,}, of {len(points):,} events")
        ranked = index.engine.rank_points(points, k, **options)
        numbers = [number for point in ranked for number, _ in point]
        ids = iter(index.ids.listed(np.array(numbers, np.int64)))
        return [
            [{"subscription": next(ids), "score": score} for _, score in point] for point in ranked
        ]

    return await _answer(request, space, ("best", best), as_of, ignore_unknown=ignore_unknown)


async def _answer(
    request: Request,
    space: str,
    answer: tuple[str, Callable[[SpaceIndex, F64], list[Any]]],
    as_of: str,
    *,
    ignore_unknown: bool,
) -> Response:
    """Answer the events of a body, which aren't published.

    answer   the field of the response, and a function that returns one result per event
    """
    caller = allowed(request, "read")
    core = core_of(request)
    entry = core.registry.space(caller.tenant, space)
    when = core.histories.read(as_of, core.clock.now()) if as_of else None
    body, headers = await read_body(request), request.headers
    name, results = answer

    def work(index: SpaceIndex) -> bytes:
        lines, form = lines_of(headers, body)
        known, tracked = index.engine.space, track_columns(entry.track)
        events, rejected = encoded(
            lines, known, ignore_unknown=ignore_unknown, form=form, tracked=tracked
        )
        wrong = [
            {
                "row": row,
                "reason": for_interface(reason, "http"),
                "code": code_of(lines[row], known, ignore_unknown, form, tracked),
            }
            for row, reason in rejected
        ]
        answers = results(index, events.points_in(known))
        return _encode({name: answers, "rejected": wrong})

    def read() -> bytes:
        with core.index(entry).reading() as index:
            return work(index)

    if when is None:
        content = await asyncio.to_thread(read)
    else:
        content = await asyncio.wrap_future(core.histories.answer(entry, when, work))
    return Response(content, media_type="application/json")


def _matches(index: SpaceIndex, points: F64, device: DeviceCopies | None) -> list[list[Id]]:
    """Return the ids of the subscriptions that match each event.

    Batches with too many matches are rejected.
    """
    matches: list[list[Id]] = []
    pairs, step = 0, 16
    while len(matches) < len(points):
        piece = points[len(matches) : len(matches) + step]
        matched = index.match(piece, device)
        pairs += len(matched.numbers)
        if pairs > MAX_PAIRS:
            raise _too_many(f"the first {len(matches) + len(piece):,} events have {pairs:,}")
        matches += ids_by_event(matched, index, 0, len(piece))
        if len(matched.numbers) < MAX_PAIRS // 16:  # nor are the next ones likely to have many
            step *= 4
    return matches


def _too_many(text: str) -> RequestError:
    return RequestError(
        413, f"a response may have at most {MAX_PAIRS:,} matches; {text}\n  hint: send fewer events"
    )


@router.get("/{space}/events")
async def read(request: Request, space: str, after: str = "", limit: int = 1000) -> Response:
    """Return the log itself: events after a position, as NDJSON of `{"position", "event"}`.

    If they can't be read to the end, the last line is `{"error": {"status", "detail"}}`.
    """
    grant = granted(request, "read")
    core = core_of(request)
    entry = core.registry.space(grant.caller().tenant, space)
    log, last, limit = core.log, core.pipeline.durable, check_integer("limit", limit, 1)
    begin = core.seq_of(after) if after else log.first - 1
    prefix = f'{{"position":"{core.epoch}:'.encode()

    def lines() -> Iterator[bytes]:
        at, left = begin, limit
        while at < last and left:
            grant.caller()  # its token may have ended in the meantime
            units = log.read(at, 1 << 20)
            for unit in units:
                if unit.kind == EVENTS and left:
                    head, texts = events_of(unit)
                    if (head.tenant, head.space) == (entry.tenant, entry.name):
                        skip = max(0, at + 1 - unit.first)
                        piece = texts[skip : skip + left]
                        left -= len(piece)
                        yield b"".join(
                            b'%s%d","event":%s}\n' % (prefix, unit.first + skip + index, text)
                            for index, text in enumerate(piece)
                        )
                at = max(at, unit.last)
            if not units:
                return

    def with_problems() -> Iterator[bytes]:
        try:
            yield from lines()
        except RangecastError as error:  # the status of the answer is sent
            problem = {"status": status_of(error), "detail": str(error)}
            yield _encode({"error": problem}) + b"\n"

    return StreamingResponse(with_problems(), media_type="application/x-ndjson")


def digest_for(key: str, body: bytes) -> str:
    """Return the digest of the body of a request with an `Idempotency-Key`."""
    if len(key) > 200:
        raise RequestError(422, "an Idempotency-Key may have at most 200 characters")
    return hashlib.blake2b(body, digest_size=16).hexdigest() if key else ""


def status_and_type(accepted: PublishedEvents) -> tuple[int, str]:
    """Return the status and content type of the response to published events."""
    if accepted.rejected and not accepted.count and not accepted.skipped:
        return 422, "application/problem+json"
    return 200, "application/json"


def shown_accepted(
    core: Core, accepted: PublishedEvents, *, matches: bool = False
) -> dict[str, Any]:
    """Return the result of publishing as a response, with matches if requested."""
    epoch, count = core.epoch, accepted.count
    rejected = [(row, for_interface(reason, "http")) for row, reason in accepted.rejected]
    shown: dict[str, Any] = {
        "accepted": count,
        "first": position(epoch, accepted.first) if count else None,
        "last": position(epoch, accepted.first + count - 1) if count else None,
        "rejected": [
            {"row": row, "reason": reason}
            | ({"code": accepted.codes[row]} if row in accepted.codes else {})
            for row, reason in rejected
        ],
        "durability": core.durability,
    }
    if accepted.repeated:
        shown["repeated"] = True
    if accepted.skipped:
        shown["skipped"] = accepted.skipped
    if matches:
        shown["matches"] = accepted.matches
    return shown
