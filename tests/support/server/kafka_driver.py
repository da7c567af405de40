"""A process between two topics of Kafka: `kafka_driver FOLDER SERVERS JARS [STEP TIMES]`.

The first one sends the events. It kills itself, and the JVM with it, when a step of the protocol is
reached for the n-th time; else it writes down what the topic of answers has.
"""

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa

from rangecast.model.attributes.base import Number
from rangecast.model.encoding.subscriptions import encode_subscriptions
from rangecast.model.space import Space
from rangecast.spark import MatchStep, VersionedSet, get_session, run_stream
from rangecast.spark.stream.batch import BatchOutcome
from rangecast.spark.stream.kafka import KafkaSink, KafkaSource
from rangecast.store.versions import Versions
from tests.support.server.servers import LIGHT

SPACE = Space([Number("price")])
FILTERS = {"low": "price < 50", "some": "price in (7, 70)", "high": "price > 90"}
EVENTS = {f"e{number}": number % 100 for number in range(450)}


def produce(session, servers: str) -> None:
    rows = [(one, json.dumps({"id": one, "price": price})) for one, price in EVENTS.items()]
    messages = session.createDataFrame(rows, "key string, value string")
    options = {"kafka.bootstrap.servers": servers, "topic": "events"}
    messages.write.format("kafka").options(**options).save()


def sent(session, servers: str) -> list[dict[str, str]]:
    """Return all messages of the sink: key, value, and headers by name."""
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": "answers",
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    rows = session.read.format("kafka").options(**options).load().collect()
    return [
        {"key": bytes(row["key"]).decode(), **json.loads(bytes(row["value"]))}
        | {header["key"]: bytes(header["value"]).decode() for header in row["headers"]}
        for row in rows
    ]


def main() -> None:
    folder, servers, jars, *deadly = Path(sys.argv[1]), *sys.argv[2:]
    seen: Counter[str] = Counter()

    def watch(step: str) -> None:
        seen[step] += 1
        if [step, str(seen[step])] == deadly:
            os.killpg(0, signal.SIGKILL)

    conf = {
        "spark.jars": jars,
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": LIGHT,
        "spark.sql.shuffle.partitions": 1,
    }
    session = get_session("local[2]", conf=conf)
    versions = Versions(folder / "versions")
    if not versions.all():
        produce(session, servers)
        table = pa.table({"id": [*FILTERS], "filter": [*FILTERS.values()]})
        versions.commit(encode_subscriptions(table, SPACE), SPACE)
    source = KafkaSource(servers, "events", options={"maxOffsetsPerTrigger": 100})
    sink = KafkaSink(servers, "answers", key="subscription").sink
    done: list[BatchOutcome] = []
    run_stream(
        source.read(session, SPACE, (), stream=True),
        [MatchStep(VersionedSet(versions, SPACE), [sink])],
        checkpoint=folder / "checkpoint",
        watch=watch,
        report=done.append,
    )
    (folder / "done.json").write_text(json.dumps([(one.lag, one.events) for one in done]))
    (folder / "sent.json").write_text(json.dumps(sent(session, servers)))


if __name__ == "__main__":
    main()
