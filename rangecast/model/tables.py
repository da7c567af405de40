"""What a Python program holds as rows, as Arrow: tables, DataFrames, dicts of columns, dicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from rangecast.errors import UsageError

_LONGEST = 80


def table_of(given: Any, noun: str) -> pa.Table:
    """Return rows of any of these kinds as a table; a key that a dict lacks is null."""
    try:
        if isinstance(given, pa.Table):
            return given
        if isinstance(given, pa.RecordBatch):
            return pa.Table.from_batches([given])
        if isinstance(given, Mapping):
            return _columns(given, noun)
        if hasattr(given, "__arrow_c_stream__"):
            return pa.table(given)
        if isinstance(given, Iterable) and not isinstance(given, str | bytes):
            return _rows(list(given), noun)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise UsageError(
            f"{noun} become an Arrow table, whose columns have one type each: {error}"
        ) from None
    raise _refused(given, noun)


def batch_of(given: Any, noun: str) -> pa.RecordBatch:
    """Return rows of any of these kinds as one batch."""
    if isinstance(given, pa.RecordBatch):
        return given
    table = table_of(given, noun)
    if not table.num_columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * table.num_rows, pa.struct([])))
    return pa.record_batch([c.combine_chunks() for c in table.columns], table.schema.names)


def shown(value: Any) -> str:
    """Return a value for an error message, cut if it is long."""
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _columns(given: Mapping[str, Any], noun: str) -> pa.Table:
    for name, column in given.items():
        if isinstance(column, str | bytes) or not hasattr(column, "__len__"):
            raise UsageError(
                f"a dict is taken for columns, and a column of {noun} is a list of values\n"
                f"  given: {shown(column)} for {name!r}\n"
                "  to do: for a single row, put the dict into a list: [{...}]"
            )
    return pa.table(dict(given))


def _rows(rows: list[Any], noun: str) -> pa.Table:
    for row in rows:
        if not isinstance(row, Mapping):
            raise _refused(row, noun, "a list with ")
    names = dict.fromkeys(name for row in rows for name in row)
    if not names:  # rows without a value are rows all the same
        return pa.Table.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def _refused(given: Any, noun: str, within: str = "") -> UsageError:
    return UsageError(
        f"{noun} are an Arrow table, a DataFrame, a list of dicts or a dict of columns\n"
        f"  given: {within}{shown(given)}\n"
        "  to do: give one of these"
    )
