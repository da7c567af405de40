"""Sinks for answers, written one batch at a time.

A sink writes a batch and gives back what commits it. Folders and tables (`delta`) are exactly once:
nothing is seen before the commit, and a batch that is committed is skipped when Spark repeats it.
The others have no memory of what they wrote: they are at least once.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from rangecast.errors import FileError, UsageError
from rangecast.model.validation.flags import flag
from rangecast.spark.columns import need_among, reject_case_variants
from rangecast.spark.stream.pipeline.toml_file import Table, takes
from rangecast.spark.stream.sinks.column_types import UNWRITABLE, reject_map_keys, reject_types
from rangecast.spark.stream.sinks.join_files import TARGET_FILE_BYTES, join_lines, join_parquet
from rangecast.spark.stream.sinks.written import (
    NULL_FOLDER,
    LocalFolder,
    Target,
    WrittenFile,
    no_partition,
    partition_folder,
    write_rows,
)
from rangecast.store.commits import CommittedFolder

ID_TYPES = {"subscription": "{}", "subscriptions": "array<{}>"}
"""The columns with ids of subscriptions, and their types by that of an id."""
MOMENTS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}
"""Format of timestamps as JSON: Spark's default drops all below a millisecond, and what the offset
of a zone of old times has beside minutes.
"""
_NO_ROWS = "part-00000.parquet"
_BATCH = "batch"
"""The column that readers make of the names of folders."""
_TYPES: dict[str, DataType] = {
    "bigint": LongType(),
    "string": StringType(),
    "array<bigint>": ArrayType(LongType()),
    "array<string>": ArrayType(StringType()),
}


class IdColumn(NamedTuple):
    """The column with the ids of subscriptions."""

    name: str
    kind: str
    """Type of an id: bigint or string."""

    @classmethod
    def of(cls, columns: StructType) -> IdColumn | None:
        """Return the column with ids; `None`: there is none.

        A step without answers may keep a column of such a name from the events.
        """
        for column in columns:
            for kind in ("bigint", "string") if column.name in ID_TYPES else ():
                if column.dataType.simpleString() == ID_TYPES[column.name].format(kind):
                    return cls(column.name, kind)
        return None

    def type_for(self, kind: str) -> DataType:
        """Return the type of the column for another type of ids."""
        return _TYPES[ID_TYPES[self.name].format(kind)]


class Batch(NamedTuple):
    """Which batch it is, and the version of the subscriptions that answers it."""

    stream: str
    number: int
    version: int
    subscriptions: int
    """Number of subscriptions of that version."""


Counts = dict[str, int]
"""Of a batch: rows (that were written), and whatever else is worth keeping."""
Commit = Callable[[Counts], None]


class Sink(ABC):
    """Where the answers of a stream go; the base of all sinks."""

    name: str
    promise = "at least once"

    def check(self, session: SparkSession) -> None:  # noqa: B027
        """Raise an error if this sink can't work; called before anything runs."""

    def check_columns(self, columns: StructType) -> None:  # noqa: B027
        """Raise an error if rows of these columns can't be written; called before anything runs."""

    def shape(self, columns: StructType) -> str | None:
        """Return the shape of rows, which a restart can't change; `None`: the sink holds its own.

        `<id>` stands for the type of the ids of subscriptions.
        """
        kinds = {column.name: column.dataType.simpleString() for column in columns}
        ids = IdColumn.of(columns)
        if ids is not None:
            kinds[ids.name] = ID_TYPES[ids.name].format("<id>")
        return ", ".join(f"{name} {kind}" for name, kind in kinds.items())

    def open(self, stream: str, closing: ExitStack) -> None:  # noqa: B027
        """Prepare for the batches of a stream; `closing` takes what must be closed at its end."""

    def has(self, number: int) -> bool:
        """Return whether a batch was committed before."""
        return False

    @abstractmethod
    def write(self, rows: DataFrame, batch: Batch) -> Commit:
        """Write a batch; return a function that commits it."""


