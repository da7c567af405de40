"""Objects, updates, interests and messages in files.

    objects      id, x, y
    updates      id, y[, x]   in order: no y deletes, an x on a new id inserts, on a known one moves
    interests    id, x_lo, x_hi[, k]   no bound where null
    messages     seq, position, object, x, y, left_inner, right_inner, left_outer, right_outer

A row that can't be used is told to `BadRows` with its file, number and column. Ids of objects and
updates are of one type: whole numbers only if those of both files are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import BadRow, FileError, near
from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.model.attributes import Attribute, Integer, Number
from rangecast.model.badrows import BadRows
from rangecast.model.encode import encode, encode_bounds, explain, explain_bounds
from rangecast.model.events import REMEDY, pass_over, row_data
from rangecast.model.files import Batch, format_of, read_batches
from rangecast.model.ids import Duplicates, as_ids, id_type
from rangecast.notify.given import MAX, Change
from rangecast.notify.messages import Messages

_X, _Y, _K = Number("x"), Number("y"), Integer("k", min=1, max=1 << 16)


class Updates(NamedTuple):
    """Some updates that can be applied, and the number of the row of each."""

    rows: I64
    changes: list[Change]


def common_id_type(*paths: Path) -> pa.DataType:
    """Return the type of ids that these files share."""
    kinds = [_id_type(path) for path in paths]
    return pa.large_string() if pa.large_string() in kinds else pa.int64()


def _id_type(path: Path) -> pa.DataType:
    columnar = format_of(path) in ("parquet", "arrow")
    found = id_type(read_batches(path, pass_over), columnar=columnar)
    if found is None:
        raise FileError(f"{path}: has no column 'id'; every row needs one")
    return found


class _Reader:
    """Reads one file: its columns are checked, and bad rows go where bad rows go."""

    def __init__(
        self,
        path: Path,
        bad: BadRows,
        needed: Sequence[str],
        optional: Sequence[str],
        *,
        ignore_unknown: bool,
    ):
        self.source = str(path)
        self.bad = bad
        self._path = path
        self._ignore_unknown = ignore_unknown
        self._needed, self._known = needed, [*needed, *optional]

    def __iter__(self) -> Iterator[Batch]:
        for batch in read_batches(self._path, self._broken):
            names = batch.data.schema.names
            for name in names:
                if name not in self._known and not self._ignore_unknown:
                    raise FileError(
                        f"{self.source}: unknown column {name!r}: {near(name, self._known)}\n"
                        f"  expected: {', '.join(self._known)}\n"
                        "  to do: rename it, drop it, or pass --ignore-unknown-columns"
                    )
            for name in self._needed:
                if name not in names:
                    raise FileError(
                        f"{self.source}: has no column {name!r}; found: {', '.join(names)}"
                    )
            yield batch

    def _broken(self, row: int, text: str, why: str) -> None:
        bad = BadRow(self.source, row, "(all)", text[:200], f"the row {why}", REMEDY)
        self.bad.add(bad, text)

    def refuse(self, batch: Batch, good: Bool, place: int, column: str, reason: str) -> None:
        """Tell of a bad row and pass it over."""
        good[place] = False
        data = row_data(batch.data, place)
        bad = BadRow(
            self.source, int(batch.rows[place]), column, str(data.get(column)), reason, REMEDY
        )
        self.bad.add(bad, data)

    def values(self, batch: Batch, attribute: Attribute, good: Bool, *, needed: bool) -> F64:
        """Return a column of numbers, inf where there is none; refuse what isn't one."""
        if attribute.name not in batch.data.schema.names:
            return np.full(len(batch.rows), np.inf)
        column = batch.data.column(attribute.name)
        values, refused = encode(attribute, column)
        for place in np.flatnonzero(refused & good).tolist():
            self.refuse(batch, good, place, attribute.name, explain(attribute, column, place))
        if needed:
            for place in np.flatnonzero(np.isposinf(values) & good).tolist():
                self.refuse(batch, good, place, attribute.name, "an object needs a value here")
        return values


