"""Parquet files that the workers write directly, without passing rows through the JVM.

A task writes its rows to a file of its own for each sink, and reports the files and what it
counted. A task that fails or runs twice leaves files that aren't reported: they count for nothing.
"""

from __future__ import annotations

import re
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
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from rangecast.errors import UsageError
from rangecast.spark.columns import arrow_ids, arrow_schema, nullable
from rangecast.spark.stream.sinks.column_types import spark_footer

COUNTS = ("events", "matches", "rows", "rejected")
_FILE = {
    "target": pa.int64(),
    "name": pa.string(),
    "rows": pa.int64(),
    "size": pa.int64(),
    "partition": pa.list_(pa.string()),
}
_REPORTED = pa.list_(pa.struct(_FILE))
REPORT = (
    "files array<struct<target: long, name: string, rows: long, size: long, "
    "partition: array<string>>>, " + ", ".join(f"{name} long" for name in COUNTS)
)
_GROUP = 1 << 19
"""Rows of a row group, at least."""
_HELD = 4 * _GROUP
"""Values that wait in all files of one target."""
_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
"""Characters that Spark escapes in the name of a folder; other letters stay."""
_IDS = (LongType, StringType)
"""Types of ids of subscriptions; columns of other types are of the events."""
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""Name of a partition's folder for null; readers take this text for null too."""
_MAX_PARTITIONS = 1_000
"""Files of one task and sink that are open at a time."""


class Place(Protocol):
    """Location of a sink's files; it is serialized into the tasks that write them."""

    def create(self, name: str) -> pa.NativeFile:
        """Create a new file to write to."""

    def has(self, name: str) -> bool:
        """Return whether the driver sees a file."""

    def read(self, name: str) -> pa.Table:
        """Return the rows of a Parquet file."""

    def remove(self, name: str) -> None:
        """Remove a file."""


class LocalFolder(NamedTuple):
    """A folder on a file system that the driver and all workers mount."""

    path: str

    def create(self, name: str) -> pa.NativeFile:
        path = Path(self.path) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(path), "wb")

    def has(self, name: str) -> bool:
        return (Path(self.path) / name).exists()

    def read(self, name: str) -> pa.Table:
        return pq.ParquetFile(Path(self.path) / name).read()

    def remove(self, name: str) -> None:
        (Path(self.path) / name).unlink()


class Target(NamedTuple):
    """Files that the workers write for one sink."""

    place: Place
    columns: StructType
    """Of the rows that are written; all others are left out."""
    partition_by: tuple[str, ...] = ()
    """Columns that every file has one value of, which isn't in the file itself."""
    not_null: tuple[str, ...] = ()
    """Columns without nulls: the first one ends the task."""
    name: str = ""
    """Of the sink, for errors."""
    by_folder: bool = False
    """Whether files lie in folders named by their values of `partition_by`."""

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of a file, with Spark's types where Parquet lacks them."""
        file_columns = [column for column in self.columns if column.name not in self.partition_by]
        footer = spark_footer(StructType(file_columns))
        return schema if footer is None else schema.with_metadata(footer)

    def no_rows(self) -> pa.Table:
        """Return a table without rows, of the types that files with rows have."""
        columns = arrow_schema(self.columns)
        schema = pa.schema([field for field in columns if field.name not in self.partition_by])
        return self.file_schema(schema).empty_table()


class WrittenFile(NamedTuple):
    """A file that a task has written."""

    name: str
    rows: int
    size: int
    partition: tuple[str | None, ...] = ()
    """Its values of the columns of `partition_by`."""


class WrittenFiles(NamedTuple):
    """Files and counts of all tasks."""

    files: list[list[WrittenFile]]
    """Of each target."""
    counts: dict[str, int]


