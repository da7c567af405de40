"""Description of an API operation, and shared parts."""

from __future__ import annotations

from typing import Any, NamedTuple

from rangecast.server.http.openapi.types import Schema, flag, text, whole

JSON, LINES, CSV = "application/json", "application/x-ndjson", "text/csv"
PARQUET, ARROW = "application/vnd.apache.parquet", "application/vnd.apache.arrow.stream"


class Body(NamedTuple):
    """Request or response body of one content type."""

    schema: Schema
    example: Any = None
    media: str = JSON


class Operation(NamedTuple):
    """API operation: one method of one path."""

    id: str
    tag: str
    summary: str
    answer: Body
    bodies: tuple[Body, ...] = ()
    query: dict[str, Schema] = {}  # noqa: RUF012
    headers: dict[str, Schema] = {}  # noqa: RUF012
    path: dict[str, str] = {}  # noqa: RUF012
    """Example of each path parameter, where it differs from the usual one."""
    status: int = 200


TAGS = {
    "events": "Publish events, and find out what they would match.",
    "subscriptions": "Saved filters.",
    "consumers": "Messages and positions of consumers.",
    "push": "Webhooks and other deliveries: dead letters, secrets, a test.",
    "spaces": "The attributes that events have.",
    "boards": "Continuously updated top-k lists.",
    "explain": "Queries on the live set; nothing is stored.",
    "server": "Health, status, metrics.",
    "access": "Tokens, tenants and tickets.",
}
PATH_EXAMPLES = {
    "space": "market",
    "board": "flats",
    "name": "alerts",
    "token": "94144d0e99789095",
    "tenant": "acme",
}
BINARY: Schema = {"type": "string", "format": "binary"}
POSITION = "1f0c5a2e:42"
EVENT = {"price": 12.5, "sector": "tech"}
STRICT = {"strict": flag("Reject all rows if one is rejected.")}
PAGE = {
    "after": text("The last id of the previous page.", example=""),
    "limit": whole("Page size.", minimum=1, maximum=1000),
}
CONDITION = {
    "If-Match": text("The ETag that it must have, or `*`: it must exist."),
    "If-None-Match": text("`*`: it must not exist.", enum=["*"]),
}
