"""The WebSocket: one connection that publishes, subscribes and gets matches.

Frames are JSON objects with a `type`. From a client:

    auth         token                            first, where tokens are needed: within 30 seconds
    attach       consumer, [position, batch]      its messages come as `match`
    follow       space, filter, [batch]           the same without a consumer, for this connection
    publish      space, events, [wait: matches]
    subscribe    space, id, filter, [score, weights, consumer, ttl]
    unsubscribe  space, id
    ack          position, [consumer]
    credit       messages                         flow control: send at most this many more
    heartbeat

To a client: `attached` (again after a seek of the consumer), `match`, `lists` (of a board), `batch`
(several of these, if the client asked for batches), `gap`, `heartbeat` (the position up to which
there are no more messages), `ok` (the answer to the frame with this `ref`), `error`. Requests of
one connection are handled one after another, in order. When its token ends, the connection does
too: after an `error` it is closed with the code 4401.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from rangecast.errors import RangecastError
from rangecast.server.core import Core
from rangecast.server.delivery.listeners import TAKEN, Listener
from rangecast.server.delivery.messages import Gap, Message, position
from rangecast.server.http.auth import Caller, Grant, Grants, core_of, digest_of, peer_of
from rangecast.server.http.bodies.read import MAX_EVENTS, off_loop
from rangecast.server.http.middleware import MAX_BODY_BYTES, TENANT
from rangecast.server.http.problems import code_of_status, status_of
from rangecast.server.http.routes.consumers import not_linked
from rangecast.server.http.routes.events import shown_accepted
from rangecast.server.http.routes.spaces import edit_of
from rangecast.server.http.tickets import grant_by_ticket
from rangecast.server.json_text import MAX_DEPTH, decode
from rangecast.server.pipeline.commands import PublishedEvents
from rangecast.server.pipeline.futures import result_of
from rangecast.server.security.hosts import Peer
from rangecast.server.state.boards import BoardEntry
from rangecast.server.state.edits import DeleteConsumer, DeleteSubscription, PutConsumer
from rangecast.server.state.entries import Consumer
from rangecast.server.state.registry import RequestError

router = APIRouter()
logger = logging.getLogger("rangecast.server")
HEARTBEAT = 15.0
"""Seconds without a message after which a heartbeat is sent."""
FRAME = 256 << 10
"""Bytes of a frame with several messages, about."""
UNAUTHORIZED = 4401
"""Close code of a connection without a valid token."""
MAX_SILENCE = 30.0
"""Seconds that a client has to send its token, where one is needed."""
MAX_STRANGER = 64 << 10
"""Bytes of a frame before a token has come."""
_GOODBYE = 1.0
"""Seconds that a client has to read why its connection is closed."""
SESSION = {"kind": "session"}
"""Delivery kind of a consumer that ends with its connection."""
_encode = msgspec.json.Encoder().encode


class Session:
    """One WebSocket connection."""

    def __init__(self, core: Core, socket: WebSocket):
        self._core = core
        self._socket = socket
        self._grants: Grants = socket.app.state.grants
        self._grant: Grant | None = None
        self._limit = asyncio.timeout(None)
        """When the connection expires."""
        self._rejection = RequestError(
            401, f"no token was received within {MAX_SILENCE:g} seconds, but one is required"
        )
        self._sending: dict[str, tuple[Listener, asyncio.Task[None]]] = {}
        self._own: list[tuple[str, str]] = []
        """Consumers that end with the connection: tenant and name."""
        self._counted = contextlib.ExitStack()
        self._credit: int | None = None
        self._has_credit = asyncio.Event()
        self._has_credit.set()
        self._one = asyncio.Lock()
        self._frame_bytes = 0
        """Bytes of the frame being processed."""

    async def run(self) -> None:
        """Serve the connection until it ends or its token does."""
        try:
            async with self._limit:
                await self._serve()
        except TimeoutError:
            if not self._limit.expired():
                raise
            await self._end()
            await self._close(
                self._rejection, UNAUTHORIZED, "the token has expired, or none was received"
            )
        except (WebSocketDisconnect, RuntimeError):
            return  # it is gone
        finally:
            await self._end()

    async def _serve(self) -> None:
        try:
            self._admit(grant_by_ticket(self._socket))
        except RequestError as error:
            if error.status == 429:
                await self._close(error, 1008, "too many connections")
                return
            # it may still send its token
            self._limit.reschedule(asyncio.get_running_loop().time() + MAX_SILENCE)
        while True:
            text = await self._socket.receive()
            if text["type"] == "websocket.disconnect":
                return
            await self._received(text.get("bytes") or (text.get("text") or "").encode())

    async def _close(self, why: RequestError, code: int, reason: str) -> None:
        """Send the reason and close the connection."""
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
            async with asyncio.timeout(_GOODBYE):
                await self._send({"type": "error", "status": why.status, "detail": str(why)})
                await self._socket.close(code, reason)

    def _revoke(self, error: RequestError) -> None:
        """Close the connection because its token has ended."""
        if not self._limit.expired():
            self._rejection = error
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def _received(self, text: bytes) -> None:
        ref: Any = None
        self._frame_bytes = len(text)
        try:
            limit = MAX_BODY_BYTES if self._grant is not None else MAX_STRANGER
            if len(text) > limit:
                raise RequestError(413, f"a frame may have at most {limit:,} bytes")
            try:
                frame = await off_loop(len(text), _decode, text)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise RequestError(400, f"a frame must be JSON: {error}") from None
            if not isinstance(frame, dict):
                raise RequestError(400, "a frame must be a JSON object with a 'type'")
            ref = frame.get("ref")
            kind = frame.get("type")
            handle = _HANDLERS.get(kind) if isinstance(kind, str) else None
            if handle is None:
                known = ", ".join(_HANDLERS)
                raise RequestError(400, f"unknown type {str(kind)[:80]!r}; known: {known}")
            answer = await handle(self, frame)
            if answer is not None:
                await self._send({"type": "ok", "ref": ref} | answer)
        except RangecastError as error:
            if self._grant is not None:
                self._check(self._grant)
            status = status_of(error)
            code = error.code or code_of_status(status)
            frame_ = {"type": "error", "ref": ref, "status": status, "code": code}
            await self._send(frame_ | {"detail": str(error)})
        except (WebSocketDisconnect, asyncio.CancelledError):
            raise
        except Exception as error:
            if self._socket.application_state != WebSocketState.CONNECTED:
                raise
            logger.error("a frame failed", exc_info=error)
            detail = "internal error; see the server's log"
            await self._send({"type": "error", "ref": ref, "status": 500, "detail": detail})

    async def _send(self, frame: dict[str, Any]) -> None:
        await self._send_bytes(_encode(frame))

    async def _send_bytes(self, text: bytes) -> None:
        async with self._one:
            if self._socket.application_state == WebSocketState.CONNECTED:
                await self._socket.send_text(text.decode())

    # ---- what clients ask for

    def _admit(self, grant: Grant) -> None:
        """Set the grant of the connection."""
        tenant = grant.caller().tenant
        self._counted.close()
        self._grant = None
        self._core.quotas.check_session(tenant)
        self._counted.enter_context(self._core.quotas.session(tenant))
        self._counted.enter_context(self._grants.watched(grant, self._revoke))
        self._grant = grant
        self._limit.reschedule(None)
        self._socket.scope[TENANT] = tenant

    def _check(self, grant: Grant) -> None:
        """Close the connection if its token has ended."""
        try:
            grant.caller()
        except RequestError as error:
            self._revoke(error)

    def _may(self, scope: str) -> Caller:
        if self._grant is None:
            raise RequestError(401, 'send {"type": "auth", "token": ...} first')
        caller = self._grant.caller()
        caller.require_scope(scope)
        return caller

    async def _auth(self, frame: dict[str, Any]) -> dict[str, Any]:
        grant = Grant(self._core, digest_of(_text(frame, "token")), Peer(None, ()))
        if self._sending and self._grant is not None and self._grant.digest != grant.digest:
            raise RequestError(
                409, "consumers were attached with another token\n  hint: open another connection"
            )
        self._admit(grant)
        caller = grant.caller()
        return {"tenant": caller.tenant, "scopes": caller.scopes}

    async def _attach(self, frame: dict[str, Any]) -> None:
        caller, core = self._may("read"), self._core
        name = _text(frame, "consumer")
        consumer = core.registry.consumer(caller.tenant, name)
        after, gap = None, None
        if "position" in frame:
            after, gap = core.resumed(consumer, _text(frame, "position"))
        await self._begin(name, consumer, after, gap, is_batched=frame.get("batch") is True)

    async def _follow(self, frame: dict[str, Any]) -> None:
        caller, core = self._may("subscribe"), self._core
        entry = core.registry.space(caller.tenant, _text(frame, "space"))
        name = f"session-{secrets.token_hex(8)}"
        definition = {**frame, "filter": _text(frame, "filter"), "id": None}
        wanted = edit_of(caller, entry, name, definition, core.clock)
        wanted = msgspec.structs.replace(wanted, consumer=name)
        made = PutConsumer(caller.tenant, name, entry.name, SESSION)
        own = caller.tenant, name
        self._own.append(own)  # before the answer: the connection may end while it is awaited
        try:
            await result_of(core.edit(made, wanted))
        except RangecastError:
            self._own.remove(own)
            raise
        consumer = core.registry.consumer(*own)
        await self._begin(name, consumer, None, None, is_batched=frame.get("batch") is True)

    async def _begin(
        self,
        name: str,
        consumer: Consumer,
        after: int | None,
        gap: Gap | None,
        *,
        is_batched: bool,
    ) -> None:
        if name in self._sending:
            raise RequestError(409, f"{name!r} is already attached on this connection")
        listener = self._core.hub.open(consumer, after, gap)
        seen_at = position(self._core.epoch, listener.sent)
        await self._send({"type": "attached", "consumer": name, "position": seen_at})
        task = asyncio.create_task(self._messages(name, listener, is_batched=is_batched))
        self._sending[name] = listener, task

    async def _messages(self, name: str, listener: Listener, *, is_batched: bool) -> None:
        lineage = self._core.lineage
        kind = b"lists" if isinstance(listener.consumer.source, BoardEntry) else b"match"
        mine = b'"consumer":%s,' % _encode(name)
        async with self._report_read_error():
            while not listener.is_closed or await self._reattached(name, listener):
                listener = self._sending[name][0]
                await self._has_credit.wait()
                limit = TAKEN if self._credit is None else min(TAKEN, self._credit)
                batch = await listener.next_batch(max(1, limit), wait=HEARTBEAT)
                if batch.gap is not None:
                    gap = b'{"type":"gap",' + mine
                    await self._send_bytes(gap + batch.gap.json(lineage.epoch)[1:])
                begin = 0
                while begin < len(batch.messages):
                    await self._has_credit.wait()  # given or used up since they were taken
                    limit = (self._credit or TAKEN) if is_batched else 1
                    piece = _sized(batch.messages[begin : begin + limit])
                    text = b",".join(lineage.shown(piece))
                    if is_batched:
                        text = b'{"type":"batch","item_type":"%s",%s"messages":[%s]}' % (
                            kind,
                            mine,
                            text,
                        )
                    else:
                        text = b'{"type":"%s",%s%s' % (kind, mine, text[1:])
                    await self._send_bytes(text)
                    begin += len(piece)
                    if self._credit is not None:
                        self._credit -= len(piece)
                        if self._credit <= 0:
                            self._has_credit.clear()
                if not batch.messages and batch.gap is None and not listener.is_closed:
                    place_said = position(lineage.epoch, batch.upto)
                    await self._send(
                        {"type": "heartbeat", "consumer": name, "position": place_said}
                    )

    async def _reattached(self, name: str, before: Listener) -> bool:
        """Attach a consumer where it is now, after a seek; return False if it has ended."""
        hub, consumer = self._core.hub, before.consumer
        if hub.is_ended:
            return False
        if self._core.registry.consumers.get((consumer.tenant, consumer.name)) is not consumer:
            del self._sending[name]
            detail = f"the consumer {name!r} was deleted"
            await self._send(
                {"type": "error", "status": 404, "code": "not_found", "detail": detail}
            )
            return False
        listener = hub.open(consumer)
        self._sending[name] = listener, self._sending[name][1]
        seen_at = position(self._core.epoch, listener.sent)
        await self._send({"type": "attached", "consumer": name, "position": seen_at})
        return True

    @contextlib.asynccontextmanager
    async def _report_read_error(self) -> AsyncIterator[None]:
        """Report a read error to the client, and close the connection."""
        try:
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                yield
        except (RangecastError, OSError) as error:
            logger.error("messages for a WebSocket can't be read: %s", error)
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await self._send({"type": "error", "status": 500, "detail": str(error)})
                await self._socket.close(code=1011, reason="messages can't be read")

    async def _publish(self, frame: dict[str, Any]) -> dict[str, Any]:
        caller, core = self._may("publish"), self._core
        entry = core.registry.space(caller.tenant, _text(frame, "space"))
        events = frame.get("events")
        if not isinstance(events, list) or len(events) > MAX_EVENTS:
            raise RequestError(422, f"'events' must be a list of at most {MAX_EVENTS:,} objects")

        wants_matches = frame.get("wait") == "matches"

        def work() -> Future[PublishedEvents]:
            lines = [_encode(event) for event in events]
            core.quotas.publish(caller.tenant, len(lines), sum(map(len, lines)))
            return core.publish(
                entry,
                lines,
                wants_matches=wants_matches,
                ignore_unknown=frame.get("ignore_unknown") is True,
            )

        accepted = await result_of(await off_loop(self._frame_bytes, work))
        return shown_accepted(core, accepted, matches=wants_matches)

    async def _subscribe(self, frame: dict[str, Any]) -> dict[str, Any]:
        caller, core = self._may("subscribe"), self._core
        entry = core.registry.space(caller.tenant, _text(frame, "space"))
        _text(frame, "filter")
        edit = edit_of(caller, entry, _name(frame), frame, core.clock)
        seq = await result_of(core.edit(edit))
        return {"position": position(core.epoch, seq)}

    async def _unsubscribe(self, frame: dict[str, Any]) -> dict[str, Any]:
        caller, core = self._may("subscribe"), self._core
        edit = DeleteSubscription(caller.tenant, _name(frame), _text(frame, "space"))
        seq = await result_of(core.edit(edit))
        return {"position": position(core.epoch, seq)}

    async def _ack(self, frame: dict[str, Any]) -> None:
        caller, core = self._may("subscribe"), self._core
        if "consumer" not in frame and len(self._sending) != 1:
            raise RequestError(422, "name the consumer that acknowledges: 'consumer'")
        name = _text(frame, "consumer") if "consumer" in frame else next(iter(self._sending))
        consumer = not_linked(core.registry.consumer(caller.tenant, name))
        core.acknowledge(consumer, core.seq_of(_text(frame, "position")))

    async def _give_credit(self, frame: dict[str, Any]) -> None:
        credit = frame.get("messages")
        if not isinstance(credit, int) or isinstance(credit, bool) or credit < 1:
            raise RequestError(422, "'messages' must be a whole number: how many more may be sent")
        self._credit = max(self._credit or 0, 0) + credit
        self._has_credit.set()

    async def _heartbeat(self, _frame: dict[str, Any]) -> dict[str, Any]:
        if self._grant is None:
            return {}
        return {"position": position(self._core.epoch, self._core.pipeline.durable)}

    async def _end(self) -> None:
        self._counted.close()
        sending, self._sending = self._sending, {}
        own, self._own = self._own, []
        for listener, task in sending.values():
            self._core.hub.close(listener)
            task.cancel()
        await asyncio.gather(*(task for _, task in sending.values()), return_exceptions=True)
        for tenant, name in own:
            with contextlib.suppress(RangecastError):
                self._core.edit(DeleteConsumer(tenant, name))


_HANDLERS: dict[str, Any] = {
    "auth": Session._auth,
    "attach": Session._attach,
    "follow": Session._follow,
    "publish": Session._publish,
    "subscribe": Session._subscribe,
    "unsubscribe": Session._unsubscribe,
    "ack": Session._ack,
    "credit": Session._give_credit,
    "heartbeat": Session._heartbeat,
}


def _sized(messages: Sequence[Message]) -> Sequence[Message]:
    """Return as many of the first messages as fit into a frame of moderate size; at least one."""
    size = 0
    for index, message in enumerate(messages):
        size += message.size
        if size > FRAME and index:
            return messages[:index]
    return messages


def _decode(text: bytes) -> Any:
    """Decode a frame; the events of `publish` are nested two levels deep in it."""
    return decode(text, max_depth=MAX_DEPTH + 2)


def _text(frame: dict[str, Any], name: str) -> str:
    value = frame.get(name)
    if not isinstance(value, str):
        raise RequestError(422, f"{frame.get('type')!r} requires {name!r}, a string")
    return value


def _name(frame: dict[str, Any]) -> str:
    """Return a subscription id as text; it may be an integer."""
    return str(frame["id"]) if type(frame.get("id")) is int else _text(frame, "id")


@router.websocket("/v1/stream")
async def stream(socket: WebSocket) -> None:
    """Serve one connection."""
    core = core_of(socket)
    origin = socket.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != socket.headers.get("host"):
        await socket.close(code=1008, reason="another origin")
        return
    if not core.registry.had_token and core.hosts.wrong(peer_of(socket)):
        await socket.close(code=1008, reason="another site")
        return
    await socket.accept()
    await Session(core, socket).run()
