"""The rows of steps that take a set, `cover` and `merge`, written by a batch job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from rangecast.cover.batch import covered_by
from rangecast.errors import UsageError
from rangecast.spark.columns import as_spark_ids
from rangecast.spark.stream.batch import BatchOutcome
from rangecast.spark.stream.sets import MergedSet, Subscriptions, whole
from rangecast.spark.stream.sinks.base import Batch, Sink
from rangecast.store.commits import BATCH_JOB

Report = Callable[[BatchOutcome], None]


def write_covered(
    session: SparkSession, of: Subscriptions, sinks: Sequence[Sink], name: str, report: Report
) -> None:
    """Write what covers each subscription: subscription, covered_by (null: it is kept)."""
    began = time.perf_counter()
    version = of.latest()
    boxes, _ = whole(of, version)
    above = covered_by(boxes)
    ids = as_spark_ids(boxes.ids)
    table = pa.table({"subscription": ids, "covered_by": ids.take(pa.array(above, mask=above < 0))})
    _write(session, table, version, boxes.rows, sinks, name, report, began)


def write_merged(
    session: SparkSession, merged: MergedSet, sinks: Sequence[Sink], name: str, report: Report
) -> None:
    """Write the union of a set as ranges on the curve: start, end."""
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
    table = pa.table({key: pa.array(some.astype(np.int64)) for key, some in columns.items()})
    _write(session, table, version, len(summary), sinks, name, report, began)


def _write(
    session: SparkSession,
    table: pa.Table,
    version: int,
    subscriptions: int,
    sinks: Sequence[Sink],
    name: str,
    report: Report,
    began: float,
) -> None:
    batch = Batch(f"{BATCH_JOB} {uuid4()}", 0, version, subscriptions)
    rows = session.createDataFrame(table)
    with ExitStack() as closing:
        for sink in sinks:
            sink.check(session)
            sink.open(batch.stream, closing)
        for commit in [sink.write(rows, batch) for sink in sinks]:
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
            seconds=time.perf_counter() - began,
            steps={name: table.num_rows},
        )
    )