class FileSink(Sink):
    """A sink of Parquet files that the workers write; no reader sees them before the commit."""

    promise = "exactly once"

    def shape(self, columns: StructType) -> None:
        return None

    @abstractmethod
    def target(self, columns: StructType, batch: Batch) -> Target:
        """Return the target that the workers write rows of these columns to."""

    @abstractmethod
    def written(self, target: Target, files: Sequence[WrittenFile], batch: Batch) -> Commit:
        """Return a function that commits the files that the workers wrote."""

    def write(self, rows: DataFrame, batch: Batch) -> Commit:
        target = self.target(rows.schema, batch)
        return self.written(target, write_rows(rows, target), batch)


class _Batches(Sink):
    """A folder of batches that readers may read at any time: see `commits`."""

    promise = "exactly once"

    def __init__(
        self,
        path: str | Path,
        *,
        replace: bool = False,
        partition_by: Sequence[str] = (),
        target_file_bytes: int = TARGET_FILE_BYTES,
    ):
        self.name = str(path)
        self.path = Path(path)
        self._replace = flag("replace", replace)
        self._partition_by = partition_columns(partition_by)
        self._target_bytes = target_file_bytes
        self._batches: CommittedFolder

    def open(self, stream: str, closing: ExitStack) -> None:
        batches = CommittedFolder(self.path, stream, replace=self._replace)
        self._batches = closing.enter_context(batches)

    def check_columns(self, columns: StructType) -> None:
        for name in columns.names:
            if name.lower() == _BATCH:
                raise UsageError(
                    f"{self.name}: the column {name!r} can't be written: it would clash with the "
                    "batch number in the folder's name\n"
                    "  hint: rename it with `columns` of the source"
                )
        reject_types(columns, UNWRITABLE, self.name)
        reject_case_variants(columns.names, self.name)
        check_partitions(columns, self._partition_by, self.name)

    def shape(self, columns: StructType) -> None:
        return None

    def has(self, number: int) -> bool:
        return self._batches.is_committed(number)

    def _settled_columns(self, columns: StructType, batch: Batch) -> StructType:
        """Return the columns with ids of the sink's type; reject columns that changed."""
        self.check_columns(columns)
        wanted = with_ids(columns, batch, self.name, partial(self._batches.recorded, "ids"))
        listed = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in wanted)
        held = self._batches.recorded("columns", listed)
        if held != listed:
            raise UsageError(
                f"{self.name}: its batches have the columns {held}; given: {listed}\n"
                "  hint: write to a new folder with a new checkpoint, or revert the change of the "
                "step (its type, output or kept columns)"
            )
        by = ", ".join(self._partition_by)
        held = self._batches.recorded("partition_by", by)
        if held != by:
            raise UsageError(
                f"{self.name}: its batches are partitioned by {held or 'nothing'}; given: "
                f"{by or 'nothing'}\n  hint: write to a new folder with a new checkpoint"
            )
        return wanted


class Folder(_Batches, FileSink):
    """A folder of batches in Parquet that readers may read at any time: see `commits`.

    replace            a batch job replaces the one before, instead of being rejected
    partition_by       columns by whose values each batch is cut into folders <column>=<value>
    target_file_bytes  files of a batch below this are joined up to it; 0: one file per task
    """

    def target(self, columns: StructType, batch: Batch) -> Target:
        staged = LocalFolder(str(self._batches.stage(batch.number).absolute()))
        wanted = self._settled_columns(columns, batch)
        return Target(staged, wanted, self._partition_by, name=self.name, by_folder=True)

    def written(self, target: Target, files: Sequence[WrittenFile], batch: Batch) -> Commit:
        assert isinstance(target.place, LocalFolder)
        staged = Path(target.place.path)
        staged.mkdir(exist_ok=True)
        files = join_parquet(target.place, files, self._target_bytes)
        names = {file.name for file in files}
        if not files:  # readers learn the columns from a file without rows
            none = target.no_rows()
            folder = partition_folder(self._partition_by, [None] * len(self._partition_by))
            with target.place.create(f"{folder}{_NO_ROWS}") as file:
                pq.write_table(none, file)
            names = {f"{folder}{_NO_ROWS}"}

        def commit(counts: Counts) -> None:
            for path in staged.rglob("part-*"):  # of tasks that failed, or ran twice
                if str(path.relative_to(staged)) not in names:
                    path.unlink()
            _need_all_rows(staged, _parquet_rows, counts["rows"])
            self._batches.commit(batch.number, staged, {"version": batch.version, **counts})

        return commit


