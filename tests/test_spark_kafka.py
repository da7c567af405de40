import pytest
from pyspark.sql.types import StructType

from rangecast.errors import UsageError
from rangecast.spark.stream.kafka import Topic, events_of_messages, messages_of_rows, need_kafka
from rangecast.spark.stream.sources import BROKEN, text_schema


def test_without_its_connector_kafka_names_what_to_add(spark):
    for ask in (need_kafka, Topic("localhost:9092", "matches").check):
        with pytest.raises(UsageError, match=r"org.apache.spark:spark-sql-kafka-0-10_2.13:4"):
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
    assert [tuple(row) for row in messages_of_rows(answers).collect()] == [
        ("7", '{"event":7,"subscriptions":["a","b"]}')
    ]
