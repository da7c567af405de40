"""A request to a server, before it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

R = TypeVar("R")

Condition = tuple[str, str] | None
"""The header that says what must hold of a subscription before."""
IS_NEW: Condition = ("If-None-Match", "*")
EXISTS: Condition = ("If-Match", "*")


def _same(answer: Any) -> Any:
    return answer


class Call(NamedTuple, Generic[R]):
    """One request, and what is made of its answer."""

    method: str
    path: str
    body: bytes | None = None
    read: Callable[[Any], R] = _same
    params: dict[str, Any] = {}  # noqa: RUF012
    headers: dict[str, str] = {}  # noqa: RUF012
    repeatable: bool = True
    """Whether it does no harm to make it twice."""
    answers: tuple[int, ...] = ()
    """Statuses beside 2xx whose body is the answer, not an error."""
