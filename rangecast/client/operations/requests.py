"""A request to a server, before it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Condition = tuple[str, str] | None
"""The header that says what must hold of a subscription before."""
IS_NEW: Condition = ("If-None-Match", "*")
EXISTS: Condition = ("If-Match", "*")


class Call(NamedTuple):
    """One request, and what is made of its answer."""

    method: str
    path: str
    read: Callable[[Any], Any]
    body: bytes | None = None
    params: dict[str, Any] = {}  # noqa: RUF012
    headers: dict[str, str] = {}  # noqa: RUF012
    repeatable: bool = True
    """Whether it does no harm to make it twice."""
    answers: tuple[int, ...] = ()
    """Statuses beside 2xx whose body is the answer, not an error."""
