"""NATS and Kafka, real ones: events in and matches out, each once, also when the server dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from rangecast import Engine
from rangecast.errors import RangecastError
from rangecast.server.connectors import base as bus
from rangecast.server.connectors import kafka as kafka_module
from rangecast.server.connectors import nats as nats_module
from rangecast.server.connectors import sources
from rangecast.server.connectors.base import BusError, Source, places
from rangecast.server.connectors.kafka import KafkaDelivery, kafka_source
from rangecast.server.connectors.nats import nats_source
from rangecast.server.delivery import push
from rangecast.server.log.base import Draft, LogError, MemoryLog, Unit
from rangecast.server.log.kafka import KafkaLog
from rangecast.server.metrics import exposition
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import EVENTS, events_of
from tests.server.log.test_log import filled
from tests.support.server.servers import nats_server
from tests.support.server.serving import SPACE, WANTED, Client, run, serving, subscribe, until

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("kafka")]
PRICES = [float(one) for one in range(-10, 90)]
REJECTED = [b"{", b'{"price": "x"}', b"[" * 3_000, b'{"price": "\xff"}']
"""Messages that are no events: they are counted, and what comes after them is taken."""


@asynccontextmanager
async def reading(
    service: Service, source: Callable[[Service], Awaitable[None]]
) -> AsyncIterator[None]:
    task = asyncio.ensure_future(source(service.core))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def logged(service: Service) -> list[float]:
    """Return the prices of all events in the log."""
    found = []
    for unit in service.core.log.read(0, 1 << 30):
        if unit.kind == EVENTS:
            found += [json.loads(line)["price"] for line in events_of(unit)[1]]
    return found


def judge(prices: list[float]) -> dict[float, set[str]]:
    engine = Engine(SPACE)
    for name, wanted in WANTED.items():
        engine.subscribe(name, wanted)
    found = {price: set(map(str, engine.match({"price": price}))) for price in prices}
    return {price: ids for price, ids in found.items() if ids}


def check(bodies: list[bytes], prices: list[float]) -> None:
    """The matches are those of an engine, each once and in order."""
    data = [json.loads(one)["data"] for one in bodies]
    assert {one["event"]["price"]: set(one["subscriptions"]) for one in data} == judge(prices)
    assert len(data) == len(judge(prices))
    assert [one["seq"] for one in data] == sorted(one["seq"] for one in data)


def lines(prices: list[float]) -> list[bytes]:
    return [b'{"price": %g}' % price for price in prices]


def test_nats_in_and_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus, "AGAIN", 0.1)
    monkeypatch.setattr(push, "AGAIN", 0.1)
    import nats

    async def work(url: str) -> None:
        there = await nats.connect(url)
        stream = there.jetstream(timeout=90)  # compiling may keep the event loop for seconds
        await stream.add_stream(name="in", subjects=["quotes.>"])
        await stream.add_stream(name="out", subjects=["matches"])
        source = nats_source(url, Source("quotes.us", "s"))
        folder = tmp_path / "data"
        async with serving(folder, nats=url) as service:
            client = Client(service)
            for wrong in ({"subject": "a.*"}, {"subject": 5}, {}, {"subject": "a", "x": 1}):
                await client.put_out(422, kind="nats", **wrong)
            await client.put_out(kind="nats", subject="nobody")
            await subscribe(service)
            async with reading(service, source):
                for line in [*lines(PRICES[:50]), *REJECTED]:
                    await stream.publish("quotes.us", line)
                await stream.publish("quotes.eu", b'{"price": 5}')
                await until(lambda: len(logged(service)) == 50)
                await until(lambda: service.core.source("nats:quotes.us").rejected == len(REJECTED))
            # no stream takes it: that is said, and nothing is lost
            await until(
                lambda: "no stream" in str(service.deliveries.shown(_out(service)).get("error"))
            )
            await client.put_out(kind="nats", subject="matches")
            await until(lambda: _out(service).cursor >= service.core.log.last - 5)
            before = _out(service).cursor
        async with serving(folder, nats=url) as service, reading(service, source):
            _out(service).cursor = before - 20  # as if acknowledgements had been lost
            for line in lines(PRICES[50:]):
                await stream.publish("quotes.us", line)
            await until(lambda: len(logged(service)) == 100)
            await until(lambda: _out(service).cursor >= service.core.log.last - 5)
            assert logged(service) == PRICES
        got = await stream.pull_subscribe("matches")
        bodies: list[bytes] = []
        while len(bodies) < (await stream.stream_info("out")).state.messages:
            bodies += [one.data for one in await got.fetch(200, timeout=60)]
        check(bodies, PRICES)
        await there.close()

    with nats_server(tmp_path) as url:
        run(lambda: work(url))


def test_what_a_stream_has_lost_is_reported_and_one_made_again_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_module, "AGAIN", 0.1)
    import nats

    async def work(url: str) -> None:
        there = await nats.connect(url)
        stream = there.jetstream(timeout=90)
        name, source = "nats:lossy", nats_source(url, Source("lossy", "s"))

        async def send(prices: list[float]) -> None:
            for line in lines(prices):
                await stream.publish("lossy", line)

        await stream.add_stream(name="lossy", subjects=["lossy"])
        await send(PRICES[:20])
        async with serving(tmp_path / "data") as service:
            async with reading(service, source):
                await until(lambda: logged(service) == PRICES[:20])
            await send(PRICES[20:40])
            await stream.purge_stream("lossy", seq=31)
            for number in (35, 36):
                await stream.delete_msg("lossy", number)
            expected = PRICES[:20] + PRICES[30:34] + PRICES[36:40]
            async with reading(service, source):
                await until(lambda: logged(service) == expected)
                shown = service.core.source(name).status()
                assert (shown["gaps"], shown["missed"], shown["recreations"]) == (2, 12, 0)
                assert "messages 35 to 36 were deleted" in shown["last_gap"]
            await stream.delete_stream("lossy")
            await stream.add_stream(name="lossy", subjects=["lossy"])
            await send(PRICES[:50])
            async with reading(service, source):
                await until(lambda: logged(service) == expected + PRICES[:50])
                shown = service.core.source(name).status()
                assert (shown["gaps"], shown["recreations"]) == (2, 1)
            # A stream that ends before its place, as one of a restored disk.
            await stream.purge_stream("lossy", seq=41)
            await there.close()
            entry = service.core.registry.space("default", "s")
            (rest,) = (
                one
                for one in places(service.core, "nats:lossy:lossy:", "s").items()
                if one[1] == 50
            )
            where = f"nats:lossy:lossy:{rest[0]}"
            await result_of(service.core.publish(entry, [b'{"price": 5}'], source=where, upto=80))
            async with reading(service, source):
                await until(lambda: logged(service)[-10:] == PRICES[40:50])
                assert "ends at 50 now" in service.core.source(name).last_gap

    with nats_server(tmp_path) as url:
        run(lambda: work(url))


def committed(servers: str, topic: str) -> list[bytes]:
    """Return all that is committed in a topic of two partitions."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "t",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(2)])
    bodies: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < 2:
        one = reader.poll(60)
        assert one is not None
        if one.error() is None:
            bodies.append(one.value())
        elif one.error().code() == KafkaError._PARTITION_EOF:
            ended.add(one.partition())
    reader.close()
    return bodies


