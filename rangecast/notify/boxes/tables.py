"""Objects, updates, interests and messages over a space as tables, of a file or of a program.

objects      id, a column per attribute, value[, arrival]
updates      id, value and attributes where they change; without a value the object is removed
interests    id[, k] and either filter or <attribute>_lo and <attribute>_hi
messages     seq, ordinal, object, the attributes, value, and four bounds per attribute
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import FileError, UsageError, near
from rangecast.kernels.arrays import F64, I64
from rangecast.model.attributes.base import Boolean, Integer
from rangecast.model.attributes.text import String
from rangecast.model.encoding.columns import decode
from rangecast.model.encoding.subscriptions import Part, encode_part
from rangecast.model.io.records import Records, Rows, Source, file_source, table_source
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.space import Space
from rangecast.model.validation.unknown_columns import column_hint
from rangecast.notify.boxes.messages import BOUNDS
from rangecast.notify.interest_set import NewInterests, Regions
from rangecast.notify.tables import (
    ARRIVAL,
    LARGEST_K,
    MISSING_VALUE,
    VALUE,
    Change,
    Updates,
    distinct_arrivals,
    kept_updates,
    records,
)

_RESERVED = ("value", "arrival", "k", "object", "ordinal", "interest", "rank")


class PlacedColumns(NamedTuple):
    """Objects, column by column; `at` has a column per attribute."""

    ids: pa.Array
    at: F64
    y: F64
    arrival: I64 | None


def _check(space: Space) -> None:
    """Refuse a space that objects can't lie in."""
    for attribute in space:
        if attribute.name in _RESERVED:
            raise UsageError(
                f"an attribute called {attribute.name!r} can't be told from the column of that "
                "name\n  hint: rename the attribute"
            )
        if isinstance(attribute, String):
            raise UsageError(
                f"{attribute.name!r} is a string, and its words are numbered as interests mention "
                "them, which may be after an object with that word came\n"
                "  hint: make it a category, which lists its values"
            )


