"""Answer the events of a file on Spark, with the answers in file order.

The driver reads and checks the file, as the local engine does, and sets the points down as Parquet
in a folder that the workers must be able to read; the workers answer them, with a row of lists per
event; these are sorted by row, set down again, and read one after the other. So the result is the
local engine's to the last row, and nothing is held in memory at once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructType

from rangecast.model.attributes.text_store import TEXTS
from rangecast.model.encoding.events import Events
from rangecast.spark.columns import ERROR_TYPE
from rangecast.spark.events import EncodedEvents
from rangecast.spark.steps.prepared import Prepared
from rangecast.spark.steps.results import ResultForm, answer, result_schema
from rangecast.spark.subscriptions.packed_boxes import binary_of, floats_of

_READ = 256
"""Events whose answers are read at a time."""


def answer_in_order(
    session: SparkSession, prepared: Prepared, batches: Iterator[Events]
) -> Iterator[dict[str, pa.Array]]:
    """Yield the id of the event as `event`, and the columns of the answers, in order."""
    sharded, width = prepared.answerer, prepared.width
    patterns = tuple(prepared.space.patterns.values())
    with tempfile.TemporaryDirectory(prefix="rangecast-") as name:
        folder = Path(name)
        if not _write_events(folder, batches, width, patterns):
            return
        events = session.read.parquet(str(folder / "events"))
        kept = StructType().add("id", events.schema["id"].dataType)
        form = ResultForm(True, "row", LongType(), kept, False)

        def answer_all(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in rows:
                yield from answer(sharded, batch, _encoded(batch, width, patterns), form)

        schema = sharded.schema
        answered = events.mapInArrow(answer_all, result_schema(form, schema))
        answered.sort("event").write.parquet(str(folder / "found"))
        for part in sorted((folder / "found").glob("part-*.parquet")):
            with pq.ParquetFile(part) as file:
                for batch in file.iter_batches(_READ):
                    lists = {
                        column_name: batch.column(form.name(column_name))
                        for column_name in schema.names
                    }
                    counts = lists["subscription"].value_lengths()
                    places = pa.array(np.repeat(np.arange(len(counts)), counts))
                    answers = {
                        column_name: column.flatten() for column_name, column in lists.items()
                    }
                    yield {"event": batch.column("id").take(places), **answers}


def _encoded(batch: pa.RecordBatch, width: int, patterns: tuple[int, ...]) -> EncodedEvents:
    points = floats_of(batch.column("point"), width)
    if patterns:
        points = points.copy()
        with TEXTS.batch() as keep_texts:
            for number, axis in enumerate(patterns):  # handles of texts are those of one process
                texts = batch.column(f"text {number}").to_pylist()
                points[:, axis] = [np.inf if text is None else TEXTS.put(text) for text in texts]
            keep_texts(points)
    return EncodedEvents(
        points, np.arange(len(points)), np.empty(0, np.int64), pa.nulls(0, ERROR_TYPE)
    )


def _write_events(
    folder: Path, batches: Iterator[Events], width: int, patterns: tuple[int, ...]
) -> int:
    """Write events as Parquet, numbered in order; return their number."""
    (folder / "events").mkdir()
    row = 0
    for number, (ids, points) in enumerate(batches):
        ends = np.arange(len(points) + 1) * 8 * width
        table = pa.table(
            {
                "row": pa.array(np.arange(row, row + len(points))),
                "id": ids,
                "point": binary_of(ends, points),
            }
        )
        for index, axis in enumerate(patterns):
            handles = points[:, axis]
            texts = np.full(len(points), None, object)
            texts[np.isfinite(handles)] = TEXTS.get(handles[np.isfinite(handles)].tolist())
            table = table.append_column(f"text {index}", pa.array(texts, pa.string()))
        pq.write_table(table, folder / "events" / f"{number:06}.parquet")
        row += len(points)
    return row
