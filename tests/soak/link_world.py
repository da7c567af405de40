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
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from random import Random
from types import SimpleNamespace
from typing import Any

import rangecast.server.links.broker_runner as runner_module
import rangecast.server.state.lineage as lineage_module
from rangecast.overlay.simulation.strangers import hostile_frame
from rangecast.overlay.wire.frames import Events as EventsFrame
from rangecast.overlay.wire.frames import Hello, encode
from rangecast.server.links.broker_runner import TENANT
from rangecast.server.state.edits import (
    PutSubscription,
)
from tests.soak.link_hosts import LINKS, MAX_UNSENT, NAMES, STEP, WANTED, Cable, Host
from tests.soak.link_mistakes import BROKEN


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
        """Return whether a loss is reported with the next event."""
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
