"""Events of a file matched or ranked on Spark, with the answers in the order of the file.

The driver reads and checks the file, as the local engine does, and sets the points down as Parquet
in a folder that the workers must be able to read; the workers answer them; the answers are sorted
by row, set down again, and read one after the other. So the result is the local engine's to the
last row, and nothing is held in memory at once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, DoubleType, LongType, StructType

from rangecast.model.events import Events
from rangecast.rank.shed import seconds_of
from rangecast.spark.columns import ERROR_TYPE
from rangecast.spark.events import Encoded
from rangecast.spark.steps.match import Prepared
from rangecast.spark.steps.rank import PreparedRanking, answered
from rangecast.spark.steps.results import Form, answer, result_schema
from rangecast.spark.subscriptions import binary_of, floats_of

_READ_LISTS = 256
"""Events whose matches are read at a time."""
_READ_ROWS = 1 << 14
"""Single answers that are read at a time."""


Answering = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Batches of row, event and point -> batches of the answers, in a worker."""


def match_in_order(
    session: SparkSession, prepared: Prepared, batches: Iterator[Events]
) -> Iterator[list[pa.Array]]:
    """Yield ids of events and rows of subscriptions, by event, then by arrival."""
    shipped, dimensions, id_type = prepared.shipped, len(prepared.space), prepared.id_type

    def plan(event_type: DataType) -> tuple[Answering, StructType]:
        form = Form(True, "row", LongType(), StructType().add("id", event_type), False)

        def answer_all(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            served = shipped.open()
            for batch in rows:
                yield from answer(served, batch, _encoded(batch, dimensions), form)

        return answer_all, result_schema(form, id_type)

    for batch in _in_order(session, batches, dimensions, plan, ["event"], _READ_LISTS):
        lists = batch.column("subscriptions")
        places = pa.array(np.repeat(np.arange(len(lists)), lists.value_lengths()))
        yield [batch.column("id").take(places), lists.flatten()]


def rank_in_order(
    session: SparkSession,
    prepared: PreparedRanking,
    batches: Iterator[Events],
    k: int,
    clock: int | None,
) -> Iterator[list[pa.Array]]:
    """Yield ids of events, ranks, rows of subscriptions and scores, by event, then by rank.

    clock   the place of a timestamp whose seconds are yielded as well
    """
    shipped, dimensions = prepared.shipped, len(prepared.space)
    found = {"rank": LongType(), "subscription": LongType(), "score": DoubleType()}
    if clock is not None:
        found["second"] = LongType()

    def plan(event_type: DataType) -> tuple[Answering, StructType]:
        schema = StructType().add("row", LongType()).add("id", event_type)
        for name, kind in found.items():
            schema = schema.add(name, kind)

        def answer_all(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            ranked = shipped.open()
            for batch in rows:
                encoded = _encoded(batch, dimensions)
                for places, *others in answered(ranked, encoded, k):
                    columns = [batch.column(name).take(places) for name in ("row", "id")] + others
                    if clock is not None:
                        times = encoded.points[places.to_numpy(), clock]
                        columns.append(pa.array(seconds_of(times)))
                    yield pa.record_batch(columns, schema.names)

        return answer_all, schema

    for batch in _in_order(session, batches, dimensions, plan, ["row", "rank"], _READ_ROWS):
        yield batch.columns[1:]


def _in_order(
    session: SparkSession,
    batches: Iterator[Events],
    dimensions: int,
    plan: Callable[[DataType], tuple[Answering, StructType]],
    order: list[str],
    size: int,
) -> Iterator[pa.RecordBatch]:
    """Answer events by the workers; yield the answers in order, `size` rows at a time.

    plan    the type of the events' ids -> what the workers do, and the columns of that
    order   the columns that the answers are sorted by
    """
    with tempfile.TemporaryDirectory(prefix="rangecast-") as name:
        folder = Path(name)
        if not _set_down(folder, batches, dimensions):
            return
        events = session.read.parquet(str(folder / "events"))
        found = events.mapInArrow(*plan(events.schema["id"].dataType))
        found.sort(*order).write.parquet(str(folder / "found"))
        for part in sorted((folder / "found").glob("part-*.parquet")):
            with pq.ParquetFile(part) as file:
                yield from file.iter_batches(size)


def _encoded(batch: pa.RecordBatch, dimensions: int) -> Encoded:
    points = floats_of(batch.column("point"), dimensions)
    return Encoded(points, np.arange(len(points)), np.empty(0, np.int64), pa.nulls(0, ERROR_TYPE))


def _set_down(folder: Path, batches: Iterator[Events], dimensions: int) -> int:
    """Write events as Parquet, numbered in order; return how many."""
    (folder / "events").mkdir()
    row = 0
    for number, (ids, points) in enumerate(batches):
        ends = np.arange(len(points) + 1) * 8 * dimensions
        table = pa.table(
            {
                "row": pa.array(np.arange(row, row + len(points))),
                "id": ids,
                "point": binary_of(ends, points),
            }
        )
        pq.write_table(table, folder / "events" / f"{number:06}.parquet")
        row += len(points)
    return row
