"""Tables in files: CSV, JSON Lines, Parquet, Arrow IPC, by suffix, read and written in batches.

A folder of files of one format, as Spark writes it, is read as one table, file by file in the
order of their names; what begins with `.` or `_` is no part of it.

Reading gives record batches with the row number of each row, so that an error can name it.
Values of a CSV file stay texts and those of a JSON file keep the type they have: what a value
means is the attribute's business, not the reader's. Writing is atomic: the file appears when it
is complete.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq

from rangecast.errors import FileError, near
from rangecast.kernels.arrays import I64

BATCH_ROWS = 1 << 16
_JSON_BYTES = 1 << 23
SUFFIXES = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
_PACKED = (".gz", ".zst", ".bz2")


class Batch(NamedTuple):
    """Some rows of a file, and the number of each, counted from 0."""

    rows: I64
    data: pa.RecordBatch


Broken = Callable[[int, str, str], None]
"""Is told of a row that can't even be split into columns: its number, its text, and why."""


def format_of(path: str | Path) -> str:
    """Return the format that a file's suffix stands for; `.gz` and the like may follow it.

    That of a folder is the format of its files.
    """
    if Path(path).is_dir():
        formats = {format_of(part) for part in parts_of(Path(path))}
        if len(formats) == 1:
            return formats.pop()
        listed = " and ".join(sorted(formats)) or "no table"
        raise FileError(f"{path}: is a folder with {listed} in it; expected files of one format")
    if str(path) == "-":
        raise FileError("-: tables aren't read from stdin; write it to a file and give its name")
    suffixes = [s.lower() for s in Path(path).suffixes]
    while suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    if suffixes and suffixes[-1] in SUFFIXES:
        return SUFFIXES[suffixes[-1]]
    raise FileError(f"{path}: unknown format; the name must end in one of {', '.join(SUFFIXES)}")


def parts_of(folder: Path) -> list[Path]:
    """Return the files of a folder that is one table, in order, also those in folders within."""

    def counts(path: Path) -> bool:
        hidden = any(name[0] in "._" for name in path.relative_to(folder).parts)
        return not hidden and path.is_file()

    return sorted(filter(counts, folder.rglob("*")))


def read_batches(path: str | Path, broken: Broken | None = None) -> Iterator[Batch]:
    """Yield the rows of a file; one that can't be split goes to `broken`, or stops the reading."""
    reader = {"csv": _csv, "jsonl": _jsonl, "parquet": _parquet, "arrow": _arrow}[format_of(path)]
    first = count = 0

    def stop(row: int, text: str, why: str) -> None:
        raise FileError(f"{path}, row {row} (counted from 0): {why}\n  given: {text[:200]}")

    def tell(row: int, text: str, why: str) -> None:
        nonlocal count
        count = max(count, row + 1)
        (broken or stop)(first + row, text, why)

    try:
        for part in parts_of(Path(path)) if Path(path).is_dir() else [Path(path)]:
            for batch in reader(part, tell):
                count = max(count, int(batch.rows[-1]) + 1 if len(batch.rows) else 0)
                yield Batch(batch.rows + first, batch.data)
            first, count = first + count, 0
    except UnicodeDecodeError as error:
        raise FileError(_not_utf8(part, error)) from None
    except FileNotFoundError:
        raise FileError(f"{path}: there is no such file or folder; {_beside(Path(path))}") from None
    except (OSError, pa.ArrowException, EOFError) as error:
        raise FileError(f"{path}: can't be read: {_first_line(error)}") from None


def _beside(path: Path) -> str:
    """Return what there is instead of a file that isn't there."""
    folder = path.parent
    if not folder.is_dir():
        return f"nor is there a folder {folder}"
    names = sorted(one.name for one in folder.iterdir() if one.name[0] not in "._")
    return f"in {folder.resolve()}: {near(path.name, names)}" if names else f"{folder} is empty"


