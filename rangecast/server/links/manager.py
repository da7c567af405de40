"""The links of a server: a thread with its broker, and an inbox for it.

matcher's thread:  edits and events that are in the log  --.
event loop:        frames, connections up and down, ...   --+--> inbox --> runner --> broker
its own:           time                                   --'                |
frames to connections, events of others to the pipeline, answers  <----------'
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from rangecast.errors import RangecastError, UsageError
from rangecast.server.core import Core
from rangecast.server.links.broker_runner import TENANT, BrokerRunner
from rangecast.server.links.connection import LinkConnection
from rangecast.server.links.dialer import LinkDialer
from rangecast.server.pipeline.apply import WrittenRequest
from rangecast.server.pipeline.commands import Events
from rangecast.server.state.edits import PutBroker
from rangecast.server.state.entries import SpaceEntry

logger = logging.getLogger("rangecast.server")
_INBOX = 32 << 20
"""Bytes of events that may wait for the broker; past that it reads them from the log."""
_AGAIN, _AGAIN_AT_MOST = 1.0, 60.0
"""Seconds after which a broker that failed, or couldn't be begun, is tried again: they double."""
STOP_SECONDS = 5.0
"""Seconds that the broker has to end when the server stops; then it is abandoned."""
_ALARMS = 20


@dataclass(frozen=True)
class LinkOptions:
    """Options of the links of a server."""

    broker: str
    """Name of this server among them."""
    space: str
    """The name of the space that links carry."""
    urls: tuple[str, ...] = ()
    """Servers to connect to."""
    token: str | None = field(default=None, repr=False)
    """For these."""


