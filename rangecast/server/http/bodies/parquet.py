"""Parquet bodies: rejected by their page headers, before a page is decompressed.

The sizes in a file's footer are unverified claims. Arrow allocates by the header of each page, so
all headers are read first: the decompressed size of the page, and its encoding. A dictionary stays
encoded, so that a long text repeated in every row is stored once.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rangecast.errors import abbreviate
from rangecast.server.http.bodies.arrow import check_expanded
from rangecast.server.state.registry import RequestError

_ROWS = 4096
"""Rows per batch, after each of which the sizes are checked."""
_UNBOUNDED = {7: "DELTA_BYTE_ARRAY"}
"""Encodings that expand without bound: each text may repeat the one before."""
_STRUCT = 12
_MAX_DEPTH = 8


def batches_of_parquet(body: bytes, max_rows: int, max_bytes: int) -> list[pa.RecordBatch]:
    """Return the batches of a Parquet file, with at most `max_bytes` of values in total.

    Raise an Arrow error if it isn't one.
    """
    metadata = pq.read_metadata(pa.BufferReader(body))
    if metadata.num_rows > max_rows:
        raise RequestError(
            413,
            f"a request may have at most {max_rows:,} rows; given: {metadata.num_rows:,}\n"
            "  hint: send several requests",
        )
    columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    if lists := [column.path for column in columns if column.max_repetition_level]:
        raise RequestError(
            400,
            f"the column {abbreviate(lists[0])} contains lists\n"
            "  hint: send columns of strings and numbers",
        )
    _check_pages(body, metadata, max_bytes)
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    batches: list[pa.RecordBatch] = []
    left = max_bytes
    with pq.ParquetFile(
        pa.BufferReader(body), metadata=metadata, read_dictionary=texts, pre_buffer=False
    ) as file:
        names = file.schema_arrow.names
        if len(set(names)) < len(names):
            raise RequestError(400, "two columns of the Parquet file have the same name")
        for batch in file.iter_batches(_ROWS, use_threads=False):
            batch.validate(full=True)
            left -= check_expanded([batch], left)
            batches.append(batch)
    return batches or [pa.RecordBatch.from_pylist([], file.schema_arrow)]


def _check_pages(body: bytes, metadata: Any, max_bytes: int) -> None:
    """Reject a file whose pages decompress to too many bytes, according to their headers."""
    size = 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            if column.file_path:
                raise RequestError(400, "the Parquet file has columns in other files")
            at = column.data_page_offset
            if column.has_dictionary_page and 0 < column.dictionary_page_offset < at:
                at = column.dictionary_page_offset
            end = at + column.total_compressed_size
            if not 0 < at <= end <= len(body):
                raise _damaged()
            while at < end:
                head, at = _struct(body, at, 0)
                inflated, packed = _size(head, 2), _size(head, 3)
                size += max(inflated, packed)
                if size > max_bytes:
                    raise RequestError(
                        413,
                        f"the pages of a Parquet file may have at most {max_bytes:,} bytes, "
                        "uncompressed\n"
                        "  hint: send several requests",
                    )
                _check_encoding(head)
                at += packed


def _size(head: dict[int, Any], number: int) -> int:
    value = head.get(number)
    if not isinstance(value, int) or value < 0:
        raise _damaged()
    return value


def _check_encoding(head: dict[int, Any]) -> None:
    data, newer = head.get(5), head.get(8)
    used = data.get(2) if isinstance(data, dict) else None
    if isinstance(newer, dict):
        used = newer.get(4)
    if used in _UNBOUNDED:
        raise RequestError(
            400,
            f"the encoding {_UNBOUNDED[used]} isn't supported\n"
            "  hint: write strings with dictionary or plain encoding",
        )


def _damaged() -> RequestError:
    return RequestError(400, "the body isn't a Parquet file: damaged metadata")


# ---- Thrift's compact protocol, as far as heads of pages need it


def _struct(body: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a Thrift struct by number, and the offset of its end."""
    if depth > _MAX_DEPTH:
        raise _damaged()
    fields: dict[int, Any] = {}
    number = 0
    try:
        while True:
            head, at = body[at], at + 1
            if not head:
                return fields, at
            kind, step = head & 15, head >> 4
            if step:
                number += step
            else:
                number, at = _zigzag(body, at)
            fields[number], at = _value(body, at, kind, depth)
    except IndexError:
        raise _damaged() from None


def _value(body: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):  # true and false are kinds of their own
        return kind == 1, at
    if kind == 3:
        return body[at], at + 1
    if kind in (4, 5, 6):
        return _zigzag(body, at)
    if kind == 7:
        return None, at + 8
    if kind == 8:
        length, at = _varint(body, at)
        return None, at + length
    if kind == _STRUCT:
        return _struct(body, at, depth + 1)
    raise RequestError(400, f"the body isn't a Parquet file: {abbreviate(kind)} in a page header")


def _zigzag(body: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(body, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, at = body[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise _damaged()
