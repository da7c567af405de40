"""Subscriptions in bulk over HTTP: read in a thread, made or replaced as one edit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Annotated, NamedTuple

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from msgspec.structs import replace

from rangecast.errors import BadRowError, FilterError, RangecastError, shown
from rangecast.model.badrows import KeptRows
from rangecast.model.batch import Batch
from rangecast.model.filters.tentative import TentativeSpace
from rangecast.model.subscription_rows import subscription_rows
from rangecast.model.subscriptions import SubscriptionColumns
from rangecast.model.tables import batches_of
from rangecast.server.admission import ONLY_NEW
from rangecast.server.clock import Clock
from rangecast.server.http.access import Caller, allowed
from rangecast.server.http.bodies import read_body, rows_of_body
from rangecast.server.http.new_consumers import subscribed
from rangecast.server.http.spaces import condition, edit_of
from rangecast.server.http.tables import batches_of_body, is_table
from rangecast.server.messages import position
from rangecast.server.records import PutConsumer, PutSubscription
from rangecast.server.registry import Read, RefusedError, SpaceEntry
from rangecast.server.service import Service

router = APIRouter(prefix="/v1/spaces")


class BulkEdits(NamedTuple):
    """The subscriptions of a body."""

    edits: list[PutSubscription]
    places: Sequence[int]
    """The row of each."""
    refused: list[tuple[int, str]]
    """The row and the fault of each that can't be used."""


@router.post("/{space}/subscriptions:bulk")
async def bulk(
    request: Request,
    space: str,
    strict: bool = False,
    consumer: str = "",
    create_consumer: bool = False,
) -> Response:
    """Make or replace many: NDJSON or a JSON list of `{"id", "filter", "score", ...}`, or a table:
    CSV, Parquet or an Arrow stream with the columns of a file of subscriptions, and `consumer` and
    `ttl`. Those that can't be used are refused one by one, or (`?strict=true`) all are. With
    `If-None-Match: *` all of them must be new, with `If-Match: *` none may be.

    `?consumer=` gets the matches of those that name no consumer. With `?create_consumer=true`,
    consumers that don't exist are created with them.
    """
    caller = allowed(request, "subscribe")
    service: Service = request.app.state.service
    entry = service.registry.space(caller.tenant, space)
    wanted = condition(request)
    if wanted not in (None, ONLY_NEW, "*"):
        raise RefusedError(422, "of many subscriptions, If-Match is * or left out")
    kind = _content_type(request)
    body = await read_body(request)
    edits, read, refused = await asyncio.to_thread(_checked, service, caller, entry, kind, body)
    if consumer:
        edits = [one if one.consumer else replace(one, consumer=consumer) for one in edits]
    taken: list[PutSubscription] = [] if strict and refused else edits
    seq = 0
    if taken:

        def submit(consumers: list[PutConsumer]) -> Future[int]:
            return service.subscribe_many(taken, read, wanted, consumers)

        seq = await subscribed(service.registry, taken, submit, create_consumer=create_consumer)
    answer = {
        "accepted": len(taken),
        "refused": [{"row": row, "reason": reason} for row, reason in refused],
        "position": position(service.epoch, seq + len(taken) - 1) if taken else None,
    }
    return JSONResponse(answer, 200 if taken or not refused else 422)


def _checked(
    service: Service, caller: Caller, entry: SpaceEntry, kind: str, body: bytes
) -> tuple[list[PutSubscription], Read, list[tuple[int, str]]]:
    """Return the edits of a body, their filters, and the row and the fault of each bad row."""
    if is_table(kind):
        broken: list[tuple[int, str]] = []

        def note(row: int, text: str, why: str) -> None:
            broken.append((row, f"the row {why}\n  given: {text[:200]}"))

        found = _edits_of_batches(caller, entry, service.clock, batches_of_body(kind, body, note))
        edits, places, refused = found._replace(refused=sorted(found.refused + broken))
    else:
        edits, places, refused = _edits_of_json(caller, entry, service.clock, body)
    space = TentativeSpace(entry.space)
    read, wrong = service.quotas.read_many(caller.tenant, [one.filter for one in edits], space)
    if wrong:
        refused = sorted([*refused, *((places[at], str(why)) for at, why in wrong.items())])
        edits = [one for at, one in enumerate(edits) if at not in wrong]
        if space.has_news:  # some may be of the refused ones: numbers are given without
            return edits, None, refused
    return edits, read, refused


def _content_type(request: Request) -> str:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _JSON or is_table(kind):
        return kind
    raise RefusedError(
        415,
        f"subscriptions of the type {shown(kind)} can't be read\n"
        "  hint: send application/json, application/x-ndjson, text/csv, "
        "application/vnd.apache.parquet or application/vnd.apache.arrow.stream",
    )


class _Row(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A subscription of a bulk that has nothing but these, as most have."""

    id: Annotated[str, msgspec.Meta(min_length=1)]
    filter: str
    consumer: str = ""
    score: float = 0.0


_listed, _lines = msgspec.json.Decoder(list[_Row]), msgspec.json.Decoder(_Row)
_JSON = {
    *("", "application/json", "text/json", "application/x-www-form-urlencoded"),
    *("application/x-ndjson", "application/jsonl", "application/x-jsonlines"),
}
"""Content types of JSON and its lines; curl -d says that it sends a form."""
_KNOWN = {"id", "filter", "score", "weights", "consumer", "ttl"}


def _edits_of_json(caller: Caller, entry: SpaceEntry, clock: Clock, body: bytes) -> BulkEdits:
    """Return the edits of a body, checked but for their filters."""
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
        return BulkEdits(edits, range(len(edits)), [])
    edits = []
    found = rows_of_body(body)
    found = found if isinstance(found, list) else [found]
    wide = set(SubscriptionColumns(entry.space).wide)
    if any(isinstance(row, dict) and not wide.isdisjoint(row) for row in found):
        return _edits_of_batches(caller, entry, clock, iter(batches_of(found, "subscriptions")))
    places: list[int] = []
    refused: list[tuple[int, str]] = []
    for place, row in enumerate(found):
        try:
            if not isinstance(row, dict) or not isinstance(row.get("filter"), str):
                raise FilterError('a subscription is an object {"id": ..., "filter": ...}')
            if strange := row.keys() - _KNOWN:
                known = ", ".join(sorted(_KNOWN))
                raise FilterError(f"unknown field {min(strange)!r}; there is: {known}")
            edits.append(edit_of(caller, entry, str(row.get("id", "")), row, clock))
            places.append(place)
        except (RangecastError, BadRowError) as error:
            refused.append((place, str(error)))
    return BulkEdits(edits, places, refused)


def _edits_of_batches(
    caller: Caller, entry: SpaceEntry, clock: Clock, batches: Iterator[Batch]
) -> BulkEdits:
    """Return the edits of a table, checked but for their filters."""
    space, bad = TentativeSpace(entry.space), KeptRows()
    edits: list[PutSubscription] = []
    places: list[int] = []
    refused: list[tuple[int, str]] = []
    for batch in batches:
        for one in subscription_rows(batch, space, bad, "subscriptions"):
            try:
                edits.append(edit_of(caller, entry, one.id, one._asdict(), clock))
                places.append(one.row)
            except (RangecastError, BadRowError) as error:
                refused.append((one.row, str(error)))
    for row, _ in bad.kept:
        text = f"{row.column!r}: {row.reason}\n  given: {row.value}\n  hint: {row.remedy}"
        refused.append((row.row or 0, text))
    return BulkEdits(edits, places, sorted(refused))
