"""Reader of tables in files: CSV, JSON Lines, Parquet, Arrow IPC, by suffix, in batches.

A folder of files of one format, as Spark writes it, is read as one table, file by file in the
order of their names; names that start with `.` or `_` are skipped. A pattern such as
`events/*.jsonl` is read the same way, unless a file has exactly that name.

Batches have the number of each row, so that errors can name it. Values of a CSV file stay texts,
and those of a JSON file keep their type: attributes interpret values, readers do not.
`model/io/writer.py` writes tables.
"""

from __future__ import annotations

import atexit
import csv
import glob
import io
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from rangecast.errors import FileError, UsageError, did_you_mean
from rangecast.kernels.arrays import I64
from rangecast.model.io.batch import Batch, Broken, check_distinct
from rangecast.model.io.json_lines import mentions, read_json_lines
from rangecast.model.io.read_progress import Reading

BATCH_ROWS = 1 << 16
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
_CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
PACKED = tuple(_CODECS)
_OTHER_ENCODING = "not UTF-8; save the file as UTF-8"
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
"""Such bytes after decoding with surrogate escapes."""
_MARK = "\ufdd0\ufdef"
"""Stands for such bytes: two characters that no text has."""
_CSV_BLOCKS = (1 << 22, 1 << 26, 1 << 30)
"""Bytes that are parsed at a time; the larger ones only where a row takes more than a block."""
_READING: dict[_Utf8, pacsv.CSVStreamingReader] = {}
"""CSV streams that are being read, and their readers."""
os.register_at_fork(after_in_child=_READING.clear)  # a child has none of Arrow's threads


def format_of(path: str | Path) -> str:
    """Return the format of a file by its suffix, ignoring `.gz` and similar suffixes.

    The format of a folder is that of its files.
    """
    if Path(path).is_dir() or is_pattern(path):
        formats = {format_of(part) for part in parts_of(path)}
        if len(formats) == 1:
            return formats.pop()
        listed = " and ".join(sorted(formats))
        contents = f"matches {listed or 'no file'}"
        if not is_pattern(path):
            contents = f"is a folder with {listed or 'no table'} in it"
        raise FileError(f"{path}: {contents}; expected files of a single format")
    if str(path) == "-":
        raise FileError(
            "-: this table can't be read from stdin; write it to a file and give its name"
        )
    suffixes = [s.lower() for s in Path(path).suffixes]
    while suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    if suffixes and suffixes[-1] in SUFFIXES:
        return SUFFIXES[suffixes[-1]]
    raise FileError(f"{path}: unknown format; the name must end in one of {', '.join(SUFFIXES)}")


def is_pattern(path: str | Path) -> bool:
    """Return whether a path is a glob pattern: `*`, `?`, `[...]`, and `**` for folders.

    A file with exactly that name takes precedence.
    """
    return glob.has_magic(str(path)) and not Path(path).exists()


def parts_of(path: str | Path) -> list[Path]:
    """Return the files of a table, in order: a single one, or those of a folder or pattern.

    Folders are searched recursively.
    """
    folder = Path(path)
    if is_pattern(path):
        # As a shell does: without hidden files, which Path.glob finds.
        paths = sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207
        return [path_ for path_ in paths if path_.is_file()]
    if not folder.is_dir():
        return [folder]

    def counts(path: Path) -> bool:
        hidden = any(name[0] in "._" for name in path.relative_to(folder).parts)
        return not hidden and path.is_file()

    return sorted(filter(counts, folder.rglob("*")))


