"""Rows that the workers write themselves, as Parquet: they never pass through the JVM.

A task writes its rows to a file of its own for each sink, and reports the files and what it
counted. A task that fails or runs twice leaves files that nobody reports: they count for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, StructField, StructType

from rangecast.spark.columns import arrow_ids

COUNTS = ("events", "matches", "rows", "bad_rows")
REPORT = "files array<struct<name: string, rows: long, size: long>>, " + ", ".join(
    f"{name} long" for name in COUNTS
)
_REPORTED = pa.list_(pa.struct({"name": pa.string(), "rows": pa.int64(), "size": pa.int64()}))
_GROUP = 1 << 19
"""Rows of a row group, at least."""


class Place(Protocol):
    """Where the files of a sink are put; a task carries it."""

    def create(self, name: str) -> pa.NativeFile:
        """Return a file to write to, which isn't there yet."""


class LocalFolder(NamedTuple):
    """A folder on a file system that the driver and all workers mount."""

    path: str

    def create(self, name: str) -> pa.NativeFile:
        Path(self.path).mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(Path(self.path) / name), "wb")


class Target(NamedTuple):
    """What the workers write for one sink."""

    place: Place
    columns: StructType
    """Of the rows that are written; all others are left out."""


class WrittenFile(NamedTuple):
    """A file that a task has written; without a name if it had no rows."""

    name: str | None
    rows: int
    size: int


class Written(NamedTuple):
    """What all tasks have written and counted."""

    files: list[list[WrittenFile]]
    """Of each target, those that have rows."""
    counts: dict[str, int]


@dataclass(frozen=True)
class AnswerWriter:
    """Writes the answers of a task for each sink: what `Question.answer` ends with."""

    targets: Sequence[Target]

    def __call__(
        self,
        batches: Iterator[pa.RecordBatch],
        answer: Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]],
    ) -> Iterator[pa.RecordBatch]:
        counts = dict.fromkeys(COUNTS, 0)
        with _Files(self.targets) as files:
            for batch in batches:
                counts["events"] += batch.num_rows
                for found in answer(batch):
                    good = found.filter(pc.is_null(found.column("error")))
                    counts["bad_rows"] += found.num_rows - good.num_rows
                    counts["matches"] += _matches(good)
                    counts["rows"] += good.num_rows
                    files.write(good)
        yield _report(files, counts)


def collected(reports: DataFrame, targets: Sequence[Target], name: str) -> Written:
    """Let the tasks write; return what they report, and let Spark's listeners see the counts."""
    seen = Observation(name)
    sums = [F.coalesce(F.sum(count), F.lit(0)).alias(count) for count in COUNTS]
    rows = reports.observe(seen, *sums).collect()
    of_tasks = [[WrittenFile(*file) for file in row["files"]] for row in rows]
    files = [
        [of_task[place] for of_task in of_tasks if of_task[place].name is not None]
        for place in range(len(targets))
    ]
    return Written(files, dict(seen.get))


def write_rows(rows: DataFrame, target: Target) -> list[WrittenFile]:
    """Let the workers write the rows of a DataFrame; return the files that have any."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with _Files([target]) as files:
            for batch in batches:
                files.write(batch)
        yield _report(files, dict.fromkeys(COUNTS, 0))

    return collected(rows.mapInArrow(write, REPORT), [target], "rows").files[0]


def _report(files: _Files, counts: dict[str, int]) -> pa.RecordBatch:
    written = [file.written._asdict() for file in files.files]
    columns = {"files": pa.array([written], _REPORTED)}
    return pa.record_batch({**columns, **{name: [count] for name, count in counts.items()}})


class _Files:
    """A file of this task for each target."""

    def __init__(self, targets: Sequence[Target]):
        self.files = [_File(target) for target in targets]

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self.files:
            file.close(whole=error[0] is None)

    def write(self, rows: pa.RecordBatch) -> None:
        for file in self.files:
            file.write(rows)


class _File:
    """A file that is begun with the first rows, and has large row groups."""

    def __init__(self, target: Target):
        self._target = target
        self._sink: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self.written = WrittenFile(None, 0, 0)

    def write(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        columns = {field.name: _as_written(rows, field) for field in self._target.columns}
        self._held.append(pa.record_batch(columns))
        if sum(map(_size, self._held)) >= _GROUP:
            self._flush()

    def close(self, *, whole: bool) -> None:
        if self._held and whole:
            self._flush()
        if self._writer is None or self._sink is None:
            return
        self._writer.close()
        self.written = self.written._replace(size=self._sink.tell())
        self._sink.close()

    def _flush(self) -> None:
        if self._writer is None:
            task: Any = TaskContext.get()
            name = f"part-{task.partitionId():05}-{uuid4().hex}.parquet"
            self._sink = self._target.place.create(name)
            self._writer = pq.ParquetWriter(self._sink, self._held[0].schema)
            self.written = self.written._replace(name=name)
        table = pa.Table.from_batches(self._held)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.written = self.written._replace(rows=self.written.rows + table.num_rows)
        self._held = []


def _as_written(rows: pa.RecordBatch, field: StructField) -> pa.Array:
    """Return a column of the answers; ids of subscriptions are of the type that the sink has."""
    column = rows.column(field.name)
    if field.name == "subscription":
        return column.cast(arrow_ids(field.dataType))
    if isinstance(field.dataType, ArrayType) and field.name == "subscriptions":
        return column.cast(pa.list_(arrow_ids(field.dataType.elementType)))
    return column


def _matches(good: pa.RecordBatch) -> int:
    if "subscriptions" in good.schema.names:
        return int(pc.sum(pc.list_value_length(good.column("subscriptions"))).as_py() or 0)
    return int(good.num_rows)


def _size(rows: pa.RecordBatch) -> int:
    """Return how many values a batch has in its longest column."""
    return max(int(rows.num_rows), _matches(rows))