@dataclass(frozen=True)
class AnswerWriter:
    """Writer of a task's answers to each sink, used as `finish` of `EventQuery.answer`."""

    targets: Sequence[Target]
    arrays: bool = False
    """Whether a row has all answers to an event, in the list `subscriptions`."""

    def __call__(
        self,
        batches: Iterator[pa.RecordBatch],
        answer: Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]],
    ) -> Iterator[pa.RecordBatch]:
        counts = dict.fromkeys(COUNTS, 0)
        with _Files(self.targets) as files:
            for batch in batches:
                counts["events"] += batch.num_rows
                for table in answer(batch):
                    errors = table.column("error")
                    good = table
                    if errors.null_count < len(errors):  # to filter all rows takes a copy
                        good = table.filter(pc.is_null(errors))
                    counts["rejected"] += table.num_rows - good.num_rows
                    counts["matches"] += _listed(good) if self.arrays else good.num_rows
                    counts["rows"] += good.num_rows
                    files.write(good)
        yield _report(files, counts)


def collected(reports: DataFrame, targets: Sequence[Target], name: str) -> WrittenFiles:
    """Run the tasks that write; return their reports, and publish counts to Spark's listeners."""
    seen = Observation(name)
    sums = [F.coalesce(F.sum(count), F.lit(0)).alias(count) for count in COUNTS]
    rows = reports.observe(seen, *sums).collect()
    files: list[list[WrittenFile]] = [[] for _ in targets]
    for row in rows:
        for target, name, count, size, partition in row["files"]:
            files[target].append(WrittenFile(name, count, size, tuple(partition)))
    return WrittenFiles(files, dict(seen.get))


