"""Writer of tables to files: CSV, JSON Lines, Parquet, Arrow IPC, by suffix, in batches.

Writing is atomic: the file appears when it is complete.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from rangecast.errors import FULL, FileError
from rangecast.model.io.atomic import PendingFile
from rangecast.model.io.files import BATCH_ROWS, PACKED, format_of


class TableWriter:
    """Writes record batches to a file in the format of its suffix; `-` is CSV on stdout.

    Use it with `with`: the file gets its name if the block succeeds, and is removed otherwise.
    """

    def __init__(self, path: str | Path, schema: pa.Schema):
        self.schema = schema
        self.rows = 0
        self._path = None if str(path) == "-" else Path(path)
        self._format = "csv" if self._path is None else format_of(self._path)
        self._sink: IO[bytes] = sys.stdout.buffer
        if self._path is not None:
            if self._path.suffix.lower() in PACKED:
                raise FileError(f"{path}: compressed files can be read but not written")
            with self._writing():
                self._pending = PendingFile(self._path)
            self._sink = self._pending.file
        self._header = b""
        """Header of a CSV file until it is written: with the first row, or on success."""
        self._columnar: pq.ParquetWriter | pa.ipc.RecordBatchFileWriter | None = None
        with self._writing():
            if self._format == "parquet":
                self._columnar = pq.ParquetWriter(self._sink, schema)
            elif self._format == "arrow":
                self._columnar = pa.ipc.new_file(self._sink, schema)
            elif self._format == "csv":
                self._header = _csv_line(schema.names)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.rows += batch.num_rows
        with self._writing():
            if batch.num_rows:
                self._begin()
            if self._columnar is not None:
                self._columnar.write_batch(batch)
            elif self._format == "csv":
                _write_csv(batch, self._sink)
            else:
                rows = batch.to_pylist()
                lines = (json.dumps(row, default=str, ensure_ascii=False) for row in rows)
                self._sink.write("".join(line + "\n" for line in lines).encode())

    def _begin(self) -> None:
        if self._header:
            self._sink.write(self._header)
            self._header = b""

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Convert write errors to usage errors; a closed stdout is left to the caller."""
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise unwritable(self._path or "stdout", error) from None

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        try:
            if kind is None:
                with self._writing():
                    self._finish()
        finally:
            if self._path is not None:
                self._pending.discard()  # does nothing once the file has its name

    def _finish(self) -> None:
        if self._columnar is not None:
            self._columnar.close()
        self._begin()
        if self._path is None:
            self._sink.flush()
            return
        self._pending.commit()


def unwritable(path: str | Path, error: OSError) -> FileError:
    """Return the error for a file that cannot be written, with a hint."""
    folder = Path(path).parent
    text = f"{path}: can't be written: {error.strerror or error}"
    if isinstance(error, FileNotFoundError):
        text = f"{path}: can't be written: there is no folder {folder}"
        text += f"\n  hint: create it first: mkdir -p {folder}"
    elif error.errno in FULL:
        text += "; free some space, or write to another disk"
    return FileError(text)


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write a whole table."""
    with TableWriter(path, table.schema) as writer:
        for batch in table.to_batches(BATCH_ROWS):
            writer.write(batch)


def _csv_line(values: list[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue().encode()


def _write_csv(batch: pa.RecordBatch, sink: IO[bytes]) -> None:
    """Write rows, quoting only where needed; Arrow quotes everything or nothing."""
    batch = pa.record_batch(
        [_csv_text(column) for column in batch.columns], names=batch.schema.names
    )
    options = pacsv.WriteOptions(include_header=False, quoting_style="none")
    plain = pa.BufferOutputStream()
    try:
        pacsv.write_csv(batch, plain, options)
        sink.write(plain.getvalue())
    except pa.ArrowInvalid:  # some text needs quotes
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            sink.write(_csv_line(["" if v is None else str(v) for v in row]))


def _csv_text(column: pa.Array) -> pa.Array:
    """Format a column: timestamps in ISO 8601, booleans as words, the rest as Arrow does."""
    if pa.types.is_timestamp(column.type) and column.type.tz:
        return pc.strftime(column.cast(pa.timestamp("us", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
    return column
