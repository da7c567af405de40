"""Run calls that may never return in a thread that can be abandoned.

Kafka's client has such calls: a transaction whose broker restarted may wait for a response that
never comes, whatever timeout it was given (confluentinc/librdkafka#5456).
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from rangecast.errors import RangecastError

logger = logging.getLogger("rangecast.server")
CLOSE_SECONDS = 5.0
"""Seconds that a connection has to close; then it is left behind."""


_Calls = queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]


class StuckError(RangecastError):
    """Raised when a call doesn't return in time; the call is abandoned."""


class Caller:
    """Runs calls one at a time in a daemon thread.

    A stuck call keeps its thread; later calls get a new one.
    """

    def __init__(self, name: str):
        self._name = name
        self._calls: _Calls = queue.SimpleQueue()
        self._has_thread = False

    async def call(self, seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a call and return its result; raise `StuckError` after `seconds`."""
        answer = self._put(function, arguments)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            raise self._stuck(seconds) from None

    def wait(self, seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """Like `call`, but blocking: needs no event loop."""
        answer = self._put(function, arguments)
        try:
            return answer.result(seconds)
        except TimeoutError:
            if answer.done():
                raise  # the call's own
            raise self._stuck(seconds) from None

    def end(self) -> None:
        """Stop the thread once the pending calls are done."""
        self._calls.put(None)
        self._calls, self._has_thread = queue.SimpleQueue(), False

    def _stuck(self, seconds: float) -> StuckError:
        self.end()
        return StuckError(f"no response within {seconds:g} seconds; retrying from the start")

    def _put(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Future[Any]:
        answer: Future[Any] = Future()
        self._calls.put((answer, lambda: function(*arguments)))
        if not self._has_thread:
            self._has_thread = True
            thread = threading.Thread(
                target=_run, args=(self._calls,), name=self._name, daemon=True
            )
            thread.start()
        return answer


def _run(calls: _Calls) -> None:
    while (asked := calls.get()) is not None:
        answer, call = asked
        if not answer.set_running_or_notify_cancel():
            continue
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)


def close_within(client: Any, seconds: float = CLOSE_SECONDS) -> None:
    """Close a Kafka client; abandon it if closing fails or hangs.

    Nothing depends on it: the brokers notice that the client is gone.
    """
    caller = Caller("rangecast-kafka-close")
    try:
        caller.wait(seconds, client.close)
    except Exception as error:  # librdkafka's, a RuntimeError of one that is closed, StuckError
        logger.info("a connection to Kafka could not be closed: %s", error)
    finally:
        caller.end()