def read_batches(
    path: str | Path,
    broken: Broken | None = None,
    *,
    exact: Collection[str] = (),
    only: str | None = None,
    begun: list[tuple[int, Path]] | None = None,
    reading: Reading | None = None,
) -> Iterator[Batch]:
    """Yield the rows of a file; an unparsable row goes to `broken`, or stops the reading.

    exact   columns whose numbers must not be rounded to doubles; ids never are
    only    the only column that is needed, if it exists; others may be left out
    begun   receives the files of the table as they are read, each with its first row number
    reading receives the number of bytes read
    """
    kind = format_of(path)
    reading = reading or Reading()
    first = count = 0
    begun = [] if begun is None else begun
    begun.clear()

    def stop(row: int, text: str, why: str) -> None:
        raise FileError(f"{part}, row {row - first} (counted from 0): {why}\n  given: {text[:200]}")

    def report(row: int, text: str, why: str) -> None:
        nonlocal count
        count = max(count, row + 1)
        (broken or stop)(first + row, text, why)

    try:
        files = parts_of(path)
        reading.begin(files)
        for part in files:
            begun.append((first, part))
            reading.next_file(part)
            for batch in _read(part, kind, report, exact, only, reading):
                count = max(count, int(batch.rows[-1]) + 1 if len(batch.rows) else 0)
                yield Batch(batch.rows + first, batch.columns)
            first, count = first + count, 0
    except UsageError as error:  # a duplicate column
        raise FileError(f"{part}: {error}") from None
    except FileNotFoundError:
        raise FileError(
            f"{path}: there is no such file or folder; {_similar_names(Path(path))}"
        ) from None
    except (OSError, pa.ArrowException, EOFError) as error:
        raise FileError(f"{path}: can't be read: {_first_line(error)}") from None


