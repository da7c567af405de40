"""Arrow streams as events: bounded before anything is decompressed or converted to Python objects.

A column without any bytes may have any number of rows, a compressed buffer may have any size, and a
dictionary may repeat one long text in every row. So rows and bytes are first read from the message
headers, and the size of the values is computed before they are created.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import abbreviate
from rangecast.server.state.registry import RequestError

_CELL = 4
"""Bytes that a value takes at least."""
UNREADABLE = (*(pa.ArrowException, OSError, ValueError, TypeError, OverflowError, RecursionError),)
_encode = msgspec.json.Encoder(decimal_format="number").encode


def lines_of_arrow(body: bytes, max_rows: int, max_bytes: int) -> list[bytes]:
    """Return the rows of an Arrow stream, each as a JSON text without null values.

    A non-finite number makes the text invalid JSON, so that its row is rejected.
    """
    try:
        batches = batches_of_arrow(body, max_rows, max_bytes)
        lines = [line for batch in batches for line in _lines(batch)]
    except UNREADABLE as error:
        raise RequestError(400, f"the body isn't an Arrow stream of events: {error}") from None
    if sum(map(len, lines)) > max_bytes:
        raise _too_large(max_bytes)
    return lines


def batches_of_arrow(body: bytes, max_rows: int, max_bytes: int) -> list[pa.RecordBatch]:
    """Return the batches of an Arrow stream, with at most `max_bytes` of values in total.

    Raise an Arrow error if it isn't one.
    """
    _check_messages(body, max_rows, max_bytes)
    with pa.ipc.open_stream(body) as stream:
        table = stream.read_all()
    table.validate(full=True)
    names = table.schema.names
    if len(set(names)) < len(names):
        raise RequestError(400, "two columns of the Arrow stream have the same name")
    batches: list[pa.RecordBatch] = table.to_batches()
    check_expanded(batches, max_bytes)
    return batches


def check_expanded(batches: Iterable[pa.RecordBatch], max_bytes: int) -> int:
    """Reject batches whose values take more than `max_bytes`; return their approximate size."""
    size = sum(_expanded(column) for batch in batches for column in batch.columns)
    if size > max_bytes:
        raise _too_large(max_bytes)
    return size


def _too_large(max_bytes: int) -> RequestError:
    return RequestError(
        413,
        f"the values of a table may have at most {max_bytes:,} bytes\n"
        "  hint: send several requests",
    )


# ---- the heads of messages


def _check_messages(body: bytes, max_rows: int, max_bytes: int) -> None:
    """Reject a stream with too many rows or bytes, according to its message headers."""
    rows = size = 0
    reader = pa.ipc.MessageReader.open_stream(body)
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        if message.type not in ("record batch", "dictionary batch"):
            continue
        try:
            count, inflated = _extent(message)
        except (struct.error, IndexError):
            raise RequestError(400, "the body isn't an Arrow stream: damaged metadata") from None
        if message.type == "record batch":
            rows += count
        size += inflated
        if rows > max_rows:
            raise RequestError(
                413,
                f"a request may have at most {max_rows:,} rows; given: {rows:,} or more\n"
                "  hint: send several requests",
            )
        if size > max_bytes:
            raise _too_large(max_bytes)


def _extent(message: pa.Message) -> tuple[int, int]:
    """Return the number of rows of a batch, and the decompressed size of its buffers."""
    head, body = memoryview(message.metadata), message.body
    root = _offset(head, 0)
    batch = _table(head, root, 2)
    if message.type == "dictionary batch":
        batch = _table(head, batch, 1)
    rows = _scalar(head, batch, 0, "<q")
    size = 0
    at = _field(head, batch, 2)
    if at:
        begin = _offset(head, at)
        (count,) = struct.unpack_from("<I", head, begin)
        is_compressed = bool(_field(head, batch, 3))
        data = memoryview(b"" if body is None else body)
        if count * 16 > len(head):
            raise IndexError("more buffers than the header announces")
        for index in range(count):
            start, length = struct.unpack_from("<qq", head, begin + 4 + 16 * index)
            if length and is_compressed:
                (inflated,) = struct.unpack_from("<q", data, start)
                length = max(length, inflated)
            size += max(0, length)
    return max(0, rows), size


def _offset(head: memoryview, at: int) -> int:
    """Return the target of an offset in a flatbuffer."""
    return at + int(struct.unpack_from("<I", head, at)[0])


def _field(head: memoryview, table: int, number: int) -> int:
    """Return the offset of a field of a table; 0 if it is missing."""
    described = table - struct.unpack_from("<i", head, table)[0]
    if described < 0:
        raise IndexError("a table without a schema")
    (length,) = struct.unpack_from("<H", head, described)
    entry = 4 + 2 * number
    if entry + 2 > length:
        return 0
    (offset,) = struct.unpack_from("<H", head, described + entry)
    return table + offset if offset else 0


def _table(head: memoryview, table: int, number: int) -> int:
    at = _field(head, table, number)
    if not at:
        raise IndexError("a part is missing")
    return _offset(head, at)


def _scalar(head: memoryview, table: int, number: int, form: str) -> int:
    at = _field(head, table, number)
    return int(struct.unpack_from(form, head, at)[0]) if at else 0


# ---- columns


def _expanded(array: Any) -> int:
    """Return a lower bound on the bytes of a column's values."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _expanded(array.storage)
    size = _CELL * (len(array) - (array.null_count if not pa.types.is_nested(kind) else 0))
    if pa.types.is_null(kind) or pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return size
    if pa.types.is_fixed_size_binary(kind):
        return size + len(array) * int(kind.byte_width)
    if _is_text(kind):
        return size + int(pc.sum(_lengths(array)).as_py() or 0)
    if pa.types.is_dictionary(kind) and _is_flat(kind.value_type):
        if not _is_text(kind.value_type):
            return size
        return size + int(pc.sum(_lengths(array.dictionary).take(array.indices)).as_py() or 0)
    if pa.types.is_struct(kind):
        return size + sum(_expanded(part) for part in array.flatten())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        if pa.types.is_map(kind):
            begin, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
            parts = [array.keys.slice(begin, end - begin), array.items.slice(begin, end - begin)]
            return size + sum(map(_expanded, parts))
        return size + _nulls_too(array.flatten())
    if pa.types.is_fixed_size_list(kind):
        return size + _nulls_too(array.flatten())
    raise RequestError(
        400,
        f"a column of type {abbreviate(str(kind))} can't be read\n"
        "  hint: cast it to strings, numbers or lists of them",
    )


