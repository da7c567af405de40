"""Objects, updates, interests and messages in files.

    objects      id, x, y
    updates      id, y[, x]   in order: no y removes, an x puts a new id there, moves a known one
    interests    id, x_lo, x_hi[, k]   no bound where null
    messages     seq, position, object, x, y, left_inner, right_inner, left_outer, right_outer

A row that can't be used is reported to `BadRows` with its file, number and column. Ids of objects
and updates are of one type: whole numbers only if those of both files are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import FileError, near
from rangecast.kernels.arrays import I64
from rangecast.model.attributes import Integer, Number
from rangecast.model.badrows import BadRows
from rangecast.model.records import Records, file_source
from rangecast.notify.given import MAX, Change
from rangecast.notify.messages import Messages

_X, _Y, _K = Number("x"), Number("y"), Integer("k", min=1, max=1 << 16)


class Updates(NamedTuple):
    """Some updates that can be applied, and the number of the row of each."""

    rows: I64
    changes: list[Change]


def common_id_type(*paths: Path) -> pa.DataType:
    """Return the type of ids that these files share."""
    kinds = [_records(path, BadRows(), ("id",), None).id_type for path in paths]
    return pa.large_string() if pa.large_string() in kinds else pa.int64()


def _records(
    path: Path,
    bad: BadRows,
    needed: Sequence[str],
    kind: pa.DataType | None,
    optional: Sequence[str] = (),
    *,
    ignore_unknown: bool = False,
    unique: bool = True,
) -> Records:
    known = [*needed, *optional]

    def check(names: Sequence[str]) -> None:
        for name in names:
            if name not in known and not ignore_unknown:
                raise FileError(
                    f"{path}: unknown column {name!r}: {near(name, known)}\n"
                    f"  expected: {', '.join(known)}\n"
                    "  to do: rename it, drop it, or pass --ignore-unknown-columns"
                )
        for name in needed:
            if name not in names:
                raise FileError(f"{path}: has no column {name!r}; found: {', '.join(names)}")

    return Records(file_source(path, ["k"]), bad, check, kind=kind, unique=unique)


def read_objects(
    path: Path, kind: pa.DataType, bad: BadRows, *, ignore_unknown: bool = False
) -> dict[str, Any]:
    """Return the columns of a file of objects."""
    ids, xs, ys = [pa.array([], kind)], [np.zeros(0)], [np.zeros(0)]
    for rows in _records(path, bad, ("id", "x", "y"), kind, ignore_unknown=ignore_unknown):
        x, y = (rows.needed(one, "an object needs a value here") for one in (_X, _Y))
        ids.append(rows.good_ids)
        xs.append(x[rows.good])
        ys.append(y[rows.good])
    return {"id": pa.concat_arrays(ids), "x": np.concatenate(xs), "y": np.concatenate(ys)}


def read_interests(
    path: Path, bad: BadRows, progress: Callable[[int], None], *, ignore_unknown: bool = False
) -> tuple[dict[str, Any], int]:
    """Return the columns of a file of interests, and the largest k that one asks for, or 0."""
    records = _records(
        path, bad, ("id",), None, ("x_lo", "x_hi", "k"), ignore_unknown=ignore_unknown
    )
    ids: list[pa.Array] = [pa.array([], records.id_type or pa.int64())]
    parts = [np.zeros((0, 3))]
    for rows in records:
        lo, hi = rows.bounds(_X)
        k = rows.coordinates(_K)
        ids.append(rows.good_ids)
        bounded = np.stack([np.maximum(lo, -MAX), np.minimum(hi, MAX), k], axis=1)
        parts.append(bounded[rows.good])
        progress(len(rows))
    lo, hi, wanted = np.concatenate(parts).T
    given = wanted < np.inf
    columns = {"id": pa.concat_arrays(ids), "x_lo": lo, "x_hi": hi}
    if given.any():
        whole = np.where(given, wanted, 0.0).astype(np.int64)
        columns["k"] = pa.array(whole, mask=~given)
    return columns, int(wanted[given].max(initial=0))


def read_updates(
    path: Path,
    kind: pa.DataType,
    known: Callable[[Any], bool],
    bad: BadRows,
    *,
    ignore_unknown: bool = False,
) -> Iterator[Updates]:
    """Yield updates that can be applied after those before them, batch by batch.

    `known` says of an id whether there is such an object when the reading begins.
    """
    there: dict[Any, bool] = {}
    for rows in _records(
        path, bad, ("id", "y"), kind, ("x",), ignore_unknown=ignore_unknown, unique=False
    ):
        y, x = rows.coordinates(_Y), rows.coordinates(_X)
        changes = []
        for place, (name, value, to) in enumerate(
            zip(rows.ids.to_pylist(), y.tolist(), x.tolist(), strict=True)
        ):
            if not rows.good[place]:
                continue
            change = Change(name, *(None if v == np.inf else v for v in (value, to)))
            is_there = there.get(name)
            if is_there is None:
                is_there = known(name)
            if not is_there and (change.x is None or change.y is None):
                column = "y" if change.y is None and change.x is not None else "id"
                reason = "there is no such object; one that is new needs an x and a y"
                rows.refuse(place, column, reason)
                continue
            there[name] = change.y is not None
            changes.append(change)
        yield Updates(rows.batch.rows[rows.good], changes)


def message_schema(kind: pa.DataType) -> pa.Schema:
    """Return the columns of a file of messages about objects with ids of this type."""
    numbers = ("x", "y", "left_inner", "right_inner", "left_outer", "right_outer")
    return pa.schema(
        [("seq", pa.int64()), ("position", pa.int64()), ("object", kind)]
        + [(name, pa.float64()) for name in numbers]
    )


def message_rows(messages: Messages, schema: pa.Schema, seq: I64) -> pa.RecordBatch:
    """Return messages as rows, under these numbers."""
    table = messages.table().set_column(0, "seq", pa.array(seq)).select(schema.names).cast(schema)
    return pa.record_batch([column.combine_chunks() for column in table.columns], schema=schema)