def test_kafka_in_and_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: str) -> None:
    monkeypatch.setattr(bus, "AGAIN", 0.1)
    monkeypatch.setattr(push, "AGAIN", 0.1)
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    folder = tmp_path / "data"

    async def work(servers: str) -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics([NewTopic("quotes", 2), NewTopic("matches", 2)]).values():
            made.result()
        there = Producer({"bootstrap.servers": servers})
        source = kafka_source(servers, Source("quotes", "s"))

        def send(some: list[bytes]) -> None:
            for place, line in enumerate(some):
                there.produce("quotes", line, partition=place % 2)
            there.flush()

        async with serving(folder, kafka=servers) as service:
            client = Client(service)
            for wrong in ({"topic": ""}, {"topic": 5}, {}, {"topic": "a", "x": 1}):
                await client.put_out(422, kind="kafka", **wrong)
            await client.put_out(kind="kafka", topic="matches")
            await subscribe(service)
            async with reading(service, source):
                send([*lines(PRICES[:50]), *REJECTED])
                await until(lambda: len(logged(service)) == 50, 120)
                await until(lambda: service.core.source("kafka:quotes").rejected == len(REJECTED))
                await until(lambda: _out(service).cursor >= service.core.log.last - 5, 120)
        deaths = []
        commit = KafkaDelivery._commit

        def dies(way: KafkaDelivery) -> None:
            """Between what is written and its commit, then after it and before it is known."""
            deaths.append(1)
            if len(deaths) == 2:
                commit(way)
            if len(deaths) < 3:
                raise BusError("died")
            commit(way)

        monkeypatch.setattr(KafkaDelivery, "_commit", dies)
        async with serving(folder, kafka=servers) as service, reading(service, source):
            send(lines(PRICES[50:]))
            await until(lambda: len(logged(service)) == 100, 120)
            await until(lambda: len(deaths) == 2, 120)
            send([b'{"price": 1000}'])
            await until(lambda: _out(service).cursor >= service.core.log.last - 5, 120)
            assert sorted(logged(service)) == [*PRICES, 1000]
        check(await asyncio.to_thread(committed, servers, "matches"), [*PRICES, 1000])

    run(lambda: work(kafka))


