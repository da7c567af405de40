"""Columns kept with the answers, and ids in a column of another name.

A kept column has one type throughout a source: that of its values if all have the same, else text.
Values of a CSV file are texts; lists and objects become JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from rangecast.errors import FileError, UsageError, did_you_mean
from rangecast.model.io.batch import Batch, Broken, Values
from rangecast.model.io.records import Source, pass_over
from rangecast.model.sets.ids import Places, as_ids

TEXT = pa.large_string()


def identified(source: Source, column: str | None) -> Source:
    """Return a source whose ids come from this column, which is also kept under its name."""
    if column is None or column == "id":
        return source

    def read(broken: Broken, only: str | None = None) -> Iterator[Batch]:
        if only not in (None, "id"):
            yield from source.read(broken, only=only)
            return
        began = False
        for batch in source.read(broken, only=None if only is None else column):
            if not batch.columns and not len(batch.rows):
                yield batch
                continue
            if "id" in batch.columns:
                raise FileError(
                    f"{source.here()}: has a column 'id' besides the ids in {column!r}\n"
                    "  hint: rename or drop it, or use it as the id"
                )
            if column not in batch.columns and not began and only is None:
                raise FileError(
                    f"{source.here()}: has no column {column!r} for ids: "
                    f"{did_you_mean(column, list(batch.columns))}\n"
                    "  hint: name a column of the file"
                )
            began = True
            ids = batch.columns.get(column, pa.nulls(len(batch.rows)))
            yield Batch(batch.rows, {"id": ids, **batch.columns})

    return source._replace(read=read)


def as_names(keep: str | Sequence[str]) -> list[str]:
    """Return the names of columns to keep, without duplicates."""
    names = [keep] if isinstance(keep, str) else list(keep)
    if not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"keep must be a list of column names; given: {names!r}\n  hint: keep=['user', 'note']"
        )
    return list(dict.fromkeys(names))


def kept_schema(source: Source, names: Iterable[str]) -> pa.Schema:
    """Return the schema of the named columns that exist in a source."""
    fields = []
    for name in names:
        kind = None
        for batch in source.read(pass_over, only=name):
            if name not in batch.columns:
                if batch.columns:  # only a block of JSON has nothing then
                    break
                continue
            type_ = _type(batch.columns[name])
            if kind in (None, pa.null()):
                kind = type_
            elif type_ not in (kind, pa.null()):
                kind = TEXT
            if kind == TEXT:
                break
        if kind is not None:
            fields.append((name, TEXT if kind == pa.null() else kind))
    return pa.schema(fields)


def kept_columns(batch: Batch, schema: pa.Schema) -> list[pa.Array]:
    """Return the kept columns of a batch; absent ones are null."""
    nulls = pa.nulls(len(batch.rows))
    return [_as_type(batch.columns.get(field.name, nulls), field.type) for field in schema]


def kept_rows(source: Source, ids: pa.Array, schema: pa.Schema) -> pa.Table:
    """Return the kept columns of the rows with these ids, in the order of the ids.

    If several rows have the same id, the first is used.
    """
    places = Places(ids)
    rows = np.full(len(ids), -1)
    parts = []
    first = 0
    for batch in source.read(pass_over):
        matched = places.find(as_ids(batch.columns["id"], ids.type)[0])
        numbers = np.arange(first, first + len(matched))
        known = np.flatnonzero(matched >= 0)[::-1]
        new = known[rows[matched[known]] < 0]
        rows[matched[new]] = numbers[new]  # backwards: the first of equal ids is written last
        parts.append(pa.table(kept_columns(batch, schema), schema=schema))
        first += len(matched)
    table = pa.concat_tables(parts) if parts else schema.empty_table()
    return table.take(pa.array(rows, mask=rows < 0))


def _type(values: Values) -> pa.DataType:
    if isinstance(values, list):
        return TEXT
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    return TEXT if pa.types.is_nested(kind) or pa.types.is_string(kind) else kind


def _as_type(values: Values, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array) and not pa.types.is_nested(values.type):
        return values.cast(kind)
    items = values if isinstance(values, list) else values.to_pylist()
    return pa.array([None if item is None else _text(item) for item in items], TEXT)


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode()
