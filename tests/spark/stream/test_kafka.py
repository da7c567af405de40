import json
import signal
import subprocess
import sys
from collections import Counter

import pyarrow.parquet as pq
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
from tests.support.server.kafka_edits_driver import EVENTS as EDITED_EVENTS
from tests.support.server.kafka_edits_driver import ROUNDS, edits, events
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
        ("t", 1, 5, '{"id": "b", "price": 1}{"id": "c"}'),
        ("t", 1, 6, ""),
        ("t", 1, 7, "null"),
    ]
    schema = "topic string, partition int, offset bigint, value string"
    messages = spark.createDataFrame(given, schema)
    events = events_of_messages(messages, text_schema(["id", "price"], integer_ids=False))
    assert [tuple(row) for row in events.select("id", "price", BROKEN).collect()] == [
        ("a", "2.5", None),
        ("t/0/2", "x", None),
        (None, None, "nonsense"),
        (None, None, "(no value)"),
        ("b", "1", given[4][3]),
        (None, None, ""),
        (None, None, "null"),
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
    with pytest.raises(UsageError, match=r"no column 'subscription' to be the key\n.*\n.*pairs"):
        Topic("localhost:9092", "matches", key="subscription").check_columns(answers.schema)


def drive(module, folder, servers, *arguments, code):
    """Run a driver of `tests.support.server` in a process of its own, to its end or death."""
    connector = ",".join(map(str, jars("connector", *CONNECTOR)))
    command = ["-m", f"tests.support.server.{module}", folder, servers, connector, *arguments]
    done = subprocess.run(
        [sys.executable, *command],
        env=environment(),
        cwd=ROOT,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == code, done.stderr[-3000:]


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.process
@pytest.mark.xdist_group("kafka")
def test_a_stream_between_topics_that_is_killed_loses_nothing_and_repeats_can_be_told(
    tmp_path, kafka
):
    """The events are older than the stream. A batch is sent, and its process dies."""
    for code, deadly in ((-signal.SIGKILL, ["staged", "2"]), (0, [])):
        drive("kafka_driver", tmp_path, kafka, *deadly, code=code)
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
    done = json.loads((tmp_path / "done.json").read_text())
    left = [sum(events for _, events in done[place + 1 :]) for place in range(len(done))]
    # Spark doesn't look for the end of a topic when it repeats a batch.
    assert [lag for lag, _ in done] == [None, None, *left[2:]]
    assert len(done) == 4


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.process
@pytest.mark.xdist_group("kafka")
def test_events_are_answered_with_all_edits_that_a_topic_had_when_their_batch_began(
    tmp_path, kafka
):
    """From an empty set; killed after a batch; each start has a backlog of events and of edits."""
    drive("kafka_edits_driver", tmp_path, kafka, "0", code=-signal.SIGKILL)
    drive("kafka_edits_driver", tmp_path, kafka, "1", code=0)
    first = pq.read_table(tmp_path / "matches" / f"batch={0:09}")["event"].to_pylist()
    assert first
    left = {name: price for name, price in events(0).items() if name not in first}
    assert left, "nothing is left to the second start"
    expected, ranges = {}, {}
    for number in range(ROUNDS):
        for name, range_ in edits(number):
            ranges.pop(name, None)
            if range_ is not None:
                ranges[name] = range_
        answered = events(number) | (left if number == 1 else {})
        expected |= {name: _holding(ranges, price) for name, price in answered.items()}
    rows = pq.read_table(tmp_path / "matches", columns=["event", "subscriptions"]).to_pylist()
    assert len(rows) == len(expected) == ROUNDS * EDITED_EVENTS
    assert {row["event"]: sorted(row["subscriptions"]) for row in rows} == expected


def _holding(ranges, price):
    return sorted(name for name, (low, high) in ranges.items() if low <= price <= high)
