"""Fast path for frequent requests, bypassing ASGI.

A task per request, its scope, the middleware and routing take several times as long as the server's
actual work for one event. So the plain forms of two requests, publishing a few events and putting
one subscription, go from the parser straight to the service, and their responses straight to the
connection. A form is plain if its path has no options, no header has a special meaning, and the
body is short. Every other request takes the normal path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar, cast

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from rangecast.errors import RangecastError
from rangecast.server.core import Core
from rangecast.server.http import middleware
from rangecast.server.http.auth import Caller, bearer_token, local_caller, token_caller
from rangecast.server.http.bodies.read import lines_in
from rangecast.server.http.connections import BoundedProtocol
from rangecast.server.http.problems import problem, problem_of
from rangecast.server.http.routes.events import FEW, digest_for, shown_accepted, status_and_type
from rangecast.server.http.routes.spaces import edit_of, etag, shown_put
from rangecast.server.pipeline.commands import Outcome, PublishedEvents
from rangecast.server.pipeline.futures import when_done
from rangecast.server.state.edits import PutSubscription

logger = logging.getLogger("rangecast.server")
_PREFIX = b"/v1/spaces/"
_EVENTS = "events"
_SUBSCRIPTIONS = "subscriptions/"
_MEANT = {
    *(b"content-encoding", b"transfer-encoding", b"expect", b"upgrade"),
    *(b"if-match", b"if-none-match", b"ce-specversion"),
}
"""Headers that have a meaning for the usual way alone."""
_WHENCE = {b"x-forwarded-for", b"origin", b"sec-fetch-site"}
"""Origin headers of proxies and browsers, which matter without a token."""
_LONGEST = 64 << 10
"""Bytes of a body."""
_JSON, _LINES = b"application/json", b"application/x-ndjson"
_encode = msgspec.json.Encoder().encode


class _SubscriptionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of PUT subscription, in JSON types."""

    filter: str
    score: float = 0.0
    weights: dict[str, float] = {}
    consumer: str = ""
    id: str | int | None = None


_given = msgspec.json.Decoder(_SubscriptionBody)
_Work = Callable[[bytes], bool]
"""Processes a body; returns whether the fast path applied."""


class _FastRequest:
    """A request answered on the fast path; stands in for uvicorn's request cycle."""

    message_event: ClassVar[asyncio.Event] = asyncio.Event()
    """Unused: nothing waits for it."""

    def __init__(self) -> None:
        self.response_complete = self.disconnected = False
        self.keep_alive = True


