"""Rows with an id and typed columns, from a file or a Python program; reports rejected rows.

Events, subscriptions, and the objects, updates and interests of notify are all read here. A source
provides batches, `Records` checks columns and ids, and `Rows` converts columns to numbers. Unusable
rows are reported to `RejectedRows` with their position and the reason.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import RejectedRow
from rangecast.kernels.arrays import F64, Bool
from rangecast.model.attributes.base import Attribute
from rangecast.model.encoding.columns import encode, encode_bounds, explain, explain_bounds
from rangecast.model.io.batch import Batch, Broken, Values, text_at
from rangecast.model.io.files import format_of, read_batches
from rangecast.model.io.read_progress import Reading
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.io.tables import batches_of
from rangecast.model.sets.ids import NO_ID, Duplicates, as_ids, id_type

REMEDY = "correct the value"
Place = Callable[[int], tuple[str, int]]
"""Maps a row of a whole table to the file or table that it is in, and its number there."""


class Source(NamedTuple):
    """Source of rows."""

    name: str
    read: Callable[..., Iterator[Batch]]
    """(broken) -> all rows; with `only="id"`, other columns may be left out."""
    texts_too: bool
    """Whether ids that are texts may stand for integers."""
    place: Place
    """Where a row is that has been read."""
    here: Callable[[], str]
    """Which file or table the last batch is of."""
    reading: Reading
    """Progress of reading the files."""


def file_source(path: str | Path, exact: Collection[str] = ()) -> Source:
    """Return a file as a source; `exact` columns keep integers beyond 2^53."""
    begun: list[tuple[int, Path]] = []
    reading = Reading()

    def read(broken: Broken, only: str | None = None) -> Iterator[Batch]:
        # A pass for one column may leave out whole files.
        if only is not None:
            return read_batches(path, broken, exact=exact, only=only)
        return read_batches(path, broken, exact=exact, begun=begun, reading=reading)

    def place(row: int) -> tuple[str, int]:
        first, file = begun[bisect_right(begun, row, key=itemgetter(0)) - 1]
        return str(file), row - first

    def here() -> str:
        return str(begun[-1][1])

    return Source(str(path), read, format_of(path) in ("csv", "jsonl"), place, here, reading)


def table_source(value: Any, noun: str, *, nan_is_null: bool = False) -> Source:
    """Return a Python table as a source; `nan_is_null` is that of `batches_of`."""
    batches = batches_of(value, noun, nan_is_null=nan_is_null)

    def read(_: Broken, only: str | None = None) -> Iterator[Batch]:  # noqa: ARG001
        return iter(batches)

    return Source(noun, read, False, lambda row: (noun, row), lambda: noun, Reading())


class Rows:
    """Rows of one batch, and a mask of the good ones."""

    def __init__(self, source: str, batch: Batch, bad: RejectedRows, place: Place | None = None):
        self.source = source
        self.batch = batch
        self._place = place or (lambda row: (source, row))
        self.ids: pa.Array = pa.array(batch.rows)
        self.good: Bool = np.ones(len(batch.rows), np.bool_)
        self._bad = bad

    def __len__(self) -> int:
        return len(self.good)

    def __contains__(self, name: str) -> bool:
        return name in self.batch.columns

    @property
    def good_ids(self) -> pa.Array:
        """Ids of the good rows."""
        return self.ids if self.good.all() else self.ids.filter(pa.array(self.good))

    def take_ids(self, values: Values, kind: pa.DataType, column: str = "id") -> None:
        """Set the ids; reject invalid values."""
        self.ids, missing = as_ids(values, kind)
        for index in np.flatnonzero(missing).tolist():
            self.reject(index, column, NO_ID, "give each row a unique id")

    def reject(
        self,
        index: int,
        column: str,
        reason: str,
        remedy: str = REMEDY,
        more: int = 0,
        values: Values | None = None,
    ) -> None:
        """Reject a row, with the reason; `more` is the number of other rows with the same fault.

        values   values of the column, if it is not in the batch
        """
        self.good[index] = False
        values = self.batch.columns.get(column, values)
        value = "null" if values is None else text_at(values, index)
        where = self._place(int(self.batch.rows[index]))
        bad = RejectedRow(*where, column, value, reason, remedy, more=more)
        self._bad.add(bad, self.batch.row(index))

    def coordinates(
        self, attribute: Attribute, nan: str = "error", column: str | None = None
    ) -> F64:
        """Return an attribute's coordinates, inf where missing; reject invalid values."""
        column = column or attribute.name
        if column not in self:
            return np.full(len(self), np.inf)
        return self.encoded(attribute, self.batch.columns[column], column, nan)

    def encoded(self, attribute: Attribute, values: Values, column: str, nan: str) -> F64:
        """Return the coordinates of values, one per row, as `coordinates` does."""
        coordinates, rejected = encode(attribute, values, nan=nan)
        places = np.flatnonzero(rejected & self.good).tolist()
        for index in places:
            reason = explain(attribute, values, index)
            self.reject(index, column, reason, more=len(places) - 1, values=values)
        return coordinates

    def needed(self, attribute: Attribute, reason: str) -> F64:
        """Return an attribute's coordinates; reject rows without a value, too."""
        coordinates = self.coordinates(attribute)
        for index in np.flatnonzero(np.isposinf(coordinates) & self.good).tolist():
            self.reject(index, attribute.name, reason)
        return coordinates

    def bounds(self, attribute: Attribute) -> tuple[F64, F64]:
        """Return the ranges of an attribute's two columns; reject invalid ones."""
        low, high = (self.batch.columns.get(f"{attribute.name}_{end}") for end in ("lo", "hi"))
        lo, hi, rejected = encode_bounds(attribute, low, high, len(self))
        for index in np.flatnonzero(rejected & self.good).tolist():
            self.reject(index, *explain_bounds(attribute, low, high, index))
        return lo, hi