def _not_utf8(path: Path, error: UnicodeDecodeError) -> str:
    """Return what is said of a file in another encoding, with the line where that shows."""
    where = ""
    with pa.input_stream(path, compression="detect") as raw:
        for number, line in enumerate(io.BufferedReader(raw), 1):
            try:
                line.decode()
            except UnicodeDecodeError as first:
                where, error = f", line {number}", first
                break
    byte = error.object[error.start]
    return f"{path}{where}: is not UTF-8 (the byte {byte:#04x})\n  to do: save it as UTF-8"


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _csv(path: Path, broken: Broken) -> Iterator[Batch]:
    with pa.input_stream(path, compression="detect") as raw:
        head = csv.reader(io.TextIOWrapper(raw, encoding="utf-8-sig", newline=""))
        header = next(head, None)
    if not header:
        raise FileError(f"{path}: is empty; a CSV file starts with a line of column names")
    _check_header(path, header)
    if not _has_rows(path):
        yield Batch(np.zeros(0, np.int64), _no_rows(header))
        return
    unsplit: list[int] = []
    untold: list[tuple[int, str, str]] = []  # an error raised inside the handler would be lost

    def on_broken(row: Any) -> str:
        number = row.number - 2  # lines count from 1, and the header is one
        unsplit.append(number)
        why = f"has {row.actual_columns} columns, the header has {row.expected_columns}"
        untold.append((number, row.text, why))
        return "skip"

    def tell() -> None:
        while untold:
            broken(*untold.pop(0))

    with pa.input_stream(path, compression="detect") as raw:
        reader = pacsv.open_csv(
            pa.PythonFile(_Utf8(raw), mode="r"),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=1 << 22),
            parse_options=pacsv.ParseOptions(
                newlines_in_values=True, invalid_row_handler=on_broken, ignore_empty_lines=True
            ),
            convert_options=pacsv.ConvertOptions(
                column_types={name: pa.large_string() for name in header},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )
        following = _numbers_except(unsplit)
        for data in reader:
            tell()
            rows = np.fromiter(islice(following, data.num_rows), np.int64, data.num_rows)
            yield Batch(rows, data)
        tell()


class _Utf8:
    """A stream that refuses bytes that aren't UTF-8 before Arrow makes a text of them."""

    closed = False

    def __init__(self, raw: pa.NativeFile):
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def read(self, size: int) -> bytes:
        data: bytes = self._raw.read(size)
        self._decoder.decode(data, final=not data)
        return data

    def close(self) -> None:
        """Leave closing to the owner of the stream."""


def _has_rows(path: Path) -> bool:
    """Whether anything follows the header; Arrow refuses a file where nothing does."""
    with pa.input_stream(path, compression="detect") as raw:
        reader = csv.reader(io.TextIOWrapper(raw, encoding="utf-8-sig", newline=""))
        next(reader, None)
        return any(row for row in reader)


def _numbers_except(left_out: list[int]) -> Iterator[int]:
    number, place = 0, 0
    while True:
        while place < len(left_out) and left_out[place] == number:
            number, place = number + 1, place + 1
        yield number
        number += 1


def _check_header(path: Path, header: list[str]) -> None:
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        raise FileError(f"{path}: the column {sorted(twice)[0]!r} stands twice in the header")
    for mark in (";", "\t", "|"):
        if len(header) == 1 and mark in header[0]:
            raise FileError(
                f"{path}: has one column only, {header[0]!r}: its columns are separated by "
                f"{mark!r}\n  to do: save it with commas between columns"
            )


def _no_rows(header: list[str]) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array([], pa.large_string()) for name in header})


def _jsonl(path: Path, broken: Broken) -> Iterator[Batch]:
    with pa.input_stream(path, compression="detect") as raw:
        first = 0
        for lines in _line_blocks(raw):
            rows = np.arange(first, first + len(lines))
            first += len(lines)
            data = _json_fast(lines)
            batch = Batch(rows, data) if data is not None else _json_slow(rows, lines, broken)
            if len(batch.rows):
                yield batch


def _line_blocks(raw: pa.NativeFile) -> Iterator[list[bytes]]:
    rest = b""
    while block := raw.read(_JSON_BYTES):
        head, newline, tail = (rest + block).rpartition(b"\n")
        rest = tail
        lines = [line for line in head.split(b"\n") if line.strip()] if newline else []
        if lines:
            yield lines
    if rest.strip():
        yield [rest]


def _json_fast(lines: list[bytes]) -> pa.RecordBatch | None:
    """Read lines with Arrow; `None` if it can't."""
    packed = b"\n".join(lines)
    options = pajson.ReadOptions(use_threads=False, block_size=len(packed) + 1)
    try:
        packed.decode()  # Arrow takes any bytes for a text
        table = pajson.read_json(pa.BufferReader(packed), read_options=options)
        moments = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
        if moments:  # texts that look like moments: what they are is for the attribute to say
            texts = pa.schema([(name, pa.large_string()) for name in moments])
            parse = pajson.ParseOptions(explicit_schema=texts)
            table = pajson.read_json(pa.BufferReader(packed), options, parse)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    return table.combine_chunks().to_batches()[0] if len(table) == len(lines) else None


