"""Bulk subscriptions over HTTP: parsed in a thread, committed as one edit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Annotated, Any, NamedTuple

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from msgspec.structs import replace

from rangecast.errors import FilterError, RangecastError, RejectedRowError, UsageError, abbreviate
from rangecast.model.attributes.base import INT64_MAX, INT64_MIN
from rangecast.model.encoding.subscription_rows import subscription_rows
from rangecast.model.encoding.subscriptions import SubscriptionColumns
from rangecast.model.filters.tentative import TentativeSpace
from rangecast.model.io.batch import Batch
from rangecast.model.io.rejected import CollectedRows
from rangecast.model.io.tables import batches_of
from rangecast.model.sets.members import as_id
from rangecast.server.core import Core
from rangecast.server.delivery.messages import position
from rangecast.server.http.auth import Caller, allowed, core_of
from rangecast.server.http.bodies.read import read_body, rows_of_body
from rangecast.server.http.bodies.tables import batches_of_body, is_table
from rangecast.server.http.routes.new_consumers import subscribed
from rangecast.server.http.routes.patches import merged_many, unless_changed
from rangecast.server.http.routes.spaces import condition, edit_of
from rangecast.server.log.clock import Clock
from rangecast.server.pipeline.commands import Outcome
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.admission import ONLY_NEW
from rangecast.server.state.edits import PutConsumer, PutSubscription
from rangecast.server.state.entries import Read, SpaceEntry
from rangecast.server.state.registry import RequestError

router = APIRouter(prefix="/v1/spaces")


class BulkEdits(NamedTuple):
    """Subscriptions parsed from a bulk body."""

    edits: list[PutSubscription]
    places: Sequence[int]
    """Row of each edit."""
    given: Sequence[Mapping[str, Any]]
    """Fields of each edit, if requested."""
    rejected: list[Rejection]

    def _without(self, places: set[int]) -> BulkEdits:
        """Return the edits without those at the given rows."""
        kept = [at for at in range(len(self.edits)) if at not in places]
        definitions = [self.given[at] for at in kept] if self.given else self.given
        edits, rows = [self.edits[at] for at in kept], [self.places[at] for at in kept]
        return BulkEdits(edits, rows, definitions, self.rejected)


class Rejection(NamedTuple):
    """A rejected row."""

    row: int
    reason: str
    code: str

    @classmethod
    def of(cls, row: int, error: RangecastError) -> Rejection:
        """Return the rejection of a row because of an error."""
        return cls(row, str(error), error.code or UsageError.code)


@router.post("/{space}/subscriptions:bulk")
async def bulk(
    request: Request,
    space: str,
    strict: bool = False,
    consumer: str = "",
    create_consumer: bool = False,
) -> Response:
    """Create or replace many subscriptions.

    The body is NDJSON or a JSON list of `{"id", "filter", ...}`, or a table (CSV, Parquet or an
    Arrow stream) with the columns of a subscriptions file, `consumer` and `ttl`. Invalid rows are
    rejected individually; with `?strict=true` one invalid row rejects all. `If-None-Match: *`
    requires all of them to be new, `If-Match: *` requires all to exist.

    `?consumer=` is the consumer of rows that name none. With `?create_consumer=true`, missing
    consumers are created with the subscriptions.
    """
    caller = allowed(request, "subscribe")
    core = core_of(request)
    entry = core.registry.space(caller.tenant, space)
    wanted = condition(request)
    if wanted not in (None, ONLY_NEW, "*"):
        raise RequestError(422, "If-Match of a bulk request must be * or absent")
    kind = _content_type(request)
    body = await read_body(request)
    checked, read = await asyncio.to_thread(_checked, core, caller, entry, kind, body)
    edits = checked.edits
    if consumer:
        edits = [edit if edit.consumer else replace(edit, consumer=consumer) for edit in edits]
    subscriptions: list[PutSubscription] = [] if strict and checked.rejected else edits
    seq, outcome = 0, Outcome()
    if subscriptions:

        def submit(consumers: list[PutConsumer]) -> Future[int]:
            return core.subscribe_many(subscriptions, read, wanted, consumers, outcome)

        seq = await subscribed(
            core.registry, subscriptions, submit, create_consumer=create_consumer
        )
    return bulk_answer(core, checked.rejected, len(subscriptions), seq, outcome)


@router.patch("/{space}/subscriptions:bulk")
async def patch_bulk(
    request: Request, space: str, strict: bool = False, consumer: str = ""
) -> Response:
    """Change many subscriptions: the body is as for POST, and all of them must exist.

    Scores, weights, consumers and ttls that aren't given stay unchanged.
    """
    caller = allowed(request, "subscribe")
    core = core_of(request)
    entry = core.registry.space(caller.tenant, space)
    kind = _content_type(request)
    body = await read_body(request)
    checked, read = await asyncio.to_thread(
        _checked, core, caller, entry, kind, body, is_patch=True
    )
    edits = checked.edits
    if consumer:
        edits = [edit if edit.consumer else replace(edit, consumer=consumer) for edit in edits]
    subscriptions: list[PutSubscription] = [] if strict and checked.rejected else edits

    async def submit() -> int:
        whole, marks = merged_many(core.registry, space, subscriptions, checked.given)
        return await result_of(core.subscribe_many(whole, read, marks))

    seq = await unless_changed(submit) if subscriptions else 0
    return bulk_answer(core, checked.rejected, len(subscriptions), seq, Outcome())


def bulk_answer(
    core: Core, rejected: Sequence[Rejection], count: int, seq: int, outcome: Outcome
) -> Response:
    """Return the response to a bulk edit of subscriptions or interests."""
    answer = {
        "accepted": count,
        "inserted": outcome.inserted,
        "rejected": [rejection._asdict() for rejection in rejected],
        "position": position(core.epoch, seq + count - 1) if count else None,
    }
    return JSONResponse(answer, 200 if count or not rejected else 422)


def _checked(
    core: Core,
    caller: Caller,
    entry: SpaceEntry,
    kind: str,
    body: bytes,
    *,
    is_patch: bool = False,
) -> tuple[BulkEdits, Read]:
    """Return the edits of a body whose filters are valid, and the parsed filters."""
    if is_table(kind):
        broken: list[Rejection] = []

        def note(row: int, text: str, why: str) -> None:
            reason = f"the row {why}\n  given: {text[:200]}"
            broken.append(Rejection(row, reason, RejectedRowError.code))

        checked = _edits_of_batches(caller, entry, core.clock, batches_of_body(kind, body, note))
        checked = checked._replace(rejected=checked.rejected + broken)
    else:
        checked = _edits_of_json(caller, entry, core.clock, body, is_patch=is_patch)
    checked = _reject_duplicates(checked)
    space = TentativeSpace(entry.space)
    texts = [edit.filter for edit in checked.edits]
    boxes, wrong = core.quotas.read_many(caller.tenant, texts, space)
    read: Read = boxes
    if wrong:
        more = [Rejection.of(checked.places[at], why) for at, why in wrong.items()]
        checked = checked._replace(rejected=checked.rejected + more)._without(set(wrong))
        if space.has_news:  # some may be of the rejected ones: numbers are given without
            read = None
    return checked._replace(rejected=sorted(checked.rejected)), read


def _reject_duplicates(bulk_edits: BulkEdits) -> BulkEdits:
    """Reject rows that repeat the id of an earlier row."""
    first: dict[str, int] = {}
    again = {
        at: first[edit.name]
        for at, edit in enumerate(bulk_edits.edits)
        if first.setdefault(edit.name, at) != at
    }
    if not again:
        return bulk_edits
    more = [
        Rejection(
            bulk_edits.places[at],
            f"'id': duplicate id (first seen in row {bulk_edits.places[earlier]})\n"
            f"  given: {bulk_edits.edits[at].name}\n  hint: give each row a unique id",
            RejectedRowError.code,
        )
        for at, earlier in again.items()
    ]
    return bulk_edits._replace(rejected=bulk_edits.rejected + more)._without(set(again))


def _content_type(request: Request) -> str:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in _JSON or is_table(kind):
        return kind
    raise RequestError(
        415,
        f"subscriptions of type {abbreviate(kind)} can't be read\n"
        "  hint: send application/json, application/x-ndjson, text/csv, "
        "application/vnd.apache.parquet or application/vnd.apache.arrow.stream",
    )


_Integer = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]


class _Row(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A bulk row with only the common fields, as most rows have."""

    id: Annotated[str, msgspec.Meta(min_length=1)] | _Integer
    filter: str
    consumer: str = ""
    score: float = 0.0


