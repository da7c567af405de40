"""Single events that many tasks await, matched together.

    asked = Gathering(engine)
    ids = await asked.match({"price": 9.5})

What waits is matched as one batch; while that runs in a thread, the next one gathers. So there is
no timer: alone, an event is answered at once, and under load it waits for one batch ahead of its
own, which is far cheaper than one event after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from rangecast.errors import RangecastError
from rangecast.model.sets.members import Id
from rangecast.model.validation.arguments import whole
from rangecast.model.validation.flags import flag

if TYPE_CHECKING:
    from rangecast.engine import Engine

_FEW = 8
"""Events that are matched sooner than a thread would begin with them."""

Answer = list[Id] | RangecastError


class _Asked(NamedTuple):
    event: Mapping[str, Any]
    answer: asyncio.Future[list[Id]]


class Gathering:
    """An engine for tasks of one event loop: `await asked.match(event)`."""

    def __init__(
        self, engine: Engine, *, most: int = 1024, ignore_unknown: bool = False, nan: str = "refuse"
    ):
        """Gather events for an engine.

        most             events that are matched together, at most: it bounds how long one waits
        ignore_unknown   events may have values that are no attribute of the space
        nan              "refuse" NaN in an event, or read it as "missing"
        """
        self._most = whole("most", most)
        flag("ignore_unknown", ignore_unknown)
        self._ask = partial(engine.match_each, ignore_unknown=ignore_unknown, nan=nan)
        self._waiting: list[_Asked] = []
        self._is_busy = False
        self.batches = 0
        """How many were matched so far."""

    async def match(self, event: Mapping[str, Any]) -> list[Id]:
        """Return the subscriptions that match one event, in order of arrival."""
        loop = asyncio.get_running_loop()
        asked = _Asked(event, loop.create_future())
        self._waiting.append(asked)
        if not self._is_busy:
            self._is_busy = True
            loop.call_soon(self._begin, loop)  # after the other tasks that are ready to ask
        return await asked.answer

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Match what waits."""
        batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        events = [asked.event for asked in batch]
        self.batches += 1
        if len(batch) > _FEW:
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
        batch: list[_Asked],
        done: asyncio.Future[list[Answer]],
    ) -> None:
        """Hand out the answers of a batch, and begin the next one if somebody waits."""
        failure = done.exception()
        answers = [failure] * len(batch) if failure else done.result()
        for asked, answer in zip(batch, answers, strict=True):
            if asked.answer.done():  # its task was cancelled
                continue
            if isinstance(answer, BaseException):
                asked.answer.set_exception(answer)
            else:
                asked.answer.set_result(answer)
        self._is_busy = bool(self._waiting)
        if self._is_busy:
            loop.call_soon(self._begin, loop)
