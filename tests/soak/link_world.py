"""The links of servers in a simulated world: drivers and journals over logs in memory, without
threads and sockets. A seed draws what is published and all faults.

    python -m tests.soak.link_world --seeds 200            # no promise is broken
    python -m tests.soak.link_world --broken               # each planted mistake is found

Three servers in a row, each with one subscription that all know of before the first event. Links
are cut, servers crash, are restored from an older copy, with clocks that go back, lose the
beginning of their log to retention, stop reading; another server comes under a name that is taken;
a stranger sends frames of all kinds. Then everything heals. Each event that a subscription wants
must be in the log of its server, once; unless it was lost with a disk, or the server was told of a
loss.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import rangecast.server.links.broker_runner as runner_module
import rangecast.server.state.lineage as lineage_module
from rangecast import Space
from rangecast.overlay.broker.broker import Broker
from rangecast.overlay.broker.link_state import Link
from rangecast.overlay.simulation.strangers import hostile_frame
from rangecast.overlay.wire.frames import Events as EventsFrame
from rangecast.overlay.wire.frames import Hello, encode
from rangecast.server.encoding import encoded
from rangecast.server.links.broker_runner import TENANT, BrokerRunner
from rangecast.server.links.connection import CLOGGED_BYTES
from rangecast.server.log.base import MemoryLog
from rangecast.server.pipeline.apply import Written
from rangecast.server.pipeline.commands import Accepted, Edits, Events
from rangecast.server.state.edits import (
    EVENTS,
    EventsHead,
    PutBroker,
    PutSpace,
    PutSubscription,
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
"""Who dials whom."""
WANTED = {"a": (0, 6), "b": (3, 9), "c": (0, 9)}
PADDING = "." * 2_000
"""In every event, so that what is sent again and again shows."""
MAX_UNSENT = 150_000
"""Bytes that may wait for a neighbour: all events once, and what is said beside them."""
STEP = 0.25


class Host:
    """A server as its links see it: what is written is in the log at once."""

    def __init__(self, world: World, name: str, label: str = ""):
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
        self._written.append(Written(units[-1], request, changes))
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
        self._written.append(Written(unit, request, []))
        request.answer.set_result(Accepted(unit.first, unit.length, []))

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
        self._written: list[Written] = []
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

    def __init__(self, world: World, host: Host, peer: str, url: str):
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


class World:
    """Servers, time, and what must be where."""

    def __init__(self, seed: int):
        self.rng = Random(seed)
        self.now = 1000.0
        self.wrong: list[str] = []
        self.most_unsent = 0
        self.skew: float = 0.0
        self.stopped: dict[str, list[Any]] = {}
        self._heap: list[Any] = []
        self._ties = 0
        self._cables: list[Cable] = []
        self._next = 0
        self._dials_at: dict[str, float] = {}
        """When a server tries again to connect."""
        self.must: dict[tuple[str, int], None] = {}
        self.hosts = {name: Host(self, name) for name in NAMES}

    # ---- time

    def later(self, delay: float, act: Callable[..., None], *given: Any) -> None:
        self._ties += 1
        heapq.heappush(self._heap, (self.now + delay, self._ties, act, given))

    def play(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            end = min(self.now + STEP, until)
            while self._heap and self._heap[0][0] <= end:
                self.now, _, act, given = heapq.heappop(self._heap)
                act(*given)
            self.now = end
            for name, host in self.hosts.items():
                if name not in self.stopped:
                    host.step()
            self._dial()

    def time_ns(self) -> int:
        return int((self.now + self.skew) * 1e9)

    # ---- connections

    def _dial(self) -> None:
        for name, target in LINKS:
            host, there = self.hosts[name], self.hosts[target]
            is_linked = any(
                one.is_open and one.host is host and one.peer == target for one in self._cables
            )
            waits = self.now < self._dials_at.get(name, 0.0)
            if host.runner and there.runner and not is_linked and self.rng.random() < 0.3:
                if waits:
                    continue
                self.connect(host, there)

    def connect(self, host: Host, there: Host) -> None:
        near = Cable(self, host, there.name, f"ws://{there.name}")
        far = Cable(self, there, host.name, "")
        near.other, far.other = far, near
        self._cables = [one for one in self._cables if one.is_open] + [near, far]
        assert host.runner is not None
        if not host.runner.wrong_with(near):  # type: ignore[arg-type]
            host.runner.up(near)  # type: ignore[arg-type]
        else:
            near.close()

    def cut(self, name: str) -> None:
        """Cut all connections of a server."""
        for one in self._cables:
            if one.host.name == name and one.is_open:
                one.close()

    # ---- what happens

    def publish(self) -> None:
        name = self.rng.choice(NAMES)
        host = self.hosts[name]
        if host.runner is None or name in self.stopped:
            return
        self._next += 1
        x = self.rng.randrange(10)
        host.publish(self._next, x)
        for other, (low, high) in WANTED.items():
            if other != name and low <= x <= high:
                self.must[other, self._next] = None

    def fault(self) -> None:
        rng = self.rng
        host = self.hosts[rng.choice(NAMES)]
        kind = rng.random()
        if kind < 0.2:
            self.cut(host.name)
        elif kind < 0.35:
            host.crash()
            self.later(rng.uniform(0, 4), self.start, host.name)
        elif kind < 0.55:
            host.copy = [*host.history], host.log.first
            self.later(rng.uniform(1, 8), self.restore, host.name)
        elif kind < 0.65:
            self.drop(host)
        elif kind < 0.75:
            if host.name not in self.stopped:
                self.stopped[host.name] = []
                self.later(rng.uniform(5, 60), self.go_on, host.name)
        elif kind < 0.95:
            self.twin(rng.choice(LINKS))
        else:
            self.stranger(host)

    def start(self, name: str) -> None:
        if self.hosts[name].runner is None:
            self.hosts[name].start()

    def restore(self, name: str) -> None:
        """Let a disk go back, and maybe the clock with it; let it be cut off for a while."""
        host, rng = self.hosts[name], self.rng
        self.stopped.pop(name, None)
        lost = {*host.restore()}
        self.must = {pair: None for pair in self.must if pair[1] not in lost}
        before, self.skew = self.skew, rng.choice([0.0, 0.0, -900.0])
        host.start()
        for _ in range(rng.choice([0, 5, 20])):
            self._next += 1
            host.publish(self._next, 4)
            for other in WANTED:
                if other != name:
                    self.must[other, self._next] = None
        self.skew = before

    def drop(self, host: Host) -> None:
        """Let retention drop a part of a log; a snapshot has what was before."""
        units = host.log._units
        if len(units) > 4 and host.runner is not None:
            host.log.drop(units[self.rng.randrange(len(units) - 2)].last)
            host.registry.forget(host.log.first)

    def go_on(self, name: str) -> None:
        for act, given in self.stopped.pop(name, []):
            act(*given)

    def twin(self, link: tuple[str, str]) -> None:
        """Let another server connect under the name of one, and want everything."""
        name, target = link
        there = self.hosts[target]
        if there.runner is None or target in self.stopped:
            return
        twin = Host(self, name, "another")
        twin.edit(PutSubscription(TENANT, "all", "s", "x >= 0"))
        twin.start()
        self.connect(twin, there)
        for after in range(1, 60):
            self.later(0.2 * after, twin.step)
        self._dials_at[name] = self.now + 10.0  # the first one pauses, should it be cut off
        self.later(10.0, self._leave, twin)

    def _leave(self, twin: Host) -> None:
        for one in self._cables:
            if one.host is twin and one.is_open:
                one.close()

    def stranger(self, host: Host) -> None:
        """Link a stranger that sends frames of all kinds."""
        if host.runner is None:
            return
        far = SimpleNamespace(host=SimpleNamespace(runner=None, name="evil"), is_open=True)
        near = Cable(self, host, "evil", "")
        near.other = far  # type: ignore[assignment]
        space = host.runner.broker._space_digest
        frames = [encode(Hello(broker="evil", incarnation=9, space=space, reach=["evil"]))]
        deep = b'{"x": ' + b"[" * 5000 + b"]" * 5000 + b"}"
        for text in (b"{", b'{"x": "y"}', b"[]", deep):
            frame = EventsFrame(
                origin="evil", after=0, upto=1, numbers=[1], ids=[], points=b"", texts=[text]
            )
            frames.append(encode(frame))
        frames += [encode(hostile_frame(self.rng, space, [*NAMES])) for _ in range(10)]
        frames.append(bytes(self.rng.randrange(256) for _ in range(20)))
        near.first = frames[0]
        host.runner.up(near)  # type: ignore[arg-type]
        for frame in frames:
            if host.runner is not None:
                host.runner.received(near, frame)  # type: ignore[arg-type]
        near.close()
        if (TENANT, "link-evil") in host.registry.consumers:
            host.edit(runner_module.DeleteConsumer(TENANT, "link-evil"))

    # ---- judging

    def heal(self) -> None:
        self.skew = 0.0
        for name in NAMES:
            self.go_on(name)
            self.start(name)
        for _ in range(60):
            self.play(10.0)
            if self.is_quiet():
                return
        states = [[one.runner.shown() for one in self.hosts.values() if one.runner]]
        self.wrong.append(f"L1: not quiet: {states}")

    def is_quiet(self) -> bool:
        for host in self.hosts.values():
            links = host.runner.broker.links.values() if host.runner else ()
            if len(links) != sum(host.name in one for one in LINKS):
                return False
            if any(not one.is_ready or one.flights or one.ready for one in links):
                return False
            if any(one.scanned < host.log.last for one in links):
                return False
        return True

    def judge(self) -> None:
        for name, host in self.hosts.items():
            found = [one for one in host.ids() if one is not None]
            twice = {one for one in found if found.count(one) > 1}
            if twice:
                self.wrong.append(f"S3: {name} has {sorted(twice)} twice")
            if any(head.lost for head, _ in host.events()) or self._is_told_soon():
                continue
            lost = [one for at, one in self.must if at == name and one not in found]
            if lost:
                self.wrong.append(f"S1: {name} lacks {lost}, and wasn't told")
        if self.most_unsent > MAX_UNSENT:
            self.wrong.append(f"B1: {self.most_unsent:,} bytes waited for a neighbour")

    def _is_told_soon(self) -> bool:
        """Whether a loss is told with the next event."""
        return any(
            link.has_lost
            for host in self.hosts.values()
            if host.runner is not None
            for link in host.runner.broker.links.values()
        )


def simulate(seed: int) -> list[str]:
    """Run a seed; return the promises that were broken."""
    world = World(seed)
    clock = SimpleNamespace(time_ns=world.time_ns)
    real, lineage_module.time = lineage_module.time, clock  # type: ignore[assignment]
    try:
        for name, host in world.hosts.items():
            low, high = WANTED[name]
            host.edit(PutSubscription(TENANT, "w", "s", f"x >= {low} and x <= {high}"))
            host.start()
        world.play(10.0)
        answers = [Future[bool]() for _ in NAMES]
        for host, answer in zip(world.hosts.values(), answers, strict=True):
            assert host.runner is not None
            host.runner.ask(answer)
        world.play(10.0)
        assert all(one.done() for one in answers), "it doesn't settle"
        for _ in range(40):
            world.later(world.rng.uniform(0, 60), world.publish)
        for _ in range(world.rng.choice([1, 2, 3, 5])):
            world.later(world.rng.uniform(0, 60), world.fault)
        world.play(60.0)
        world.heal()
        world.judge()
    finally:
        lineage_module.time = real
    return world.wrong


# ---- planted mistakes


@contextmanager
def _patched(where: Any, **what: Any) -> Any:
    before = {name: getattr(where, name) for name in what}
    for name, new in what.items():
        setattr(where, name, new)
    try:
        yield
    finally:
        for name, old in before.items():
            setattr(where, name, old)


@contextmanager
def numbers_twice() -> Any:
    """Numbers are those of the log, and a neighbour is rejected only if it has higher ones."""
    wrong_with = Broker._wrong_with

    def next_(lineage: Lineage, last: int, chain: bytes, above: int = 0) -> Any:
        return lineage_module.BeginEpoch(
            "", lineage_module.new_epoch(), lineage.epoch, last + 1, chain.hex()
        )

    def wrong(broker: Broker, link: Any, frame: Hello) -> Any:
        if frame.kept.get(broker.name, 0) > broker._number:
            return "history", "the log here has lost events"
        return wrong_with(broker, link, frame)

    with (
        _patched(Lineage, next=next_),
        _patched(Broker, _wrong_with=wrong, _compare_histories=lambda *_: None),
    ):
        yield


@contextmanager
def sends_again_and_again() -> Any:
    """All that isn't confirmed is sent again every three seconds, and nothing ends that."""
    tick = Broker._tick

    def ticked(broker: Broker, now: float, given: Any) -> None:
        for link in broker.links.values():
            link.last_frame_at = now
        tick(broker, now, given)

    settings = replace(runner_module.SETTINGS, is_reliable=False, silence_timeout=None)
    with _patched(runner_module, SETTINGS=settings), _patched(Broker, _tick=ticked):
        yield


