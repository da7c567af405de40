"""Boards over HTTP: create and delete boards, edit interests, update objects."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from rangecast.errors import RangecastError, UsageError, abbreviate
from rangecast.model.sets.members import as_id
from rangecast.model.validation.arguments import check_finite, check_integer
from rangecast.server.core import Core
from rangecast.server.delivery.messages import position
from rangecast.server.http.auth import Caller, allowed, core_of
from rangecast.server.http.bodies.models import ModelRoute
from rangecast.server.http.bodies.read import lines_of, read_body, rows_of_body
from rangecast.server.http.routes.bulk import Rejection, bulk_answer
from rangecast.server.http.routes.events import shown_accepted
from rangecast.server.http.routes.selected import names_of
from rangecast.server.http.routes.spaces import PAGE, condition, is_integer_id, page_of
from rangecast.server.pipeline.commands import Outcome, PublishedEvents
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.admission import ONLY_NEW
from rangecast.server.state.board_index import BoardIndex
from rangecast.server.state.boards import BoardEntry, Interest, check_interest, warm
from rangecast.server.state.edits import DeleteBoard, DeleteInterest, PutBoard, PutInterest
from rangecast.server.state.registry import RequestError

router = APIRouter(prefix="/v1/boards", route_class=ModelRoute)


class BoardRequest(BaseModel):
    """Request for a board."""

    model_config = ConfigDict(extra="forbid")

    k: int = Field(ge=1, description="Number of objects per list.")
    space: str = Field("", description="The space whose attributes objects have; none: a position.")
    upper_bound_attribute: str = Field(
        "", description="Of two attributes, the one without lower bounds."
    )
    descending: bool = Field(False, strict=True, description="The highest value ranks first.")


class InterestRequest(BaseModel):
    """Request for an interest: bounds of the position, or a filter over the board's space."""

    model_config = ConfigDict(extra="forbid")

    id: StrictInt | StrictStr | None = Field(None, description="An integer, if the id is one.")
    position_lo: float | None = None
    position_hi: float | None = None
    filter: str = Field("", examples=["km between 20 and 35 and m2 <= 80"])
    k: int = Field(0, ge=0, description="Number of objects; 0: the board's.")
    consumer: str = ""


@router.get("")
async def list_boards(request: Request) -> Any:
    """List the boards."""
    caller, core = allowed(request, "read"), core_of(request)
    mine = [board for board in list(core.registry.boards.values()) if board.tenant == caller.tenant]
    return {"items": [_shown_board(entry) for entry in mine]}


@router.get("/{board}")
async def get_board(request: Request, board: str) -> Any:
    """Return a board's options, and how many objects and interests it has."""
    return _shown_board(_board(request, board, "read")[2])


@router.put("/{board}")
async def put_board(request: Request, board: str, body: BoardRequest) -> Any:
    """Create a board. Its space is copied: later additions to the space do not apply."""
    caller, core = allowed(request, "admin"), core_of(request)
    definition = None
    if body.space:
        definition = core.registry.space(caller.tenant, body.space).space.definition()
    made = PutBoard(
        caller.tenant,
        board,
        body.k,
        definition,
        body.upper_bound_attribute,
        body.descending,
    )
    await asyncio.to_thread(warm, made)
    seq = await result_of(core.edit(made))
    return {"name": board, "position": position(core.epoch, seq)}


@router.delete("/{board}")
async def delete_board(request: Request, board: str) -> Any:
    """Delete a board, with its objects and interests; its consumers must be deleted before."""
    caller, core = allowed(request, "admin"), core_of(request)
    seq = await result_of(core.edit(DeleteBoard(caller.tenant, board)))
    return {"name": board, "position": position(core.epoch, seq)}


@router.get("/{board}/interests")
async def list_interests(request: Request, board: str, after: str = "", limit: int = PAGE) -> Any:
    """List interests by id, a page at a time: `after` is the last id of the page before."""
    _, core, entry = _board(request, board, "read")
    limit, live = max(1, min(limit, PAGE)), dict(entry.live)
    page, more = await asyncio.to_thread(page_of, live, after, limit)
    items = [_shown_interest(core, interest) for interest in page]
    return {"items": items, "next": more, "count": len(entry.live)}


@router.get("/{board}/interests/{name:path}")
async def get_interest(request: Request, board: str, name: str) -> Response:
    """Return an interest with its current list."""
    caller, core, entry = _board(request, board, "read")
    interest = core.registry.interest(caller.tenant, board, name)
    k = interest.k or entry.made.k
    best = await asyncio.to_thread(_index(core, entry).best, interest.where, k)
    answer = _shown_interest(core, interest) | {"best": best}
    return _json(answer, headers={"ETag": f'"{interest.born}"'})