class JsonFolder(_Batches):
    """A folder of batches as JSON Lines that readers may read at any time: see `commits`.

    replace            a batch job replaces the one before, instead of being rejected
    partition_by       columns by whose values each batch is cut into folders <column>=<value>
    target_file_bytes  files of a batch below this are joined up to it; 0: one file per task
    """

    def check_columns(self, columns: StructType) -> None:
        super().check_columns(columns)
        reject_map_keys(columns, self.name)

    def write(self, rows: DataFrame, batch: Batch) -> Commit:
        columns = self._settled_columns(rows.schema, batch)
        rows = rows.select([F.col(f"`{column.name}`").cast(column.dataType) for column in columns])
        staged = self._batches.stage(batch.number)
        writer = rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        writer = writer.partitionBy(*self._partition_by).options(**MOMENTS)
        writer.json(f"file://{staged.absolute()}")  # not the file system that is Spark's default
        self._reject_null_texts(rows, staged)

        def commit(counts: Counts) -> None:
            _need_all_rows(staged, _lines, counts["rows"])
            join_lines(staged, self._target_bytes)
            self._batches.commit(batch.number, staged, {"version": batch.version, **counts})

        return commit

    def _reject_null_texts(self, rows: DataFrame, staged: Path) -> None:
        """Reject partition values that readers take for null: "" and the null folder's name."""
        for name in self._partition_by:
            if any(staged.rglob(f"{name}={NULL_FOLDER}")):
                wrong = rows.filter(F.col(f"`{name}`").cast("string").isin("", NULL_FOLDER)).first()
                if wrong is not None:
                    raise no_partition(self.name, name, wrong[name], "folder")


_PARTITION_TYPES = ("string", "tinyint", "smallint", "int", "bigint", "boolean", "date")


def partition_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to partition by."""
    if isinstance(names, str):
        raise UsageError(
            f"partition_by must be a list of columns\n  given: str {names!r}\n"
            f"  hint: give partition_by=[{names!r}]"
        )
    return tuple(names)


def check_partitions(columns: StructType, partition_by: Sequence[str], name: str) -> None:
    """Reject columns that rows can't be partitioned by."""
    need_among(partition_by, columns.names, f"{name}: partition_by: the rows")
    if partition_by and len(partition_by) == len(columns.names):
        raise UsageError(
            f"{name}: partition_by names all columns of the rows\n  hint: leave at least one out"
        )
    for column in partition_by:
        kind = columns[column].dataType.simpleString()
        if kind not in _PARTITION_TYPES:
            raise UsageError(
                f"{name}: partition_by: the column {column!r} has the type {kind}; expected: "
                f"{', '.join(_PARTITION_TYPES)}\n  hint: cast it with `columns` of the source"
            )


def with_ids(
    columns: StructType, batch: Batch, sink: str, recorded: Callable[[str], str]
) -> StructType:
    """Return columns whose ids of subscriptions have the type of the sink.

    The first batch settles whether they are integers or texts, as readers of all batches need one
    type. A set without subscriptions counts as texts there, and fits any type later.
    """
    kinds = {field.name: field.dataType for field in columns}
    ids = IdColumn.of(columns)
    if ids is not None:
        whole = ids.kind == "bigint" and batch.subscriptions > 0
        answers = recorded("bigint" if whole else "string")
        if answers == "bigint" and not whole and batch.subscriptions:
            raise UsageError(
                f"{sink}: contains subscriptions with integer ids, but version "
                f"{batch.version} has strings\n  hint: write to a new path"
            )
        kinds[ids.name] = ids.type_for(answers)
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def cast_ids(rows: DataFrame, kind: str) -> DataFrame:
    """Return rows whose ids of subscriptions have a type; empty: the one that they have."""
    ids = IdColumn.of(rows.schema)
    if ids is None or kind in ("", ids.kind):
        return rows
    return rows.withColumn(ids.name, F.col(ids.name).cast(ids.type_for(kind)))


