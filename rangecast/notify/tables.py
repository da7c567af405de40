"""Objects, updates, interests and messages as tables, from files or from Python.

    objects      id, the position, value[, arrival]
    updates      id, value[, the position]   in order: without a value the object is removed; with
                 a position, a new id is added there and a known one moved
    interests    id, bounds of the position[, k]   null is unbounded
    messages     seq, ordinal, object, the position, value, bounds of the interests that it reaches

The position is the column `position`, or over a space a column per attribute. A row that can't be
used is reported to `RejectedRows` with its source, number and column. Ids of objects and updates
are of one type: integers only if those of both files are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import FileError, UsageError, did_you_mean
from rangecast.kernels.arrays import F64, I64
from rangecast.model.attributes.base import Attribute, Boolean, Integer, Number
from rangecast.model.encoding.columns import decode
from rangecast.model.io.records import Records, Rows, Source, file_source, table_source
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.space import Space
from rangecast.model.validation.unknown_columns import column_hint
from rangecast.notify.messages import Messages
from rangecast.notify.new_interests import NewInterests, Regions

MAX_K = 1 << 16
VALUE, ARRIVAL = Number("value"), Integer("arrival", min=0)
MISSING_VALUE = "an object needs a value in this column"


class Same(Enum):
    """Marker for a value that a change leaves unchanged."""

    SAME = "same"


SAME = Same.SAME


class Change(NamedTuple):
    """One change: value None removes an object; a position adds a new one there, or moves it.

    Over a space, a position is a dict of values; for a known object, only those that change. None
    removes a value.
    """

    id: Any
    value: float | Same | None
    position: Any = None


class Updates(NamedTuple):
    """Valid updates, and the row number of each."""

    rows: I64
    changes: list[Change]


class ObjectColumns(NamedTuple):
    """Objects, column by column; `at` has a column of coordinates per attribute."""

    ids: pa.Array
    at: F64
    y: F64
    arrival: I64 | None


class BoardTables(ABC):
    """Reader of the tables of a board."""

    needs: ClassVar[str]
    """Columns that a new object needs, for error messages."""

    def __init__(self, space: Space):
        self.space = space

    @property
    def names(self) -> Sequence[str]:
        """Columns of a position."""
        return self.space.event_columns

    def rows(self, value: Any, noun: str) -> Source:
        """Return the rows of a path or of a table."""
        if isinstance(value, str | Path):
            return self.file_rows(value)
        return table_source(value, noun, nan_is_null=True)

    def file_rows(self, path: str | Path) -> Source:
        """Return the rows of a file."""
        exact = [
            attribute.name for attribute in self.space if isinstance(attribute, Integer | Boolean)
        ]
        ends = [f"{name}_{end}" for name in exact for end in ("lo", "hi")]
        return file_source(path, ["k", "arrival", *exact, *ends])

    # ---- objects

    def as_objects(self, value: Any) -> ObjectColumns:
        """Return the objects given by a Python program; None: there are none."""
        if value is None:
            nothing = np.zeros((0, len(self.space)))
            return ObjectColumns(pa.array([], pa.int64()), nothing, np.zeros(0), None)
        if isinstance(value, ObjectColumns):
            return value
        return self.read_objects(self.rows(value, "objects"))

    def read_objects(
        self,
        source: Source,
        rejected: RejectedRows | None = None,
        *,
        kind: pa.DataType | None = None,
        ignore_unknown: bool | None = None,
    ) -> ObjectColumns:
        """Return the objects of a source; `kind` is the id type, if known."""
        batches = records(
            source,
            rejected or RejectedRows(),
            ("id", *self.names, "value"),
            ("arrival",),
            kind=kind,
            ignore_unknown=ignore_unknown,
        )
        width = len(self.space) + 2
        ids, parts = [pa.array([], batches.id_type or pa.int64())], [np.zeros((0, width))]
        arrives = False
        for rows in batches:
            arrives |= ARRIVAL.name in rows
            at = self._points(rows, self._coordinates)
            value = rows.needed(VALUE, MISSING_VALUE)
            came = rows.needed(ARRIVAL, MISSING_VALUE) if arrives else np.zeros(len(rows))
            ids.append(rows.good_ids)
            parts.append(np.column_stack([at, value, came])[rows.good])
        all_rows = np.concatenate(parts)
        arrival = _distinct_arrivals(all_rows[:, -1]) if arrives else None
        at = np.ascontiguousarray(all_rows[:, :-2])
        return ObjectColumns(pa.concat_arrays(ids), at, all_rows[:, -2].copy(), arrival)

    def _coordinates(self, rows: Rows, attribute: Attribute) -> F64:
        """Return the coordinates of objects; inf is a missing value."""
        return rows.coordinates(attribute)

    def _points(self, rows: Rows, coordinates: Callable[[Rows, Attribute], F64]) -> F64:
        """Return a column of coordinates per attribute; inf where objects have no value."""
        at = np.full((len(rows), len(self.space)), np.inf)
        for attribute in self.space.valued:
            at[:, self.space.axis(attribute.name)] = coordinates(rows, attribute)
        return at

    def position_columns(self, at: F64) -> dict[str, Any]:
        """Return coordinates of objects as columns of values."""
        return {
            attribute.name: decode(attribute, at[:, self.space.axis(attribute.name)])
            for attribute in self.space.valued
        }

    # ---- interests

    @property
    def bound_names(self) -> list[str]:
        """Columns of the bounds of interests."""
        return [f"{name}_{end}" for name in self.names for end in ("lo", "hi")]

    def as_interests(self, value: Any, max_k: int, rejected: RejectedRows | None) -> NewInterests:
        """Return the interests given by a Python program, in the top max_k objects each."""
        return self.read_interests(self.rows(value, "interests"), rejected, max_k=max_k)

    def read_interests(
        self,
        source: Source,
        rejected: RejectedRows | None = None,
        progress: Callable[[int], object] = int,
        *,
        max_k: int = MAX_K,
        ignore_unknown: bool | None = None,
    ) -> NewInterests:
        """Return the interests of a source, in the top max_k objects each."""
        batches = self._interest_rows(source, rejected or RejectedRows(), ignore_unknown)
        wants = Integer("k", min=1, max=max_k)
        ids = [pa.array([], batches.id_type or pa.int64())]
        points = [np.zeros((0, 2 * len(self.space)))]
        sizes, wanted = [np.zeros(0, np.int64)], [np.zeros(0)]
        for rows in batches:
            k = rows.coordinates(wants)
            regions = self._regions(rows)
            ids.append(rows.good_ids)
            points.append(regions.points)
            sizes.append(regions.sizes)
            wanted.append(k[rows.good])
            progress(len(rows))
        ks = np.concatenate(wanted)
        own_k = {int(at): int(ks[at]) for at in np.flatnonzero(ks < np.inf)}
        regions = Regions(np.concatenate(points), np.concatenate(sizes))
        return NewInterests(pa.concat_arrays(ids), regions, own_k)

    @abstractmethod
    def _interest_rows(
        self, source: Source, rejected: RejectedRows, ignore_unknown: bool | None
    ) -> Records:
        """Return the rows of a source of interests, after checking its columns."""

    @abstractmethod
    def _regions(self, rows: Rows) -> Regions:
        """Return the boxes of the valid rows; rows without any are rejected."""

    # ---- updates

    def as_changes(self, value: Any) -> list[Change]:
        """Return the changes given by a Python program as a table."""
        source = self.rows(value, "changes")
        batches = records(source, RejectedRows(), ("id", "value"), self.names, unique=False)
        return [change for rows in batches for change in self._changes(rows)]

    def read_updates(
        self,
        source: Source,
        kind: pa.DataType,
        known: Callable[[Any], bool],
        rejected: RejectedRows,
        *,
        ignore_unknown: bool | None = None,
    ) -> Iterator[Updates]:
        """Yield valid updates batch by batch; each is checked against those before it.

        `known` returns whether an object with this id exists at the start.
        """
        batches = records(
            source,
            rejected,
            ("id", "value"),
            self.names,
            kind=kind,
            ignore_unknown=ignore_unknown,
            unique=False,
        )
        exists: dict[Any, bool] = {}
        for rows in batches:
            changes = []
            for index, change in enumerate(self._changes(rows)):
                if not rows.good[index]:
                    continue
                existed = exists.get(change.id)
                if existed is None:
                    existed = known(change.id)
                if not existed and (change.position is None or change.value is None):
                    lacks_value = change.value is None and change.position is not None
                    reason = f"there is no such object; a new one needs {self.needs}"
                    rows.reject(index, "value" if lacks_value else "id", reason)
                    continue
                exists[change.id] = change.value is not None
                changes.append(change)
            yield Updates(rows.batch.rows[rows.good], changes)

    def _changes(self, rows: Rows) -> list[Change]:
        """Return all rows as changes, including invalid ones."""
        at = self._points(rows, Rows.coordinates)
        ys, moves = rows.coordinates(VALUE).tolist(), np.any(at < np.inf, axis=1)
        return [
            Change(name, None if y == np.inf else y, self._position(position) if moved else None)
            for name, y, position, moved in zip(
                rows.ids.to_pylist(), ys, at.tolist(), moves, strict=True
            )
        ]

    def _position(self, position: list[float]) -> Any:
        """Return coordinates in the format of a change."""
        return tuple(position)

    # ---- messages

    @property
    @abstractmethod
    def tile_names(self) -> Sequence[str]:
        """Columns of the bounds of a message."""

    def message_schema(self, kind: pa.DataType) -> pa.Schema:
        """Return the schema of a file of messages about objects with this id type."""
        fields = [("seq", pa.int64()), ("ordinal", pa.int64()), ("object", kind)]
        fields += [
            (attribute.name, decode(attribute, np.zeros(0)).type) for attribute in self.space.valued
        ]
        return pa.schema(fields + [(name, pa.float64()) for name in ("value", *self.tile_names)])


def common_id_type(*sources: Source) -> pa.DataType:
    """Return the id type that these sources share."""
    kinds = [records(source, RejectedRows(), ("id",)).id_type for source in sources]
    return pa.large_string() if pa.large_string() in kinds else pa.int64()


def records(
    source: Source,
    rejected: RejectedRows,
    needed: Sequence[str],
    optional: Sequence[str] = (),
    *,
    kind: pa.DataType | None = None,
    ignore_unknown: bool | None = None,
    unique: bool = True,
) -> Records:
    """Return the rows of a source; reject unknown and missing columns."""
    known = [*needed, *optional]

    def check(names: Sequence[str], where: str) -> None:
        for name in names:
            if name not in known and not ignore_unknown:
                raise FileError(
                    f"{where}: unknown column {name!r}: {did_you_mean(name, known)}\n"
                    f"  expected: {', '.join(known)}\n"
                    f"  hint: {column_hint(name, known, may_ignore=ignore_unknown is not None)}"
                )
        for name in needed:
            if name not in names:
                raise FileError(f"{where}: has no column {name!r}; found: {', '.join(names)}")

    return Records(source, rejected, check, kind=kind, unique=unique)


def _distinct_arrivals(arrival: F64) -> I64:
    """Return arrivals of objects; reject duplicates."""
    if len(np.unique(arrival)) < len(arrival):
        raise UsageError("arrivals of objects must be distinct whole numbers")
    return arrival.astype(np.int64)


def message_rows(messages: Messages, schema: pa.Schema, seq: I64) -> pa.RecordBatch:
    """Return messages as rows, with these numbers."""
    table = messages.table().set_column(0, "seq", pa.array(seq)).select(schema.names).cast(schema)
    return pa.record_batch([column.combine_chunks() for column in table.columns], schema=schema)
