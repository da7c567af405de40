"""Servers and cables of the simulated world of links: a log in memory, and a broker over it."""

from __future__ import annotations

import json
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import rangecast.server.state.lineage as lineage_module
from rangecast import Space
from rangecast.server.encoding import encoded
from rangecast.server.links.broker_runner import TENANT, BrokerRunner
from rangecast.server.links.connection import CLOGGED_BYTES
from rangecast.server.log.base import MemoryLog
from rangecast.server.pipeline.apply import WrittenRequest
from rangecast.server.pipeline.commands import Edits, Events, PublishedEvents
from rangecast.server.state.edits import (
    EVENTS,
    EventsHead,
    PutBroker,
    PutSpace,
    edits_draft,
    events_draft,
    events_of,
)
from rangecast.server.state.lineage import Lineage
from rangecast.server.state.registry import RequestError
from rangecast.server.state.replay import Replay

SPACE = Space.from_toml('attribute = [{ name = "x", type = "number" }]')
NAMES = ("a", "b", "c")
LINKS = (("b", "a"), ("c", "b"))
"""Which server connects to which."""
WANTED = {"a": (0, 6), "b": (3, 9), "c": (0, 9)}
PADDING = "." * 2_000
"""In every event, so that what is sent again and again shows."""
MAX_UNSENT = 150_000
"""Bytes that may wait for a neighbour: all events once, and what is said beside them."""
STEP = 0.25


class Host:
    """A server as its links see it: what is written is in the log at once."""

    def __init__(self, world: Any, name: str, label: str = ""):
        self.world, self.name = world, name
        self.log = MemoryLog()
        self.history: list[Any] = []
        self.log.epoch = label or f"log-{name}"
        self.pipeline = SimpleNamespace(submit=self._submit, durable=0)
        self.runner: BrokerRunner | None = None
        self.failed = ""
        self.copy: Any = ()
        self.alarms: list[str] = []
        self._load([])
        self.edit(PutSpace(TENANT, "s", SPACE.definition()))

    # ---- what a runner needs of a service

    def edit(self, *edits: Any) -> Future[int]:
        request = Edits(edits)
        units = self._append([edits_draft(edits, 0)])
        changes = [*self.registry.apply(edits, units[-1].first)]
        self._written.append(WrittenRequest(units[-1], request, changes))
        request.answer.set_result(units[-1].first)
        return request.answer

    def _submit(self, request: Events) -> None:
        head = request.head
        self.deduplicator.begin()
        if request.follows is not None:
            try:
                self.deduplicator.check_source(head, request.follows)
            except RequestError as error:
                request.answer.set_exception(error)
                return
            self.deduplicator.note_source(head)
        unit = self._append([events_draft(head, request.encoded.lines, 0)])[-1]
        self._written.append(WrittenRequest(unit, request, []))
        request.answer.set_result(PublishedEvents(unit.first, unit.length, []))

    def acknowledge(self, consumer: Any, seq: int) -> None:
        consumer.cursor = max(consumer.cursor, seq)

    def begin_epoch(self, above: int = 0) -> None:
        self._begins = lambda: self.lineage.next(self.log.last, self.log.chain, above)

    def _append(self, drafts: list[Any]) -> list[Any]:
        if self._begins is not None:
            begin, self._begins = self._begins(), None
            unit = self.log.append([edits_draft([begin], 0)])[0]
            self.history.append(unit)
            [*self.registry.apply([begin], unit.first)]
        units = self.log.append(drafts)
        self.history += units
        self.pipeline.durable = self.log.last
        return units

    # ---- starting, crashing, going back

    def _load(self, units: list[Any], first: int = 1) -> None:
        """Begin with a log, of which retention has left what comes from a seq on."""
        self.history = [*units]
        self.log._units, self.log.first = [one for one in units if one.first >= first], first
        self.log.last = units[-1].last if units else 0
        self.log.chain = units[-1].chain if units else b"\0" * 16
        replay = Replay(self.name)
        for unit in units:
            replay.carried_out(unit)
        self.registry, self.deduplicator = replay.registry, replay.deduplicator
        self.lineage = Lineage(self.log.epoch, self.registry)
        self._written: list[WrittenRequest] = []
        self.begin_epoch()

    def start(self) -> None:
        before = self.registry.broker
        incarnation = max(lineage_module.time.time_ns(), before.incarnation + 1 if before else 1)
        self.edit(PutBroker(TENANT, self.name, "s", incarnation))
        self._written.clear()
        self.failed = ""
        self.runner = BrokerRunner(
            self,  # type: ignore[arg-type]
            self.registry.space(TENANT, "s"),
            self.name,
            incarnation,
            alarm=self.alarms.append,
            fail=self._fail,
            clock=lambda: self.world.now,
        )

    def _fail(self, why: str) -> None:
        self.failed = self.failed or why

    def crash(self) -> None:
        """Lose what is in memory: cursors, too."""
        if self.runner is not None:
            self.world.cut(self.name)
            self.runner = None
            self._load(self.history, self.log.first)

    def restore(self) -> list[int]:
        """Go on with the copy; return the ids of the events that are lost."""
        before = self.ids()
        self.crash()
        self._load(*self.copy)
        kept = {*self.ids()}
        return [one for one in before if one not in kept]

    def step(self) -> None:
        runner = self.runner
        if runner is None:
            return
        written, self._written = self._written, []
        runner.advance(written, self.log.last, is_whole=True)
        runner.tick()
        runner.move_cursors()
        if self.failed:
            self.world.cut(self.name)
            self.start()

    def publish(self, one: int, x: int) -> None:
        entry = self.registry.space(TENANT, "s")
        lines = [json.dumps({"id": one, "x": x, "padding": PADDING}).encode()]
        taken, _ = encoded(lines, SPACE, ignore_unknown=True)
        self._submit(Events(entry, taken, EventsHead(TENANT, "s")))

    # ---- looking

    def events(self) -> list[tuple[EventsHead, list[bytes]]]:
        """Return all events that it has ever had."""
        return [events_of(unit) for unit in self.history if unit.kind == EVENTS]

    def ids(self) -> list[int]:
        return [json.loads(line).get("id") for _, lines in self.events() for line in lines]