_listed, _lines = msgspec.json.Decoder(list[_Row]), msgspec.json.Decoder(_Row)
_JSON = {
    *("", "application/json", "text/json", "application/x-www-form-urlencoded"),
    *("application/x-ndjson", "application/jsonl", "application/x-jsonlines"),
}
"""Content types of JSON and NDJSON; curl -d claims to send a form."""
_KNOWN = {"id", "filter", "score", "weights", "consumer", "ttl", "track"}


def _edits_of_json(
    caller: Caller, entry: SpaceEntry, clock: Clock, body: bytes, *, is_patch: bool
) -> BulkEdits:
    """Return the edits of a JSON body; everything but the filters is checked."""
    tenant, space = caller.tenant, entry.name
    try:
        if is_patch:  # which fields there are matters
            raise msgspec.DecodeError
        rows = _listed.decode(body) if body[:1] == b"[" else _lines.decode_lines(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # the general path reports the error, if any
    else:
        edits = [
            PutSubscription(
                tenant,
                str(item.id),
                space,
                item.filter,
                item.consumer,
                item.score,
                is_integer=type(item.id) is int,
            )
            for item in rows
        ]
        return BulkEdits(edits, range(len(edits)), [], [])
    edits = []
    items = rows_of_body(body)
    items = items if isinstance(items, list) else [items]
    wide = set(SubscriptionColumns(entry.space).wide)
    if any(isinstance(row, dict) and not wide.isdisjoint(row) for row in items):
        return _edits_of_batches(caller, entry, clock, iter(batches_of(items, "subscriptions")))
    places: list[int] = []
    definitions: list[Mapping[str, Any]] = []
    rejected: list[Rejection] = []
    for index, row in enumerate(items):
        try:
            if not isinstance(row, dict) or not isinstance(row.get("filter"), str):
                raise FilterError('a subscription must be an object {"id": ..., "filter": ...}')
            if strange := row.keys() - _KNOWN:
                known = ", ".join(sorted(_KNOWN))
                raise FilterError(f"unknown field {min(strange)!r}; known: {known}")
            edits.append(edit_of(caller, entry, str(as_id(row.get("id", ""))), row, clock))
            places.append(index)
            definitions.append(row)
        except RangecastError as error:
            rejected.append(Rejection.of(index, error))
    return BulkEdits(edits, places, definitions, rejected)


def _edits_of_batches(
    caller: Caller, entry: SpaceEntry, clock: Clock, batches: Iterator[Batch]
) -> BulkEdits:
    """Return the edits of a table; everything but the filters is checked."""
    space, bad = TentativeSpace(entry.space), CollectedRows()
    edits: list[PutSubscription] = []
    places: list[int] = []
    definitions: list[Mapping[str, Any]] = []
    rejected: list[Rejection] = []
    for batch in batches:
        for subscription_row in subscription_rows(batch, space, bad, "subscriptions"):
            values = subscription_row._asdict()
            try:
                edits.append(edit_of(caller, entry, str(subscription_row.id), values, clock))
                places.append(subscription_row.row)
                definitions.append(values)
            except RangecastError as error:
                rejected.append(Rejection.of(subscription_row.row, error))
    for row, _ in bad.kept:
        text = f"{row.column!r}: {row.reason}\n  given: {row.value}\n  hint: {row.remedy}"
        rejected.append(Rejection(row.row or 0, text, RejectedRowError.code))
    return BulkEdits(edits, places, definitions, rejected)