class Links:
    """All links of a server."""

    def __init__(self, core: Core, options: LinkOptions):
        self.name = options.broker
        before = core.registry.broker
        if before is not None and (before.name, before.space) != (self.name, options.space):
            raise UsageError(
                f"the data folder belongs to the broker {before.name!r} with the space "
                f"{before.space!r}; given: {self.name!r} with {options.space!r}\n"
                "  hint: keep its --server-name and --space, or start with another --data"
            )
        self.alarms: deque[str] = deque(maxlen=_ALARMS)
        """The last things that a person should look at."""
        self.dialers: list[LinkDialer] = []
        self._options = options
        self._core = core
        self._entry: SpaceEntry
        self._runner: BrokerRunner | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._thread = threading.Thread(
            target=self._run_brokers, name="rangecast-links", daemon=True
        )
        # What waits for the thread, under `_wakeup`.
        self._wakeup = threading.Condition()
        self._ending = False
        self._calls: deque[Callable[[BrokerRunner], None]] = deque()
        self._written: list[WrittenRequest] = []
        self._written_bytes = 0
        self._is_whole = True
        self._upto = 0
        self._asked: list[tuple[int, Future[bool]]] = []
        self._unanswered: set[Future[bool]] = set()
        """Questions that the broker answers now."""
        self._failed = ""
        """Why this life of the broker has to end."""
        self._open: set[LinkConnection] = set()
        """The connections that can be used."""
        self.failures = 0
        """Lives of the broker that an error ended."""

    # ---- starting and stopping

    def start(self) -> None:
        """Start the broker's thread; the space must exist. Call it on the event loop."""
        self._entry = self._core.registry.space(TENANT, self._options.space)
        self._core.pipeline.links = self._on_matched
        self._thread.start()
        self.dialers = [LinkDialer(self, url, self._options.token) for url in self._options.urls]
        self._tasks = [asyncio.create_task(dialer.run()) for dialer in self.dialers]

    async def stop(self) -> None:
        """Stop the broker's thread; neighbours see a lost connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with self._wakeup:
            self._ending = True
            if self._runner is not None:
                self._runner.is_ending = True
            self._wakeup.notify_all()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, STOP_SECONDS)

    # ---- from other threads

    def _on_matched(self, batch: Sequence[WrittenRequest]) -> None:
        """Receive committed and matched units; called by the matcher."""
        with self._wakeup:
            for request in batch:
                size = len(request.unit.body) if isinstance(request.request, Events) else 0
                self._written_bytes += size
                if self._written_bytes > _INBOX and size:
                    self._is_whole = False
                else:
                    self._written.append(request)
            self._upto = batch[-1].unit.last
            self._wakeup.notify_all()

    def _soon(self, call: Callable[[BrokerRunner], None]) -> None:
        with self._wakeup:
            self._calls.append(call)
            self._wakeup.notify_all()

    def up(self, connection: LinkConnection) -> None:
        """Handle a new connection."""
        with self._wakeup:
            self._open.add(connection)
        self._soon(lambda runner: runner.up(connection))

    def received(self, connection: LinkConnection, frame: bytes) -> None:
        """Handle an incoming frame."""
        self._soon(lambda runner: runner.received(connection, frame))

    def down(self, connection: LinkConnection) -> None:
        """Handle a closed connection."""
        with self._wakeup:
            self._open.discard(connection)
        self._soon(lambda runner: runner.down(connection))

    def drained(self, connection: LinkConnection) -> None:
        """Handle a clogged connection that has room again."""
        self._soon(lambda runner: runner.drained(connection))

    def propagated(self, seq: int) -> Future[bool]:
        """Return a future that resolves when all servers know the subscriptions as of a seq."""
        asked: Future[bool] = Future()
        with self._wakeup:
            self._asked.append((seq, asked))
            self._wakeup.notify_all()
        return asked

    def wrong_with(self, connection: LinkConnection) -> str:
        """Return why a link to this neighbour is impossible, if known."""
        return "" if self._runner is None else self._runner.wrong_with(connection)

    # ---- the thread

    def _run_brokers(self) -> None:
        """Run brokers, one after another, until the server stops; an error ends the current one."""
        pause = _AGAIN
        while not self._ending:
            begun = time.monotonic()
            try:
                self._run()
                return
            except Exception as error:
                logger.exception("links failed; restarting them")
                self._discard_broker(f"internal error: {error!r}"[:300])
            if time.monotonic() - begun > _AGAIN_AT_MOST:
                pause = _AGAIN
            with self._wakeup:
                self._wakeup.wait_for(lambda: self._ending, pause)
            pause = min(2 * pause, _AGAIN_AT_MOST)

    def _discard_broker(self, why: str) -> None:
        """Discard a broker after an error: its state may be wrong, but the log isn't."""
        self.failures += 1
        runner = self._runner
        with self._wakeup:
            self._failed = self._failed or why
            connections, self._calls = [*self._open], deque()
        for connection in connections:
            connection.end()
        if runner is not None:
            self._drop(runner)
        else:
            self._alarm(f"links can't start: {why}")

    def _run(self) -> None:
        while True:
            if self._runner is None:
                self._begin()
            runner = self._runner
            with self._wakeup:
                if runner is not None and not self._has_work():
                    self._wakeup.wait(min(60.0, max(0.0, runner.tick_at - time.monotonic())))
                if self._ending or runner is None:
                    return
                calls, self._calls = self._calls, deque()
                written, self._written, self._written_bytes = self._written, [], 0
                is_whole, self._is_whole, upto = self._is_whole, True, self._upto
                asked = [answer for seq, answer in self._asked if seq <= upto]
                self._asked = [request for request in self._asked if request[0] > upto]
            self._unanswered = {*asked}
            runner.advance(written, upto, is_whole=is_whole)
            for answer in asked:
                runner.ask(answer)
            for call in calls:
                call(runner)
            runner.tick()
            runner.move_cursors()
            if self._failed:
                self._drop(runner)

    def _has_work(self) -> bool:
        has_asked = any(seq <= self._upto for seq, _ in self._asked)
        has_written = bool(self._written) or not self._is_whole
        return bool(self._calls or has_written or has_asked or self._ending or self._failed)

    def _begin(self) -> None:
        """Start a broker from the state of the log; retry until it succeeds."""
        core = self._core
        before = core.registry.broker
        incarnation = max(time.time_ns() // 1000, 0 if before is None else before.incarnation + 1)
        edit = PutBroker(TENANT, self.name, self._entry.name, incarnation)
        while not self._ending:
            try:
                core.edit(edit).result()
                core.pipeline.quiesced(lambda: self._make(incarnation))
                return
            except RangecastError as error:
                self._alarm(f"links can't start: {error}")
                with self._wakeup:
                    self._wakeup.wait_for(lambda: self._ending, _AGAIN)

    def _make(self, incarnation: int) -> None:
        """Create the broker while nothing is written; pending inputs are already in the log."""
        with self._wakeup:
            self._written, self._written_bytes, self._is_whole = [], 0, True
            self._upto = self._core.log.last
            self._failed = ""
        self._runner = BrokerRunner(
            self._core,
            self._entry,
            self.name,
            incarnation,
            alarm=self._alarm,
            fail=self._fail,
        )

    def _fail(self, why: str) -> None:
        """Schedule the end of this broker instance."""
        with self._wakeup:
            self._failed = self._failed or why
            self._wakeup.notify_all()

    def _drop(self, runner: BrokerRunner) -> None:
        self._alarm(f"links are restarting: {self._failed}")
        runner.end()
        with self._wakeup:  # what was asked is asked again
            asked = {*runner.questions.values(), *self._unanswered}
            self._asked += [(0, answer) for answer in asked if not answer.done()]
            self._unanswered = set()
        self._runner = None

    def _alarm(self, text: str) -> None:
        if not self.alarms or self.alarms[-1] != text:  # each reason is logged once
            logger.warning("%s", text)
            self.alarms.append(text)

    def status(self) -> dict[str, Any]:
        """Return the state of all links."""
        runner = self._runner
        return {
            "broker": self.name,
            "incarnation": 0 if runner is None else runner.broker.incarnation,
            "links": [] if runner is None else runner.shown(),
            "outgoing": [
                {"url": dialer.url, "broker": dialer.peer or None, "error": dialer.error or None}
                for dialer in self.dialers
            ],
            "gaps": 0 if runner is None else runner.journal.gaps,
            "failures": self.failures,
            "alarms": list(self.alarms),
            "counts": {} if runner is None else dict(runner.broker.counts),
        }