def _nulls_too(array: Any) -> int:
    """Return the bytes of the values of lists, counting nulls, which are written there."""
    return _CELL * int(array.null_count) + _expanded(array)


def _is_text(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_string_view(kind)
        or types.is_binary_view(kind)
    )


def _is_flat(kind: Any) -> bool:
    return _is_text(kind) or pa.types.is_primitive(kind) or pa.types.is_null(kind)


def _lengths(array: Any) -> Any:
    """Return the length of each text in bytes."""
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        views = np.frombuffer(array.buffers()[1], np.int32)[::4][array.offset :][: len(array)]
        mask = np.asarray(array.is_null())
        return pa.array(views.astype(np.int64), mask=mask)
    return pc.binary_length(array)


def _lines(batch: pa.RecordBatch) -> Iterator[bytes]:
    columns = [
        (name, _values(column))
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if column.null_count < len(column)
    ]
    for index in range(len(batch)):
        row = {name: values[index] for name, values in columns if values[index] is not None}
        line = _encode(row)
        # Of what isn't finite msgspec makes null
        yield line if b"null" not in line or _is_finite(row) else _spelled(row)


def _values(column: Any) -> list[Any]:
    """Return the values of a column; timestamps that Python has no type for become text."""
    kind = column.type
    if pa.types.is_duration(kind):
        texts = column.cast(pa.int64()).to_pylist()
        return [None if item is None else f"{item} {kind.unit}" for item in texts]
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        coarse = column.cast(pa.timestamp("us", kind.tz), safe=False)
        is_same = pc.equal(coarse.cast(kind, safe=False), column).to_pylist()
        values = _values(coarse)
        if False in is_same:
            texts = column.cast(pa.string()).to_pylist()
            pairs = zip(is_same, values, texts, strict=True)
            values = [text if same is False else value for same, value, text in pairs]
        return values
    column_values: list[Any]
    try:
        column_values = column.to_pylist()
    except (OverflowError, ValueError):
        if not pa.types.is_temporal(kind):
            raise
        column_values = column.cast(pa.string()).to_pylist()
    return column_values


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_is_finite, value))


def _spelled(row: dict[str, Any]) -> bytes:
    """Return a row as text with non-finite numbers spelled out, which JSON lacks."""
    return json.dumps(row, default=str).encode()