class Cable:
    """One end of a connection."""

    def __init__(self, world: Any, host: Host, peer: str, url: str):
        self.world, self.host, self.peer, self.url = world, host, peer, url
        self.first, self.rejected = b"", ""
        self.is_clogged = False
        self.unsent = 0
        self.is_open = True
        self.is_up = bool(url)
        self.other: Cable

    def send(self, frame: bytes) -> None:
        if not self.is_open:
            return
        self.unsent += len(frame)
        self.world.most_unsent = max(self.world.most_unsent, self.unsent)
        self.is_clogged = self.is_clogged or self.unsent > CLOGGED_BYTES
        self.world.later(0.1, self._arrive, frame)

    def _arrive(self, frame: bytes) -> None:
        other = self.other
        if not self.is_open or not other.is_open:
            return
        if other.host.name in self.world.stopped:  # it isn't read
            self.world.stopped[other.host.name].append((self._arrive, (frame,)))
            return
        self.unsent -= len(frame)
        if self.is_clogged and self.unsent < CLOGGED_BYTES // 4:
            self.is_clogged = False
            if self.host.runner is not None:
                self.host.runner.drained(self)  # type: ignore[arg-type]
        runner = other.host.runner
        if runner is None:
            return
        if not other.is_up:
            other.is_up, other.first = True, frame
            runner.up(other)  # type: ignore[arg-type]
        runner.received(other, frame)  # type: ignore[arg-type]

    def end(self, why: str = "") -> None:
        self.rejected = self.rejected or why
        self.world.later(0.1, self.close)

    def handled(self, frame: bytes) -> None:
        pass

    def close(self) -> None:
        """Both sides see that it is gone."""
        for one in (self, self.other):
            if one.is_open:
                one.is_open = False
                if one.host.runner is not None:
                    one.host.runner.down(one)  # type: ignore[arg-type]
