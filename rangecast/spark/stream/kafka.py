"""Topics of Kafka, as a source of events and as a sink of answers.

A message of the source is an event as JSON. The sink is at least once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import field
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StringType, StructField, StructType

from rangecast.errors import UsageError
from rangecast.model.space import Space
from rangecast.spark.stream.sinks import Batch, Commit, Sink, no_commit
from rangecast.spark.stream.sources import (
    BROKEN,
    Options,
    ReadRows,
    event_names,
    given_schema,
    text_schema,
    with_columns,
)
from rangecast.spark.stream.toml_file import Table, takes

_KAFKA = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


class KafkaSource(ReadRows, tag="kafka"):
    """A topic of Kafka, each message a JSON object with the attributes, or the schema, as keys."""

    may_grow = True
    servers: Annotated[str, takes("host:port, several with commas")]
    topic: Annotated[str, takes("the name of a topic")]

    def read(
        self, session: SparkSession, space: Space, keep: Sequence[str], *, stream: bool
    ) -> DataFrame:
        """Return the events."""
        need_kafka(session)
        reader = session.readStream if stream else session.read
        messages = (
            reader.format("kafka")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", self.topic)
            .options(**self.options)
            .load()
        )
        schema = (
            text_schema(event_names(space, keep), integer_ids=self.ids == "integer")
            if self.schema is None
            else given_schema(self.schema)
        )
        return with_columns(events_of_messages(messages, schema), self.columns)


class Topic(Sink):
    """A topic of Kafka: the event's id as key, the whole row as JSON."""

    def __init__(self, servers: str, topic: str, options: Mapping[str, Any] | None = None):
        self.name = f"Kafka topic {topic}"
        self._options = {**(options or {}), "kafka.bootstrap.servers": servers, "topic": topic}

    def check(self, session: SparkSession) -> None:
        need_kafka(session)

    def write(self, rows: DataFrame, batch: Batch) -> Commit:
        messages_of_rows(rows).write.format("kafka").options(**self._options).save()
        return no_commit


def messages_of_rows(rows: DataFrame) -> DataFrame:
    """Return rows as messages: key and value."""
    key = F.col("event").cast("string").alias("key")
    return rows.select(key, F.to_json(F.struct("*")).alias("value"))


class KafkaSink(Table, tag_field="type", tag="kafka"):
    """A topic of Kafka."""

    servers: Annotated[str, takes("host:port, several with commas")]
    topic: Annotated[str, takes("the name of a topic")]
    options: Annotated[Options, takes("a table of texts and numbers, for Spark's writer")] = field(
        default_factory=dict
    )

    @property
    def sink(self) -> Sink:
        return Topic(self.servers, self.topic, self.options)


def events_of_messages(messages: DataFrame, schema: StructType) -> DataFrame:
    """Return Kafka messages as events; one without an id is named topic/partition/offset."""
    kinds: dict[str, DataType] = {"id": StringType()}
    kinds |= {field.name: field.dataType for field in schema} | {BROKEN: StringType()}
    whole = StructType([StructField(name, kind) for name, kind in kinds.items()])
    text = F.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BROKEN}
    event = F.from_json(text, whole, options)
    rows = messages.select("topic", "partition", "offset", text.alias("_text"), event.alias("_e"))
    columns = {name: F.col(f"_e.`{name}`") for name in whole.names}
    columns[BROKEN] = F.when(F.col("_text").isNull(), "(no value)").otherwise(columns[BROKEN])
    if whole["id"].dataType == StringType():
        place = F.concat_ws("/", "topic", "partition", "offset")
        columns["id"] = F.coalesce(columns["id"], F.when(columns[BROKEN].isNull(), place))
    return rows.select([column.alias(name) for name, column in columns.items()])


def need_kafka(session: SparkSession) -> None:
    """Refuse to go on if Spark has no Kafka connector on its class path."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_KAFKA)
    except Exception:
        scala = jvm.scala.util.Properties.versionNumberString().rsplit(".", 1)[0]
        raise UsageError(
            "Spark's Kafka connector is not on the class path\n"
            "  to do: give Spark its coordinates: spark.jars.packages = "
            f"'org.apache.spark:spark-sql-kafka-0-10_{scala}:{session.version}'"
        ) from None
