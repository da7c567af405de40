"""Table bodies (CSV, Parquet, Arrow), bounded before they are converted to values."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from rangecast.errors import FileError
from rangecast.model.io.batch import Batch, Broken
from rangecast.model.io.files import read_csv
from rangecast.server.http.bodies.arrow import UNREADABLE, batches_of_arrow
from rangecast.server.http.bodies.parquet import batches_of_parquet
from rangecast.server.state.registry import RequestError

MAX_ROWS = 100_000
"""Rows of a table that is one request."""
MAX_TABLE_BYTES = 64 << 20
"""Bytes of its values."""
CSV = ("text/csv", "application/csv")
PARQUET = ("application/vnd.apache.parquet", "application/x-parquet", "application/parquet")
ARROW = ("application/vnd.apache.arrow.stream",)
_BODY = "the body"


def is_table(kind: str) -> bool:
    """Return whether a content type denotes a table."""
    return kind in (*CSV, *PARQUET, *ARROW)


def batches_of_body(kind: str, body: bytes, broken: Broken) -> Iterator[Batch]:
    """Yield the rows of a body; malformed CSV lines go to `broken`."""
    if kind in CSV:
        return _csv(body, broken)
    if kind in PARQUET:
        return _columnar(batches_of_parquet, body, "a Parquet file")
    return _columnar(batches_of_arrow, body, "an Arrow stream")


def _csv(body: bytes, broken: Broken) -> Iterator[Batch]:
    count = 0
    try:
        for batch in read_csv(body, _BODY, broken):
            count += len(batch.rows)
            if count > MAX_ROWS:
                raise RequestError(
                    413,
                    f"a request may have at most {MAX_ROWS:,} rows\n  hint: send several requests",
                )
            yield batch
    except FileError as error:
        raise RequestError(400, str(error)) from None


def _columnar(
    read: Callable[[bytes, int, int], list[pa.RecordBatch]], body: bytes, noun: str
) -> Iterator[Batch]:
    try:
        batches = read(body, MAX_ROWS, MAX_TABLE_BYTES)
    except UNREADABLE as error:
        raise RequestError(400, f"{_BODY} isn't {noun}: {error}") from None
    first = 0
    for batch in batches:
        yield Batch.of(batch, first)
        first += batch.num_rows
