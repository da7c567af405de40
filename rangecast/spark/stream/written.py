"""Answers that the workers write themselves, as Parquet: they never pass through the JVM.

A task answers its events, writes those that are good to a file of its own, and reports the file
and what it counted. A task that fails or runs twice leaves files that nobody reports: `counted`
removes them before the batch is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, StructField, StructType

from rangecast.spark.columns import arrow_ids
from rangecast.spark.stream.sources import BROKEN

REPORT = "file string, events long, matches long, bad_rows long"
_COUNTS = ("events", "matches", "bad_rows")
_GROUP = 1 << 19
"""Rows of a row group, at least."""


@dataclass(frozen=True)
class ParquetFiles:
    """Writes the answers of a task to a file, and reports it: what `Question.answer` ends with."""

    folder: str
    columns: StructType
    """Of the rows that are written; all others are left out."""

    def __call__(
        self,
        batches: Iterator[pa.RecordBatch],
        answer: Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]],
    ) -> Iterator[pa.RecordBatch]:
        counts = dict.fromkeys(_COUNTS, 0)
        with _File(Path(self.folder), self.columns) as file:
            for batch in batches:
                counts["events"] += batch.num_rows
                counts["bad_rows"] += _valid(batch, BROKEN)
                for found in answer(batch):
                    good, bad = _told_apart(found)
                    counts["bad_rows"] += bad
                    counts["matches"] += _matches(good)
                    file.write(good)
        names = pa.array([file.name], pa.string())
        yield pa.record_batch({"file": names, **{name: [n] for name, n in counts.items()}})

    def counted(self, reports: DataFrame) -> dict[str, int]:
        """Let the workers write; return what they counted. Files that none of them reports go.

        Where there are no rows at all, a file without any tells readers the columns.
        """
        folder = Path(self.folder)
        folder.mkdir(parents=True)
        rows = reports.collect()
        files = {row["file"] for row in rows}
        for path in folder.glob("part-*"):
            if path.name not in files:
                path.unlink()
        counts = {name: sum(row[name] for row in rows) for name in _COUNTS}
        if files <= {None}:
            none = reports.sparkSession.createDataFrame([], self.columns).toArrow()
            pq.write_table(none, folder / "part-00000.parquet")
        return counts


class _File:
    """A file that is begun with the first rows, and has large row groups."""

    def __init__(self, folder: Path, columns: StructType):
        self._folder, self._columns = folder, columns
        self.name: str | None = None
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *error: object) -> None:
        if self._held and error[0] is None:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def write(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        columns = {field.name: _as_written(rows, field) for field in self._columns}
        self._held.append(pa.record_batch(columns))
        if sum(map(_size, self._held)) >= _GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            task: Any = TaskContext.get()
            self.name = f"part-{task.partitionId():05}-{uuid4().hex}.parquet"
            self._writer = pq.ParquetWriter(self._folder / self.name, self._held[0].schema)
        table = pa.Table.from_batches(self._held)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._held = []


def _as_written(rows: pa.RecordBatch, field: StructField) -> pa.Array:
    """Return a column of the answers; ids of subscriptions are of the type that the sink has."""
    column = rows.column(field.name)
    if field.name == "subscription":
        return column.cast(arrow_ids(field.dataType))
    if isinstance(field.dataType, ArrayType) and field.name == "subscriptions":
        return column.cast(pa.list_(arrow_ids(field.dataType.elementType)))
    return column


def _told_apart(found: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """Return the rows of good events, and how many events can't be used that were read whole."""
    good = pc.is_null(found.column("error"))
    bad = found.num_rows - (pc.sum(good).as_py() or 0)
    if BROKEN in found.schema.names:
        whole = pc.is_null(found.column(BROKEN))
        bad = pc.sum(pc.and_(whole, pc.invert(good))).as_py() or 0
        good = pc.and_(good, whole)
    return found.filter(good), bad


def _valid(batch: pa.RecordBatch, name: str) -> int:
    if name not in batch.schema.names:
        return 0
    column = batch.column(name)
    return len(column) - int(column.null_count)


def _matches(good: pa.RecordBatch) -> int:
    if "subscriptions" in good.schema.names:
        return int(pc.sum(pc.list_value_length(good.column("subscriptions"))).as_py() or 0)
    return int(good.num_rows)


def _size(rows: pa.RecordBatch) -> int:
    """Return how many values a batch has in its longest column."""
    return max(int(rows.num_rows), _matches(rows))
