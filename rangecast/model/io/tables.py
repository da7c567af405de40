"""Rows from Python: tables, DataFrames, dicts of columns, lists of dicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError, abbreviate
from rangecast.model.attributes.base import plain
from rangecast.model.io.batch import Batch, Values, as_values, check_distinct


def batches_of(value: Any, noun: str, *, nan_is_null: bool = False) -> list[Batch]:
    """Return rows of any of these types as batches; a key that a dict lacks is null.

    The index of a pandas DataFrame is used only if it has a name. With `nan_is_null`, NaN is null,
    because pandas numbers have no other null.
    """
    try:
        if isinstance(value, pa.RecordBatch):
            return [Batch.of(value)]
        if _is_pandas(value, "DataFrame"):
            return [_columns([*_named_index(value), *value.items()], noun, nan_is_null)]
        if isinstance(value, Mapping):
            return [_columns(list(value.items()), noun)]
        if isinstance(value, pa.Table) or hasattr(value, "__arrow_c_stream__"):
            return _table(pa.table(value))
        if isinstance(value, Iterable) and not isinstance(value, str | bytes):
            return [_rows(list(value), noun)]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{noun} can't be converted to a table: {error}") from None
    raise _rejected(value, noun)


def table_of(value: Any, noun: str) -> pa.Table:
    """Return rows of any of these types as one table; values without a common type become texts."""
    return pa.Table.from_batches([batch.arrow() for batch in batches_of(value, noun)])


def _is_pandas(value: Any, kind: str) -> bool:
    """Return whether a value is an instance of a pandas class or a subclass.

    Classes are compared by name: pandas may be absent, or being imported by another thread.
    """
    return any(
        class_.__name__ == kind and class_.__module__.partition(".")[0] == "pandas"
        for class_ in type(value).__mro__
    )


def _named_index(frame: Any) -> Iterable[tuple[str, Any]]:
    for level, name in enumerate(frame.index.names):
        if name is not None:
            yield name, frame.index.get_level_values(level).to_series()


def _table(table: pa.Table) -> list[Batch]:
    check_distinct(table.schema.names)
    batches, first = [], 0
    for data in table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]:
        batches.append(Batch.of(data, first))
        first += data.num_rows
    return batches


def _columns(pairs: list[tuple[str, Any]], noun: str, nan_is_null: bool = False) -> Batch:
    check_distinct([name for name, _ in pairs])
    columns = {}
    for name, values in pairs:
        if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            raise UsageError(
                f"a dict is read as columns, and each column of {noun} must be a list of values\n"
                f"  given: {type(values).__name__} {abbreviate(values)} for {name!r}\n"
                "  hint: for a single row, put the dict into a list: [{...}]"
            )
        columns[name] = _values(values, nan_is_null)
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{size:,} of {name!r}" for name, size in sizes.items())
        raise UsageError(f"the columns of {noun} have different lengths: {listed}")
    return Batch(np.arange(max(sizes.values(), default=0)), columns)


def _values(column: Any, nan_is_null: bool) -> Values:
    """Return a column unchanged; with `nan_is_null`, NaN becomes null."""
    if isinstance(column, pa.Array):
        return column
    if _is_pandas(column, "Series") or isinstance(column, np.ndarray):
        if column.dtype == object:
            values = column.tolist()
            if nan_is_null:
                values = [None if _is_nan(value) else value for value in values]
            return _plain_values(values)
        return _whole(pa.array(column, from_pandas=nan_is_null))
    if isinstance(column, pa.ChunkedArray) or hasattr(column, "__arrow_c_stream__"):
        return _whole(pa.chunked_array(column))
    return _plain_values(list(column))


def _plain_values(values: list[Any]) -> Values:
    """Return Python values as a column; NumPy's numbers among them are numbers, NA is null."""
    kinds = [kind for kind in {*map(type, values)} if _is_plainable(kind)]
    if kinds:
        values = [plain(value) if type(value) in kinds else value for value in values]
    return as_values(values)


def _is_plainable(kind: type) -> bool:
    return issubclass(kind, np.generic) or kind.__name__ in ("NaTType", "NAType")


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _rows(rows: list[Any], noun: str) -> Batch:
    for row in rows:
        if not isinstance(row, Mapping):
            raise _rejected(row, noun, "a list with ")
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: _plain_values([row.get(name) for row in rows]) for name in names}
    return Batch(np.arange(len(rows)), columns)


def _rejected(value: Any, noun: str, within: str = "") -> UsageError:
    return UsageError(
        f"{noun} must be an Arrow table, a DataFrame, a list of dicts or a dict of columns\n"
        f"  given: {within}{type(value).__name__} {abbreviate(value)}\n"
        "  hint: give one of these"
    )
