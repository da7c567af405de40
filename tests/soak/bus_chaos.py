"""Faults of Kafka and NATS, real ones: nothing is lost, each match comes once, gaps are reported.

    python -m tests.soak.bus_chaos --seed 7 [--only NAME ...]

      topic "in" ──┐                          ┌── topic "matches", read_committed
                   ├── server, log on disk ───┤
    subject quotes ┘                          └── stream "matches"
      topic "work" ───── worker, log on Kafka ─── topic "hits", read_committed

Writers go on while a fault happens. After it all that was acknowledged has to come out, as a plain
`Engine` says. A worker that ends by itself is started again, as a supervisor would; a server that
ends is a violation.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from rangecast.server.verify.workers import verify_workers
from rangecast.server.workers.worker import WorkerSettings
from tests.support.server.bus_traffic import (
    QUIET,
    SPACE,
    WANTED,
    KafkaReader,
    KafkaWriter,
    Model,
    NatsReader,
    NatsWriter,
    Process,
    Violation,
    wait_until,
)
from tests.support.server.servers import answers, free_port, kafka_command, nats_command

BEYOND = 14.0
"""Seconds, more than the 10 of a session of a worker."""
OUT = {"matches": ("in", "quotes"), "nats": ("in", "quotes"), "hits": ("work",)}
"""Which inputs have to be in which output."""


class Scene:
    """All that runs."""

    def __init__(self, folder: Path, seed: int):
        self.rng, self.model = random.Random(seed), Model(seed)
        self._folder = folder
        for name in ("kafka", "nats"):
            (folder / name).mkdir()
        kafka, kafka_port = kafka_command(folder / "kafka")
        nats, nats_port = nats_command(folder / "nats")
        self.servers, self.url = f"127.0.0.1:{kafka_port}", f"nats://127.0.0.1:{nats_port}"
        self.kafka = Process(kafka, folder / "kafka", "kafka", lambda: answers(kafka_port))
        self.nats = Process(nats, folder / "nats", "nats", lambda: answers(nats_port))
        SPACE.save(folder / "s.toml")
        buses = ["--kafka", self.servers, "--nats", self.url]
        sources = ["--kafka-source", "in:s", "--nats-source", "quotes:s"]
        self.server = self._serve("server", "--data", "data", *buses, *sources)
        self.log = f"kafka://{self.servers}/chaos"
        topics = ["--space", "s", "--events", "work", "--matches", "hits", "--name", "w"]
        command = [sys.executable, "-m", "rangecast", "worker", "run", self.log, *topics]
        self.worker = Process(command, folder, "worker", lambda: True)
        self.seen: list[str] = []
        """Status that an operator saw during a fault."""
        self.writers: dict[str, KafkaWriter] = {}
        self.readers: dict[str, Any] = {}

    def _serve(self, name: str, *options: str) -> Process:
        port = free_port()
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
        run = [sys.executable, "-m", "rangecast", "serve", "--space", "s.toml", "--port", port]
        return Process([*run, *options], self._folder, name, lambda: answers(port))

    def start(self) -> None:
        """Start everything, and the traffic."""
        self.kafka.start()
        self.nats.start()
        for topic in ("in", "work", "matches", "hits"):
            self.make_topic(topic)
        asyncio.run(self.with_stream(_make_streams))
        http = self.http
        edits = self._serve("edits", "--log", self.log)
        edits.start()
        self._subscribe("out", {})
        edits.end()
        self.http = http
        self.server.start()
        self._subscribe("kout", {"kind": "kafka", "topic": "matches"})
        self._subscribe("nout", {"kind": "nats", "subject": "matches"})
        self.worker.start()
        self.readers["matches"] = KafkaReader(self.servers, "matches")
        self.readers["hits"] = KafkaReader(self.servers, "hits")
        self.readers["nats"] = NatsReader(self.url, "matches")
        for topic in ("in", "work"):
            self.writers[topic] = KafkaWriter(self.servers, topic, self.model)
        self.writers["quotes"] = NatsWriter(self.url, "quotes", self.model)

    def _subscribe(self, consumer: str, out: dict[str, str]) -> None:
        given = {"space": "s"} | ({"delivery": out} if out else {})
        self.http.put(f"/v1/consumers/{consumer}", json=given).raise_for_status()
        for name, wanted in WANTED.items():
            path = f"/v1/spaces/s/subscriptions/{consumer}-{name}"
            self.http.put(path, json={"filter": wanted, "consumer": consumer}).raise_for_status()

    def end(self) -> None:
        """End everything."""
        for writer in self.writers.values():
            writer.end()
        for one in (self.worker, self.server, self.nats, self.kafka):
            one.end(signal.SIGKILL)

    # ---- looking

    def source(self, name: str) -> dict[str, Any]:
        """Return the status of a source."""
        sources = self.http.get("/v1/status").raise_for_status().json()["sources"]
        return next((one for one in sources if one["source"] == name), {})

    def look(self) -> None:
        """Note what an operator sees; start a worker again that has ended."""
        if self.server.code is not None:
            raise Violation(f"the server ended: {self.server.said()[-1500:]}")
        if self.worker.code is not None:
            lines = [line for line in self.worker.said().splitlines() if line.strip()]
            self._note(f"worker ended with {self.worker.code}: {' '.join(lines[-4:])[-300:]}")
            self.worker.start()
        for name in ("kafka:in", "nats:quotes"):
            if (found := self.source(name)).get("error"):
                self._note(f"{name} {found['state']}: {found['error'][:70]}")
        for name in ("kout", "nout"):
            found = self.http.get(f"/v1/consumers/{name}").json()
            if found.get("error"):
                self._note(f"{name} {found['state']}: {found['error'][:70]}")

    def _note(self, text: str) -> None:
        if text not in self.seen:
            self.seen.append(text)

    def flow(self, seconds: float) -> None:
        """Let the traffic go on."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(0.5)

    def settle(self) -> None:
        """Pause the traffic; all has to come out, once, and all has to be well."""
        for writer in self.writers.values():
            writer.pause()

        def has_all() -> bool:
            self.look()
            return all(
                self.model.expected(OUT[name]) <= {*reader.read()}
                for name, reader in self.readers.items()
            )

        try:
            wait_until(has_all, "all has come out")
        finally:
            for name, reader in self.readers.items():
                self.model.check(name, reader.read(), OUT[name])
        wait_until(lambda: self.http.get("/readyz").status_code == 200, "the server is ready")

    # ---- Kafka's and NATS' own tools

    def make_topic(self, name: str) -> None:
        """Make a topic, also one whose deletion still goes on."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        def is_made() -> bool:
            try:
                for done in self.admin.create_topics([NewTopic(name, 2)]).values():
                    done.result()
            except KafkaException:
                return False
            return True

        wait_until(is_made, f"the topic {name} is made")

    @cached_property
    def admin(self) -> Any:
        """A client that manages topics; its answers come only as long as it is kept."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers}, logger=QUIET)

    async def with_stream(self, work: Callable[[Any], Any]) -> None:
        """Do something with JetStream."""
        import nats

        there = await nats.connect(self.url)
        await work(there.jetstream(timeout=30))
        await there.close()


