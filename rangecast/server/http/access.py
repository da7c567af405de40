"""Who asks, and what he may do.

As long as no token was ever made, whoever reaches the server on loopback may do everything, as the
tenant `default`. From the first token on, one is needed.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass

from fastapi import Request
from starlette.requests import HTTPConnection

from rangecast.server.http.edge import TENANT
from rangecast.server.registry import RefusedError
from rangecast.server.service import Service

SCOPES = ("read", "subscribe", "publish", "link", "admin")
"""Look; change subscriptions and consumers; publish events; be a neighbour, as another server;
everything, of all tenants."""
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody whom the server knows."""

    tenant: str
    scopes: tuple[str, ...]

    def need(self, scope: str) -> None:
        """Refuse what isn't allowed."""
        if scope not in self.scopes and "admin" not in self.scopes:
            raise RefusedError(
                403, f"this token has the scopes {', '.join(self.scopes)}; this needs {scope!r}"
            )


_ANYBODY = Caller(DEFAULT, SCOPES)


def new_secret() -> str:
    """Return a token: 256 random bits."""
    return "rc_" + secrets.token_urlsafe(32)


def digest_of(secret: str) -> str:
    """Return what is stored of a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def caller_of(service: Service, secret: str | None, host: str | None) -> Caller:
    """Return who has this token; refuse a stranger."""
    registry = service.registry
    if secret is None:
        if registry.had_token:
            raise RefusedError(
                401, "a token is needed\n  to do: send the header `Authorization: Bearer TOKEN`"
            )
        if host not in ("127.0.0.1", "::1", "testclient") and not service.is_open:
            raise RefusedError(401, "without a token only loopback is served")
        return _ANYBODY
    return token_caller(service, digest_of(secret))


def token_caller(service: Service, digest: str) -> Caller:
    """Return who has the token of this digest."""
    token = service.registry.tokens.get(digest)
    if token is None or 0 < token.expires <= time.time_ns() // 1000:
        raise RefusedError(401, "this token isn't known, or has expired")
    return Caller(token.tenant, token.scopes)


def bearer(connection: HTTPConnection) -> str | None:
    """Return the token of a request's header."""
    return secret_in(connection.headers.get("authorization"))


def secret_in(given: str | None) -> str | None:
    """Return the token of a header `Authorization`."""
    if given is None:
        return None
    kind, _, secret = given.partition(" ")
    if kind.lower() != "bearer" or not secret:
        raise RefusedError(401, "the header is `Authorization: Bearer TOKEN`")
    return secret.strip()


def known(request: Request) -> Caller:
    """Return who asks; refuse a stranger."""
    service: Service = request.app.state.service
    host = None if request.client is None else request.client.host
    caller = caller_of(service, bearer(request), host)
    request.scope[TENANT] = caller.tenant
    return caller


def allowed(request: Request, scope: str) -> Caller:
    """Return who asks, if he may do this."""
    caller = known(request)
    caller.need(scope)
    return caller