def write_rows(rows: DataFrame, target: Target) -> list[WrittenFile]:
    """Write the rows of a DataFrame on the workers; return the files."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with _Files([target]) as files:
            for batch in batches:
                files.write(batch)
        yield _report(files, dict.fromkeys(COUNTS, 0))

    return collected(rows.mapInArrow(write, REPORT), [target], "rows").files[0]


def _report(files: _Files, counts: dict[str, int]) -> pa.RecordBatch:
    written = [{"target": at, **file._asdict()} for at, file in files.written()]
    columns = {"files": pa.array([written], _REPORTED)}
    return pa.record_batch({**columns, **{name: [count] for name, count in counts.items()}})


class _Files:
    """The files of this task, by target and by the values that partition it."""

    def __init__(self, targets: Sequence[Target]):
        self._targets = targets
        self._files: dict[tuple[int, tuple[str | None, ...]], _File] = {}

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files.values():
            file.close(whole=error[0] is None)

    def written(self) -> Iterator[tuple[int, WrittenFile]]:
        """Yield each file with the index of its target."""
        for (at, _), file in self._files.items():
            yield at, file.written

    def write(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        for at, target in enumerate(self._targets):
            columns = {field.name: _as_written(rows, field) for field in target.columns}
            _check_nulls(columns, target)
            whole = pa.record_batch(columns)
            for values, part in _partitions(whole, target):
                if (at, values) not in self._files:
                    self._check_count(at, target)
                    self._files[at, values] = _File(target, values)
                self._files[at, values].write(part)
        if sum(file.held for file in self._files.values()) >= _HELD * len(self._targets):
            max(self._files.values(), key=lambda file: file.held).flush()

    def _check_count(self, at: int, target: Target) -> None:
        if sum(other == at for other, _ in self._files) >= _MAX_PARTITIONS:
            raise UsageError(
                f"{target.name}: a task has more than {_MAX_PARTITIONS:,} values of the partition "
                f"columns {', '.join(target.partition_by)}\n"
                "  hint: partition the table by a column with fewer values"
            )


def _partitions(
    rows: pa.RecordBatch, target: Target
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """Yield the rows of each combination of values that partition a table, without those."""
    if not target.partition_by:
        yield (), rows
        return
    keys = pa.table({name: rows.column(name) for name in target.partition_by})
    rest = [name for name in rows.schema.names if name not in target.partition_by]
    groups = keys.append_column("_row", pa.array(range(rows.num_rows), pa.int64()))
    groups_ = groups.group_by(list(target.partition_by), use_threads=False)
    for group in groups_.aggregate([("_row", "list")]).to_pylist():
        values = tuple(_partition_text(group[name], name, target) for name in target.partition_by)
        yield values, rows.select(rest).take(pa.array(group["_row_list"], pa.int64()))


def partition_folder(names: Sequence[str], values: Sequence[str | None]) -> str:
    """Return the folders of a partition as Hive and Spark name them, with a slash behind each."""
    parts = zip(names, values, strict=True)
    return "".join(
        f"{name}={NULL_FOLDER if value is None else _ESCAPED.sub(_escape, value)}/"
        for name, value in parts
    )


def _escape(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"


def _partition_text(value: Any, column: str, target: Target) -> str | None:
    """Return a value as Delta writes it in its log."""
    if value == "" or (target.by_folder and value == NULL_FOLDER):
        container = "folder" if target.by_folder else "Delta table"
        raise no_partition(target.name, column, value, container)
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def no_partition(sink: str, column: str, value: str, place: str) -> UsageError:
    """Return the error for a partition value that readers take for null."""
    text = repr(value) if value else "an empty string"
    return UsageError(
        f"{sink}: the partition column {column!r} has {text}, which a {place} can't distinguish "
        "from null\n  hint: partition by another column"
    )


def _check_nulls(columns: dict[str, pa.Array], target: Target) -> None:
    for name in target.not_null:
        if columns[name].null_count:
            raise UsageError(
                f"{target.name}: the column {name!r} is NOT NULL, but a row has null there\n"
                "  hint: filter such events out, or give the column a value with an expression"
            )


def encodings(schema: pa.Schema) -> dict[str, Any]:
    """Return the options of a Parquet writer: integers as differences, all else by dictionary.

    Ids ascend, or nearly: differences take less room than a dictionary, and less time.
    """
    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
    integers = [path for path, kind in leaves if pa.types.is_integer(kind)]
    return {
        "use_dictionary": [path for path, _ in leaves if path not in integers] or False,
        "column_encoding": dict.fromkeys(integers, "DELTA_BINARY_PACKED") or None,
    }


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the columns that Parquet makes of one, by their paths."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind


class _File:
    """A file that is begun with the first rows, and has large row groups."""

    def __init__(self, target: Target, partition: tuple[str | None, ...]):
        self._target = target
        self._sink: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self.held = 0
        """Values that wait to be written."""
        self.written = WrittenFile("", 0, 0, partition)

    def write(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self.held += _size(rows)
        if self.held >= _GROUP:
            self.flush()

    def close(self, *, whole: bool) -> None:
        if self._held and whole:
            self.flush()
        if self._writer is None or self._sink is None:
            return
        self._writer.close()
        self.written = self.written._replace(size=self._sink.tell())
        self._sink.close()

    def flush(self) -> None:
        if self._writer is None:
            task: Any = TaskContext.get()
            name = f"part-{task.partitionId():05}-{uuid4().hex}.parquet"
            if self._target.by_folder:
                names = self._target.partition_by
                name = f"{partition_folder(names, self.written.partition)}{name}"
            self._sink = self._target.place.create(name)
            schema = self._target.file_schema(self._held[0].schema)
            self._writer = pq.ParquetWriter(self._sink, schema, **encodings(schema))
            self.written = self.written._replace(name=name)
        table = pa.Table.from_batches(self._held)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.written = self.written._replace(rows=self.written.rows + table.num_rows)
        self._held, self.held = [], 0


def _as_written(rows: pa.RecordBatch, field: StructField) -> pa.Array:
    """Return a column of the answers, of the type that the sink has."""
    column = rows.column(field.name)
    kind = field.dataType
    if field.name == "subscription" and isinstance(kind, _IDS):
        return column.cast(arrow_ids(kind))
    item = kind.elementType if isinstance(kind, ArrayType) else None
    if field.name == "subscriptions" and isinstance(item, _IDS):
        return column.cast(pa.list_(arrow_ids(item)))
    if "timestamp" in kind.simpleString():  # Spark gives it the zone of the session
        return column.cast(arrow_schema(StructType([field])).field(0).type)
    return column.cast(nullable(column.type)) if pa.types.is_nested(column.type) else column


def _listed(rows: pa.RecordBatch) -> int:
    """Return how many values the lists of subscriptions have."""
    place = rows.schema.get_field_index("subscriptions")
    if place >= 0 and pa.types.is_list(rows.schema.field(place).type):
        return int(pc.sum(pc.list_value_length(rows.column(place))).as_py() or 0)
    return 0


def _size(rows: pa.RecordBatch) -> int:
    """Return the number of values in the longest column of a batch."""
    return max(int(rows.num_rows), _listed(rows))
