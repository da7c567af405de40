"""Metrics and health of a worker over HTTP, without Kafka."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterable

import httpx
import pytest

from rangecast.errors import RangecastError, UsageError
from rangecast.server.log.base import MemoryLog, Unit
from rangecast.server.state.edits import (
    AnyEdit,
    PutConsumer,
    PutSpace,
    PutSubscription,
    edits_draft,
)
from rangecast.server.workers.group_member import AbortedError, Batch, Member, Record
from rangecast.server.workers.matcher import Event
from rangecast.server.workers.metrics import answering
from rangecast.server.workers.worker import STILL, Worker, WorkerSettings
from tests.support.server.serving import SPACE, T

HANGS = """
import sys, time
from rangecast.cli.main import main
from rangecast.server.workers import worker
class Hangs:
    name, position, subscriptions, totals = "w", "e:1", 0, worker.Totals()
    def __init__(self, settings): pass
    def prepare(self, is_over): pass
    def close(self): pass
    def run(self, is_over):
        while True:
            time.sleep(0.05)  # in a call of Kafka's that doesn't return
worker.Worker, worker.STOP_SECONDS = Hangs, 0.2
main()
"""


@pytest.mark.process
def test_a_worker_whose_batch_hangs_ends_after_a_signal() -> None:
    options = ["--space", "s", "--events", "in", "--matches", "out"]
    command = [sys.executable, "-c", HANGS, "worker", "run", "kafka://127.0.0.1:1/p", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "Matching in" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()


class Scripted(Member):
    """A member without Kafka: each turn is a batch, an error, or what to do before an empty one."""

    def __init__(self, turns: list[list[bytes] | RangecastError | Callable[[], None]]):
        self.turns = turns
        self.written: list[Record] = []
        self.times_given = 0

    has_joined = property(lambda self: self.times_given > 0)

    def join(self, *, from_start: bool) -> None:
        self.times_given = 0

    def ends(self) -> dict[int, int]:
        return {0: 0}

    def fetch(self, most: int, seconds: float) -> Batch:
        self.times_given = self.times_given or 1
        turn = self.turns.pop(0)
        if isinstance(turn, RangecastError):
            raise turn
        if not isinstance(turn, list):
            turn()
            return Batch([], {}, {}, 1)
        events = [Event(0, number, line) for number, line in enumerate(turn)]
        return Batch(events, {0: 0}, {0: len(turn)}, 1)

    def commit(self, batch: Batch, records: Iterable[Record]) -> None:
        self.written += records

    def lags(self) -> dict[int, int]:
        return {0: len(self.turns)}

    def close(self) -> None:
        pass


class Tail:
    """A log that is read to its end at once."""

    epoch, first, at = "e", 1, 0

    def __init__(self, units: list[Unit]):
        self._units = units

    def begin(self, after: int) -> None:
        pass

    def end(self) -> int:
        return 1

    def next_units(self, seconds: float) -> list[Unit]:
        self.at, units, self._units = 1, self._units, []
        return units

    def close(self) -> None:
        pass


def test_a_workers_numbers_and_health_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it reads the log, joins, works, is undone, joins again and stands still."""
    edits: list[AnyEdit] = [PutSpace(T, "s", SPACE.definition()), PutConsumer(T, "one", "s")]
    edits += [PutSubscription(T, name, "s", "price > 0", "one") for name in ("a", "b")]
    tail = Tail(MemoryLog().append([edits_draft(edits, 0)]))
    said: dict[str, tuple[int, str]] = {}

    def asked(path: str = "readyz") -> tuple[int, str]:
        answer = httpx.get(f"{where}/{path}")
        return answer.status_code, answer.json()["status"]

    def numbers() -> dict[str, float]:
        lines = httpx.get(f"{where}/metrics").text.splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name.removeprefix("rangecast_worker_"): float(value) for name, value in pairs}

    def look() -> None:
        said["working"] = asked()

    def stand_still() -> None:
        worker._turned -= STILL + 5
        said["still"] = asked()

    events = [b'{"price": 1}', b'{"price": -1}', b"{", b'{"price": 2}']
    member = Scripted([look, events, AbortedError("gone"), events[:1], stand_still])
    monkeypatch.setattr("rangecast.server.workers.worker.KafkaTail", lambda _url: tail)
    monkeypatch.setattr("rangecast.server.workers.worker.Member", lambda *_given: member)
    monkeypatch.setattr("rangecast.server.workers.worker.make_topic", lambda *_given: None)
    monkeypatch.setattr("rangecast.server.workers.worker.AGAIN", 0.0)
    worker = Worker(WorkerSettings("kafka://nowhere:1/p", "s", "in", "out"))
    with answering(worker, "127.0.0.1", 0) as where:
        assert asked("healthz") == (200, "ok")
        assert asked("else")[0] == 404
        assert asked() == (503, "reading the log, or joining the group")
        assert (numbers()["events_total"], numbers()["edits_seq"]) == (0, 0)
        worker.prepare(lambda: False)
        assert asked() == (503, "no partitions assigned yet")
        worker.run(lambda: not member.turns)
        found = numbers()
        with pytest.raises(UsageError, match=r"--metrics-port \d+ can't be used"):
            answering(worker, "127.0.0.1", int(where.rpartition(":")[2])).__enter__()
    assert said["working"] == (200, "ok")
    assert said["still"] == (503, f"no progress for {STILL + 5:.0f} seconds")
    expected = {
        "events_total": 5,
        "matches_total": 3,
        "rejected_total": 1,
        "batches_total": 2,
        "transactions_aborted_total": 1,
        "rebalances_total": 2,
        "edits_seq": 4,
        "batch_seconds_count": 2,
        "partitions": 0,
        "ready": 0,
    }
    assert {name: found[name] for name in expected} == expected
    assert found["batch_seconds_sum"] > 0
    assert sum(one.topic == "out" for one in member.written) == 3
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{where}/healthz")
