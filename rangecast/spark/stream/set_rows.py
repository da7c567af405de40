"""The rows of steps that take a set, `cover` and `merge`, written by a batch job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from rangecast.cover.batch import covered_by
from rangecast.errors import UsageError
from rangecast.spark.columns import as_spark_ids
from rangecast.spark.stream.batch import BatchOutcome
from rangecast.spark.stream.sets import MergedSet, Subscriptions, whole
from rangecast.spark.stream.sinks.base import Batch, Sink
from rangecast.store.commits import BATCH_JOB

Report = Callable[[BatchOutcome], None]


class SetRows(NamedTuple):
    """Rows of a step, and the set that they are of."""

    table: pa.Table
    version: int
    subscriptions: int
    seconds: float
    """That it took to find them."""


def covered_rows(of: Subscriptions) -> SetRows:
    """Return what covers each subscription: subscription, covered_by (null: it is kept)."""
    began = time.perf_counter()
    version = of.latest()
    boxes, _ = whole(of, version)
    above = covered_by(boxes)
    ids = as_spark_ids(boxes.ids)
    table = pa.table({"subscription": ids, "covered_by": ids.take(pa.array(above, mask=above < 0))})
    return SetRows(table, version, boxes.rows, time.perf_counter() - began)


def merged_rows(merged: MergedSet, name: str) -> SetRows:
    """Return the union of a set as ranges on the curve: start, end."""
    began = time.perf_counter()
    version = merged.of.latest()
    summary = merged.summary(version)
    ranges = summary.ranges()
    if summary.cells.width > 63:
        raise UsageError(
            f"step {name!r}: Spark has no unsigned 64-bit integers\n"
            "  hint: use at most 63 bits in all: fewer attributes, or fewer bits"
        )
    columns = {"start": ranges.starts, "end": ranges.ends}
    table = pa.table({key: pa.array(values.astype(np.int64)) for key, values in columns.items()})
    return SetRows(table, version, len(summary), time.perf_counter() - began)


def check_set_rows(session: SparkSession, rows: SetRows, sinks: Sequence[Sink]) -> None:
    """Reject rows that a sink can't hold, before anything is written."""
    columns = from_arrow_schema(rows.table.schema)
    for sink in sinks:
        sink.check(session)
        sink.check_columns(columns)


def write_set_rows(
    session: SparkSession, rows: SetRows, sinks: Sequence[Sink], name: str, report: Report
) -> None:
    """Write the rows of a step to its sinks."""
    began = time.perf_counter()
    table, version, subscriptions, seconds = rows
    batch = Batch(f"{BATCH_JOB} {uuid4()}", 0, version, subscriptions)
    frame = session.createDataFrame(table)
    with ExitStack() as closing:
        for sink in sinks:
            sink.open(batch.stream, closing)
        for commit in [sink.write(frame, batch) for sink in sinks]:
            commit({"rows": table.num_rows})
    report(
        BatchOutcome(
            0,
            version,
            subscriptions,
            events=0,
            matches=0,
            rejected=0,
            rejected_edits=0,
            seconds=seconds + time.perf_counter() - began,
            steps={name: table.num_rows},
        )
    )
