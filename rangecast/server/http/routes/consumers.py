"""Consumers over HTTP: create, pull, stream as server-sent events, seek."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from rangecast.server.core import Core
from rangecast.server.delivery.listeners import TAKEN
from rangecast.server.delivery.messages import Batch, Gap, position
from rangecast.server.delivery.push import Deliveries
from rangecast.server.http.auth import Grant, Grants, allowed, core_of, granted
from rangecast.server.http.bodies.models import ModelRoute
from rangecast.server.http.tickets import grant_by_ticket
from rangecast.server.links.broker_runner import KIND
from rangecast.server.log.base import LogError
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.boards import BoardEntry
from rangecast.server.state.edits import DeleteConsumer, PutConsumer
from rangecast.server.state.entries import Consumer
from rangecast.server.state.registry import RequestError
from rangecast.server.state.tracks.options import policy_of

router = APIRouter(prefix="/v1/consumers", route_class=ModelRoute)
MAX_WAIT = 60.0
"""Seconds that a pull may wait."""
HEARTBEAT = 15.0
"""Seconds without a message after which a comment is sent."""


class ConsumerRequest(BaseModel):
    """Request for a consumer."""

    model_config = ConfigDict(extra="forbid")

    space: str = Field("", description="Space whose matches are delivered; or set `board`.")
    board: str = Field("", description="Board whose lists are delivered; or set `space`.")
    start_at: str = Field("now", description="`start`, `now`, or a position")
    on_gap: str = Field("report", pattern="^(report|stop)$")
    max_per_event: int = Field(0, ge=0)
    max_per_second: int = Field(0, ge=0)
    policy: dict[str, Any] | None = Field(
        None, description="Delivery policy of transitions, over all of its subscriptions."
    )
    delivery: dict[str, Any] = {}


class Position(BaseModel):
    """A position in the log."""

    model_config = ConfigDict(extra="forbid")

    position: str


class Seek(Position):
    """Target of a seek."""

    subscriptions: str = Field("historical", pattern="^(historical|current)$")


@router.get("")
async def list_consumers(request: Request) -> Any:
    """List the consumers."""
    caller, core = allowed(request, "read"), core_of(request)
    mine = [
        consumer
        for consumer in list(core.registry.consumers.values())
        if consumer.tenant == caller.tenant
    ]
    return {"items": [_shown(request, entry) for entry in mine]}


@router.get("/{name}")
async def get_consumer(request: Request, name: str) -> Any:
    """Return a consumer: its options, position and lag."""
    caller, core = allowed(request, "read"), core_of(request)
    return _shown(request, core.registry.consumer(caller.tenant, name))


@router.put("/{name}")
async def put_consumer(request: Request, name: str, definition: ConsumerRequest) -> Any:
    """Create a consumer, or change its options."""
    caller, core = allowed(request, "subscribe"), core_of(request)
    start = -1 if definition.start_at == "now" else _seq(core, definition.start_at)
    old = core.registry.consumers.get((caller.tenant, name))
    if old is not None:
        not_linked(old)
        start = -1  # it stays where it is; `seek` moves it
    if bool(definition.space) == bool(definition.board):
        raise RequestError(422, "a consumer belongs to a space or to a board: give exactly one")
    if definition.board and (definition.max_per_event or definition.max_per_second):
        raise RequestError(
            422, "'max_per_event' and 'max_per_second' are only for consumers of a space"
        )
    if definition.board and definition.policy is not None:
        raise RequestError(422, "'policy' is only for consumers of a space")
    policy_of(definition.policy)
    deliveries: Deliveries = request.app.state.deliveries
    caller.require_scope(deliveries.scope(definition.delivery))
    delivery, news = deliveries.checked(definition.delivery, old)
    edit = PutConsumer(
        caller.tenant,
        name,
        definition.space,
        delivery,
        definition.on_gap,
        start,
        max_per_event=definition.max_per_event,
        board=definition.board,
        max_per_second=definition.max_per_second,
        policy=definition.policy,
    )
    before = definition.max_per_second if old is None else old.max_per_second
    await result_of(core.edit(edit))
    if old is not None and before != definition.max_per_second:
        core.hub.move(old)  # another reader takes over
    answer = _shown(request, core.registry.consumer(caller.tenant, name))
    answer["delivery"] = answer["delivery"] | news
    return answer


@router.delete("/{name}")
async def delete_consumer(request: Request, name: str) -> Any:
    """Delete a consumer, with its subscriptions."""
    caller, core = allowed(request, "subscribe"), core_of(request)
    consumer = core.registry.consumer(caller.tenant, name)
    if consumer.delivery.get("kind") == KIND:
        caller.require_scope("admin")  # what waits for that server is given up
    seq = await result_of(core.edit(DeleteConsumer(caller.tenant, name)))
    core.hub.move(consumer)  # its listeners end
    return {"name": name, "position": position(core.epoch, seq)}


@router.get("/{name}/messages")
async def pull(request: Request, name: str, wait: float = 0.0, limit: int = TAKEN) -> Response:
    """Return unacknowledged messages, waiting up to `wait` seconds for the first."""
    grant, core = granted(request, "read"), core_of(request)
    consumer = core.registry.consumer(grant.caller().tenant, name)
    listener = core.pulls.listener(consumer)
    grants: Grants = request.app.state.grants
    try:
        with grants.watched(grant, lambda _error: core.hub.close(listener)):
            batch = await listener.next_batch(
                max(1, min(limit, 10 * TAKEN)), max(0.0, min(wait, MAX_WAIT))
            )
    finally:
        core.pulls.give_back(listener)
    grant.caller()  # it may have ended in the meantime
    return Response(_page(core, batch), media_type="application/json")


@router.post("/{name}/ack")
async def acknowledge(request: Request, name: str, body: Position) -> Any:
    """Acknowledge all messages up to a position: they are not delivered again."""
    caller, core = allowed(request, "subscribe"), core_of(request)
    consumer = not_linked(core.registry.consumer(caller.tenant, name))
    core.acknowledge(consumer, _seq(core, body.position))
    return {"position": position(core.epoch, consumer.cursor)}


@router.post("/{name}/seek")
async def seek(request: Request, name: str, body: Seek) -> Any:
    """Move a consumer to 'start', 'now' or a position, backward or forward.

    Past events are matched with the historical subscriptions, those that were live at the time, or
    (`"subscriptions": "current"`) with the current ones.
    """
    caller, core = allowed(request, "subscribe"), core_of(request)
    consumer = not_linked(core.registry.consumer(caller.tenant, name))
    start = core.pipeline.durable if body.position == "now" else _seq(core, body.position)
    is_current = body.subscriptions == "current"
    if is_current and isinstance(consumer.source, BoardEntry):
        raise RequestError(422, "'subscriptions' is only for consumers of a space")
    edit = msgspec.structs.replace(consumer.as_put(), start=start, current_subscriptions=is_current)
    await result_of(core.edit(edit))
    core.hub.move(consumer)
    return _shown(request, consumer)


@router.get("/{name}/stream")
async def stream(request: Request, name: str) -> Response:
    """Follow a consumer as server-sent events; `Last-Event-ID` is the position to resume after.

    A page gives `?ticket=` instead of a token.
    """
    grant, core = grant_by_ticket(request), core_of(request)
    caller = grant.caller()
    caller.require_scope("read")
    consumer = core.registry.consumer(caller.tenant, name)
    last = request.headers.get("last-event-id")
    after, gap = (None, None) if last is None else core.resumed(consumer, last)
    core.quotas.check_session(caller.tenant)
    return StreamingResponse(
        _events(request.app.state.grants, grant, core, consumer, after, gap),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _events(
    grants: Grants,
    grant: Grant,
    core: Core,
    consumer: Consumer,
    after: int | None,
    gap: Gap | None,
) -> AsyncIterator[bytes]:
    listener, counted = core.hub.open(consumer, after, gap), ExitStack()
    rejected: list[RequestError] = []

    def end(error: RequestError) -> None:
        rejected.append(error)
        core.hub.close(listener)

    try:
        counted.enter_context(core.quotas.session(consumer.tenant))
        counted.enter_context(grants.watched(grant, end))
        yield b": %s\n\n" % position(core.epoch, listener.sent).encode()
        while not listener.is_closed:
            batch = await listener.next_batch(wait=HEARTBEAT)
            epoch, lineage = core.epoch, core.lineage
            parts = []
            if batch.gap is not None:
                parts.append(b"event: gap\ndata: %s\n\n" % batch.gap.json(epoch))
            for message, text in zip(batch.messages, lineage.shown(batch.messages), strict=True):
                parts.append(b"id: %s:%d\ndata: %s\n\n" % (epoch.encode(), message.seq, text))
            yield b"".join(parts) or b": %s\n\n" % position(epoch, listener.sent).encode()
        if rejected:
            problem = {"status": rejected[0].status, "detail": str(rejected[0])}
            yield b"event: error\ndata: %s\n\n" % msgspec.json.encode(problem)
    except LogError as error:  # said in the stream: its status is sent
        yield b"event: error\ndata: %s\n\n" % msgspec.json.encode({"detail": str(error)})
    finally:
        counted.close()
        core.hub.close(listener)


def _page(core: Core, batch: Batch) -> bytes:
    epoch = core.epoch
    gap = b"" if batch.gap is None else batch.gap.json(epoch)[1:-1] + b","
    items = b",".join(core.lineage.shown(batch.messages))
    return b'{%s"items":[%s],"position":"%s:%d"}' % (gap, items, epoch.encode(), batch.upto)


def _seq(core: Core, text: str) -> int:
    if text == "start":
        return core.log.first - 1
    return core.seq_of(text)


def not_linked(consumer: Consumer) -> Consumer:
    """Return a consumer; reject one whose cursor belongs to a link."""
    if consumer.delivery.get("kind") == KIND:
        raise RequestError(409, f"the consumer {consumer.name!r} is a link to another server")
    return consumer


def _shown(request: Request, consumer: Consumer) -> dict[str, Any]:
    core, deliveries = core_of(request), request.app.state.deliveries
    kind = "board" if isinstance(consumer.source, BoardEntry) else "space"
    return {
        "name": consumer.name,
        kind: consumer.source.name,
        "position": position(core.epoch, consumer.cursor),
        "lag": core.pipeline.durable - consumer.cursor,
        "listeners": len(core.hub.listeners.get(consumer.number, ())),
        "on_gap": consumer.on_gap,
        "max_per_event": consumer.max_per_event,
        "max_per_second": consumer.max_per_second,
        **({} if consumer.policy is None else {"policy": consumer.policy}),
        **deliveries.shown(consumer),
    }
