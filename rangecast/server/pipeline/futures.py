"""Futures of the pipeline, awaited on an event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
_Then = Callable[[Future[Any]], None]


class _Mailbox:
    """Callbacks of resolved futures, called together on one event loop.

    Waking a loop from another thread is a system call; the futures of a group share one.
    """

    def __init__(self) -> None:
        self._answered: deque[tuple[_Then, Future[Any]]] = deque()
        self._is_called = False

    def put(self, loop: asyncio.AbstractEventLoop, then: _Then, answer: Future[Any]) -> None:
        """Queue the callback of a resolved future; any thread may call this."""
        self._answered.append((then, answer))
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                loop.call_soon_threadsafe(self._call)

    def _call(self) -> None:
        self._is_called = False  # before the first is taken: a later one calls again
        while self._answered:
            then, answer = self._answered.popleft()
            then(answer)


_mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox] = WeakKeyDictionary()


def when_done(
    answer: Future[T], loop: asyncio.AbstractEventLoop, then: Callable[[Future[T]], None]
) -> None:
    """Call a function on an event loop once a future is resolved; it must not raise.

    Call this on that loop.
    """
    if answer.done():
        then(answer)
        return
    mailbox = _mailboxes.get(loop)
    if mailbox is None:
        mailbox = _mailboxes[loop] = _Mailbox()
    answer.add_done_callback(partial(mailbox.put, loop, then))


def chained_future(pool: Executor, work: Callable[..., Future[T]], *result: Any) -> Future[T]:
    """Run `work` in a pool; return a future that resolves like the one that `work` returns."""
    chained: Future[T] = Future()

    def end(answer: Future[T]) -> None:
        error = answer.exception()
        if error is not None:
            chained.set_exception(error)
        else:
            chained.set_result(answer.result())

    def begin() -> None:
        try:
            work(*result).add_done_callback(end)
        except BaseException as error:
            chained.set_exception(error)

    pool.submit(begin)
    return chained


async def result_of(answer: Future[T]) -> T:
    """Await a future of the pipeline, and return its result.

    Unlike with `asyncio.wrap_future`, cancelling the waiting task doesn't cancel the request, which
    may already be in the log.
    """
    if not answer.done():
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def go_on(_answer: Future[T]) -> None:
            if not waiter.done():
                waiter.set_result(None)

        when_done(answer, loop, go_on)
        await waiter
    return answer.result()
