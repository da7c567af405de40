"""Health, metrics, status, tokens and tenants over HTTP."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from rangecast.server.http.auth import SCOPES, allowed, core_of, digest_of, new_secret
from rangecast.server.http.bodies.models import ModelRoute
from rangecast.server.http.bodies.read import MAX_EVENTS
from rangecast.server.http.middleware import MAX_BODY_BYTES
from rangecast.server.metrics import exposition
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.admission import check_name
from rangecast.server.state.edits import DeleteToken, PutTenant, PutToken
from rangecast.server.state.quotas import LIMITS
from rangecast.server.state.registry import RequestError
from rangecast.server.status import status_of

router = APIRouter(route_class=ModelRoute)


class TokenRequest(BaseModel):
    """Request for a token."""

    model_config = ConfigDict(extra="forbid")

    label: str = Field(max_length=200)
    scopes: list[str] = ["read", "subscribe", "publish"]
    tenant: str = "default"
    ttl: float | None = Field(None, gt=0, lt=1e10, description="Seconds until it expires.")


@router.get("/healthz")
async def alive() -> Any:
    """Return liveness: the process runs."""
    return {"status": "ok"}


@router.get("/readyz")
async def ready(request: Request) -> Response:
    """Return readiness: recovered, matching, and space on the disk."""
    service: Service = request.app.state.service
    why = service.why_not_ready()
    return JSONResponse({"status": why or "ok"}, 503 if why else 200)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Return the metrics in Prometheus' text format: of your tenant, or of all to an admin."""
    text, kind = exposition(request.app.state.service, _tenant_of(request))
    return Response(text, media_type=kind)


@router.get("/v1")
async def links() -> Any:
    """Return links to the API page, its description, and the status."""
    return {"docs": "/docs", "openapi": "/v1/openapi.json", "status": "/v1/status"}


@router.get("/v1/status")
async def status(request: Request) -> Any:
    """Return the state of your tenant, or of all to an admin."""
    tenant = _tenant_of(request)
    service: Service = request.app.state.service
    limits = {"body_bytes": MAX_BODY_BYTES, "events_per_request": MAX_EVENTS}
    return status_of(service, tenant) | {"limits": limits}


def _tenant_of(request: Request) -> str | None:
    caller = allowed(request, "read")
    return None if "admin" in caller.scopes else caller.tenant


@router.get("/v1/tokens")
async def list_tokens(request: Request) -> Any:
    """List the tokens, without their secrets."""
    allowed(request, "admin")
    core = core_of(request)
    return {
        "items": [
            {
                "id": token.digest[:16],
                "label": token.label,
                "tenant": token.tenant,
                "scopes": token.scopes,
                "expires": token.expires / 1e6 if token.expires else None,
            }
            for token in list(core.registry.tokens.values())
        ]
    }


@router.post("/v1/tokens")
async def make_token(request: Request, token: TokenRequest) -> Response:
    """Create a token. Its secret is shown only once. After the first one, requests need a token."""
    allowed(request, "admin")
    core = core_of(request)
    check_name("tenant", token.tenant)
    if strange := set(token.scopes) - set(SCOPES):
        raise RequestError(422, f"unknown scope {min(strange)!r}; known: {', '.join(SCOPES)}")
    if not core.registry.had_token and "admin" not in token.scopes:
        raise RequestError(
            409,
            "the first token must have the scope 'admin': without it, no other token could be "
            "created",
        )
    secret = new_secret()
    expires = 0 if token.ttl is None else core.clock.now() + int(token.ttl * 1e6)
    edit = PutToken(token.tenant, digest_of(secret), token.label, token.scopes, expires)
    await result_of(core.edit(edit))
    return JSONResponse({"token": secret, "id": edit.name[:16]}, 201)


@router.delete("/v1/tokens/{token}")
async def delete_token(request: Request, token: str) -> Any:
    """Delete a token, by its id."""
    allowed(request, "admin")
    core = core_of(request)
    tokens = [known for known in list(core.registry.tokens) if known[:16] == token]
    if not tokens:
        raise RequestError(404, "no such token")
    await result_of(core.edit(DeleteToken("", tokens[0])))
    return {"id": token}


@router.get("/v1/tenants")
async def list_tenants(request: Request) -> Any:
    """List the tenants, with their usage and limits."""
    allowed(request, "admin")
    registry = core_of(request).registry
    names = {token.tenant for token in list(registry.tokens.values())} | {*registry.tenants}
    names |= {tenant for tenant, _ in list(registry.spaces)}
    return {
        "items": [
            {
                "name": name,
                "subscriptions": registry.counts.get(name, 0),
                "consumers": sum(owner == name for owner, _ in list(registry.consumers)),
                "retained_bytes": registry.retained.of(name),
                "limits": registry.tenants.get(name, {}),
            }
            for name in sorted(names)
        ]
    }


@router.put("/v1/tenants/{tenant}")
async def put_tenant(request: Request, tenant: str, limits: dict[str, int]) -> Any:
    """Set the limits of a tenant."""
    allowed(request, "admin")
    check_name("tenant", tenant)
    for name, limit in limits.items():
        if name not in LIMITS or limit < 0:
            raise RequestError(422, f"a limit must be one of {', '.join(LIMITS)}, and not negative")
    await result_of(core_of(request).edit(PutTenant("", tenant, limits)))
    return {"name": tenant, "limits": limits}