class FastPathProtocol(BoundedProtocol):
    """HTTP with a fast path for frequent requests."""

    def __init__(self, *args: Any, core: Core, **more: Any):
        super().__init__(*args, **more)
        self._core = core
        self._work: _Work | None = None
        """Handler of the body, if the request is handled here."""
        self._body = b""

    # ---- what the parser finds

    def on_headers_complete(self) -> None:
        """Choose the fast or the normal path for a request."""
        self.end_head()
        self._work = self._fast_handler()
        if self._work is None:
            super().on_headers_complete()
        else:
            self._body = b""

    def on_body(self, body: bytes) -> None:
        """Receive a part of a body."""
        if self._work is None:
            super().on_body(body)
        else:
            self.note_body(body)
            self._body += body

    def on_message_complete(self) -> None:
        """Handle a complete request."""
        work, self._work = self._work, None
        cycle = self.cycle  # the usual way has made one for this request, the short way hasn't
        is_answered = work is None and cycle is not None and cycle.response_complete
        self.end_body(is_answered=is_answered)
        if work is not None and work(self._body):
            return
        if work is not None:
            super().on_headers_complete()
            super().on_body(self._body)
        super().on_message_complete()

    def _fast_handler(self) -> _Work | None:
        """Return the fast-path handler of a request; `None` if it needs the normal path."""
        url, method = self.url, self.parser.get_method()
        if (
            method not in (b"POST", b"PUT")
            or not url.startswith(_PREFIX)
            or b"?" in url
            or b"%" in url
            or b"#" in url
            or not url.isascii()
            or not (self.cycle is None or self.cycle.response_complete)
            or self.flow.write_paused  # back-pressure: slow readers take the normal path
            or not self.parser.should_keep_alive()
            or middleware.logger.isEnabledFor(logging.INFO)
        ):
            return None
        headers = dict(self.headers)
        if len(headers) < len(self.headers) or not _MEANT.isdisjoint(headers):
            return None
        length = headers.get(b"content-length", b"")
        if not length.isdigit() or int(length) > _LONGEST:
            return None
        kind = headers.get(b"content-type", b"")
        space, _, rest = url[len(_PREFIX) :].decode().partition("/")
        secret = headers.get(b"authorization")
        if secret is None:
            host = headers.get(b"host", b"").decode("latin-1")
            if not _WHENCE.isdisjoint(headers) or not self._core.hosts.accepts(host):
                return None
        if method == b"POST" and rest == _EVENTS and kind in (_JSON, _LINES):
            key = headers.get(b"idempotency-key", b"").decode("latin-1")
            return partial(self._publish, secret, space, kind == _LINES, key)
        name = rest.removeprefix(_SUBSCRIPTIONS)
        if method == b"PUT" and len(name) < len(rest) and kind == _JSON:
            return partial(self._put, secret, space, name)
        return None

    # ---- operations

    def _publish(
        self, secret: bytes | None, space: str, has_lines: bool, key: str, body: bytes
    ) -> bool:
        if has_lines:
            lines = lines_in(body)
        else:  # a list, or what begins with a space, is for the usual way
            lines = [body] if body.startswith(b"{") and b"\n" not in body else []
        if not 0 < len(lines) <= FEW:
            return False

        def work() -> Future[PublishedEvents]:
            caller = self._caller(secret, "publish")
            entry = core.registry.space(caller.tenant, space)
            core.quotas.publish(caller.tenant, len(lines), len(body))
            return core.publish(entry, lines, key=key, digest=digest_for(key, body))

        def shown(accepted: PublishedEvents) -> tuple[int, bytes, bytes]:
            status, kind = status_and_type(accepted)
            head = b"content-type: %s\r\n" % kind.encode()
            return status, head, _encode(shown_accepted(core, accepted))

        core = self._core
        self._begin(work, shown)
        return True

    def _put(self, secret: bytes | None, space: str, name: str, body: bytes) -> bool:
        try:
            definition = _given.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False

        def work() -> Future[int]:
            caller = self._caller(secret, "subscribe")
            entry = core.registry.space(caller.tenant, space)
            made = msgspec.structs.asdict(definition)
            edits.append(edit_of(caller, entry, name, made, core.clock))
            return core.edit(*edits, outcome=outcome)

        def shown(seq: int) -> tuple[int, bytes, bytes]:
            head = b"content-type: application/json\r\netag: %s\r\n" % etag(seq).encode()
            return 200, head, _encode(shown_put(core, edits[0], seq, outcome))

        core, outcome = self._core, Outcome()
        edits: list[PutSubscription] = []
        self._begin(work, shown)
        return True

    def _caller(self, secret: bytes | None, scope: str) -> Caller:
        token = None if secret is None else bearer_token(secret.decode("latin-1"))
        if token is None:
            address = None if self.client is None else self.client[0]
            caller = local_caller(self._core, address)
        else:
            caller = token_caller(self._core, token)
        caller.require_scope(scope)
        return caller

    # ---- responses

    def _begin(
        self, work: Callable[[], Future[Any]], shown: Callable[[Any], tuple[int, bytes, bytes]]
    ) -> None:
        """Submit a request; respond with its result or its error."""
        held = _FastRequest()
        self.cycle = cast(Any, held)  # so that requests behind this one wait, and so does a stop

        def end(answer: Future[Any]) -> None:
            try:
                self._send(held, *shown(answer.result()))
            except Exception as error:
                self._send_problem(held, error)

        try:
            when_done(work(), self.loop, end)
        except Exception as error:
            self._send_problem(held, error)

    def _send_problem(self, held: _FastRequest, error: Exception) -> None:
        if isinstance(error, RangecastError):
            problem_ = problem_of(error)
        else:
            logger.error("a request failed", exc_info=error)
            problem_ = problem(500, "internal error; see the server's log")
        named = ((name, value) for name, value in problem_.raw_headers if name != b"content-length")
        head = b"".join(b"%s: %s\r\n" % header for header in named)
        self._send(held, problem_.status_code, head, bytes(problem_.body))

    def _send(self, held: _FastRequest, status: int, head: bytes, body: bytes) -> None:
        held.response_complete = True
        if held.disconnected or self.transport.is_closing():
            return
        parts = [STATUS_LINE[status]]
        parts += [b"%s: %s\r\n" % header for header in self.server_state.default_headers]
        parts += [head, b"content-length: %d\r\n" % len(body)]
        parts += [b"\r\n" if held.keep_alive else b"connection: close\r\n\r\n", body]
        self.transport.write(b"".join(parts))
        if not held.keep_alive:
            self.transport.close()
        self.on_response_complete()