def test_what_a_topic_has_lost_is_reported_and_one_made_again_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: str
) -> None:
    monkeypatch.setattr(kafka_module, "AGAIN", 0.1)
    monkeypatch.setattr(kafka_module, "LOOK", 0.5)
    from confluent_kafka import Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    admin, there = (make({"bootstrap.servers": kafka}) for make in (AdminClient, Producer))
    name, source = "kafka:lossy", kafka_source(kafka, Source("lossy", "s"))

    def make() -> None:
        for done in admin.create_topics([NewTopic("lossy", 1)]).values():
            done.result()

    def send(prices: list[float]) -> None:
        for line in lines(prices):
            there.produce("lossy", line, partition=0)
        there.flush()

    def cut(upto: int) -> None:
        for done in admin.delete_records([TopicPartition("lossy", 0, upto)]).values():
            done.result()

    async def work() -> None:
        make()
        send(PRICES[:20])
        expected = [1.0, *PRICES[5:20]]
        async with serving(tmp_path) as service:
            # As a log of before: the place has no id. It is gone on from.
            entry = service.core.registry.space("default", "s")
            await result_of(
                service.core.publish(entry, [b'{"price": 1}'], source="kafka:lossy:0", upto=5)
            )
            async with reading(service, source):
                await until(lambda: logged(service) == expected)
            assert service.core.source(name).status()["last_gap"] is None
        send(PRICES[20:40])
        cut(30)
        expected += PRICES[30:40]
        async with serving(tmp_path) as service:
            async with reading(service, source):
                await until(lambda: logged(service) == expected)
                shown = service.core.source(name).status()
                assert (shown["gaps"], shown["missed"], shown["recreations"]) == (1, 10, 0)
                assert "messages 20 to 29 were deleted" in shown["last_gap"]
                assert (shown["state"], shown["failures"]) == ("running", 0)
                said = exposition(service, None)[0].decode()
                assert f'rangecast_source_missed_total{{source="{name}"}} 10.0' in said
            # and one that has more, under the same name, by now
            for done in admin.delete_topics(["lossy"]).values():
                done.result()
            await until_made(make)
            send(PRICES[:60])
            expected += PRICES[:60]
            async with reading(service, source):
                await until(lambda: logged(service) == expected)
                shown = service.core.source(name).status()
                assert (shown["gaps"], shown["recreations"]) == (1, 1)
                assert "was deleted and made again" in shown["last_gap"]
                for done in admin.delete_topics(["lossy"]).values():  # while it is read
                    done.result()
                await until_made(make)
                send(PRICES[10:90])
                expected += PRICES[10:90]
                await until(lambda: logged(service) == expected)
                assert service.core.source(name).recreations == 2
        send([7.0])
        async with serving(tmp_path) as service, reading(service, source):
            await until(lambda: logged(service) == [*expected, 7.0])
            assert service.core.source(name).status()["last_gap"] is None

    run(work)


async def until_made(make: Callable[[], None]) -> None:
    """Make a topic whose deletion may still go on."""
    from confluent_kafka import KafkaException

    for _ in range(300):
        try:
            return await asyncio.to_thread(make)
        except KafkaException:
            await asyncio.sleep(0.1)
    raise AssertionError("the old topic stays")


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
    # a second writer takes over: what the first tries comes to nothing
    other = KafkaLog(url)
    for _ in range(2):
        with pytest.raises(LogError, match="another server writes this log now"):
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
                while http.get("/v1/consumers/out").json()["lag"] > 5:
                    time.sleep(0.1)
                lines = http.get("/v1/spaces/s/events", params={"limit": 100_000}).text.split("\n")
                logged_there = [json.loads(one)["event"]["price"] for one in lines if one]
                process.kill()
                process.wait()
        process.stdout.close()
    assert len(acked) > 20
    assert [one for one in logged_there if one in set(acked)] == acked
    check(committed(kafka, "once"), logged_there)


def test_what_is_missing_is_said() -> None:
    with pytest.raises(RangecastError, match="--nats-source needs --nats"):
        sources(None, ["a:b"], None, [])
    with pytest.raises(RangecastError, match="NAME:SPACE"):
        sources(None, [], "127.0.0.1:9", ["a"])

    async def work() -> None:
        async with serving() as service:
            client = Client(service)
            await client.put_out(409, kind="nats", subject="a")
            await client.put_out(409, kind="kafka", topic="a")

    run(work)


def _out(service: Service) -> Any:
    return service.core.registry.consumer("default", "out")
