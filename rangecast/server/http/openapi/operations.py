"""Every path and method of the server, by which the document and the page list them."""

from __future__ import annotations

from rangecast.server.http.openapi import administration, boards, delivery, matching
from rangecast.server.http.openapi.operation import Operation

OPERATIONS: dict[tuple[str, str], Operation] = {
    **matching.OPERATIONS,
    **delivery.OPERATIONS,
    **boards.OPERATIONS,
    **administration.OPERATIONS,
}