async def _make_streams(stream: Any) -> None:
    await stream.add_stream(name="quotes", subjects=["quotes"])
    await stream.add_stream(name="matches", subjects=["matches"])


# ---- faults


def restart(scene: Scene, one: Process, number: signal.Signals, away: float) -> None:
    """End a process, and start it again later."""
    one.end(number)
    if one is scene.server:
        time.sleep(away)
    else:
        scene.flow(away)
    if one is not scene.worker:  # which is started again as soon as it has ended
        one.start()


def hold(scene: Scene, one: Process, seconds: float) -> None:
    """Stop a process, and let it go on later."""
    one.send(signal.SIGSTOP)
    if one is scene.server:
        time.sleep(seconds)
    else:
        scene.flow(seconds)
    one.send(signal.SIGCONT)


def recreate_topic(scene: Scene) -> None:
    """Delete a topic whose events were read, and make it again."""
    scene.settle()
    for done in scene.admin.delete_topics(["in"]).values():
        done.result()
    scene.make_topic("in")
    scene.writers["in"].resume()
    wait_until(lambda: scene.source("kafka:in")["recreations"] == 1, "it is reported")


def recreate_stream(scene: Scene) -> None:
    """The same with a stream."""
    scene.settle()

    async def work(stream: Any) -> None:
        await stream.delete_stream("quotes")
        await stream.add_stream(name="quotes", subjects=["quotes"])

    asyncio.run(scene.with_stream(work))
    scene.writers["quotes"].resume()
    wait_until(lambda: scene.source("nats:quotes")["recreations"] == 1, "it is reported")