@contextmanager
def names_are_taken() -> Any:
    """The second server under a name takes the place of the first."""
    wrong_with = Broker._wrong_with

    def wrong(broker: Broker, link: Any, frame: Hello) -> Any:
        link.log = ""
        return wrong_with(broker, link, frame)

    silent: Any = lambda *_: None  # noqa: E731
    with _patched(Broker, _wrong_with=wrong, conflict=lambda *_: "", _compare_disks=silent):
        yield


@contextmanager
def holes_in_silence() -> Any:
    """What retention has cut isn't told behind a link."""
    with _patched(Link, lose=lambda _: None):
        yield


BROKEN = {
    numbers_twice: 2,
    sends_again_and_again: 2,
    names_are_taken: 25,
    holes_in_silence: 2,
}
"""Mistakes, and a seed that finds each."""


def main() -> int:
    """Run seeds."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.link_world", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--broken", action="store_true")
    given = parser.parse_args()
    if given.broken:
        missed = 0
        for broken in BROKEN:
            with broken():
                first = next((one for one in range(given.seeds) if simulate(one)), None)
            missed += first is None
            print(f"{broken.__name__:24} first: {first}", flush=True)
        return missed
    begun, bad = time.monotonic(), 0
    for seed in range(given.seeds):
        wrong = simulate(seed)
        bad += bool(wrong)
        if wrong:
            print(seed, *wrong, sep="\n  ", flush=True)
    print(f"{given.seeds} seeds, {bad} broken, {time.monotonic() - begun:.0f} s")
    return bad


if __name__ == "__main__":
    sys.exit(main())