@router.put("/{board}/interests/{name:path}")
async def put_interest(
    request: Request, board: str, name: str, interest: InterestRequest
) -> Response:
    """Create or replace an interest; its consumer gets its list, and each changed list."""
    caller, core, entry = _board(request, board, "subscribe")
    edit = _edit(caller, entry, name, interest.model_dump())
    await asyncio.to_thread(_check, core, entry, edit)
    made = core.edit(edit, if_match=condition(request), board=entry)
    seq = await result_of(made)
    seen_at = position(core.epoch, seq)
    return JSONResponse({"id": edit.id, "position": seen_at}, headers={"ETag": f'"{seq}"'})


@router.delete("/{board}/interests/{name:path}")
async def delete_interest(request: Request, board: str, name: str) -> Any:
    """Delete an interest."""
    caller, core, _ = _board(request, board, "subscribe")
    edit = DeleteInterest(caller.tenant, name, board)
    seq = await result_of(core.edit(edit, if_match=condition(request)))
    return {"id": name, "position": position(core.epoch, seq)}


@router.post("/{board}/interests:bulk")
async def bulk(request: Request, board: str, strict: bool = False) -> Response:
    """Create or replace many interests: NDJSON or a JSON list.

    Invalid rows are rejected individually; with `?strict=true` one invalid row rejects all.
    `If-None-Match: *` requires all of them to be new, `If-Match: *` requires all to exist.
    """
    caller, core, entry = _board(request, board, "subscribe")
    body = await read_body(request)
    wanted = condition(request)
    if wanted not in (None, ONLY_NEW, "*"):
        raise RequestError(422, "If-Match of a bulk request must be * or absent")
    edits, rejected = await asyncio.to_thread(_bulk_edits, core, caller, entry, body)
    taken = [] if strict and rejected else edits
    seq, outcome = 0, Outcome()
    if taken:
        seq = await result_of(core.edit(*taken, if_match=wanted, outcome=outcome, board=entry))
    return bulk_answer(core, rejected, len(taken), seq, outcome)


@router.post("/{board}/interests:delete")
async def delete_many(request: Request, board: str) -> Any:
    """Delete these interests, all of them or none; a repeated id counts once."""
    caller, core, _ = _board(request, board, "subscribe")
    names = list(dict.fromkeys(await names_of(request)))
    edits = [DeleteInterest(caller.tenant, name, board) for name in names]
    seen_at = None
    if edits:
        seq = await result_of(core.edit(*edits))
        seen_at = position(core.epoch, seq + len(edits) - 1)
    return {"deleted": len(edits), "position": seen_at}


@router.post("/{board}/updates")
async def update(
    request: Request, board: str, batch: bool = False, strict: bool = False, only: str = ""
) -> Response:
    """Change objects: JSON or NDJSON, `{"id", "value"}`.

    With `position` or attributes an object is added or moved; a `value` of null removes it. Changes
    are made one after the other, or (`?batch=true`) all at once. With `only`, all objects must be
    `new`, or `existing`.
    """
    if only not in ("", "new", "existing"):
        raise RequestError(
            422, f"'only' must be 'new' or 'existing', or left out; given: {only[:80]!r}"
        )
    caller, core, entry = _board(request, board, "publish")
    body, headers = await read_body(request), request.headers

    def work() -> Future[PublishedEvents]:
        lines, form = lines_of(headers, body)
        if form:
            raise RequestError(415, "changes of objects must be JSON or NDJSON")
        core.quotas.publish(caller.tenant, len(lines), sum(map(len, lines)))
        return core.update(entry, lines, is_batch=batch, strict=strict, only=only)

    accepted = await result_of(await asyncio.to_thread(work))
    is_rejected = bool(accepted.rejected) and not accepted.count
    return JSONResponse(
        shown_accepted(core, accepted),
        422 if is_rejected else 200,
        media_type="application/problem+json" if is_rejected else "application/json",
    )


@router.get("/{board}/best")
async def best(
    request: Request,
    board: str,
    filter: str = "",  # noqa: A002
    position_lo: float | None = None,
    position_hi: float | None = None,
    k: int | None = None,
) -> Any:
    """Return the top k objects in a range of positions or matching a filter; nothing is stored."""
    caller, core, entry = _board(request, board, "read")
    core.quotas.check_length(caller.tenant, filter)
    where = (position_lo, position_hi) if entry.space is None else (filter or "true",)
    items = await asyncio.to_thread(_index(core, entry).best, where, k)
    return _json({"items": items})