class Records:
    """Rows of a source, batch by batch, with ids of one type and without duplicates.

    check   called with the columns of each batch, and the name of its file or table; raises if they
            are invalid
    kind    type of the ids, if known
    unique  reject an id that an earlier row has
    """

    def __init__(
        self,
        source: Source,
        bad: RejectedRows,
        check: Callable[[Sequence[str], str], None],
        *,
        kind: pa.DataType | None = None,
        unique: bool = True,
    ):
        self.source = source
        self._bad = bad
        self._check = check
        self._kind = kind
        self._unique = unique

    @cached_property
    def id_type(self) -> pa.DataType | None:
        """Type of the ids; `None` if there are none, and rows are numbered."""
        if self._kind is not None:
            return self._kind
        columns = (batch.columns["id"] for batch in self._ids() if "id" in batch.columns)
        return id_type(columns, texts_too=self.source.texts_too)

    def check(self) -> None:
        """Reject a source that cannot be read, or whose first batch has invalid columns."""
        for batch in self.source.read(pass_over):
            self._check(list(batch.columns), self.source.here())
            break

    def __iter__(self) -> Iterator[Rows]:
        duplicates = Duplicates(self._ids)
        seen: dict[str, None] = {}
        for batch in self.source.read(self._broken):
            for name in seen:  # a block of JSON has only the keys of its own lines
                batch.columns.setdefault(name, pa.nulls(len(batch.rows)))
            seen.update(dict.fromkeys(batch.columns))
            if batch.columns or len(batch.rows):  # nothing at all lacks nothing
                self._check(list(batch.columns), self.source.here())
            rows = Rows(self.source.name, batch, self._bad, self.source.place)
            if self.id_type is not None:
                column = batch.columns.get("id", pa.nulls(len(rows)))
                rows.take_ids(column, self.id_type)
                if self._unique:
                    for index, first in duplicates.find(batch, rows.ids, rows.good.copy()):
                        earlier = self._row_location(batch, index, first)
                        reason = f"duplicate id (first seen in {earlier})"
                        rows.reject(index, "id", reason, "give each row a unique id")
            yield rows

    def _ids(self) -> Iterator[Batch]:
        return self.source.read(pass_over, only="id")

    def _row_location(self, batch: Batch, index: int, earlier: int) -> str:
        """Return the location of an earlier row, relative to a row of this batch."""
        (file, row), (here, _) = map(self.source.place, (earlier, int(batch.rows[index])))
        return f"row {row}" if file == here else f"{file}, row {row}"

    def _broken(self, row: int, text: str, why: str) -> None:
        where = self.source.place(row)
        self._bad.add(RejectedRow(*where, "(all)", text[:200], f"the row {why}", REMEDY), text)


def pass_over(row: int, text: str, why: str) -> None:
    """Ignore a broken row; another pass reports it."""
