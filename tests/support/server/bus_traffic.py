"""Processes, traffic and a plain model for `tests.soak.bus_chaos`."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rangecast import Engine
from rangecast.model.space import Space

SPACE = Space.from_toml('attribute = [{ name = "price", type = "number" }]')
WANTED = {"low": "price < 30", "high": "price > 60", "all": "price > 0"}
LONGEST = 180.0
"""Seconds within which anything comes about."""


class Violation(Exception):  # noqa: N818
    """A promise was broken; says which."""


def wait_until(is_so: Callable[[], Any], what: str, seconds: float = LONGEST) -> None:
    """Wait for a condition; it is a violation if it doesn't come about."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise Violation(f"not within {seconds:g} s: {what}")
        time.sleep(0.3)


class Process:
    """A program that is started, stopped, killed and held."""

    def __init__(self, command: list[Any], folder: Path, name: str, is_up: Callable[[], bool]):
        self._command, self._folder, self._is_up = [str(one) for one in command], folder, is_up
        self.name, self.log = name, folder / f"{name}.log"
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self.log.open("ab") as out:
            how: dict[str, Any] = {"stdout": out, "stderr": subprocess.STDOUT}
            self._running = subprocess.Popen(
                self._command, cwd=self._folder, start_new_session=True, **how
            )
        wait_until(lambda: self.code is not None or self._is_up(), f"{self.name} starts")
        if self.code is not None:
            raise Violation(f"{self.name} ended with {self.code}: {self.said()[-1500:]}")

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended."""
        return None if self._running is None else self._running.poll()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._running is not None
        with suppress(ProcessLookupError):
            os.kill(self._running.pid, number)

    def end(self, number: signal.Signals = signal.SIGTERM, seconds: float = 60) -> None:
        """Let it end by a signal."""
        if self._running is not None:
            self.send(number)
            try:
                self._running.wait(seconds)
            except subprocess.TimeoutExpired:
                self.end(signal.SIGKILL)
                raise Violation(f"{self.name} doesn't end within {seconds:g} s") from None

    def said(self) -> str:
        """Return the text of its log."""
        return self.log.read_text(errors="replace")


class Model:
    """Events sent, and the expected matches, each once, by a plain engine."""

    def __init__(self, seed: int):
        self._numbers, self._random = itertools.count(), random.Random(seed)
        self._engine = Engine(SPACE)
        for name, wanted in WANTED.items():
            self._engine.subscribe(name, wanted)
        self.acked: dict[str, dict[int, tuple[int, int]]] = {"in": {}, "work": {}, "quotes": {}}
        """Of each input: the place (partition, offset) of each event, by its number."""
        self.excused: set[int] = set()
        """Events that were deleted before they could be read."""
        self._wanted: dict[int, set[str]] = {}

    def event(self) -> tuple[int, bytes]:
        """Make an event."""
        number, price = next(self._numbers), self._random.randrange(1, 100)
        self._wanted[number] = {str(one) for one in self._engine.match({"price": price})}
        return number, json.dumps({"price": price, "n": number}).encode()

    def expected(self, inputs: Iterable[str]) -> set[int]:
        """Return the events of some inputs that have to arrive."""
        return {n for name in inputs for n in self.acked[name].copy()} - self.excused

    def check(self, where: str, got: dict[int, list[set[str]]], inputs: Iterable[str]) -> None:
        """Compare what came out."""
        expected, every = self.expected(inputs), {n for one in inputs for n in self.acked[one]}
        lost = expected - {*got}
        twice = [n for n, found in got.items() if len(found) > 1]
        wrong = [n for n, found in got.items() if found[0] != self._wanted[n] or n not in every]
        deleted = self.excused & {*got}
        if lost or twice or wrong or deleted:
            raise Violation(
                f"{where}: {len(lost)} lost, {len(twice)} twice, {len(wrong)} wrong, "
                f"{len(deleted)} that were deleted; first: "
                f"{sorted(lost)[:5]} {twice[:5]} {wrong[:5]}"
            )


class KafkaWriter:
    """Writes events to a topic, a few at a time, each once."""

    def __init__(self, servers: str, topic: str, model: Model):
        self._servers, self._topic, self._model = servers, topic, model
        self._go, self._is_over, self._is_idle = threading.Event(), False, threading.Event()
        self._go.set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        from confluent_kafka import Producer

        settings = {"enable.idempotence": True, "message.timeout.ms": 0}
        while not self._is_over:
            if not self._go.wait(0.2):
                continue
            producer = Producer({"bootstrap.servers": self._servers} | settings, logger=QUIET)
            self._is_idle.clear()
            while self._go.is_set():
                self.write(producer)
                producer.poll(0.03)
            while producer.flush(1) and not self._is_over:
                pass
            self._is_idle.set()

    def write(self, producer: Any) -> None:
        number, body = self._model.event()

        def noted(error: Any, message: Any) -> None:
            if error is None:
                place = message.partition(), message.offset()
                self._model.acked[self._topic][number] = place

        producer.produce(self._topic, body, partition=number % 2, on_delivery=noted)

    def pause(self) -> None:
        """Write no more; wait until all is there."""
        self._go.clear()
        wait_until(self._is_idle.is_set, f"all is in {self._topic}")

    def resume(self) -> None:
        self._go.set()

    def end(self) -> None:
        self._is_over = True
        self._go.clear()
        self._thread.join(30)


class NatsWriter(KafkaWriter):
    """Writes events to a subject; what is repeated has the same id."""

    def _run(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        import nats

        self._is_idle.set()
        while not self._is_over:
            if not self._go.is_set():
                await asyncio.sleep(0.2)
                continue
            self._is_idle.clear()
            number, body = self._model.event()
            while not self._is_over:
                try:
                    there = await nats.connect(self._servers, allow_reconnect=False, **_patience())
                    stream = there.jetstream(timeout=5)
                    while not self._is_over:
                        name = {"Nats-Msg-Id": str(number)}
                        done = await stream.publish(self._topic, body, headers=name)
                        self._model.acked[self._topic][number] = 0, done.seq
                        if not self._go.is_set():
                            break
                        number, body = self._model.event()
                        await asyncio.sleep(0.03)
                    await there.close()
                    break
                except (TimeoutError, OSError, nats.errors.Error):
                    await asyncio.sleep(0.3)
            self._is_idle.set()


async def _silent(_error: Exception) -> None:
    """Errors come by the calls as well."""


def _patience() -> dict[str, Any]:
    return {"connect_timeout": 5, "ping_interval": 5, "error_cb": _silent}


def _numbered(body: bytes, into: dict[int, list[set[str]]]) -> None:
    data = json.loads(body)["data"]
    ids = {one.rpartition("-")[2] for one in data["subscriptions"]}
    into.setdefault(data["event"]["n"], []).append(ids)


class KafkaReader:
    """Reads what is committed in a topic, from its beginning on."""

    def __init__(self, servers: str, topic: str):
        from confluent_kafka import Consumer, TopicPartition

        self.got: dict[int, list[set[str]]] = {}
        settings = {"group.id": "chaos", "isolation.level": "read_committed"}
        self._reader = Consumer({"bootstrap.servers": servers, **settings}, logger=QUIET)
        self._reader.assign([TopicPartition(topic, number, 0) for number in range(2)])

    def read(self) -> dict[int, list[set[str]]]:
        """Return all that has come up to now, by the numbers of events."""
        for one in self._reader.consume(1000, 0.5):
            if one.error() is None:
                _numbered(one.value() or b"", self.got)
        return self.got

    def end(self) -> None:
        self._reader.close()


class NatsReader:
    """Reads a stream, from its beginning on."""

    def __init__(self, url: str, stream: str):
        self._url, self._stream, self._next = url, stream, 1
        self.got: dict[int, list[set[str]]] = {}

    def read(self) -> dict[int, list[set[str]]]:
        """Return all that has come up to now, by the numbers of events."""
        import nats

        with suppress(TimeoutError, OSError, nats.errors.Error):
            asyncio.run(self._read())
        return self.got

    async def _read(self) -> None:
        import nats

        there = await nats.connect(self._url, allow_reconnect=False, **_patience())
        try:
            stream = there.jetstream(timeout=5)
            last = (await stream.stream_info(self._stream)).state.last_seq
            while self._next <= last:
                one = await stream.get_msg(self._stream, self._next, direct=False)
                _numbered(one.data or b"", self.got)
                self._next += 1
        finally:
            await there.close()


def _make_quiet() -> Any:
    import logging

    quiet = logging.getLogger("tests.soak.bus_chaos.clients")
    quiet.propagate = False
    quiet.addHandler(logging.NullHandler())
    return quiet


QUIET = _make_quiet()
