"""All API operations, as listed by the document and the page."""

from __future__ import annotations

from rangecast.server.http.openapi import administration, boards, delivery, matching
from rangecast.server.http.openapi.operation import Operation

OPERATIONS: dict[tuple[str, str], Operation] = {
    **matching.OPERATIONS,
    **delivery.OPERATIONS,
    **boards.OPERATIONS,
    **administration.OPERATIONS,
}