@router.get("/{board}/objects")
async def list_objects(request: Request, board: str, after: str = "", limit: int = PAGE) -> Any:
    """List objects by id, a page at a time: `after` is the last id of the page before."""
    _, _, entry = _board(request, board, "read")
    objects, limit = dict(entry.objects), max(1, min(limit, PAGE))
    page, more = await asyncio.to_thread(page_of, {name: name for name in objects}, after, limit)
    items = [entry.shown(objects[name]) for name in page]
    return _json({"items": items, "next": more, "count": len(objects)})


def _edit(caller: Caller, entry: BoardEntry, name: str, definition: dict[str, Any]) -> PutInterest:
    """Return the edit that puts an interest."""
    is_integer = is_integer_id(name, definition.get("id"), "interest")
    ends = [definition.get(bound) for bound in ("position_lo", "position_hi")]
    lo, hi = (None if end is None else check_finite("position", end) for end in ends)
    text, consumer = definition.get("filter") or "", definition.get("consumer") or ""
    if not isinstance(text, str) or not isinstance(consumer, str):
        raise UsageError("'filter' and 'consumer' must be strings")
    k = (
        0
        if not definition.get("k")
        else check_integer("k", definition["k"], max_value=entry.made.k)
    )
    return PutInterest(caller.tenant, name, entry.name, consumer, text, lo, hi, k, is_integer)


def _check(core: Core, entry: BoardEntry, edit: PutInterest) -> None:
    if entry.space is not None and edit.filter:
        core.quotas.parsed(entry.tenant, edit.filter, entry.space)
    check_interest(entry, edit)


def _bulk_edits(
    core: Core, caller: Caller, entry: BoardEntry, body: bytes
) -> tuple[list[PutInterest], list[Rejection]]:
    rows, edits = rows_of_body(body), list[PutInterest]()
    rejected: list[Rejection] = []
    seen: set[str] = set()
    known = set(InterestRequest.model_fields)
    for index, row in enumerate(rows if isinstance(rows, list) else [rows]):
        try:
            if not isinstance(row, dict) or "id" not in row:
                raise UsageError(
                    f'an interest must be an object {{"id": ...}}; given: {abbreviate(row)}'
                )
            if strange := row.keys() - known:
                raise UsageError(f"unknown field {min(strange)!r}; known: {sorted(known)}")
            edit = _edit(caller, entry, str(as_id(row["id"], "interest")), row)
            _check(core, entry, edit)
            if edit.name in seen:
                raise UsageError(f"'id': duplicate id\n  given: {edit.name}")
            seen.add(edit.name)
            edits.append(edit)
        except RangecastError as error:
            rejected.append(Rejection.of(index, error))
    return edits, rejected


def _json(answer: Any, **options: Any) -> Response:
    """Return a JSON response that may contain timestamps."""
    return Response(msgspec.json.encode(answer), media_type="application/json", **options)


def _board(request: Request, name: str, scope: str) -> tuple[Caller, Core, BoardEntry]:
    caller, core = allowed(request, scope), core_of(request)
    return caller, core, core.registry.board(caller.tenant, name)


def _index(core: Core, entry: BoardEntry) -> BoardIndex:
    index = core.board_indexes.get(entry)
    if index is None:  # created or deleted at this moment
        raise RequestError(404, f"no board {abbreviate(entry.name)}")
    return index


def _shown_board(entry: BoardEntry) -> dict[str, Any]:
    made = entry.made
    return {
        "name": entry.name,
        "k": made.k,
        "attribute": None if entry.space is None else entry.space.definition()["attribute"],
        "upper_bound_attribute": made.upper_bound_attribute or None,
        "descending": made.descending,
        "objects": len(entry.objects),
        "interests": len(entry.live),
    }


def _shown_interest(core: Core, interest: Interest) -> dict[str, Any]:
    owner = core.registry.owner(interest)
    where: dict[str, Any] = {"filter": interest.filter}
    if not interest.filter:
        where = {"position_lo": interest.position_lo, "position_hi": interest.position_hi}
    return {
        "id": interest.id,
        **where,
        "k": interest.k or None,
        "consumer": None if owner is None else owner.name,
        "position": position(core.epoch, interest.born),
    }
