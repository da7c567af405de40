"""A server that reads a bus, and what it has logged."""

from __future__ import annotations

import json

from rangecast import Engine
from tests.support.server.serving import SPACE, WANTED


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
