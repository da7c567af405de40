"""Asynchronous matching of single events, which are batched internally.

    async_engine = AsyncEngine(engine)
    ids = await async_engine.match({"price": 9.5})

Waiting events are matched as one batch in a thread; meanwhile, the next batch collects. There is
no timer: a lone event is matched at once, and under load an event waits for the batch before its
own, which is far cheaper than matching events one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from rangecast.errors import RangecastError
from rangecast.model.sets.members import Id
from rangecast.model.validation.arguments import check_integer
from rangecast.model.validation.flags import flag

if TYPE_CHECKING:
    from rangecast.engine import Engine

_MIN_FOR_THREAD = 8
"""Batch size up to which matching on the event loop is faster than starting a thread."""

Answer = list[Id] | RangecastError


class _Request(NamedTuple):
    event: Mapping[str, Any]
    answer: asyncio.Future[list[Id]]


class AsyncEngine:
    """Engine for the tasks of one event loop: `await async_engine.match(event)`."""

    def __init__(
        self,
        engine: Engine,
        *,
        max_batch: int = 1024,
        ignore_unknown: bool = False,
        nan: str = "error",
    ):
        """Batch single events for an engine.

        max_batch        maximum number of events per batch; bounds the waiting time
        ignore_unknown   ignore fields that are not attributes of the space
        nan              "error": NaN in an event is rejected; "missing": it is a missing value
        """
        self._max_batch = check_integer("max_batch", max_batch)
        flag("ignore_unknown", ignore_unknown)
        self._ask = partial(engine.match_each, ignore_unknown=ignore_unknown, nan=nan)
        self._waiting: list[_Request] = []
        self._is_busy = False
        self.batches = 0
        """Batches matched so far."""

    async def match(self, event: Mapping[str, Any]) -> list[Id]:
        """Return the subscriptions that match one event, in order of arrival."""
        loop = asyncio.get_running_loop()
        request = _Request(event, loop.create_future())
        self._waiting.append(request)
        if not self._is_busy:
            self._is_busy = True
            loop.call_soon(self._begin, loop)  # after the other ready tasks
        return await request.answer

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Match the next batch of waiting events."""
        batch, self._waiting = self._waiting[: self._max_batch], self._waiting[self._max_batch :]
        events = [request.event for request in batch]
        self.batches += 1
        if len(batch) > _MIN_FOR_THREAD:
            running = loop.run_in_executor(None, self._ask, events)
            running.add_done_callback(lambda done: self._end(loop, batch, done))
            return
        done: asyncio.Future[list[Answer]] = loop.create_future()
        try:
            done.set_result(self._ask(events))
        except Exception as error:
            done.set_exception(error)
        self._end(loop, batch, done)

    def _end(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: list[_Request],
        done: asyncio.Future[list[Answer]],
    ) -> None:
        """Resolve the futures of a batch; start the next batch if events wait."""
        failure = done.exception()
        answers = [failure] * len(batch) if failure else done.result()
        for request, answer in zip(batch, answers, strict=True):
            if request.answer.done():  # its task was cancelled
                continue
            if isinstance(answer, BaseException):
                request.answer.set_exception(answer)
            else:
                request.answer.set_result(answer)
        self._is_busy = bool(self._waiting)
        if self._is_busy:
            loop.call_soon(self._begin, loop)
