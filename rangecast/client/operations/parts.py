"""Rows split into requests that the server accepts: at most 10,000 rows and 8 MiB each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from rangecast.errors import FileError, RangecastError
from rangecast.kernels.arrays import I64
from rangecast.model.io.batch import Batch
from rangecast.model.io.files import format_of, parts_of, read_tables
from rangecast.model.io.tables import batches_of

MAX_ROWS = 10_000
"""Maximum number of events per request."""
BULK = 5_000
"""Maximum number of subscriptions per request: each is one edit, which blocks others."""
MAX_BYTES = 8 << 20


def _plain_value(value: Any) -> Any:
    """Return a value as a JSON type: NumPy scalars become Python numbers."""
    return value.item() if isinstance(value, np.generic) else str(value)


encode = msgspec.json.Encoder(enc_hook=_plain_value).encode
Item = TypeVar("Item")


def split_rows(
    rows: Iterable[Item | RangecastError], max_rows: int
) -> Iterator[list[tuple[Item | RangecastError, bytes]]]:
    """Yield rows with their JSON texts, in parts that fit into a request; errors have no text."""
    part: list[tuple[Item | RangecastError, bytes]] = []
    size = 2
    for row in rows:
        body = b"" if isinstance(row, RangecastError) else encode(row)
        if part and (len(part) == max_rows or size + len(body) + 1 > MAX_BYTES):
            yield part
            part, size = [], 2
        part.append((row, body))
        size += len(body) + 1
    if part:
        yield part


def split(rows: Iterable[bytes], max_rows: int) -> Iterator[list[bytes]]:
    """Yield rows, each a JSON text, in parts that fit into a request."""
    part: list[bytes] = []
    size = 2
    for row in rows:
        if part and (len(part) == max_rows or size + len(row) + 1 > MAX_BYTES):
            yield part
            part, size = [], 2
        part.append(row)
        size += len(row) + 1
    if part:
        yield part


def json_array(part: list[bytes]) -> bytes:
    """Return encoded rows as one JSON array."""
    return b"[%s]" % b",".join(part)


def event_rows(events: Any) -> Iterator[Mapping[str, Any]]:
    """Yield events one by one, without null values.

    Takes one dict, a list of dicts, the path of a file, an Arrow table or a DataFrame.
    """
    if isinstance(events, Mapping):
        yield events
    elif isinstance(events, str | Path):
        yield from file_rows(events)
    elif hasattr(events, "__arrow_c_stream__") or hasattr(events, "to_batches"):
        for batch in batches_of(events, "events", nan_is_null=True):
            yield from present(batch.arrow())
    else:
        yield from events


def file_rows(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file; rows of JSON lines keep all their fields."""
    if format_of(path) == "jsonl" and Path(path).suffix in (".jsonl", ".ndjson", ".json"):
        for part in parts_of(path):
            try:
                with part.open("rb") as file:
                    yield from line_rows(file, str(part))
            except OSError as error:
                raise FileError(f"{part}: can't be read: {error.strerror}") from None
    else:
        for data in read_tables(path):
            yield from present(data)


def line_rows(lines: Iterable[bytes], source: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of JSON lines, as they arrive."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                row = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise FileError(f"{source}, line {number}: not JSON: {error}") from None
            if not isinstance(row, dict):
                raise FileError(f"{source}, line {number}: an event must be a JSON object")
            yield row


def present(data: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, without null or empty values."""
    for row in data.to_pylist():
        yield {name: value for name, value in row.items() if value not in (None, "")}


def arrow_bodies(batch: Batch) -> Iterator[tuple[I64, bytes]]:
    """Yield rows of a table as Arrow streams that fit into a request, with their row numbers."""
    data = batch.arrow()
    for start in range(0, data.num_rows, BULK):
        yield from _fitting(batch.rows[start : start + BULK], data.slice(start, BULK))


def _fitting(rows: I64, data: pa.RecordBatch) -> Iterator[tuple[I64, bytes]]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_batch(data)
    body = sink.getvalue().to_pybytes()
    half = len(rows) // 2
    if len(body) <= MAX_BYTES or not half:
        yield rows, body
    else:
        yield from _fitting(rows[:half], data.slice(0, half))
        yield from _fitting(rows[half:], data.slice(half))