def read_tables(path: str | Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file as Arrow; JSON values without a common type become texts."""
    for batch in read_batches(path):
        yield batch.arrow()


def read_csv(text: bytes, name: str, broken: Broken) -> Iterator[Batch]:
    """Yield the rows of a CSV text; error messages refer to it as `name`."""
    try:
        yield from _csv(Path(name), broken, None, Reading(), pa.py_buffer(text))
    except UsageError as error:  # a duplicate column
        raise FileError(f"{name}: {error}") from None
    except (OSError, pa.ArrowException, EOFError) as error:
        raise FileError(f"{name}: can't be read: {_first_line(error)}") from None


def one_table(path: str | Path, parts: list[pa.Table]) -> pa.Table:
    """Concatenate parts of a file to one table; columns that a part lacks are null there."""
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        raise FileError(
            f"{path}: a column has values of different types: {error}\n"
            "  hint: use one type per column"
        ) from None


def _read(
    path: Path,
    kind: str,
    broken: Broken,
    exact: Collection[str],
    only: str | None,
    reading: Reading,
) -> Iterator[Batch]:
    if kind == "csv":
        return _csv(path, broken, only, reading)
    if kind == "jsonl":
        return _jsonl(path, broken, exact, only, reading)
    return _parquet(path, only, reading) if kind == "parquet" else _arrow(path, reading)


@contextmanager
def _opened(source: Path | pa.Buffer) -> Iterator[tuple[pa.NativeFile, Callable[[], int], int]]:
    """Open a text stream; yield it with a function for the position on disk, and the file size."""
    if isinstance(source, Path):
        with pa.OSFile(str(source)) as file:
            codec = _CODECS.get(source.suffix.lower())
            size = file.size()
            if codec is None:
                yield file, file.tell, size
            else:
                with pa.CompressedInputStream(file, codec) as text:
                    yield text, file.tell, size
    else:
        with pa.input_stream(source) as text:
            yield text, text.tell, source.size


def _similar_names(path: Path) -> str:
    """Return a hint for a missing file: similar names in its folder."""
    folder = path.parent
    if not folder.is_dir():
        return f"nor is there a folder {folder}"
    names = sorted(path_.name for path_ in folder.iterdir() if path_.name[0] not in "._")
    return (
        f"in {folder.resolve()}: {did_you_mean(path.name, names)}"
        if names
        else f"{folder} is empty"
    )


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _jsonl(
    path: Path, broken: Broken, exact: Collection[str], only: str | None, reading: Reading
) -> Iterator[Batch]:
    if only is not None:
        with pa.input_stream(path, compression="detect") as raw:
            if not mentions(raw, only):
                return
    with _opened(path) as (raw, tell, size):
        for batch in read_json_lines(raw, broken, exact, only):
            reading.reached(tell(), size)
            yield batch


def _csv(
    path: Path,
    broken: Broken,
    only: str | None,
    reading: Reading,
    text: pa.Buffer | None = None,
) -> Iterator[Batch]:
    source = path if text is None else text
    header, has_rows = _csv_header(path, source)
    check_distinct(header)
    _check_marks(path, header)
    if not has_rows:  # Arrow rejects such a file
        yield Batch(np.zeros(0, np.int64), dict.fromkeys(header, pa.array([], pa.large_string())))
        return
    number = 0

    def report(row: int, text: str, why: str) -> None:
        if row >= number:  # the others were reported before a row turned out to be long
            broken(row, text, why)

    names = [only] if only in header else header
    for size in _CSV_BLOCKS:
        try:
            for rows, data in _csv_blocks(source, names, size, report, reading):
                if not len(rows) or rows[-1] < number:
                    continue
                if rows[0] < number:
                    new = rows >= number
                    rows, data = rows[new], data.filter(pa.array(new))
                yield Batch(rows, dict(zip(names, data.columns, strict=True)))
                number = int(rows[-1]) + 1
            return
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):
                raise
    raise FileError(
        f"{path}: a row after row {number} (counted from 0) is larger than a gigabyte\n"
        "  hint: look for an unclosed quote"
    )


def _csv_header(path: Path, source: Path | pa.Buffer) -> tuple[list[str], bool]:
    """Return the column names, and whether any row follows them."""
    with pa.input_stream(source, compression="detect") as raw:
        lines = io.TextIOWrapper(raw, "utf-8-sig", errors="surrogateescape", newline="")
        try:
            header = next(csv.reader(lines), None)
        except csv.Error as error:
            raise FileError(f"{path}: the header can't be read: {error}") from None
        has_rows = any(line.rstrip("\r\n") for line in lines)
    if not header:
        raise FileError(f"{path}: is empty; a CSV file starts with a line of column names")
    if any(_NOT_UTF8.search(name) for name in header):
        raise FileError(f"{path}: the header is {_OTHER_ENCODING}")
    return header, has_rows


def _csv_blocks(
    source: Path | pa.Buffer, names: list[str], size: int, broken: Broken, reading: Reading
) -> Iterator[tuple[I64, pa.RecordBatch]]:
    """Yield blocks of rows: their numbers and cells."""
    unsplit: list[int] = []
    waiting: list[tuple[int, str, str]] = []  # an error raised inside the handler would be lost

    def on_broken(row: Any) -> str:
        number = row.number - 2  # lines count from 1, and the header is one
        unsplit.append(number)
        why = f"has {row.actual_columns} columns, the header has {row.expected_columns}"
        waiting.append((number, row.text, why))
        return "skip"

    def report() -> None:
        while waiting:
            broken(*waiting.pop(0))

    with _opened(source) as (raw, tell, whole):
        stream = _Utf8(raw)
        reader = pacsv.open_csv(
            pa.PythonFile(stream, mode="r"),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=size),
            parse_options=pacsv.ParseOptions(
                newlines_in_values=True, invalid_row_handler=on_broken, ignore_empty_lines=True
            ),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.large_string()),
                include_columns=names,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )
        _READING[stream] = reader
        following = _numbers_except(unsplit)
        try:
            for data in reader:
                report()
                reading.reached(tell(), whole)
                rows = np.fromiter(islice(following, data.num_rows), np.int64, data.num_rows)
                yield _undamaged(rows, data, broken) if stream.is_damaged else (rows, data)
            report()
        finally:
            _finish(stream)


def _finish(stream: _Utf8) -> None:
    """Wait for Arrow's read-ahead thread.

    It runs Python code, and the process aborts if it still does when the interpreter exits.
    """
    stream.is_ended = True
    reader = _READING.pop(stream, None)
    with suppress(StopIteration, pa.ArrowException):
        while reader is not None:
            reader.read_next_batch()


@atexit.register
def _finish_all() -> None:
    """Finish open readers at exit: an exception that ends the process may keep them alive."""
    for stream in list(_READING):
        _finish(stream)


class _Utf8:
    """Stream that marks invalid UTF-8, because Arrow accepts any bytes as text."""

    closed = False

    def __init__(self, raw: pa.NativeFile):
        self.is_damaged = False
        self.is_ended = False
        self._raw = raw
        self._rest = b""

    def read(self, size: int) -> bytes:
        if self.is_ended:
            return b""
        read: bytes = self._raw.read(size)
        data, self._rest = self._rest + read, b""
        try:
            data.decode()
        except UnicodeDecodeError as error:
            if read and error.end == len(data) and error.start > len(data) - 4:
                data, self._rest = data[: error.start], data[error.start :]  # cut in a character
                return data or self.read(size)
            self.is_damaged = True
            marked = _NOT_UTF8.sub(_MARK, data.decode(errors="surrogateescape"))
            return marked.encode()
        return data

    def close(self) -> None:
        """Do nothing: the owner of the stream closes it."""


def _undamaged(rows: I64, data: pa.RecordBatch, broken: Broken) -> tuple[I64, pa.RecordBatch]:
    """Return the rows without marked bytes; report the others as broken."""
    good = np.ones(len(rows), np.bool_)
    for cells in data.columns:
        marked = pc.match_substring(cells, _MARK).fill_null(False)
        good &= ~np.asarray(marked.to_numpy(zero_copy_only=False), np.bool_)
    for index in np.flatnonzero(~good).tolist():
        text = ",".join(str(cells[index].as_py() or "") for cells in data.columns)
        broken(int(rows[index]), text.replace(_MARK, "\ufffd"), f"is {_OTHER_ENCODING}")
    return rows[good], data.filter(pa.array(good))


def _numbers_except(left_out: list[int]) -> Iterator[int]:
    number, index = 0, 0
    while True:
        while index < len(left_out) and left_out[index] == number:
            number, index = number + 1, index + 1
        yield number
        number += 1


def _check_marks(path: Path, header: list[str]) -> None:
    for mark in (";", "\t", "|"):
        if len(header) == 1 and mark in header[0]:
            raise FileError(
                f"{path}: has only one column, {header[0]!r}: its columns are separated by "
                f"{mark!r}\n  hint: save it with commas between columns"
            )


def _parquet(path: Path, only: str | None, reading: Reading) -> Iterator[Batch]:
    with pq.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
        check_distinct(schema.names)
        needed = [only] if only in schema.names else None
        for batch in _numbered(schema, file.iter_batches(BATCH_ROWS, columns=needed)):
            reading.reached(int(batch.rows[-1]) + 1 if len(batch.rows) else 0, rows)
            yield batch


def _arrow(path: Path, reading: Reading) -> Iterator[Batch]:
    with pa.memory_map(str(path)) as source:
        try:
            file = pa.ipc.open_file(source)
            number = file.num_record_batches
            batches = (_got(file.get_batch(i), reading, i + 1, number) for i in range(number))
        except pa.ArrowInvalid:
            source.seek(0)
            file = pa.ipc.open_stream(source)
            batches = (_got(batch_, reading, source.tell(), source.size()) for batch_ in file)
        check_distinct(file.schema.names)
        yield from _numbered(file.schema, batches)


def _got(data: pa.RecordBatch, reading: Reading, part: int, whole: int) -> pa.RecordBatch:
    reading.reached(part, whole)
    return data


def _numbered(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
    first = 0
    for data in batches:
        data.validate(full=True)  # a damaged file must not crash what reads its buffers
        for start in range(0, data.num_rows, BATCH_ROWS):
            piece = data.slice(start, BATCH_ROWS)
            yield Batch.of(piece, first)
            first += piece.num_rows
    if not first:
        yield Batch.of(pa.RecordBatch.from_pylist([], schema))