def _json_slow(rows: I64, lines: list[bytes], broken: Broken) -> Batch:
    """Read lines one by one: exact about the row at fault and about mixed types."""
    kept: list[dict[str, Any]] = []
    numbers: list[int] = []
    for number, line in zip(rows.tolist(), lines, strict=True):
        try:
            value = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            broken(number, line.decode("utf-8", "replace"), f"is not JSON: {_first_line(error)}")
            continue
        if not isinstance(value, dict):
            broken(number, line.decode("utf-8", "replace"), "is not a JSON object")
            continue
        kept.append(value)
        numbers.append(number)
    names = list(dict.fromkeys(name for row in kept for name in row))
    columns = {name: _mixed_array([row.get(name) for row in kept]) for name in names}
    data = pa.record_batch(columns) if columns else pa.RecordBatch.from_pylist(kept)
    return Batch(np.array(numbers, np.int64), data)


def _mixed_array(values: list[Any]) -> pa.Array:
    """Return values as an array; if their types don't agree, as the texts they are written as."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array(
            [v if v is None or isinstance(v, str) else json.dumps(v) for v in values],
            pa.large_string(),
        )


def _parquet(path: Path, broken: Broken) -> Iterator[Batch]:  # noqa: ARG001
    with pq.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
        _check_header(path, file.schema_arrow.names)
        yield from _numbered(file.schema_arrow, file.iter_batches(BATCH_ROWS))


def _arrow(path: Path, broken: Broken) -> Iterator[Batch]:  # noqa: ARG001
    with pa.memory_map(str(path)) as source:
        try:
            file = pa.ipc.open_file(source)
            batches = (file.get_batch(i) for i in range(file.num_record_batches))
        except pa.ArrowInvalid:
            source.seek(0)
            file = batches = pa.ipc.open_stream(source)
        _check_header(path, file.schema.names)
        yield from _numbered(file.schema, batches)


def _numbered(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
    first = 0
    for data in batches:
        data.validate(full=True)  # a damaged file must not crash what reads its buffers
        for start in range(0, data.num_rows, BATCH_ROWS):
            piece = data.slice(start, BATCH_ROWS)
            yield Batch(np.arange(first, first + piece.num_rows), piece)
            first += piece.num_rows
    if not first:
        empty = {field.name: pa.array([], field.type) for field in schema}
        yield Batch(np.zeros(0, np.int64), pa.record_batch(empty))


class TableWriter:
    """Writes record batches to a file of the format of its suffix; `-` is CSV on stdout.

    Use it with `with`: the file takes its name when the block ends well and is gone otherwise.
    """

    def __init__(self, path: str | Path, schema: pa.Schema):
        self.schema = schema
        self.rows = 0
        self._path = None if str(path) == "-" else Path(path)
        self._format = "csv" if self._path is None else format_of(self._path)
        self._sink: IO[bytes]
        if self._path is None:
            self._sink = sys.stdout.buffer
        else:
            if self._path.suffix.lower() in _PACKED:
                raise FileError(f"{path}: packed files can be read but not written")
            self._partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.partial")
            try:
                self._sink = self._partial.open("wb")
            except FileNotFoundError:
                folder = self._path.parent
                raise FileError(
                    f"{path}: can't be written: there is no folder {folder}\n"
                    f"  to do: create it first: mkdir -p {folder}"
                ) from None
            except OSError as error:
                raise FileError(f"{path}: can't be written: {error.strerror}") from None
        self._header = b""
        """Of a CSV file, until it is written: with the first row, or at a good end."""
        self._columnar: pq.ParquetWriter | pa.ipc.RecordBatchFileWriter | None = None
        if self._format == "parquet":
            self._columnar = pq.ParquetWriter(self._sink, schema)
        elif self._format == "arrow":
            self._columnar = pa.ipc.new_file(self._sink, schema)
        elif self._format == "csv":
            self._header = _csv_line(schema.names)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.rows += batch.num_rows
        if batch.num_rows:
            self._begin()
        if self._columnar is not None:
            self._columnar.write_batch(batch)
        elif self._format == "csv":
            _write_csv(batch, self._sink)
        else:
            lines = (json.dumps(row, default=str, ensure_ascii=False) for row in batch.to_pylist())
            self._sink.write("".join(line + "\n" for line in lines).encode())

    def _begin(self) -> None:
        if self._header:
            self._sink.write(self._header)
            self._header = b""

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._columnar is not None:
            self._columnar.close()
        if kind is None:
            self._begin()
        if self._path is None:
            self._sink.flush()
            return
        self._sink.close()
        if kind is None:
            self._partial.replace(self._path)
        else:
            self._partial.unlink(missing_ok=True)


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
    """Write rows with quotes only where they are needed, which Arrow does all or nothing."""
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
    """Moments as ISO 8601 with their zone, booleans as words; the rest as Arrow writes it."""
    if pa.types.is_timestamp(column.type) and column.type.tz:
        return pc.strftime(column.cast(pa.timestamp("us", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
    return column
