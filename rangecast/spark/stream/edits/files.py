"""Edits from a stream, such as a Kafka topic: each batch becomes a file of edits.

The file has the name of its batch and stream, and is put in place by a rename; so a batch that is
run again adds nothing. `store.edits` applies it like any other, before the next batch of events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rangecast.errors import RejectedRow, RejectedRowError
from rangecast.model.io.atomic import atomic_file
from rangecast.model.io.records import REMEDY
from rangecast.spark.columns import require_columns
from rangecast.spark.events import BROKEN, UNSPLIT
from rangecast.spark.session import job_name
from rangecast.spark.stream.batch import BatchOutcome, Unread, unknown
from rangecast.spark.stream.sinks.base import Batch, FileSink
from rangecast.spark.stream.sources import FILE_ORDER

EDITS = ("op", "filter", "score")
"""Columns of an edit beside the id; a score may be left out."""
_ROW = "_row"


class EditsRunner:
    """Runner that writes batches of edits as files into folders of edits."""

    def __init__(
        self,
        folders: Sequence[Path | None],
        rejected_sink: FileSink | None,
        report: Callable[[BatchOutcome], None],
    ):
        self.closing = ExitStack()
        self._folders = [folder for folder in folders if folder is not None]
        self._rejected_sink = rejected_sink
        self._report = report
        self._stream: str | None = None
        for folder in self._folders:
            folder.mkdir(parents=True, exist_ok=True)

    def check(
        self, session: SparkSession, events: DataFrame, checkpoint: str | None = None
    ) -> None:
        """Check the columns of edits before anything runs."""
        require_columns(events, ("id", "op", "filter"), "edits")
        if self._rejected_sink is not None:
            self._rejected_sink.check(session)

    def answer(self, events: DataFrame, stream: str, number: int, unread: Unread = unknown) -> None:
        """Write the edits of a batch to the folders that they are applied from."""
        with job_name(events.sparkSession, f"batch {number}, edits"):
            self._answer(events, stream, number)

    def _answer(self, events: DataFrame, stream: str, number: int) -> None:
        began = time.perf_counter()
        if self._stream is None and self._rejected_sink is not None:
            self._rejected_sink.open(stream, self.closing)
        self._stream = stream
        name = f"{number:012}-{stream}.parquet"
        missing = [folder for folder in self._folders if not (folder / name).exists()]
        if not missing:
            return
        # The place of a row in its part of a file; it is kept with the row.
        events = events.withColumn(_ROW, F.monotonically_increasing_id()).persist()
        try:
            bad = self._write_rejected(events, Batch(stream, number, 0, 0))
            good = events.filter(F.col(BROKEN).isNull()) if BROKEN in events.columns else events
            if FILE_ORDER in events.columns:
                good = good.orderBy(FILE_ORDER, _ROW)
            names = [one for one in ("id", *EDITS) if one in events.columns]
            rows = good.select(names).toArrow()
        finally:
            events.unpersist()
        for folder in missing:
            _put(rows, folder / name)
        seconds = time.perf_counter() - began
        counts = {"events": len(rows) + bad, "matches": len(rows), "rejected": bad}
        steps = {"edits": len(rows)}
        self._report(
            BatchOutcome(number, 0, 0, rejected_edits=0, seconds=seconds, steps=steps, **counts)
        )

    def _write_rejected(self, events: DataFrame, batch: Batch) -> int:
        """Write rows that can't be split to their sink; without one, raise the first."""
        if BROKEN not in events.columns:
            return 0
        broken = events.filter(F.col(BROKEN).isNotNull())
        bad = broken.select(
            F.col("id").cast("string").alias("event"),
            F.lit("(all)").alias("column"),
            F.col(BROKEN).alias("value"),
            F.lit(UNSPLIT).alias("reason"),
            F.col(BROKEN).alias("data"),
        )
        count = bad.count()
        if count and self._rejected_sink is None:
            first = bad.first()
            assert first is not None
            where = f"batch {batch.number}, edits"
            remedy = f"{REMEDY}, or set a folder for rejected rows"
            raise RejectedRowError(
                RejectedRow(where, None, "(all)", first["value"], UNSPLIT, remedy)
            )
        if count and self._rejected_sink is not None and not self._rejected_sink.has(batch.number):
            self._rejected_sink.write(bad, batch)({"rows": count})
        return int(count)


def _put(rows: pa.Table, path: Path) -> None:
    with atomic_file(path) as file:
        pq.write_table(rows, file)
