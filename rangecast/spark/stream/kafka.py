"""Kafka topics as a source of events and as a sink for answers.

A message of the source is an event as JSON. The sink is at least once: a batch that is run again is
sent again. Each message has headers that say of which stream, batch and version it is (`HEADERS`).
A batch is the same when it is sent again, and no later one is sent before it; so a consumer that
remembers, for each partition, what it saw of the newest batch can drop repeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import field
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StringType, StructField, StructType

from rangecast.errors import UsageError
from rangecast.model.space import Space
from rangecast.spark.events import BROKEN
from rangecast.spark.stream.json_rows import TEXT, json_values
from rangecast.spark.stream.pipeline.toml_file import takes
from rangecast.spark.stream.sinks.base import MOMENTS, Batch, Commit, Sink, SinkTable, no_commit
from rangecast.spark.stream.sinks.column_types import UNWRITABLE, reject_map_keys, reject_types
from rangecast.spark.stream.sources import (
    Options,
    ReadRows,
    event_schema,
    given_schema,
    with_columns,
)

HEADERS = ("rangecast.stream", "rangecast.batch", "rangecast.version")
"""The names of a message's headers; their values are texts."""
_JARS = "spark-sql-kafka-0-10, spark-token-provider-kafka-0-10, kafka-clients and commons-pool2"


class KafkaSource(ReadRows, tag="kafka"):
    """A topic of Kafka, each message a JSON object with the attributes, or the schema, as keys."""

    is_replayable = False
    servers: Annotated[str, takes("host:port, separated by commas")]
    topic: Annotated[str, takes("the name of a topic")]
    starting: Literal["earliest", "latest"] = "earliest"
    """Where a stream begins that has no checkpoint yet: with the oldest message that the topic
    still has, or with what comes from now on. A batch job reads all."""
    compacted: Annotated[bool, takes("true or false")] = False
    """Whether the messages are subscriptions, by key: the newest of a key holds, and one without a
    value removes it. For `edits_source`."""

    def read(
        self,
        session: SparkSession,
        space: Space,
        keep: Sequence[str],
        *,
        stream: bool,
        named: bool = True,
    ) -> DataFrame:
        """Return the events; `named`: one without an id is named after its place in the topic."""
        need_kafka(session)
        if not stream and self.starting == "latest":
            raise UsageError(
                "starting = 'latest' leaves nothing to read for a batch job\n"
                "  hint: leave it out, or use mode = 'stream'"
            )
        reader = session.readStream if stream else session.read
        messages = (
            reader.format("kafka")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", self.starting)
            .options(**self.options)
            .load()
        )
        if self.compacted:
            rows = edits_of_messages(messages, integer_ids=self.ids == "integer")
            return with_columns(rows, self.columns)
        schema = (
            event_schema(space, keep, integer_ids=self.ids == "integer")
            if self.schema is None
            else given_schema(self.schema)
        )
        return with_columns(events_of_messages(messages, schema, named=named), self.columns)


