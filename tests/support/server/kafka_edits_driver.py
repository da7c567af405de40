"""A pipeline whose subscriptions and events are topics: `kafka_edits_driver FOLDER SERVERS JARS N`.

N is the first round that it sends. In round 0 it kills itself, and the JVM with it, after the first
batch of events; later rounds are answered to their ends, each by a new start of the pipeline. What
a round sends is there before the pipeline starts.
"""

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

from rangecast.spark import Pipeline, get_session
from tests.support.server.servers import LIGHT

ROUNDS = 3
EVENTS = 60
"""Of a round."""
_SPACE = '[[attribute]]\nname = "price"\ntype = "number"\n'
_PIPELINE = """
mode = "stream"
space = "space.toml"
[[source]]
name = "quotes"
type = "kafka"
servers = "{servers}"
topic = "quotes-of-edits"
options.maxOffsetsPerTrigger = 40
[[source]]
name = "edits"
type = "kafka"
servers = "{servers}"
topic = "alerts"
compacted = true
options.maxOffsetsPerTrigger = 20
[[subscriptions]]
edits_source = "edits"
[[step]]
type = "match"
output = "arrays"
[[sink]]
type = "parquet"
path = "matches"
[stream]
checkpoint = "checkpoint"
"""

Edit = tuple[str, tuple[int, int] | None]
"""A subscription and its range of prices; `None`: it is removed."""


def edits(number: int) -> list[Edit]:
    """Return the edits of a round, in order."""
    chance = random.Random(f"edits {number}")
    found: list[Edit] = []
    for _ in range(30):
        low = chance.randrange(100)
        removed = number > 0 and chance.random() < 0.4
        range_ = None if removed else (low, low + chance.randrange(40))
        found.append((f"s{chance.randrange(20)}", range_))
    return found


def events(number: int) -> dict[str, int]:
    """Return the prices of a round's events."""
    chance = random.Random(f"events {number}")
    return {f"{number}/{place}": chance.randrange(140) for place in range(EVENTS)}


def produce(servers: str, number: int) -> None:
    """Send a round: the events first, so that an answer that doesn't wait for edits is wrong."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers})
    for name, price in events(number).items():
        producer.produce("quotes-of-edits", json.dumps({"id": name, "price": price}), key=name)
    producer.flush()
    for name, range_ in edits(number):
        text = None if range_ is None else "price between {} and {}".format(*range_)
        value = None if text is None else json.dumps({"filter": text})
        producer.produce("alerts", value, key=name)
    assert producer.flush() == 0


def die(done: Any) -> None:
    if "match" in done.steps:
        os.killpg(0, signal.SIGKILL)


def main() -> None:
    folder, servers, jars, first = Path(sys.argv[1]), *sys.argv[2:]
    (folder / "space.toml").write_text(_SPACE)
    (folder / "pipeline.toml").write_text(_PIPELINE.format(servers=servers))
    conf = {
        "spark.jars": jars,
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": LIGHT,
        "spark.sql.shuffle.partitions": 1,
    }
    session = get_session("local[2]", conf=conf)
    for number in range(int(first), ROUNDS):
        produce(servers, number)
        pipeline = Pipeline.load(folder / "pipeline.toml")
        pipeline.run(session, die if number == 0 else lambda _: None)


if __name__ == "__main__":
    main()
