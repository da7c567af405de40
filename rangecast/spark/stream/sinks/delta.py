"""Delta table as a sink: the workers write Parquet files, and one delta-rs commit adds them.

The commit carries the stream and the number of the batch as Delta's application transaction, so
that a batch that Spark repeats is known and skipped. It needs no connector in the JVM, and works on
a file system and on the object stores that delta-rs knows. Files of tasks that failed are never
part of the table; `vacuum` removes them.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from rangecast.errors import FileError, UsageError
from rangecast.model.io.durable import sync_file, sync_folder
from rangecast.model.validation.flags import flag
from rangecast.spark.columns import arrow_schema, reject_case_variants
from rangecast.spark.stream.sinks.base import (
    ID_TYPES,
    Batch,
    Commit,
    Counts,
    FileSink,
    check_partitions,
    partition_columns,
    with_ids,
)
from rangecast.spark.stream.sinks.column_types import ONLY_SPARK, UNWRITABLE, reject_types
from rangecast.spark.stream.sinks.delta_rules import TableRules
from rangecast.spark.stream.sinks.join_files import TARGET_FILE_BYTES, join_parquet
from rangecast.spark.stream.sinks.written import LocalFolder, Target, WrittenFile
from rangecast.store.commits import BATCH_JOB

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable


_COMMITS = 50
"""Attempts to commit a batch that others overtake."""
_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
"""Seconds up to which the first attempt pauses, each later one twice as long; and the longest."""
_LOOKED_AT = 100
"""Commits of a table that show a new stream which others write to it."""


class StoredTable(NamedTuple):
    """The root of a table in an object store."""

    uri: str
    options: dict[str, str]

    def create(self, name: str) -> pa.NativeFile:
        return self._files().open_output_stream(name)

    def has(self, name: str) -> bool:
        return bool(self._files().get_file_info(name).type == fs.FileType.File)

    def read(self, name: str) -> pa.Table:
        with self._files().open_input_file(name) as file:
            return pq.ParquetFile(file).read()

    def remove(self, name: str) -> None:
        self._files().delete_file(name)

    def _files(self) -> fs.PyFileSystem:
        from deltalake.fs import DeltaStorageHandler

        return fs.PyFileSystem(DeltaStorageHandler(self.uri, self.options))


class Delta(FileSink):
    """A Delta table, in a folder or at the URL of an object store.

    path               a folder that the driver and all workers mount, or a URL: s3://...,
                       gs://..., abfss://...
    options            what delta-rs takes to reach the store: AWS_REGION, AWS_ENDPOINT_URL, ...
    replace            a batch job replaces all rows of the table
    shared             several streams write to the table; without, one that meets the batches of
                       another stream is rejected: its checkpoint may have been lost
    partition_by       columns to partition a new table by; an existing one has its own
    target_file_bytes  files of a batch below this are joined up to it; 0: one file per task
    """

    def __init__(
        self,
        path: str | Path,
        options: Mapping[str, Any] | None = None,
        *,
        replace: bool = False,
        shared: bool = False,
        partition_by: Sequence[str] = (),
        target_file_bytes: int = TARGET_FILE_BYTES,
    ):
        self.name = str(path)
        self._is_local = "://" not in self.name
        self._options = {key: str(value) for key, value in (options or {}).items()}
        self._replace = flag("replace", replace)
        self._shared = flag("shared", shared)
        self._partition_by = partition_columns(partition_by)
        self._target_bytes = target_file_bytes
        self._stream = ""
        self._seen = -1
        """Newest version of the table that was looked at for other streams."""

    def check(self, session: SparkSession) -> None:
        try:
            import deltalake  # noqa: F401
        except ModuleNotFoundError:
            raise UsageError(
                "a Delta table requires delta-rs, which isn't installed\n"
                "  hint: pip install 'rangecast[delta]'"
            ) from None
        with self._errors():
            self._rules(self._table())

    def check_columns(self, columns: StructType) -> None:
        with self._errors():
            table = self._table()
            rules = self._rules(table)
        reject_types(columns, (*ONLY_SPARK, *UNWRITABLE), self.name)
        reject_case_variants(columns.names, self.name)
        check_partitions(columns, self._partition_by, self.name)
        if rules is not None:
            rules.check(_with_table_ids(columns, table), self.name)
            self._check_partitioning(rules)

    def open(self, stream: str, closing: ExitStack) -> None:
        self._stream = stream
        with self._errors():
            table = self._table()
            if table is not None and table.transaction_version(stream) is None:
                self._reject_others(table, _LOOKED_AT)
            self._seen = -1 if table is None else int(table.version())

    def _reject_others(self, table: DeltaTable, commits: int) -> None:
        """Reject a table if another stream wrote one of its newest commits."""
        if self._shared or self._replace or BATCH_JOB in self._stream or commits <= 0:
            return
        noted = [commit.get("stream", BATCH_JOB) for commit in table.history(commits)]
        for other in noted:
            if BATCH_JOB not in other and other != self._stream:
                raise UsageError(
                    f"{self.name}: contains the batches of another stream, {other}; this one is "
                    f"{self._stream}, and would write all its events beside them\n"
                    "  hint: continue with the old checkpoint, write to a new table, or let "
                    "several streams share this one (shared = true)"
                )

    def has(self, number: int) -> bool:
        with self._errors():
            return self._is_in(self._table(), number)

    def _is_in(self, table: DeltaTable | None, number: int) -> bool:
        last = None if table is None else table.transaction_version(self._stream)
        return last is not None and last >= number

    def target(self, columns: StructType, batch: Batch) -> Target:
        from deltalake import DeltaTable

        with self._errors():
            table = self._table()
            rules = self._rules(table)
            wanted = with_ids(columns, batch, self.name, lambda kind: _ids(table) or kind)
            if rules is not None:
                rules.check(wanted, self.name)
            else:
                DeltaTable.create(
                    self.name,
                    arrow_schema(wanted),
                    mode="ignore",
                    partition_by=list(self._partition_by) or None,
                    storage_options=self._options,
                )
        folder = LocalFolder(self.name) if self._is_local else StoredTable(self.name, self._options)
        if rules is None:
            return Target(folder, wanted, self._partition_by, name=self.name)
        return Target(folder, wanted, rules.partition_by, rules.not_null, self.name)

    def _check_partitioning(self, rules: TableRules) -> None:
        if self._partition_by and self._partition_by != rules.partition_by:
            held = ", ".join(rules.partition_by) or "nothing"
            raise UsageError(
                f"{self.name}: the table is partitioned by {held}; given: partition_by = "
                f"{list(self._partition_by)}\n  hint: leave it out, or write to another table"
            )

    def _rules(self, table: DeltaTable | None) -> TableRules | None:
        return None if table is None else TableRules.of(table, self.name, replace=self._replace)

    def written(self, target: Target, files: Sequence[WrittenFile], batch: Batch) -> Commit:
        with self._errors():
            files = join_parquet(target.place, files, self._target_bytes)

        def commit(counts: Counts) -> None:
            from deltalake import CommitProperties, Transaction
            from deltalake.transaction import AddAction

            if self._is_local:
                self._flush(files)
            now = int(time.time() * 1000)
            added: list[Any] = [
                AddAction(
                    file.name,
                    file.size,
                    dict(zip(target.partition_by, file.partition, strict=True)),
                    now,
                    True,
                    json.dumps({"numRecords": file.rows}),
                )
                for file in files
            ]
            facts = {"stream": self._stream, "batch": batch.number, "set_version": batch.version}
            about = CommitProperties(
                custom_metadata={key: str(value) for key, value in (facts | counts).items()},
                max_commit_retries=0,
                app_transactions=[Transaction(self._stream, batch.number)],
            )
            with self._errors():
                for attempt in range(_COMMITS):
                    if self._commit_once(target, added, about, batch.number):
                        return
                    # Each waits for another time, so that they don't meet repeatedly.
                    time.sleep(random.uniform(0, min(_LONGEST_PAUSE, _PAUSE * 2**attempt)))
            raise FileError(
                f"{self.name}: Delta table: others were first in {_COMMITS} attempts to commit "
                f"batch {batch.number}\n"
                "  hint: start the stream again; let fewer streams write to the table, or batches "
                "be rarer by a longer trigger"
            )

        return commit

    def _commit_once(
        self, target: Target, added: Sequence[Any], about: CommitProperties, number: int
    ) -> bool:
        """Commit to the version of the table that was checked; return whether it is done.

        The log takes one commit per version. If another one came first, delta-rs would try the next
        version: it knows no streams, so that the table is checked once more before.
        """
        from deltalake.exceptions import CommitFailedError

        table = self._table()
        if table is None:
            raise FileError(
                f"{self.name}: the table was removed while batch {number} was written\n"
                "  hint: start the stream again; it makes a new table, from this batch on"
            )
        if self._is_in(table, number):  # by another run of this stream
            return True
        version = int(table.version())
        self._reject_others(table, version - self._seen)
        self._reject_altered(table, target)
        self._seen = version
        try:
            table.create_write_transaction(
                list(added),
                "overwrite" if self._replace else "append",
                arrow_schema(target.columns),
                list(target.partition_by) or None,
                commit_properties=about,
            )
        except CommitFailedError:
            newest = self._table()
            if newest is None or newest.version() == version:
                raise
            return False
        return True

    def _reject_altered(self, table: DeltaTable, target: Target) -> None:
        """Reject a table that asks for other rows than those that were written for it."""
        rules = TableRules.of(table, self.name, replace=self._replace)
        rules.check(target.columns, self.name)
        if (rules.partition_by, rules.not_null) != (target.partition_by, target.not_null):
            raise UsageError(
                f"{self.name}: the table's partitions or NOT NULL columns were changed while a "
                "batch was written\n  hint: start the stream again"
            )

    def _flush(self, files: Sequence[WrittenFile]) -> None:
        """Flush the workers' files to disk; raise an error for a file that is on another host."""
        for file in files:
            path = Path(self.name) / file.name
            if not path.exists():
                raise FileError(
                    f"{self.name}: a worker wrote {file.name}, but it can't be found\n"
                    "  hint: use a folder that the driver and all workers mount, or a URL"
                )
            sync_file(path)
        sync_folder(Path(self.name))

    def _table(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self.name, storage_options=self._options)
        except TableNotFoundError:
            return None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert delta-rs errors to rangecast errors."""
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError) as error:
            raise FileError(f"{self.name}: Delta table: {error}") from None


def _with_table_ids(columns: StructType, table: DeltaTable | None) -> StructType:
    """Return the columns with subscription ids of the table's type."""
    any_batch = Batch("", 0, 0, 0)  # an empty set fits any type
    return with_ids(columns, any_batch, "", lambda kind: _ids(table) or kind)


def _ids(table: DeltaTable | None) -> str | None:
    """Return the type of subscription ids in a table; `None` if it is unknown."""
    if table is None:
        return None
    for field in table.schema().fields:
        if field.name in ID_TYPES:
            kind = json.loads(field.to_json())["type"]
            if field.name == "subscriptions" and isinstance(kind, dict):
                kind = kind.get("elementType")
            if kind in ("long", "string"):  # others were kept from the events
                return "bigint" if kind == "long" else "string"
    return None