def cut_topic(scene: Scene, topic: str, process: Process) -> int:
    """Delete a part of what a process that is down hasn't read; return how much it was."""
    from confluent_kafka import TopicPartition

    scene.settle()
    process.end()
    before = {*scene.model.acked[topic]}
    scene.writers[topic].resume()
    time.sleep(3)
    scene.writers[topic].pause()
    fresh = {n: at for n, at in scene.model.acked[topic].items() if n not in before}
    cut = sorted(offset for partition, offset in fresh.values() if partition == 0)
    begin, middle = cut[0], cut[len(cut) // 2]
    for done in scene.admin.delete_records([TopicPartition(topic, 0, middle)]).values():
        done.result()
    gone = {n for n, (partition, at) in fresh.items() if partition == 0 and begin <= at < middle}
    scene.model.excused |= gone
    process.start()
    return len(gone)


def retention_source(scene: Scene) -> None:
    """Retention beyond the place of a source of Kafka."""
    gone = cut_topic(scene, "in", scene.server)
    wait_until(lambda: scene.source("kafka:in").get("missed") == gone, f"{gone} are reported")


def retention_worker(scene: Scene) -> None:
    """Retention beyond the place of a worker."""
    cut_topic(scene, "work", scene.worker)
    said = "were deleted before they were matched"
    wait_until(lambda: said in scene.worker.said(), "it is reported")


def retention_stream(scene: Scene) -> None:
    """Retention beyond the place of a source of NATS."""
    scene.settle()
    scene.server.end()
    before = {*scene.model.acked["quotes"]}
    scene.writers["quotes"].resume()
    time.sleep(3)
    scene.writers["quotes"].pause()
    fresh = {n: at for n, (_, at) in scene.model.acked["quotes"].items() if n not in before}
    middle = sorted(fresh.values())[len(fresh) // 2]

    async def work(stream: Any) -> None:
        await stream.purge_stream("quotes", seq=middle)

    asyncio.run(scene.with_stream(work))
    gone = {n for n, at in fresh.items() if at < middle}
    scene.model.excused |= gone
    scene.server.start()
    wait_until(lambda: scene.source("nats:quotes").get("missed") == len(gone), "it is reported")


def hanging_transaction(scene: Scene) -> None:
    """A writer begins transactions, and never ends them: readers wait for the brokers' limit."""
    from confluent_kafka import Producer

    limit = {"transaction.timeout.ms": 8_000}
    hangs = Producer({"bootstrap.servers": scene.servers, "transactional.id": "hangs"} | limit)
    hangs.init_transactions(30)
    hangs.begin_transaction()
    for topic in ("in", "work"):
        hangs.produce(topic, scene.model.event()[1], partition=0)  # it must never come out
    hangs.flush(30)
    scene.flow(12)


FAULTS: dict[str, Callable[[Scene], Any]] = {
    "none": lambda scene: scene.flow(3),
    "kafka: restart": lambda scene: restart(scene, scene.kafka, signal.SIGTERM, 1),
    "kafka: kill -9, 8 s away": lambda scene: restart(scene, scene.kafka, signal.SIGKILL, 8),
    "kafka: stopped beyond a session": lambda scene: hold(scene, scene.kafka, BEYOND),
    "kafka: transactions that hang": hanging_transaction,
    "kafka: topic made again": recreate_topic,
    "kafka: retention beyond a source": retention_source,
    "kafka: retention beyond a worker": retention_worker,
    "nats: restart": lambda scene: restart(scene, scene.nats, signal.SIGTERM, 1),
    "nats: kill -9, 5 s away": lambda scene: restart(scene, scene.nats, signal.SIGKILL, 5),
    "nats: stopped beyond its pings": lambda scene: hold(scene, scene.nats, 32),
    "nats: stream made again": recreate_stream,
    "nats: retention beyond a source": retention_stream,
    "server: kill -9": lambda scene: restart(scene, scene.server, signal.SIGKILL, 1),
    "server: stopped": lambda scene: hold(scene, scene.server, BEYOND),
    "worker: kill -9": lambda scene: restart(scene, scene.worker, signal.SIGKILL, 1),
    "worker: stopped beyond its session": lambda scene: hold(scene, scene.worker, BEYOND),
}


def run(folder: Path, seed: int, names: list[str]) -> int:
    """Play the faults; print a line for each. Return how many promises were broken."""
    scene = Scene(folder, seed)
    broken = 0
    try:
        scene.start()
        for name in names:
            begun, before = time.monotonic(), sum(map(len, scene.model.acked.values()))
            scene.seen.clear()
            for writer in scene.writers.values():
                writer.resume()
            try:
                scene.flow(scene.rng.uniform(1, 3))
                FAULTS[name](scene)
                scene.flow(1)
                scene.settle()
                outcome = "held"
            except Violation as violation:
                broken += 1
                said = {one.name: one.said()[-1500:] for one in (scene.server, scene.worker)}
                outcome = f"VIOLATION: {violation}\n{said}"
            events = sum(map(len, scene.model.acked.values())) - before
            seconds = time.monotonic() - begun
            print(f"{name:36} {seconds:5.0f} s {events:6} events  {outcome}", flush=True)
            for text in scene.seen:
                print(f"    saw: {text}", flush=True)
            if outcome != "held":
                break
        if not broken and not any("retention beyond a worker" in name for name in names):
            report = verify_workers(WorkerSettings(scene.log, "s", "work", "hits"))
            broken += not report.holds
            print(f"worker verify: {'holds' if report.holds else report.samples}")
        got = {name: len(reader.got) for name, reader in scene.readers.items()}
        print(f"came out: {got}; deleted before they were read: {len(scene.model.excused)}")
    finally:
        scene.end()
    return broken


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.bus_chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--only", action="append", help="a fault whose name begins with this")
    given = parser.parse_args()
    wanted = tuple(given.only or [""])
    names = [name for name in FAULTS if name.startswith(wanted)]
    print(f"seed {given.seed}, {len(names)} faults", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        broken = run(Path(folder), given.seed, names)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
