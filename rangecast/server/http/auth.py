"""Authentication: callers, tokens and scopes.

Until the first token is created, any caller on loopback may do everything as the tenant `default`,
unless the request comes from a page of another site (`hosts`). After that, a token is required.

A `Grant` holds the rights of a connection. It is looked up again when tokens change or expire, so
that a connection always has the current rights of its token. `Grants` ends waiting requests when
their grant ends.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fastapi import Request
from starlette.requests import HTTPConnection

from rangecast.server.core import Core
from rangecast.server.http.middleware import TENANT
from rangecast.server.security.hosts import Peer
from rangecast.server.state.entries import Token
from rangecast.server.state.registry import RequestError

SCOPES = ("read", "subscribe", "publish", "link", "admin")
"""Read; edit subscriptions and consumers; publish events; act as a neighbouring server; everything,
for all tenants.
"""
DEFAULT = "default"
LOOK = 0.25
"""Seconds after which a token that has ended is noticed, where nothing else asks for it."""
_FORMS = ("multipart/form-data", "text/plain")
_CURL = "application/x-www-form-urlencoded"
"""Content type that `curl -d` sends for any body."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Tenant of a request, and the scopes of its token."""

    tenant: str
    scopes: tuple[str, ...]

    def require_scope(self, scope: str) -> None:
        """Raise 403 if a scope is missing."""
        if scope not in self.scopes and "admin" not in self.scopes:
            raise RequestError(
                403,
                f"this token has the scopes {', '.join(self.scopes)}; this operation "
                f"requires {scope!r}",
            )


_ANYBODY = Caller(DEFAULT, SCOPES)


class Grant:
    """Rights of a connection, with or without a token."""

    __slots__ = ("_caller", "_core", "_expires", "_version", "digest", "peer")

    def __init__(self, core: Core, digest: str | None, peer: Peer):
        """Reject the digest of an unknown token, or `None` where a token is required."""
        self.digest = digest
        self.peer = peer
        self._core = core
        self._look_up()

    def caller(self) -> Caller:
        """Return the caller with its current scopes; raise 401 if the token has ended."""
        is_same = self._version == self._core.registry.token_version
        if not is_same or 0 < self._expires <= self._core.clock.now():
            self._look_up()
        return self._caller

    def _look_up(self) -> None:
        registry = self._core.registry
        self._version, self._expires = registry.token_version, 0  # before it is looked at
        if self.digest is None:
            self._caller = local_caller(self._core, self.peer.address)
            if wrong := self._core.hosts.wrong(self.peer):
                raise RequestError(403, wrong)
            return
        try:
            token = _token(self._core, self.digest)
        except RequestError:
            self._version = -1
            raise
        self._caller, self._expires = Caller(token.tenant, token.scopes), token.expires


def local_caller(core: Core, address: str | None) -> Caller:
    """Return the caller at an address, without a token; headers are checked elsewhere."""
    if core.registry.had_token:
        raise RequestError(
            401, "a token is required\n  hint: send the header `Authorization: Bearer TOKEN`"
        )
    if address not in ("127.0.0.1", "::1") and not core.hosts.is_open:
        raise RequestError(401, "without a token, only loopback clients are served")
    return _ANYBODY


def token_caller(core: Core, secret: str) -> Caller:
    """Return the caller that owns a token, or raise 401."""
    token = _token(core, digest_of(secret))
    return Caller(token.tenant, token.scopes)


def _token(core: Core, digest: str) -> Token:
    token = core.registry.tokens.get(digest)
    if token is None or 0 < token.expires <= core.clock.now():
        raise RequestError(401, "this token is unknown or has expired")
    return token


class Grants:
    """Grants of requests and connections that are waiting."""

    def __init__(self, core: Core):
        self._core = core
        self._open: dict[int, tuple[Grant, Callable[[RequestError], None]]] = {}
        self._version = -1
        self._next = 0
        """When the next token expires, in microseconds; 0: none does."""

    @contextmanager
    def watched(self, grant: Grant, end: Callable[[RequestError], None]) -> Iterator[None]:
        """Call `end` if a grant ends while the context is open."""
        key = id(end)
        self._open[key] = grant, end
        try:
            yield
        finally:
            del self._open[key]

    async def run(self) -> None:
        """Check periodically for grants that have ended, until cancelled."""
        while True:
            self.check()
            await asyncio.sleep(LOOK)

    def check(self) -> None:
        """Close connections whose tokens have ended."""
        registry, now = self._core.registry, self._core.clock.now()
        if registry.token_version == self._version and not 0 < self._next <= now:
            return
        self._version = registry.token_version
        expiring = [
            token.expires for token in list(registry.tokens.values()) if token.expires > now
        ]
        self._next = min(expiring, default=0)
        for grant, end in list(self._open.values()):
            try:
                grant.caller()
            except RequestError as error:
                end(error)


def new_secret() -> str:
    """Return a new token of 256 random bits."""
    return "rc_" + secrets.token_urlsafe(32)


def digest_of(secret: str) -> str:
    """Return the digest of a token, which is stored instead of the token.

    Tokens are looked up by digest, so the timing of a comparison reveals nothing about the token.
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def peer_of(connection: HTTPConnection) -> Peer:
    """Return the address of the peer."""
    headers, client = connection.headers, connection.client
    return Peer(
        None if client is None else client.host,
        headers.getlist("host"),
        headers.get("origin"),
        headers.get("sec-fetch-site"),
    )


def grant_of(connection: HTTPConnection) -> Grant:
    """Return the grant of a request from its header; reject unknown tokens."""
    secret = bearer_token(connection.headers.get("authorization"))
    core = core_of(connection)
    digest = None if secret is None else digest_of(secret)
    grant = Grant(core, digest, peer_of(connection))
    connection.scope[TENANT] = grant.caller().tenant
    return grant


def bearer_token(text: str | None) -> str | None:
    """Return the token of an `Authorization` header."""
    if text is None:
        return None
    kind, _, secret = text.partition(" ")
    if kind.lower() != "bearer" or not secret:
        raise RequestError(401, "the header must be `Authorization: Bearer TOKEN`")
    return secret.strip()


def known(request: Request) -> Caller:
    """Return the caller of a request, or raise 401."""
    caller = grant_of(request).caller()
    if request.method not in ("GET", "HEAD"):
        _check_type(request)
    return caller


def allowed(request: Request, scope: str) -> Caller:
    """Return the caller of a request, or raise 401 or 403."""
    caller = known(request)
    caller.require_scope(scope)
    return caller


def core_of(connection: HTTPConnection) -> Core:
    """Return the core of the server that a connection is to."""
    core: Core = connection.app.state.core
    return core


def granted(request: Request, scope: str) -> Grant:
    """Return the grant of a long-lived request, if it has this scope."""
    grant = grant_of(request)
    grant.caller().require_scope(scope)
    return grant


def _check_type(request: Request) -> None:
    """Reject content types that pages of any site may send without a preflight.

    `curl -d` declares a form. It is treated as JSON, unless a browser sends it.
    """
    headers = request.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_browser = "origin" in headers or "sec-fetch-site" in headers
    if kind in _FORMS or (kind == _CURL and is_browser):
        raise RequestError(
            415, f"a body of type {kind!r} isn't accepted\n  hint: send application/json"
        )
