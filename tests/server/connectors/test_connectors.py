"""NATS and Kafka, real ones: events in and matches out, each once, also when the server dies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rangecast.server.connectors import base as bus
from rangecast.server.connectors import kafka as kafka_module
from rangecast.server.connectors.base import BusError, Source, read_positions
from rangecast.server.connectors.kafka import KafkaDelivery, kafka_source
from rangecast.server.connectors.nats import nats_source
from rangecast.server.delivery import push
from rangecast.server.metrics import exposition
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import EVENTS, events_of
from tests.support.server.connectors import check, committed, lines
from tests.support.server.servers import nats_server
from tests.support.server.serving import Client, run, serving, subscribe, until

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


def is_delivered(service: Service) -> bool:
    """Return whether each logged event that matches was delivered; all with a price above 0 do."""
    matching = [
        unit.first + place
        for unit in service.core.log.read(0, 1 << 30)
        if unit.kind == EVENTS
        for place, line in enumerate(events_of(unit)[1])
        if json.loads(line)["price"] > 0
    ]
    return bool(_out(service).cursor >= matching[-1])


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
                lambda: (
                    "no JetStream stream"
                    in str(service.deliveries.shown(_out(service)).get("error"))
                )
            )
            await client.put_out(kind="nats", subject="matches")
            await until(lambda: is_delivered(service))
            before = _out(service).cursor
        async with serving(folder, nats=url) as service, reading(service, source):
            _out(service).cursor = before - 20  # as if acknowledgements had been lost
            for line in lines(PRICES[50:]):
                await stream.publish("quotes.us", line)
            await until(lambda: len(logged(service)) == 100)
            await until(lambda: is_delivered(service))
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
    monkeypatch.setattr(bus, "AGAIN", 0.1)
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
                for one in read_positions(service.core, "nats:lossy:lossy:", "s").items()
                if one[1] == 50
            )
            where = f"nats:lossy:lossy:{rest[0]}"
            await result_of(service.core.publish(entry, [b'{"price": 5}'], source=where, upto=80))
            async with reading(service, source):
                await until(lambda: logged(service)[-10:] == PRICES[40:50])
                assert "now ends at 50" in service.core.source(name).last_gap

    with nats_server(tmp_path) as url:
        run(lambda: work(url))


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
                await until(lambda: is_delivered(service), 120)
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
            await until(lambda: is_delivered(service), 120)
            assert sorted(logged(service)) == [*PRICES, 1000]
        check(await asyncio.to_thread(committed, servers, "matches"), [*PRICES, 1000])

    run(lambda: work(kafka))


def test_what_a_topic_has_lost_is_reported_and_one_made_again_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: str
) -> None:
    monkeypatch.setattr(bus, "AGAIN", 0.1)
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
                error_text = exposition(service, None)[0].decode()
                assert f'rangecast_source_missed_total{{source="{name}"}} 10.0' in error_text
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
                assert "was deleted and recreated" in shown["last_gap"]
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


def _out(service: Service) -> Any:
    return service.core.registry.consumer("default", "out")
