"""Where answers go, a batch at a time.

A sink writes a batch and gives back what commits it. Folders are exactly once: nothing is seen
before the commit, and a batch that is committed is skipped when Spark repeats it. The others
have no memory of what they wrote: they are at least once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from rangecast.errors import FileError, UsageError
from rangecast.spark.stream.written import ParquetFiles
from rangecast.store.commits import CommittedFolder

_TYPES: dict[str, DataType] = {
    "bigint": LongType(),
    "string": StringType(),
    "array<bigint>": ArrayType(LongType()),
    "array<string>": ArrayType(StringType()),
}
"""What ids of subscriptions, or lists of them, may be."""


class Batch(NamedTuple):
    """Which batch it is, and the version of the subscriptions that answers it."""

    stream: str
    number: int
    version: int
    subscriptions: int
    """How many that version has."""


Counts = dict[str, int]
"""Of a batch: rows (that were written), and whatever else is worth keeping."""
Commit = Callable[[Counts], None]


class Sink(ABC):
    """Where the answers of a stream go; the base of all sinks."""

    name: str
    promise = "at least once"
    stages = False
    """Whether a write goes through all rows and nobody sees them before the commit."""

    def check(self, session: SparkSession) -> None:  # noqa: B027
        """Raise an error if this sink can't work; called before anything runs."""

    def open(self, stream: str, closing: ExitStack) -> None:  # noqa: B027
        """Prepare for the batches of a stream; `closing` takes what must be closed at its end."""

    def has(self, number: int) -> bool:
        """Return whether a batch was committed before."""
        return False

    @abstractmethod
    def write(self, rows: DataFrame, batch: Batch) -> Commit:
        """Write a batch; return a function that commits it."""


class Folder(Sink):
    """A folder of batches in Parquet or JSON that readers may read at any time: see `commits`."""

    promise = "exactly once"
    stages = True

    def __init__(self, path: str | Path, format: str = "parquet"):  # noqa: A002
        self.name = str(path)
        self.path = Path(path)
        self.format = format
        self._batches: CommittedFolder

    def open(self, stream: str, closing: ExitStack) -> None:
        self._batches = closing.enter_context(CommittedFolder(self.path, stream))

    def has(self, number: int) -> bool:
        return self._batches.is_committed(number)

    @property
    def by_workers(self) -> bool:
        """Whether `stage` works: the workers write the answers themselves."""
        return self.format == "parquet"

    def stage(self, columns: StructType, batch: Batch) -> tuple[ParquetFiles, Commit]:
        """Return what writes a batch in the workers, and what commits it."""
        fields = []
        for field in columns:
            cast = self._ids_of_one_type(field.name, field.dataType.simpleString(), batch)
            kind = field.dataType if cast is None else _TYPES[cast]
            fields.append(StructField(field.name, kind))
        staged = self._batches.stage(batch.number)
        return ParquetFiles(str(staged.absolute()), StructType(fields)), self._commit(staged, batch)

    def write(self, rows: DataFrame, batch: Batch) -> Commit:
        for name, own in rows.dtypes:
            cast = self._ids_of_one_type(name, own, batch)
            if cast is not None:
                rows = rows.withColumn(name, F.col(name).cast(cast))
        staged = self._batches.stage(batch.number)
        writer = rows.write.format(self.format)
        writer = writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        writer.save(f"file://{staged.absolute()}")  # not the file system that is Spark's default
        return self._commit(staged, batch)

    def _commit(self, staged: Path, batch: Batch) -> Commit:
        def commit(counts: Counts) -> None:
            _need_all_rows(staged, self.format, counts["rows"])
            facts = {"version": batch.version, **counts}
            self._batches.commit(batch.number, staged, facts)

        return commit

    def _ids_of_one_type(self, name: str, own: str, batch: Batch) -> str | None:
        """Return the type of subscriptions' ids that all batches of the folder have.

        The first batch settles whether they are integers or texts. Readers of the whole folder
        need one type; a set without subscriptions has no ids that would tell, and fits any. `None`:
        the column isn't one of these ids.
        """
        form = {"subscription": "{}", "subscriptions": "array<{}>"}.get(name)
        if form is None:
            return None
        whole = own == form.format("bigint") and batch.subscriptions > 0
        kind = self._batches.settled("ids", "bigint" if whole else "string")
        if kind == "bigint" and not whole and batch.subscriptions:
            raise UsageError(
                f"{self.path}: holds subscriptions with integers as ids, and version "
                f"{batch.version} has texts\n  to do: write to a new folder"
            )
        return form.format(kind)


def _need_all_rows(staged: Path, form: str, rows: int) -> None:
    """Refuse to commit a batch whose files stayed on the disks of other hosts."""
    rows_of = _parquet_rows if form == "parquet" else _lines
    there = sum(rows_of(path) for path in staged.glob("part-*") if path.stat().st_size)
    if there != rows:
        raise FileError(
            f"{staged}: {rows:,} rows were written, and {there:,} of them are there\n"
            "  to do: give a folder on a file system that the driver and all workers mount"
        )


def _parquet_rows(path: Path) -> int:
    return int(pq.read_metadata(path).num_rows)


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


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
            shown.add_column(Text(name))  # not str: what is in brackets would be markup
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


def no_commit(counts: Counts) -> None:
    """Do nothing: a commit for sinks that write at once."""