def _need_all_rows(staged: Path, rows_of: Callable[[Path], int], rows: int) -> None:
    """Raise an error if some files of a batch are on the disks of other hosts."""
    there = sum(rows_of(path) for path in staged.rglob("part-*") if path.stat().st_size)
    if there != rows:
        raise FileError(
            f"{staged}: {rows:,} rows were written, but only {there:,} were found\n"
            "  hint: use a folder on a file system that the driver and all workers mount"
        )


def _parquet_rows(path: Path) -> int:
    return int(pq.read_metadata(path).num_rows)


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


class CatalogTable(Sink):
    """A table of a catalog of Spark's, by its name; Spark appends to it.

    Spark makes a table that isn't there, of `format` if that is given. A batch that is run again is
    appended again.
    """

    def __init__(self, catalog: str, *, format: str | None = None, replace: bool = False):  # noqa: A002
        self.name = catalog
        self._format = format
        self._mode = "overwrite" if flag("replace", replace) else "append"

    def shape(self, columns: StructType) -> None:
        return None

    def write(self, rows: DataFrame, batch: Batch) -> Commit:
        writer = rows.write.mode(self._mode)
        if self._format is not None:
            writer = writer.format(self._format)
        try:
            writer.saveAsTable(self.name)
        except AnalysisException as error:
            raise UsageError(f"{self.name}: Spark can't write to it: {error}") from None
        return no_commit


class Console(Sink):
    """The first rows of each batch, on the standard output."""

    name = "console"

    def __init__(self, rows: int = 20):
        self._rows = rows

    def write(self, rows: DataFrame, batch: Batch) -> Commit:
        from rich.console import Console as Terminal
        from rich.table import Table
        from rich.text import Text

        title = f"batch {batch.number}, version {batch.version}"
        shown = Table(title=title, title_justify="left")
        for name in rows.columns:
            shown.add_column(Text(name))  # not str: Rich would parse brackets as markup
        for row in rows.take(self._rows):
            shown.add_row(*(Text(str(value)) for value in row))
        Terminal().print(shown)
        return no_commit


class Callback(Sink):
    """A function that is given each batch as a DataFrame."""

    name = "callback"

    def __init__(self, function: Callable[[DataFrame, Batch], None]):
        self._function = function

    def write(self, rows: DataFrame, batch: Batch) -> Commit:
        self._function(rows, batch)
        return no_commit


def location(name: str) -> str:
    """Return one spelling of a path or URL: two sinks of a stream would skip each other's batch."""
    path = name.removeprefix("file://")
    return name.rstrip("/") if "://" in path else os.path.realpath(path)


def lies_inside(paths: Sequence[str], folders: Sequence[str]) -> tuple[str, str] | None:
    """Return a path inside of one of the folders, and the folder: its readers would see both."""
    for path in paths:
        for folder in folders:
            if path != folder and path.startswith(f"{folder.rstrip('/')}/"):
                return path, folder
    return None


def no_commit(counts: Counts) -> None:
    """Do nothing: the commit of sinks that write immediately."""


class SinkTable(Table, kw_only=True, tag_field="type"):
    """Keys of all sinks in the file of a pipeline."""

    sink_class: ClassVar[Callable[..., Sink]]
    """Class of the sink, called with the other keys."""
    input: Annotated[str | None, takes("the name of a step")] = None

    @property
    def sink(self) -> Sink:
        keys = (name for name in self.__struct_fields__ if name != "input")
        return type(self).sink_class(**{name: getattr(self, name) for name in keys})
