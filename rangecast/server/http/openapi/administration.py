"""OpenAPI operations of health, status, tokens and tenants."""

from __future__ import annotations

from rangecast.server.http.openapi.operation import Body, Operation
from rangecast.server.http.openapi.types import ref

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("get", "/healthz"): Operation(
        "getHealth",
        "server",
        "Return liveness",
        Body(ref("Health"), {"status": "ok"}),
    ),
    ("get", "/readyz"): Operation(
        "getReadiness",
        "server",
        "Return readiness for events",
        Body(ref("Health"), {"status": "ok"}),
    ),
    ("get", "/metrics"): Operation(
        "getMetrics",
        "server",
        "Return the metrics, for Prometheus",
        Body({"type": "string"}, "rangecast_events_matched_total 1.0\n", "text/plain"),
    ),
    ("get", "/v1"): Operation(
        "getLinks",
        "server",
        "Return links to the documentation and the status",
        Body(
            ref("Links"),
            {"docs": "/docs", "openapi": "/v1/openapi.json", "status": "/v1/status"},
        ),
    ),
    ("get", "/v1/status"): Operation(
        "getStatus",
        "server",
        "Return the server status",
        Body(
            ref("Status"),
            {
                "epoch": "1f0c5a2e",
                "durability": "fsync",
                "spaces": 1,
                "boards": 1,
                "subscriptions": 1,
                "consumers": 1,
                "limits": {"body_bytes": 8388608, "events_per_request": 10000},
            },
        ),
    ),
    ("post", "/v1/tickets"): Operation(
        "makeTicket",
        "access",
        "Create a ticket for one WebSocket or stream",
        Body(ref("Ticket"), {"ticket": "UTEthk92...", "seconds": 30}),
    ),
    ("put", "/v1/tenants/{tenant}"): Operation(
        "putTenant",
        "access",
        "Set the limits of a tenant",
        Body(ref("Tenant"), {"name": "acme", "limits": {"subscriptions": 1000}}),
        (Body(ref("Limits"), {"subscriptions": 1000}),),
    ),
    ("get", "/v1/tenants"): Operation(
        "listTenants",
        "access",
        "List the tenants, with their limits",
        Body(
            ref("Tenants"),
            {
                "items": [
                    {
                        "name": "acme",
                        "subscriptions": 0,
                        "consumers": 0,
                        "retained_bytes": 0,
                        "limits": {"subscriptions": 1000},
                    }
                ]
            },
        ),
    ),
    ("post", "/v1/tokens"): Operation(
        "makeToken",
        "access",
        "Create a token",
        Body(ref("MadeToken"), {"token": "rc_...", "id": "94144d0e99789095"}),
        (Body(ref("NewToken"), {"label": "the operator", "scopes": ["admin"]}),),
        status=201,
    ),
    ("get", "/v1/tokens"): Operation(
        "listTokens",
        "access",
        "List the tokens, without their secrets",
        Body(
            ref("Tokens"),
            {
                "items": [
                    {
                        "id": "94144d0e99789095",
                        "label": "the operator",
                        "tenant": "default",
                        "scopes": ["admin"],
                        "expires": None,
                    }
                ]
            },
        ),
    ),
    ("delete", "/v1/tokens/{token}"): Operation(
        "deleteToken", "access", "Delete a token", Body(ref("Deleted"), {"id": "94144d0e99789095"})
    ),
}
