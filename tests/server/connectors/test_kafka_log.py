"""A log on Kafka, and kills around its commits."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
import pytest

from rangecast.errors import RangecastError
from rangecast.server.connectors import sources
from rangecast.server.log.base import Draft, LogError, MemoryLog, Unit
from rangecast.server.log.kafka import KafkaLog
from tests.server.log.test_log import filled
from tests.support.server.bus_traffic import wait_until
from tests.support.server.connectors import check, committed, judge
from tests.support.server.serving import SPACE, WANTED, Client, run, serving

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("kafka")]


def test_a_log_on_kafka(kafka: str) -> None:
    from confluent_kafka import Producer

    url = f"kafka://{kafka}/one"
    log, memory = KafkaLog(url), MemoryLog()
    units = filled(log)
    assert [one[:5] for one in filled(memory)] == [one[:5] for one in units]
    for after in range(0, log.last + 1, 3):
        found: list[Unit] = []
        at = after
        while some := log.read(at, 400):
            found += some
            at = some[-1].last
        assert found == [unit for unit in units if unit.last > after]
    # a second writer takes over: the first can't write any more
    other = KafkaLog(url)
    for _ in range(2):
        with pytest.raises(LogError, match="another server is writing this log"):
            log.append([Draft("events", 1, 0, b"x")])
    log.close()
    # so does what was begun by one that died
    other._producer.begin_transaction()
    other._produce(units[0])
    other._producer.flush()
    other.close()
    again = KafkaLog(url)
    assert (again.epoch, again.first, again.last, again.chain) == (
        *(log.epoch, 1, log.last, units[-1].chain),
    )
    more = filled(again)
    assert more[0].first == units[-1].last + 1
    assert again.read(0, 1 << 30) == units + more
    again.drop(units[5].last)
    assert again.first == units[6].first
    kept = [unit for unit in units + more if unit.first >= again.first]
    assert again.read(again.first - 1, 1 << 30) == kept
    again.close()
    third = KafkaLog(url)
    assert (third.first, third.last, third.chain) == (again.first, again.last, more[-1].chain)
    third.drop(third.last)  # the last one stays, and with it the history
    third.close()
    fourth = KafkaLog(url)
    assert (fourth.epoch, fourth.first, fourth.last) == (log.epoch, more[-1].first, again.last)
    fourth.close()
    stranger = Producer({"bootstrap.servers": kafka})
    KafkaLog(f"kafka://{kafka}/two").close()
    stranger.produce("two-log", b"hello", partition=0)
    stranger.flush()
    with pytest.raises(LogError, match="isn't a unit of a log"):
        KafkaLog(f"kafka://{kafka}/two")
    with pytest.raises(RangecastError, match="kafka://HOST:PORT/PREFIX"):
        KafkaLog("kafka://nowhere")


DIES = """
import os, signal, sys
from rangecast.cli.main import main
from rangecast.server.connectors.kafka import KafkaDelivery
commit, calls, point = KafkaDelivery._commit, [], sys.argv.pop(1)
def dies(way):
    calls.append(1)
    if len(calls) == 3 and point == "before":
        way._producer.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    commit(way)
    if len(calls) == 3 and point == "after":
        os.kill(os.getpid(), signal.SIGKILL)
KafkaDelivery._commit = dies
main()
"""


def all_are_sent(kafka: str, prices: list[float]) -> bool:
    return len(committed(kafka, "once")) >= len(judge(prices))


def test_killed_around_its_commits_everything_is_once_and_nothing_is_lost(
    tmp_path: Path, kafka: str
) -> None:
    """The log is on Kafka, and so is the way out; the server is killed before and after a commit
    of what it carries out.
    """
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": kafka})
    for made in admin.create_topics([NewTopic("once", 2)]).values():
        made.result()
    SPACE.save(tmp_path / "s.toml")
    command = ["serve", "--space", "s.toml", "--port", "0", "--kafka", kafka]
    acked: list[float] = []
    logged_there: list[float] = []
    for point in ("before", "after", ""):
        process = subprocess.Popen(
            [sys.executable, "-c", DIES, point, *command, "--log", f"kafka://{kafka}/killed"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert found
        with httpx.Client(base_url=found[0], timeout=60, trust_env=False) as http:
            if point == "before":
                out = {"kind": "kafka", "topic": "once"}
                http.put(
                    "/v1/consumers/out", json={"space": "s", "delivery": out}
                ).raise_for_status()
                for name, wanted in WANTED.items():
                    path = f"/v1/spaces/s/subscriptions/{name}"
                    given = {"filter": wanted, "consumer": "out"}
                    http.put(path, json=given).raise_for_status()
            with contextlib.suppress(httpx.HTTPError):
                for price in range(20 if not point else 10_000):
                    number = len(acked) + price / 1e6
                    http.post("/v1/spaces/s/events", json={"price": number}).raise_for_status()
                    acked.append(number)
            if point:
                assert process.wait(60) == -signal.SIGKILL
            else:
                lines = http.get("/v1/spaces/s/events", params={"limit": 100_000}).text.split("\n")
                logged_there = [json.loads(one)["event"]["price"] for one in lines if one]
                wait_until(partial(all_are_sent, kafka, logged_there), "every match is sent")
                process.kill()
                process.wait()
        process.stdout.close()
    assert len(acked) > 20
    assert [one for one in logged_there if one in set(acked)] == acked
    check(committed(kafka, "once"), logged_there)


def test_what_is_missing_is_said() -> None:
    with pytest.raises(RangecastError, match="--nats-source requires --nats"):
        sources(None, ["a:b"], None, [])
    with pytest.raises(RangecastError, match="NAME:SPACE"):
        sources(None, [], "127.0.0.1:9", ["a"])

    async def work() -> None:
        async with serving() as service:
            client = Client(service)
            await client.put_out(409, kind="nats", subject="a")
            await client.put_out(409, kind="kafka", topic="a")

    run(work)
