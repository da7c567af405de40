"""Batches of raw rows: columns as given, before they are interpreted by attributes.

A column is an Arrow array. If no single Arrow type represents all values exactly (a text and a
number, 1.5 and 2^53 + 1), it is a list of Python values: the meaning of a value must not depend on
the other values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError, abbreviate
from rangecast.kernels.arrays import I64

Values: TypeAlias = pa.Array | list[Any]
"""A column of values."""

Broken = Callable[[int, str, str], None]
"""Is called with a row that can't even be split into columns: its number, its text, and why."""

_ARROW = {int: pa.int64(), float: pa.float64(), str: pa.large_string(), bool: pa.bool_()}


_LONGEST_INTEGER = 10_000
"""Bits of an integer that is written out; Python refuses to write a much longer one."""


class Batch(NamedTuple):
    """Batch of rows: row numbers, counted from 0, and columns."""

    rows: I64
    columns: dict[str, Values]

    @classmethod
    def of(cls, data: pa.RecordBatch, first: int = 0) -> Batch:
        """Return the rows of a record batch, numbered from `first`."""
        check_distinct(data.schema.names)
        columns = {
            # Polars has texts that Arrow can't filter.
            name: column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column
            for name, column in zip(data.schema.names, data.columns, strict=True)
        }
        return cls(np.arange(first, first + data.num_rows), columns)

    def row(self, index: int) -> dict[str, Any]:
        """Return one row as plain values, for display."""
        return {name: _shown_at(values, index) for name, values in self.columns.items()}

    def arrow(self) -> pa.RecordBatch:
        """Return the rows as Arrow; values without a common type become texts."""
        arrays = {
            name: _texts(values) if isinstance(values, list) else values
            for name, values in self.columns.items()
        }
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(self.rows), pa.struct([])))
        return pa.record_batch(arrays)


def check_distinct(names: Iterable[str]) -> None:
    """Reject duplicate column names."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UsageError(f"duplicate column {name!r}\n  hint: rename or drop one of the two")
        seen.add(name)


def as_values(values: list[Any]) -> Values:
    """Return Python values as an Arrow array if one type represents them all exactly."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pa.nulls(len(values))
    kind = _ARROW.get(kinds.pop()) if len(kinds) == 1 else None
    if kind is not None:
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            pass  # an integer of more than 64 bits, a lone surrogate
    return values


def value_at(values: Values, index: int) -> Any:
    """Return one value as a Python object; Arrow timestamps and dates as NumPy datetime64."""
    if isinstance(values, list):
        return values[index]
    kind, value = values.type, values[index]
    unit: Any = None
    if pa.types.is_timestamp(kind):
        unit = kind.unit
    elif pa.types.is_date(kind):
        unit = "D" if pa.types.is_date32(kind) else "ms"
    if unit is None or not value.is_valid:
        return value.as_py()
    return np.datetime64(value.value, unit)


def text_at(values: Values, index: int) -> str:
    """Return one value as text, for display; lone surrogates, which can't be printed, escaped."""
    value = _shown_at(values, index)
    try:
        text = str(value)
        return text if text.isascii() else text.encode(errors="backslashreplace").decode()
    except Exception:  # its own methods may raise anything
        return abbreviate(value)


def _shown_at(values: Values, index: int) -> Any:
    if isinstance(values, list):
        value = values[index]
        is_long = isinstance(value, int) and value.bit_length() > _LONGEST_INTEGER
        return f"an integer of {value.bit_length():,} bits" if is_long else value
    try:
        return values[index].as_py()
    except (ValueError, OverflowError):  # a moment that Python's datetime can't show
        return values.slice(index, 1).cast(pa.string())[0].as_py()


def _texts(values: list[Any]) -> pa.Array:
    texts = (None if value is None else str(value) for value in values)
    safe = (None if text is None else text.encode(errors="replace").decode() for text in texts)
    return pa.array(safe, pa.large_string())
