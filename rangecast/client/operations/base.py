"""Operations shared by both clients: a request, or a generator of requests.

`blocking` and `awaited` turn them into methods of `Client` and of `AsyncClient`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from rangecast.client.operations.requests import Call

P = ParamSpec("P")
R = TypeVar("R")
Operation = Generator[Call[Any], Any, R]
"""Generator that yields requests, receives the decoded answer or the error of each, and returns the
result.
"""
_Advance = Callable[[], Call[Any]]


class Sender(Protocol):
    """Sends a request and returns the answer."""

    def _send(self, call: Call[R]) -> R: ...


class AsyncSender(Protocol):
    """Sends a request; awaited, returns the answer."""

    def _send(self, call: Call[R]) -> Awaitable[R]: ...


class _EndOfOperation(Exception):  # noqa: N818
    """Signals the end of an operation, as `StopIteration` can't cross threads."""


def blocking(
    operation: Callable[Concatenate[Any, P], Operation[R] | Call[R]],
) -> Callable[Concatenate[Any, P], R]:
    """Turn an operation into a method that blocks for each answer."""

    @wraps(operation)
    def method(self: Sender, /, *args: P.args, **options: P.kwargs) -> R:
        steps = operation(self, *args, **options)
        if isinstance(steps, Call):
            answer: R = self._send(steps)
            return answer
        advance: _Advance = steps.__next__
        while True:
            try:
                call = _advanced(advance)
            except _EndOfOperation as done:
                result: R = done.args[0]
                return result
            advance = _answer(steps, self._send, call)

    method.__signature__ = _signature(operation)  # type: ignore[attr-defined]
    return method


def awaited(
    operation: Callable[Concatenate[Any, P], Operation[R] | Call[R]], *, reads_files: bool = False
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Turn an operation into a method that is awaited.

    reads_files   requests are built in another thread, as building them may read a file
    """

    @wraps(operation)
    async def method(self: AsyncSender, /, *args: P.args, **options: P.kwargs) -> R:
        steps = operation(self, *args, **options)
        if isinstance(steps, Call):
            return await self._send(steps)
        advance: _Advance = steps.__next__
        while True:
            try:
                if reads_files:
                    call = await asyncio.to_thread(_advanced, advance)
                else:
                    call = _advanced(advance)
            except _EndOfOperation as done:
                result: R = done.args[0]
                return result
            try:
                answer = await self._send(call)
            except Exception as error:
                advance = _raised(steps, error)
            else:
                advance = _sent(steps, answer)

    method.__signature__ = _signature(operation)  # type: ignore[attr-defined]
    return method


def _answer(steps: Operation[Any], send: Callable[[Call[Any]], Any], call: Call[Any]) -> _Advance:
    try:
        answer = send(call)
    except Exception as error:
        return _raised(steps, error)
    return _sent(steps, answer)


def _sent(steps: Operation[Any], answer: Any) -> _Advance:
    return lambda: steps.send(answer)


def _raised(steps: Operation[Any], error: Exception) -> _Advance:
    return lambda: steps.throw(error)


def _advanced(advance: _Advance) -> Call[Any]:
    try:
        return advance()
    except StopIteration as end:
        raise _EndOfOperation(end.value) from None


def _signature(operation: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a method, with the result type of the operation."""
    signature = inspect.signature(operation)
    result = str(signature.return_annotation).partition("[")[2].removesuffix("]")
    return signature.replace(return_annotation=result)
