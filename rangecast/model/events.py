"""Events: rows of a table, a column an attribute, as points of the space.

`EventFile` reads a file in batches, so that it may be larger than memory; `encode_events` takes
what a Python program holds. Both end in `Events`: ids and an array of coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import BadRow, FileError, UsageError, near
from rangecast.kernels.arrays import F64, Bool
from rangecast.model.badrows import BadRows
from rangecast.model.encode import encode, explain, nan_is_missing
from rangecast.model.files import Batch, format_of, read_batches
from rangecast.model.ids import Duplicates, id_type
from rangecast.model.space import Space
from rangecast.model.tables import batch_of, shown

REMEDY = "correct the value"


class Events(NamedTuple):
    """Some events: their ids and their coordinates, one row per event."""

    ids: pa.Array
    points: F64


class EventFile:
    """A file of events, read in batches against a space."""

    def __init__(
        self,
        path: str | Path,
        space: Space,
        *,
        bad_rows: BadRows | None = None,
        nan: str = "refuse",
        ignore_unknown: bool = False,
    ):
        self.path = path
        self.space = space
        self.warnings: list[str] = []
        self._bad = bad_rows or BadRows()
        self._nan = nan
        nan_is_missing(nan)  # refused before anything runs
        self._ignore_unknown = ignore_unknown
        format_of(path)  # an unknown suffix is refused before anything runs

    @cached_property
    def id_type(self) -> pa.DataType | None:
        """The type of the ids, `None` if the file has none."""
        return id_type(self._rows(), columnar=format_of(self.path) in ("parquet", "arrow"))

    def check(self) -> None:
        """Refuse a file that can't be read, or has an unknown column where it begins."""
        for batch in self._rows():
            self._check_columns(batch.data.schema.names)
            break

    def __iter__(self) -> Iterator[Events]:
        """Yield events batch by batch; bad rows go where bad rows go."""
        duplicates = Duplicates(str(self.path), self._bad, self._rows)
        seen: set[str] = set()
        for batch in read_batches(self.path, self._broken):
            self._check_columns(batch.data.schema.names)
            seen.update(batch.data.schema.names)
            ids, good = duplicates.check(batch, self.id_type)
            points = points_of(self.space, batch, str(self.path), self._bad, good, self._nan)
            yield Events(ids, points) if good.all() else Events(ids.filter(good), points[good])
        absent = [name for name in self.space.names if name not in seen]
        if seen and absent:
            self.warnings.append(
                f"{self.path} has no column for {', '.join(map(repr, absent))}: "
                "all its events lack a value there"
            )

    def _rows(self) -> Iterator[Batch]:
        return read_batches(self.path, pass_over)

    def _broken(self, row: int, text: str, why: str) -> None:
        bad = BadRow(str(self.path), row, "(all)", text[:200], f"the row {why}", REMEDY)
        self._bad.add(bad, text)

    def _check_columns(self, names: Sequence[str]) -> None:
        for name in names:
            if name != "id" and name not in self.space.names and not self._ignore_unknown:
                raise FileError(
                    f"{self.path}: unknown column {name!r}: {near(name, self.space.names)}\n"
                    "  expected: a column for each attribute of the space, and 'id'\n"
                    "  to do: rename it, add it to the space, or pass --ignore-unknown-columns"
                )


def points_of(
    space: Space,
    batch: Batch,
    source: str,
    bad_rows: BadRows,
    good: Bool,
    nan: str,
) -> F64:
    """Return the coordinates of a batch; refused rows are reported and cleared in `good`."""
    points = np.full((len(batch.rows), len(space)), np.inf)
    for axis, attribute in enumerate(space):
        if attribute.name not in batch.data.schema.names:
            continue
        column = batch.data.column(attribute.name)
        points[:, axis], refused = encode(attribute, column, nan=nan)
        places = np.flatnonzero(refused & good).tolist()
        for place in places:
            bad = BadRow(
                source=source,
                row=int(batch.rows[place]),
                column=attribute.name,
                value=str(column[place]),
                reason=explain(attribute, column, place),
                remedy=REMEDY,
                more=len(places) - 1,
            )
            bad_rows.add(bad, row_data(batch.data, place))
        good &= ~refused
    return points


def row_data(data: pa.RecordBatch, place: int) -> dict[str, Any]:
    """Return one row as plain values, for a person to read."""
    row = {}
    for name, column in zip(data.schema.names, data.columns, strict=True):
        try:
            row[name] = column[place].as_py()
        except (ValueError, OverflowError):
            row[name] = str(column[place])
    return row


def pass_over(row: int, text: str, why: str) -> None:
    """Leave a broken row to the pass that reports it."""


def values_of(event: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return the attributes of one event and their values."""
    try:
        return event.items()
    except AttributeError:
        raise UsageError(
            "an event is a dict from attributes to values\n"
            f"  given: {shown(event)}\n"
            "  to do: give a single dict; lists and tables go to match_many and best_many"
        ) from None


def encode_event(
    event: Mapping[str, Any], space: Space, *, ignore_unknown: bool = False, nan: str = "refuse"
) -> F64:
    """Return the coordinates of one event, (d,); what it has no value for is missing.

    `ignore_unknown` and `nan` are as in `encode_events`.
    """
    nan_missing = nan_is_missing(nan)
    point = np.full(len(space), np.inf)
    for name, value in values_of(event):
        axis = space.axes.get(name)
        if axis is not None:
            if nan_missing and isinstance(value, float) and math.isnan(value):
                continue
            point[axis] = space.attributes[axis].coordinate(value)
        elif name != "id" and not ignore_unknown:
            raise UsageError(_unknown(space, name))
    return point


def encode_events(
    events: Any, space: Space, *, ignore_unknown: bool = False, nan: str = "refuse"
) -> Events:
    """Return the events of an Arrow table, a DataFrame, a dict of columns or a list of dicts.

    A key that is absent, `None` or null is a missing value. The first event that can't be used
    raises a `BadRowError`.

    ignore_unknown   events may have values that are no attribute of the space
    nan              "refuse" NaN, or read it as "missing"
    """
    data = batch_of(events, "events")
    for name in data.schema.names:
        if name != "id" and name not in space.axes and not ignore_unknown:
            raise UsageError(_unknown(space, name))
    rows = np.arange(data.num_rows)
    good = np.ones(len(rows), np.bool_)
    points = points_of(space, Batch(rows, data), "events", BadRows(), good, nan)
    return Events(data.column("id") if "id" in data.schema.names else pa.array(rows), points)


def _unknown(space: Space, name: str) -> str:
    return (
        f"unknown attribute {name!r}: {near(str(name), space.names)}\n"
        "  to do: correct the name or leave it out; an Engine passes over it with "
        "ignore_unknown=True, a command with --ignore-unknown-columns"
    )
