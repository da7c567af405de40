"""Requests to a server, before they are sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

R = TypeVar("R")

Condition = tuple[str, str] | None
"""Header with a precondition on the subscription."""
IS_NEW: Condition = ("If-None-Match", "*")
EXISTS: Condition = ("If-Match", "*")


def _same(answer: Any) -> Any:
    return answer


class Call(NamedTuple, Generic[R]):
    """One request, and the decoder of its answer."""

    method: str
    path: str
    body: bytes | None = None
    read: Callable[[Any], R] = _same
    params: dict[str, Any] = {}  # noqa: RUF012
    headers: dict[str, str] = {}  # noqa: RUF012
    repeatable: bool = True
    """Whether the request is idempotent."""
    answers: tuple[int, ...] = ()
    """Statuses besides 2xx whose body is the answer, not an error."""