class SpaceTables:
    """Reads and describes tables over a space, as `notify.tables` does for one attribute."""

    def __init__(self, space: Space):
        _check(space)
        self.space = space

    def rows(self, given: Any, noun: str) -> Source:
        """Return what a caller gives as a source of rows: a path or a table."""
        if isinstance(given, str | Path):
            return self.file_rows(given)
        return table_source(given, noun, nan_is_null=True)

    def file_rows(self, path: str | Path) -> Source:
        """Return the rows of a file."""
        exact = [one.name for one in self.space if isinstance(one, Integer | Boolean)]
        ends = [f"{name}_{end}" for name in exact for end in ("lo", "hi")]
        return file_source(path, ["k", "arrival", *exact, *ends])

    def read_objects(
        self,
        source: Source,
        bad: RejectedRows | None = None,
        *,
        kind: pa.DataType | None = None,
        ignore_unknown: bool | None = None,
    ) -> PlacedColumns:
        """Return the objects of a source; `kind` is the type of ids, if it is known."""
        found = records(
            source,
            bad or RejectedRows(),
            ("id", *self.space.names, "value"),
            ("arrival",),
            kind=kind,
            ignore_unknown=ignore_unknown,
        )
        width = len(self.space) + 2
        ids, parts = [pa.array([], found.id_type or pa.int64())], [np.zeros((0, width))]
        arrives = False
        for rows in found:
            arrives |= ARRIVAL.name in rows
            columns = [rows.coordinates(attribute) for attribute in self.space]
            columns.append(rows.needed(VALUE, MISSING_VALUE))
            columns.append(rows.needed(ARRIVAL, MISSING_VALUE) if arrives else np.zeros(len(rows)))
            ids.append(rows.good_ids)
            parts.append(np.stack(columns, axis=1)[rows.good])
        all_rows = np.concatenate(parts)
        arrival = distinct_arrivals(all_rows[:, -1]) if arrives else None
        at = np.ascontiguousarray(all_rows[:, :-2])
        return PlacedColumns(pa.concat_arrays(ids), at, all_rows[:, -2].copy(), arrival)

    def read_interests(
        self,
        source: Source,
        bad: RejectedRows | None = None,
        progress: Callable[[int], object] = int,
        *,
        most: int = LARGEST_K,
        ignore_unknown: bool | None = None,
    ) -> NewInterests:
        """Return the interests of a source, in at most this many objects each."""
        known = ["id", "filter", "k", *self._bounds]

        def check(names: Sequence[str], where: str) -> None:
            for name in names:
                if name not in known and not ignore_unknown:
                    raise FileError(
                        f"{where}: unknown column {name!r}: {near(name, known)}\n"
                        "  expected: 'id', then 'filter' or <attribute>_lo and <attribute>_hi "
                        "columns, and optionally 'k'\n"
                        f"  hint: {column_hint(name, known, may_ignore=ignore_unknown is not None)}"
                    )
            both = "filter" in names and any(name in names for name in self._bounds)
            if "id" not in names or both:
                raise FileError(
                    f"{where}: interests need 'id' and either 'filter' or <attribute>_lo and "
                    f"<attribute>_hi columns; found: {', '.join(names)}"
                )

        found = Records(source, bad or RejectedRows(), check)
        wants = Integer("k", min=1, max=most)
        ids = [pa.array([], found.id_type or pa.int64())]
        points = [np.zeros((0, 2 * len(self.space)))]
        sizes, wanted = [np.zeros(0, np.int64)], [np.zeros(0)]
        for rows in found:
            k = rows.coordinates(wants)
            for name in [*rows.batch.columns]:  # a score or a weight means nothing here
                if name not in known or name == "k":
                    rows.batch.columns.pop(name)
            part = self._part(rows)
            ids.append(part.ids)
            points.append(np.concatenate([part.lo, part.hi], axis=1))
            sizes.append(part.sizes)
            wanted.append(k[rows.good])
            progress(len(rows))
        ks = np.concatenate(wanted)
        some = {int(at): int(ks[at]) for at in np.flatnonzero(ks < np.inf)}
        regions = Regions(np.concatenate(points), np.concatenate(sizes))
        return NewInterests(pa.concat_arrays(ids), regions, some)

    def _part(self, rows: Rows) -> Part:
        """Return the interests of some rows; refuse those that can't be any."""
        return encode_part(self.space, rows)

    @property
    def _bounds(self) -> list[str]:
        return [f"{name}_{end}" for name in self.space.names for end in ("lo", "hi")]

    def read_updates(
        self,
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
            self.space.names,
            kind=kind,
            ignore_unknown=ignore_unknown,
            unique=False,
        )
        return kept_updates(found, self._changes, known, "its attributes and a value")

    def as_changes(self, given: Any) -> list[Change]:
        """Return what a Python program gives as changes in a table."""
        source = self.rows(given, "changes")
        found = records(source, RejectedRows(), ("id", "value"), self.space.names, unique=False)
        return [change for rows in found for change in self._changes(rows)]

    def _changes(self, rows: Rows) -> list[Change]:
        """Return all rows as changes, also those that are not good."""
        at = np.stack([rows.coordinates(attribute) for attribute in self.space], axis=1)
        ys, given = rows.coordinates(VALUE).tolist(), np.any(at < np.inf, axis=1)
        return [
            Change(one, None if y == np.inf else y, tuple(place) if some else None)
            for one, y, place, some in zip(
                rows.ids.to_pylist(), ys, at.tolist(), given, strict=True
            )
        ]

    def message_schema(self, kind: pa.DataType) -> pa.Schema:
        """Return the columns of a file of messages about objects with ids of this type."""
        fields = [("seq", pa.int64()), ("ordinal", pa.int64()), ("object", kind)]
        fields += [(one.name, decode(one, np.zeros(0)).type) for one in self.space]
        bounds = [f"{name}_{bound}" for name in self.space.names for bound in BOUNDS]
        return pa.schema(fields + [(name, pa.float64()) for name in ("value", *bounds)])
