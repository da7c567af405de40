"""Objects, updates, interests and messages as tables, of a file or of a Python program.

    objects      id, position, value[, arrival]
    updates      id, value[, position]   in order: without a value the object is removed; with a
                 position, a new id is added there and a known one moved
    interests    id, position_lo, position_hi[, k]   null is unbounded
    messages     seq, ordinal, object, position, value, left_inner, right_inner, left_outer,
                 right_outer

A row that can't be used is reported to `RejectedRows` with its source, number and column. Ids of
objects and updates are of one type: integers only if those of both files are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import FileError, UsageError, near
from rangecast.kernels.arrays import F64, I64
from rangecast.model.attributes.base import Integer, Number
from rangecast.model.boxes import closed_range
from rangecast.model.io.records import Records, Rows, Source, file_source, table_source
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.validation.unknown_columns import column_hint
from rangecast.notify.interest_set import NewInterests, Regions
from rangecast.notify.messages import Messages

LARGEST_K = 1 << 16
POSITION, VALUE, ARRIVAL = Number("position"), Number("value"), Integer("arrival", min=0)
MISSING_VALUE = "an object needs a value here"


class Same(Enum):
    """The value of an object that a change leaves as it is."""

    SAME = "same"


SAME = Same.SAME


class Change(NamedTuple):
    """One change: value None removes an object; a position adds a new one there, or moves it.

    Over a space, a position is a dict of values; of a known object, those that change. None takes
    one away.
    """

    id: Any
    value: float | Same | None
    position: Any = None


class Updates(NamedTuple):
    """Some updates that can be applied, and the number of the row of each."""

    rows: I64
    changes: list[Change]


class ObjectColumns(NamedTuple):
    """Objects, column by column."""

    ids: pa.Array
    x: F64
    y: F64
    arrival: I64 | None


def as_objects(given: Any) -> ObjectColumns:
    """Return what a Python program gives as objects."""
    return given if isinstance(given, ObjectColumns) else read_objects(_rows(given, "objects"))


def as_interests(given: Any, most: int, bad: RejectedRows | None = None) -> NewInterests:
    """Return what a Python program gives as interests, in at most this many objects each."""
    return read_interests(_rows(given, "interests"), bad, most=most)


def as_changes(given: Any) -> list[Change]:
    """Return what a Python program gives as changes in a table."""
    found = records(
        _rows(given, "changes"), RejectedRows(), ("id", "value"), ("position",), unique=False
    )
    return [change for rows in found for change in _changes(rows)]


def _rows(given: Any, noun: str) -> Source:
    if isinstance(given, str | Path):
        return file_rows(given)
    return table_source(given, noun, nan_is_null=True)


def file_rows(path: str | Path) -> Source:
    """Return the rows of a file."""
    return file_source(path, ["k", "arrival"])


def common_id_type(*sources: Source) -> pa.DataType:
    """Return the type of ids that these sources share."""
    kinds = [records(source, RejectedRows(), ("id",)).id_type for source in sources]
    return pa.large_string() if pa.large_string() in kinds else pa.int64()


def records(
    source: Source,
    bad: RejectedRows,
    needed: Sequence[str],
    optional: Sequence[str] = (),
    *,
    kind: pa.DataType | None = None,
    ignore_unknown: bool | None = None,
    unique: bool = True,
) -> Records:
    """Return the rows of a source; refuse unknown columns, and a table that lacks what it needs."""
    known = [*needed, *optional]

    def check(names: Sequence[str], where: str) -> None:
        for name in names:
            if name not in known and not ignore_unknown:
                raise FileError(
                    f"{where}: unknown column {name!r}: {near(name, known)}\n"
                    f"  expected: {', '.join(known)}\n"
                    f"  hint: {column_hint(name, known, may_ignore=ignore_unknown is not None)}"
                )
        for name in needed:
            if name not in names:
                raise FileError(f"{where}: has no column {name!r}; found: {', '.join(names)}")

    return Records(source, bad, check, kind=kind, unique=unique)


def distinct_arrivals(arrival: F64) -> I64:
    """Return arrivals of objects; refuse one that is given twice."""
    if len(np.unique(arrival)) < len(arrival):
        raise UsageError("arrivals of objects are whole numbers, each one once")
    return arrival.astype(np.int64)


def read_objects(
    source: Source,
    bad: RejectedRows | None = None,
    *,
    kind: pa.DataType | None = None,
    ignore_unknown: bool | None = None,
) -> ObjectColumns:
    """Return the objects of a source; `kind` is the type of ids, if it is known."""
    found = records(
        source,
        bad or RejectedRows(),
        ("id", "position", "value"),
        ("arrival",),
        kind=kind,
        ignore_unknown=ignore_unknown,
    )
    ids, parts = [pa.array([], found.id_type or pa.int64())], [np.zeros((0, 3))]
    arrives = False
    for rows in found:
        arrives |= ARRIVAL.name in rows
        x, y = rows.needed(POSITION, MISSING_VALUE), rows.needed(VALUE, MISSING_VALUE)
        arrival = rows.needed(ARRIVAL, MISSING_VALUE) if arrives else np.zeros(len(rows))
        ids.append(rows.good_ids)
        parts.append(np.stack([x, y, arrival], axis=1)[rows.good])
    x, y, arrival = np.concatenate(parts).T.copy()
    if not arrives:
        return ObjectColumns(pa.concat_arrays(ids), x, y, None)
    return ObjectColumns(pa.concat_arrays(ids), x, y, distinct_arrivals(arrival))


def read_interests(
    source: Source,
    bad: RejectedRows | None = None,
    progress: Callable[[int], object] = int,
    *,
    most: int = LARGEST_K,
    ignore_unknown: bool | None = None,
) -> NewInterests:
    """Return the interests of a source, in at most this many objects each."""
    found = records(
        source,
        bad or RejectedRows(),
        ("id",),
        ("position_lo", "position_hi", "k"),
        ignore_unknown=ignore_unknown,
    )
    wants = Integer("k", min=1, max=most)
    ids, parts = [pa.array([], found.id_type or pa.int64())], [np.zeros((0, 3))]
    for rows in found:
        lo, hi = rows.bounds(POSITION)
        k = rows.coordinates(wants)
        ids.append(rows.good_ids)
        bounded = np.stack([*closed_range(lo, hi), k], axis=1)
        parts.append(bounded[rows.good])
        progress(len(rows))
    ends, wanted = np.split(np.concatenate(parts), [2], axis=1)
    places = np.flatnonzero(wanted < np.inf)
    some = dict(zip(places.tolist(), wanted[places, 0].astype(int).tolist(), strict=True))
    regions = Regions(ends, np.ones(len(ends), np.int64))
    return NewInterests(pa.concat_arrays(ids), regions, some)


def _changes(rows: Rows) -> list[Change]:
    """Return all rows as changes, also those that are not good."""
    y, x = rows.coordinates(VALUE).tolist(), rows.coordinates(POSITION).tolist()
    return [
        Change(name, *(None if new == np.inf else new for new in (new_y, new_x)))
        for name, new_y, new_x in zip(rows.ids.to_pylist(), y, x, strict=True)
    ]


def read_updates(
    source: Source,
    kind: pa.DataType,
    known: Callable[[Any], bool],
    bad: RejectedRows,
    *,
    ignore_unknown: bool | None = None,
) -> Iterator[Updates]:
    """Yield updates that can be applied after those before them, batch by batch.

    `known` says of an id whether there is such an object when the reading begins.
    """
    found = records(
        source,
        bad,
        ("id", "value"),
        ("position",),
        kind=kind,
        ignore_unknown=ignore_unknown,
        unique=False,
    )
    return kept_updates(found, _changes, known, "a position and a value")


def kept_updates(
    found: Records,
    changes_of: Callable[[Rows], list[Change]],
    known: Callable[[Any], bool],
    needs: str,
) -> Iterator[Updates]:
    """Yield the updates that can be applied after those before them; refuse the others.

    `needs` says what a new object needs.
    """
    exists: dict[Any, bool] = {}
    for rows in found:
        changes = []
        for place, change in enumerate(changes_of(rows)):
            if not rows.good[place]:
                continue
            was_there = exists.get(change.id)
            if was_there is None:
                was_there = known(change.id)
            if not was_there and (change.position is None or change.value is None):
                lacks_value = change.value is None and change.position is not None
                column = "value" if lacks_value else "id"
                rows.refuse(place, column, f"there is no such object; a new one needs {needs}")
                continue
            exists[change.id] = change.value is not None
            changes.append(change)
        yield Updates(rows.batch.rows[rows.good], changes)


def message_schema(kind: pa.DataType) -> pa.Schema:
    """Return the columns of a file of messages about objects with ids of this type."""
    numbers = ("position", "value", "left_inner", "right_inner", "left_outer", "right_outer")
    return pa.schema(
        [("seq", pa.int64()), ("ordinal", pa.int64()), ("object", kind)]
        + [(name, pa.float64()) for name in numbers]
    )


def message_rows(messages: Messages, schema: pa.Schema, seq: I64) -> pa.RecordBatch:
    """Return messages as rows, under these numbers."""
    table = messages.table().set_column(0, "seq", pa.array(seq)).select(schema.names).cast(schema)
    return pa.record_batch([column.combine_chunks() for column in table.columns], schema=schema)