class Topic(Sink):
    """A topic of Kafka: the whole row as JSON, with headers that tell repeats.

    key   the column that is the message's key: "event"; "subscription" of pairs, transitions and
          covered subscriptions; "key" of transitions; "object" of a step `notify`
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        options: Mapping[str, Any] | None = None,
        *,
        key: str = "event",
    ):
        self.name = f"Kafka topic {topic}"
        self._key = key
        self._options = {**(options or {}), "kafka.bootstrap.servers": servers, "topic": topic}

    def check(self, session: SparkSession) -> None:
        need_kafka(session)

    def check_columns(self, columns: StructType) -> None:
        if self._key not in columns.names:
            raise UsageError(
                f"{self.name}: the rows have no column {self._key!r} to be the key\n"
                f"  expected: one of {', '.join(columns.names)}\n"
                "  hint: take another key; pairs (output = 'rows') have a subscription"
            )
        reject_types(columns, UNWRITABLE, self.name)
        reject_map_keys(columns, self.name)

    def shape(self, columns: StructType) -> str:
        return f"{super().shape(columns)}; key {self._key}"

    def write(self, rows: DataFrame, batch: Batch) -> Commit:
        messages = messages_of_rows(rows, self._key, batch)
        messages.write.format("kafka").options(**self._options).save()
        return no_commit


def messages_of_rows(rows: DataFrame, key: str, batch: Batch) -> DataFrame:
    """Return rows as messages: key, value and headers."""
    values = (batch.stream, batch.number, batch.version)
    headers = [
        F.struct(F.lit(name).alias("key"), F.lit(str(value)).cast("binary").alias("value"))
        for name, value in zip(HEADERS, values, strict=True)
    ]
    return rows.select(
        F.col(key).cast("string").alias("key"),
        F.to_json(F.struct("*"), MOMENTS).alias("value"),
        F.array(*headers).alias("headers"),
    )


class KafkaSink(SinkTable, tag="kafka"):
    """A topic of Kafka."""

    sink_class = Topic
    servers: Annotated[str, takes("host:port, separated by commas")]
    topic: Annotated[str, takes("the name of a topic")]
    key: Literal["event", "subscription", "key", "object"] = "event"
    options: Annotated[Options, takes("a table of strings and numbers, for Spark's writer")] = (
        field(default_factory=dict)
    )


def events_of_messages(messages: DataFrame, schema: StructType, *, named: bool = True) -> DataFrame:
    """Return Kafka messages as events.

    `named`: one without an id is named topic/partition/offset.
    """
    kinds: dict[str, DataType] = {"id": StringType()}
    kinds |= {field.name: field.dataType for field in schema}
    whole = StructType([StructField(name, kind) for name, kind in kinds.items()])
    text = F.col("value").cast("string").alias(TEXT)
    rows, columns = json_values(messages.select("topic", "partition", "offset", text), whole)
    columns[BROKEN] = F.when(F.col(TEXT).isNull(), "(no value)").otherwise(columns[BROKEN])
    if named and whole["id"].dataType == StringType():
        position = F.concat_ws("/", "topic", "partition", "offset")
        columns["id"] = F.coalesce(columns["id"], F.when(columns[BROKEN].isNull(), position))
    return rows.select([column.alias(name) for name, column in columns.items()])


def edits_of_messages(messages: DataFrame, *, integer_ids: bool) -> DataFrame:
    """Return the messages of a compacted topic as edits of a set: id, op, filter, score.

    The key is the id of a subscription. A value is a JSON object with its filter, and perhaps its
    score (0 without, whatever older messages had); a message without a value removes it.
    """
    key, text = F.col("key").cast("string"), F.col("value").cast("string")
    schema = StructType([StructField(name, StringType()) for name in ("filter", "score")])
    rows, columns = json_values(messages.select(key.alias("_key"), text.alias(TEXT)), schema)
    id_ = F.col("_key").try_cast("bigint") if integer_ids else F.col("_key")
    broken = F.when(id_.isNull(), F.concat(F.lit("(key) "), F.coalesce("_key", F.lit("none"))))
    return rows.select(
        id_.alias("id"),
        F.when(F.col(TEXT).isNull(), "remove").otherwise("upsert").alias("op"),
        columns["filter"].alias("filter"),
        F.when(F.col(TEXT).isNotNull(), F.coalesce(columns["score"], F.lit("0"))).alias("score"),
        F.coalesce(broken, columns[BROKEN]).alias(BROKEN),
    )


def need_kafka(session: SparkSession) -> None:
    """Fail early if Spark has no Kafka connector on its class path."""
    nothing = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "nothing"}
    try:  # columns are known without asking a broker
        _ = session.read.format("kafka").options(**nothing).load().schema
    except AnalysisException:
        raise UsageError(
            "Spark's Kafka connector is not on the class path\n"
            "  hint: add the connector for your Spark version: spark.jars.packages = "
            f"'org.apache.spark:spark-sql-kafka-0-10_2.13:{session.version}', or the newest "
            "earlier one in your repository; or the files of "
            f"{_JARS}: spark.jars = 'a.jar,b.jar,...'"
        ) from None
