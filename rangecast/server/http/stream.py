"""The WebSocket: one connection that publishes, subscribes and gets matches.

Frames are JSON objects with a `type`. From a client:

    auth         token                            first, where tokens are needed
    open         consumer, [position, batch]      its messages come as `match`
    follow       space, filter, [batch]           the same without a consumer, for this connection
    publish      space, events, [wait: matches]
    subscribe    space, id, filter, [score, weights, consumer, ttl]
    unsubscribe  space, id
    ack          position, [consumer]
    credit       messages                         from then on only so many more come
    beat

To a client: `opened`, `match`, `lists` (of a board), `batch` (several of these, if that was asked
for), `gap`, `beat` (how far there is nothing),
`done` (the answer to what had this `ref`), `error`. Requests of one connection are carried out one
after another, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from rangecast.errors import RangecastError
from rangecast.server.boards import BoardEntry
from rangecast.server.http.access import Caller, bearer, caller_of
from rangecast.server.http.bodies import MOST_EVENTS
from rangecast.server.http.edge import MOST_BYTES, TENANT
from rangecast.server.http.events import shown_accepted
from rangecast.server.http.problems import status_of
from rangecast.server.http.spaces import edit_of
from rangecast.server.http.tickets import caller_by_ticket
from rangecast.server.hub import TAKEN, Feed
from rangecast.server.messages import Message, position, seq_of
from rangecast.server.records import DeleteConsumer, DeleteSubscription, PutConsumer
from rangecast.server.registry import Consumer, RefusedError
from rangecast.server.service import Service
from rangecast.server.waiting import answered

router = APIRouter()
logger = logging.getLogger("rangecast.server")
BEAT = 15.0
FRAME = 256 << 10
"""Bytes of a frame with several messages, about."""
SESSION = {"kind": "session"}
"""The way out of a consumer that ends with its connection."""
_encode = msgspec.json.Encoder().encode


class Session:
    """One connection."""

    def __init__(self, service: Service, socket: WebSocket):
        self._service = service
        self._socket = socket
        self._caller: Caller | None = None
        self._sending: dict[str, tuple[Feed, asyncio.Task[None]]] = {}
        self._own: list[Consumer] = []
        self._counted = contextlib.ExitStack()
        self._credit: int | None = None
        self._has_credit = asyncio.Event()
        self._has_credit.set()
        self._one = asyncio.Lock()

    async def run(self) -> None:
        """Serve it until it ends."""
        try:
            host = None if self._socket.client is None else self._socket.client.host
            by_ticket = caller_by_ticket(self._socket)
            self._count(by_ticket or caller_of(self._service, bearer(self._socket), host))
        except RefusedError as error:
            if error.status == 429:
                await self._send({"type": "error", "status": 429, "detail": str(error)})
                await self._socket.close(code=1008, reason="too many connections")
                return
            # it may still send its token
        try:
            while True:
                text = await self._socket.receive()
                if text["type"] == "websocket.disconnect":
                    return
                await self._received(text.get("bytes") or (text.get("text") or "").encode())
        except (WebSocketDisconnect, RuntimeError):
            return
        finally:
            await self._end()

    async def close(self) -> None:
        """Tell the client that the server goes: it may come again soon."""
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await self._socket.close(code=1012, reason="the server restarts")

    async def _received(self, text: bytes) -> None:
        ref: Any = None
        try:
            if len(text) > MOST_BYTES:
                raise RefusedError(413, f"a frame has at most {MOST_BYTES:,} bytes")
            try:
                frame = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise RefusedError(400, f"a frame is JSON: {error}") from None
            if not isinstance(frame, dict):
                raise RefusedError(400, "a frame is a JSON object with a 'type'")
            ref = frame.get("ref")
            kind = frame.get("type")
            handle = _HANDLERS.get(kind) if isinstance(kind, str) else None
            if handle is None:
                known = ", ".join(_HANDLERS)
                raise RefusedError(400, f"unknown type {str(kind)[:80]!r}; there is: {known}")
            answer = await handle(self, frame)
            if answer is not None:
                await self._send({"type": "done", "ref": ref} | answer)
        except RangecastError as error:
            said = {"type": "error", "ref": ref, "status": status_of(error), "detail": str(error)}
            await self._send(said)

    async def _send(self, frame: dict[str, Any]) -> None:
        await self._send_bytes(_encode(frame))

    async def _send_bytes(self, text: bytes) -> None:
        async with self._one:
            if self._socket.application_state == WebSocketState.CONNECTED:
                await self._socket.send_text(text.decode())

    # ---- what clients ask for

    def _count(self, caller: Caller) -> None:
        """From now on the connection is this one's."""
        self._counted.close()
        self._caller = None
        self._service.quotas.check_session(caller.tenant)
        self._counted.enter_context(self._service.quotas.session(caller.tenant))
        self._caller = caller
        self._socket.scope[TENANT] = caller.tenant

    def _may(self, scope: str) -> Caller:
        if self._caller is None:
            raise RefusedError(401, 'send {"type": "auth", "token": ...} first')
        self._caller.need(scope)
        return self._caller

    async def _auth(self, frame: dict[str, Any]) -> dict[str, Any]:
        caller = caller_of(self._service, _text(frame, "token"), None)
        self._count(caller)
        return {"tenant": caller.tenant, "scopes": caller.scopes}

    async def _open(self, frame: dict[str, Any]) -> None:
        caller, service = self._may("read"), self._service
        name = _text(frame, "consumer")
        consumer = service.registry.consumer(caller.tenant, name)
        after = None
        if "position" in frame:
            after = seq_of(_text(frame, "position"), service.log.epoch, service.pump.durable)
        await self._begin(name, consumer, after, is_batched=frame.get("batch") is True)

    async def _follow(self, frame: dict[str, Any]) -> None:
        caller, service = self._may("subscribe"), self._service
        entry = service.registry.space(caller.tenant, _text(frame, "space"))
        name = f"session-{secrets.token_hex(8)}"
        wanted = edit_of(caller, entry, name, frame | {"filter": _text(frame, "filter")})
        wanted = msgspec.structs.replace(wanted, consumer=name)
        made = PutConsumer(caller.tenant, name, entry.name, SESSION)
        await answered(service.edit(made, wanted))
        consumer = service.registry.consumer(caller.tenant, name)
        self._own.append(consumer)
        await self._begin(name, consumer, None, is_batched=frame.get("batch") is True)

    async def _begin(
        self, name: str, consumer: Consumer, after: int | None, *, is_batched: bool
    ) -> None:
        if name in self._sending:
            raise RefusedError(409, f"{name!r} is open already on this connection")
        feed = self._service.hub.open(consumer, after)
        place = position(self._service.log.epoch, feed.sent)
        await self._send({"type": "opened", "consumer": name, "position": place})
        task = asyncio.create_task(self._messages(name, feed, is_batched=is_batched))
        self._sending[name] = feed, task

    async def _messages(self, name: str, feed: Feed, *, is_batched: bool) -> None:
        epoch = self._service.log.epoch
        kind = b"lists" if isinstance(feed.consumer.source, BoardEntry) else b"match"
        mine = b'"consumer":%s,' % _encode(name)
        async with self._told():
            while not feed.is_closed:
                await self._has_credit.wait()
                most = TAKEN if self._credit is None else min(TAKEN, self._credit)
                batch = await feed.take(max(1, most), wait=BEAT)
                if batch.gap is not None:
                    gap = b'{"type":"gap",' + mine
                    await self._send_bytes(gap + batch.gap.json(epoch)[1:])
                place = 0
                while place < len(batch.messages):
                    await self._has_credit.wait()  # given or used up since they were taken
                    most = (self._credit or TAKEN) if is_batched else 1
                    some = _sized(batch.messages[place : place + most])
                    said = b",".join([one.json(epoch) for one in some])
                    if is_batched:
                        said = b'{"type":"batch","of":"%s",%s"messages":[%s]}' % (kind, mine, said)
                    else:
                        said = b'{"type":"%s",%s%s' % (kind, mine, said[1:])
                    await self._send_bytes(said)
                    place += len(some)
                    if self._credit is not None:
                        self._credit -= len(some)
                        if self._credit <= 0:
                            self._has_credit.clear()
                if not batch.messages and batch.gap is None:
                    place_said = position(epoch, batch.upto)
                    await self._send({"type": "beat", "consumer": name, "position": place_said})

    @contextlib.asynccontextmanager
    async def _told(self) -> AsyncIterator[None]:
        """If messages can't be read, tell the client why and close the connection."""
        try:
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                yield
        except (RangecastError, OSError) as error:
            logger.error("messages for a WebSocket can't be read: %s", error)
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await self._send({"type": "error", "status": 500, "detail": str(error)})
                await self._socket.close(code=1011, reason="messages can't be read")

    async def _publish(self, frame: dict[str, Any]) -> dict[str, Any]:
        caller, service = self._may("publish"), self._service
        entry = service.registry.space(caller.tenant, _text(frame, "space"))
        events = frame.get("events")
        if not isinstance(events, list) or len(events) > MOST_EVENTS:
            raise RefusedError(422, f"'events' is a list of at most {MOST_EVENTS:,} objects")
        lines = [_encode(one) for one in events]
        service.quotas.publish(caller.tenant, len(lines), sum(map(len, lines)))
        accepted = await answered(
            service.publish(
                entry,
                lines,
                wants_matches=frame.get("wait") == "matches",
                ignore_unknown=frame.get("ignore_unknown") is True,
            )
        )
        return shown_accepted(service, accepted)

    async def _subscribe(self, frame: dict[str, Any]) -> dict[str, Any]:
        caller, service = self._may("subscribe"), self._service
        entry = service.registry.space(caller.tenant, _text(frame, "space"))
        _text(frame, "filter")
        edit = edit_of(caller, entry, _text(frame, "id"), frame)
        seq = await answered(service.edit(edit))
        return {"position": position(service.log.epoch, seq)}

    async def _unsubscribe(self, frame: dict[str, Any]) -> dict[str, Any]:
        caller, service = self._may("subscribe"), self._service
        edit = DeleteSubscription(caller.tenant, _text(frame, "id"), _text(frame, "space"))
        seq = await answered(service.edit(edit))
        return {"position": position(service.log.epoch, seq)}

    async def _ack(self, frame: dict[str, Any]) -> None:
        caller, service = self._may("subscribe"), self._service
        if "consumer" not in frame and len(self._sending) != 1:
            raise RefusedError(422, "say which consumer acknowledges: 'consumer'")
        name = _text(frame, "consumer") if "consumer" in frame else next(iter(self._sending))
        consumer = service.registry.consumer(caller.tenant, name)
        place = seq_of(_text(frame, "position"), service.log.epoch, service.pump.durable)
        service.acknowledge(consumer, place)

    async def _give_credit(self, frame: dict[str, Any]) -> None:
        given = frame.get("messages")
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise RefusedError(422, "'messages' is how many more may come: a whole number")
        self._credit = max(self._credit or 0, 0) + given
        self._has_credit.set()

    async def _beat(self, _frame: dict[str, Any]) -> dict[str, Any]:
        return {"position": position(self._service.log.epoch, self._service.pump.durable)}

    async def _end(self) -> None:
        self._counted.close()
        for feed, task in self._sending.values():
            self._service.hub.close(feed)
            task.cancel()
        await asyncio.gather(*(task for _, task in self._sending.values()), return_exceptions=True)
        for consumer in self._own:
            with contextlib.suppress(RangecastError):
                self._service.edit(DeleteConsumer(consumer.tenant, consumer.name))


_HANDLERS: dict[str, Any] = {
    "auth": Session._auth,
    "open": Session._open,
    "follow": Session._follow,
    "publish": Session._publish,
    "subscribe": Session._subscribe,
    "unsubscribe": Session._unsubscribe,
    "ack": Session._ack,
    "credit": Session._give_credit,
    "beat": Session._beat,
}


def _sized(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the first messages, as many as make a frame of moderate size; at least one."""
    size = 0
    for place, one in enumerate(messages):
        size += one.size
        if size > FRAME and place:
            return messages[:place]
    return messages


def _text(frame: dict[str, Any], name: str) -> str:
    value = frame.get(name)
    if not isinstance(value, str):
        raise RefusedError(422, f"{frame.get('type')!r} needs {name!r}, a text")
    return value


@router.websocket("/v1/stream")
async def stream(socket: WebSocket) -> None:
    """Serve one connection."""
    service: Service = socket.app.state.service
    origin = socket.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != socket.headers.get("host"):
        await socket.close(code=1008, reason="another origin")
        return
    await socket.accept()
    session = Session(service, socket)
    service.sessions.add(session)
    try:
        await session.run()
    finally:
        service.sessions.discard(session)
