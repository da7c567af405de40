import json
import signal
import subprocess
import sys
from collections import Counter

import pytest
from pyspark.sql.types import StructType

from rangecast.errors import UsageError
from rangecast.spark.events import BROKEN
from rangecast.spark.stream.kafka import (
    HEADERS,
    Topic,
    events_of_messages,
    messages_of_rows,
    need_kafka,
)
from rangecast.spark.stream.sinks.base import Batch
from rangecast.spark.stream.sources import text_schema
from tests.support.server.kafka_driver import EVENTS
from tests.support.server.servers import CONNECTOR, ROOT, environment, jars


def test_without_its_connector_kafka_names_what_to_add(spark):
    words = r"org.apache.spark:spark-sql-kafka-0-10_2.13:4.*kafka-clients.*spark.jars = "
    for ask in (need_kafka, Topic("localhost:9092", "matches").check):
        with pytest.raises(UsageError, match=words):
            ask(spark)


def test_messages_of_kafka_are_events_and_answers_are_messages(spark):
    given = [
        ("t", 0, 1, '{"id": "a", "price": 2.5, "other": 1}'),
        ("t", 0, 2, '{"price": "x"}'),
        ("t", 1, 3, "nonsense"),
        ("t", 1, 4, None),
    ]
    schema = "topic string, partition int, offset bigint, value string"
    messages = spark.createDataFrame(given, schema)
    events = events_of_messages(messages, text_schema(["id", "price"], integer_ids=False))
    assert [tuple(row) for row in events.select("id", "price", BROKEN).collect()] == [
        ("a", "2.5", None),
        ("t/0/2", "x", None),
        (None, None, "nonsense"),
        (None, None, "(no value)"),
    ]
    events = events_of_messages(messages, StructType.fromDDL("other int, price string"))
    assert [tuple(row) for row in events.select("id", "other", "price").take(2)] == [
        ("a", 1, "2.5"),
        ("t/0/2", None, "x"),
    ]
    answers = spark.createDataFrame([(7, ["a", "b"])], "event bigint, subscriptions array<string>")
    batch = Batch("stream", 3, 12, 2)
    row = messages_of_rows(answers, "event", batch).collect()[0]
    assert (row["key"], row["value"]) == ("7", '{"event":7,"subscriptions":["a","b"]}')
    assert [(header["key"], bytes(header["value"])) for header in row["headers"]] == [
        ("rangecast.stream", b"stream"),
        ("rangecast.batch", b"3"),
        ("rangecast.version", b"12"),
    ]
    with pytest.raises(UsageError, match=r"no column 'subscription' to be the key.*\n.*pairs"):
        messages_of_rows(answers, "subscription", batch)


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.xdist_group("kafka")
def test_a_stream_between_topics_that_is_killed_loses_nothing_and_repeats_can_be_told(
    tmp_path, kafka
):
    """The events are older than the stream. A batch is sent, and its process dies."""
    connector = ",".join(map(str, jars("connector", *CONNECTOR)))
    for code, deadly in ((-signal.SIGKILL, ["staged", "2"]), (0, [])):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.support.server.kafka_driver",
                tmp_path,
                kafka,
                connector,
                *deadly,
            ],
            env=environment(),
            cwd=ROOT,
            start_new_session=True,
            capture_output=True,
            text=True,
            timeout=1800,
        )
        assert done.returncode == code, done.stderr[-3000:]
    expected = {
        (one, name)
        for one, price in EVENTS.items()
        for name, holds in (
            ("low", price < 50),
            ("some", price in (7, 70)),
            ("high", price > 90),
        )
        if holds
    }
    messages = json.loads((tmp_path / "sent.json").read_text())
    assert {(row["event"], row["subscription"]) for row in messages} == expected
    assert all(row["key"] == row["subscription"] for row in messages)
    names = ("event", "subscription", *HEADERS)
    told = Counter(tuple(row[name] for name in names) for row in messages)
    assert len(told) == len(expected), "a repeat has other headers"
    assert len({row["rangecast.stream"] for row in messages}) == 1
    again = {one[3] for one, times in told.items() if times > 1}
    assert again == {"1"}, "one batch was sent twice"
