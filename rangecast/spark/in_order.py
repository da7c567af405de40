"""Events of a file matched on Spark, with the answers in the order of the file.

The driver reads and checks the file, as the local engine does, and sets the points down as Parquet
in a folder that the workers must be able to read; the workers match them; the answers are sorted
by row, set down again, and read one after the other. So the result is the local engine's to the
last row, and nothing is held in memory at once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from rangecast.model.boxes import Boxes
from rangecast.model.events import Events
from rangecast.model.space import Space
from rangecast.spark.answers import Form, answer, result_schema
from rangecast.spark.columns import ERROR_TYPE
from rangecast.spark.events import Encoded
from rangecast.spark.matching import Prepared, prepare
from rangecast.spark.subscriptions import binary_of, floats_of

_READ = 256
"""Events whose answers are read at a time."""


def prepare_rows(session: SparkSession, boxes: Boxes, space: Space, index: str) -> Prepared:
    """Prepare subscriptions that are named by their rows."""
    return prepare(session, replace(boxes, ids=pa.array(np.arange(boxes.rows))), space, index=index)


def match_in_order(
    session: SparkSession, prepared: Prepared, batches: Iterator[Events]
) -> Iterator[list[pa.Array]]:
    """Yield ids of events and rows of subscriptions, by event, then by arrival."""
    with tempfile.TemporaryDirectory(prefix="rangecast-") as name:
        folder = Path(name)
        if not _set_down(folder, batches, len(prepared.space)):
            return
        events = session.read.parquet(str(folder / "events"))
        kept = StructType([StructField("event_id", events.schema["event"].dataType)])
        form = Form(True, "row", LongType(), kept, False)
        shipped, dimensions = prepared.shipped, len(prepared.space)

        def answer_all(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            served = shipped.open()
            none = np.empty(0, np.int64)
            for batch in rows:
                points = floats_of(batch.column("point"), dimensions)
                places = np.arange(len(points))
                encoded = Encoded(points, places, none, pa.nulls(0, ERROR_TYPE))
                yield from answer(served, batch, encoded, form)

        found = events.withColumnRenamed("event", "event_id").mapInArrow(
            answer_all, result_schema(form, prepared.id_type)
        )
        found.sort("event").write.parquet(str(folder / "found"))
        for part in sorted((folder / "found").glob("part-*.parquet")):
            with pq.ParquetFile(part) as file:
                for batch in file.iter_batches(_READ):
                    lists = batch.column("subscriptions")
                    places = pa.array(np.repeat(np.arange(len(lists)), lists.value_lengths()))
                    yield [batch.column("event_id").take(places), lists.flatten()]


def _set_down(folder: Path, batches: Iterator[Events], dimensions: int) -> int:
    """Write events as Parquet, numbered in order; return how many."""
    (folder / "events").mkdir()
    row = 0
    for number, (ids, points) in enumerate(batches):
        ends = np.arange(len(points) + 1) * 8 * dimensions
        table = pa.table(
            {
                "row": pa.array(np.arange(row, row + len(points))),
                "event": ids,
                "point": binary_of(ends, points),
            }
        )
        pq.write_table(table, folder / "events" / f"{number:06}.parquet")
        row += len(points)
    return row
