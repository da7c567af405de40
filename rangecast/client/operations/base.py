"""Operations of a client, described once: a request, or a generator that yields requests.

`blocking` and `awaited` make methods of them, for `Client` and for `AsyncClient`.
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
"""Yields requests, is sent what was read of each answer, or gets its error; returns the result."""
_Advance = Callable[[], Call[Any]]


class Sender(Protocol):
    """Sends a request and returns the answer."""

    def _send(self, call: Call[R]) -> R: ...


class AsyncSender(Protocol):
    """Sends a request and returns the answer, to be awaited."""

    def _send(self, call: Call[R]) -> Awaitable[R]: ...


class _Done(Exception):  # noqa: N818
    """An operation has ended: a `StopIteration` can't come out of another thread."""


def blocking(
    operation: Callable[Concatenate[Any, P], Operation[R] | Call[R]],
) -> Callable[Concatenate[Any, P], R]:
    """Return an operation as a method that waits for each answer."""

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
            except _Done as done:
                result: R = done.args[0]
                return result
            advance = _answer(steps, self._send, call)

    method.__signature__ = _signature(operation)  # type: ignore[attr-defined]
    return method


def awaited(
    operation: Callable[Concatenate[Any, P], Operation[R] | Call[R]], *, reads_files: bool = False
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return an operation as a method that is awaited.

    reads_files   requests are made in another thread: to make them may mean to read a file
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
            except _Done as done:
                result: R = done.args[0]
                return result
            try:
                answer = await self._send(call)
            except Exception as error:
                advance = _thrown(steps, error)
            else:
                advance = _sent(steps, answer)

    method.__signature__ = _signature(operation)  # type: ignore[attr-defined]
    return method


def _answer(steps: Operation[Any], send: Callable[[Call[Any]], Any], call: Call[Any]) -> _Advance:
    try:
        answer = send(call)
    except Exception as error:
        return _thrown(steps, error)
    return _sent(steps, answer)


def _sent(steps: Operation[Any], answer: Any) -> _Advance:
    return lambda: steps.send(answer)


def _thrown(steps: Operation[Any], error: Exception) -> _Advance:
    return lambda: steps.throw(error)


def _advanced(advance: _Advance) -> Call[Any]:
    try:
        return advance()
    except StopIteration as end:
        raise _Done(end.value) from None


def _signature(operation: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of the method: its result is that of the operation."""
    signature = inspect.signature(operation)
    result = str(signature.return_annotation).partition("[")[2].removesuffix("]")
    return signature.replace(return_annotation=result)
