"""Answers of the pump, awaited on an event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class _Mailbox:
    """The tasks of one event loop whose answers came, woken together.

    Waking a loop from another thread is a system call; the answers of a group share it.
    """

    def __init__(self) -> None:
        self._answered: deque[asyncio.Future[None]] = deque()
        self._is_called = False

    def put(self, waiter: asyncio.Future[None], _answer: Future[Any]) -> None:
        """Take a task that can go on; any thread may call."""
        self._answered.append(waiter)
        if not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                waiter.get_loop().call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._is_called = False  # before the first is taken: who comes after calls again
        while self._answered:
            waiter = self._answered.popleft()
            if not waiter.done():
                waiter.set_result(None)


_mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox] = WeakKeyDictionary()


async def answered(answer: Future[T]) -> T:
    """Return what an answer brings.

    Unlike with `asyncio.wrap_future`, a task that gives up waiting doesn't cancel its request:
    that may be in the log by then.
    """
    if not answer.done():
        loop = asyncio.get_running_loop()
        mailbox = _mailboxes.get(loop)
        if mailbox is None:
            mailbox = _mailboxes[loop] = _Mailbox()
        waiter = loop.create_future()
        answer.add_done_callback(partial(mailbox.put, waiter))
        await waiter
    return answer.result()