def read_objects(
    path: Path, kind: pa.DataType, bad: BadRows, *, ignore_unknown: bool = False
) -> dict[str, Any]:
    """Return the columns of a file of objects."""
    reader = _Reader(path, bad, ("id", "x", "y"), (), ignore_unknown=ignore_unknown)
    duplicates = Duplicates(str(path), bad, lambda: read_batches(path, pass_over))
    parts: list[tuple[pa.Array, F64, F64]] = []
    for batch in reader:
        ids, good = duplicates.check(batch, kind)
        x = reader.values(batch, _X, good, needed=True)
        y = reader.values(batch, _Y, good, needed=True)
        parts.append((ids.filter(pa.array(good)), x[good], y[good]))
    ids, xs, ys = zip(*parts, strict=True) if parts else ((), (), ())
    return {
        "id": pa.concat_arrays(ids) if ids else pa.array([], kind),
        "x": np.concatenate([*xs, []]),
        "y": np.concatenate([*ys, []]),
    }


def read_interests(
    path: Path, bad: BadRows, progress: Callable[[int], None], *, ignore_unknown: bool = False
) -> tuple[dict[str, Any], int]:
    """Return the columns of a file of interests, and the largest k that one asks for, or 0."""
    known = ("x_lo", "x_hi", "k")
    reader = _Reader(path, bad, ("id",), known, ignore_unknown=ignore_unknown)
    kind = _id_type(path)
    duplicates = Duplicates(str(path), bad, lambda: read_batches(path, pass_over))
    parts: list[tuple[pa.Array, F64, F64, F64]] = []
    for batch in reader:
        ids, good = duplicates.check(batch, kind)
        names = batch.data.schema.names
        low, high = (batch.data.column(n) if n in names else None for n in ("x_lo", "x_hi"))
        lo, hi, refused = encode_bounds(_X, low, high, len(good))
        for place in np.flatnonzero(refused & good).tolist():
            reader.refuse(batch, good, place, *explain_bounds(_X, low, high, place))
        k = reader.values(batch, _K, good, needed=False)
        lo, hi = np.maximum(lo, -MAX), np.minimum(hi, MAX)
        parts.append((ids.filter(pa.array(good)), lo[good], hi[good], k[good]))
        progress(len(batch.rows))
    ids, los, his, ks = zip(*parts, strict=True) if parts else ((), (), (), ())
    wanted = np.concatenate([*ks, []])
    given = wanted < np.inf
    columns = {
        "id": pa.concat_arrays(ids) if ids else pa.array([], kind),
        "x_lo": np.concatenate([*los, []]),
        "x_hi": np.concatenate([*his, []]),
    }
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
    reader = _Reader(path, bad, ("id", "y"), ("x",), ignore_unknown=ignore_unknown)
    there: dict[Any, bool] = {}
    for batch in reader:
        ids, missing = as_ids(batch.data.column("id"), kind)
        good = ~missing
        for place in np.flatnonzero(missing).tolist():
            reader.refuse(
                batch, good, place, "id", "an id is an integer or a text, and never missing"
            )
        y = reader.values(batch, _Y, good, needed=False)
        x = reader.values(batch, _X, good, needed=False)
        changes = []
        for place, (name, value, to) in enumerate(
            zip(ids.to_pylist(), y.tolist(), x.tolist(), strict=True)
        ):
            if not good[place]:
                continue
            change = Change(name, *(None if v == np.inf else v for v in (value, to)))
            is_there = there.get(name)
            if is_there is None:
                is_there = known(name)
            if not is_there and (change.x is None or change.y is None):
                column = "y" if change.y is None and change.x is not None else "id"
                reason = "there is no such object; one that is new needs an x and a y"
                reader.refuse(batch, good, place, column, reason)
                continue
            there[name] = change.y is not None
            changes.append(change)
        yield Updates(batch.rows[good], changes)


def message_schema(kind: pa.DataType) -> pa.Schema:
    """Return the columns of a file of messages about objects with ids of this type."""
    numbers = ("x", "y", "left_inner", "right_inner", "left_outer", "right_outer")
    return pa.schema(
        [("seq", pa.int64()), ("position", pa.int64()), ("object", kind)]
        + [(name, pa.float64()) for name in numbers]
    )


def message_rows(messages: Messages, schema: pa.Schema, seq: I64) -> pa.RecordBatch:
    """Return messages as rows, under these numbers."""
    left_outer, left_inner, right_inner, right_outer = messages.tile.T
    columns = [
        pa.array(seq),
        pa.array(messages.position),
        pa.array(messages.objects, schema.field("object").type),
        *map(
            pa.array,
            (messages.x, messages.y, left_inner, right_inner, left_outer, right_outer),
        ),
    ]
    return pa.record_batch(columns, schema=schema)
