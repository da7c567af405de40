"""Subscriptions from a file or a table, as `Boxes` in order of arrival.

Two layouts: `id, filter[, score][, weight_<attribute>...][, seq]`, where `filter` is a text of
the filter language, or wide, `id, <attribute>_lo, <attribute>_hi, ...` with the same optional
columns, where null is unbounded on that side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import BadRow, FileError, FilterError, near
from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.model.attributes import Attribute, Integer, Number
from rangecast.model.badrows import BadRows
from rangecast.model.boxes import Boxes
from rangecast.model.encode import encode, encode_bounds, explain, explain_bounds
from rangecast.model.events import REMEDY, pass_over, row_data
from rangecast.model.files import Batch, format_of, read_batches
from rangecast.model.filters.filter import Filter, boxes_of
from rangecast.model.ids import Duplicates, id_type
from rangecast.model.space import Space
from rangecast.model.tables import table_of

_SCORE = Number("score")
_SEQ = Integer("seq")


class Part(NamedTuple):
    """The subscriptions of one batch; `sizes` says how many boxes each has."""

    ids: pa.Array
    lo: F64
    hi: F64
    sizes: I64
    scores: F64
    weights: F64 | None
    seq: F64 | None


def read_subscriptions(
    path: str | Path,
    space: Space,
    *,
    bad_rows: BadRows | None = None,
    ignore_unknown: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Boxes:
    """Read a file of subscriptions; `progress` is called with the rows of each batch."""
    reader = _Reader(str(path), space, bad_rows or BadRows(), ignore_unknown)
    columnar = format_of(path) in ("parquet", "arrow")
    kind = id_type(read_batches(path, pass_over), columnar=columnar)
    duplicates = Duplicates(str(path), reader.bad, lambda: read_batches(path, pass_over))
    parts = []
    for batch in read_batches(path, reader.broken):
        parts.append(reader.part(batch, *duplicates.check(batch, kind)))
        if progress is not None:
            progress(len(batch.rows))
    return _joined(parts, space)


def encode_subscriptions(given: Any, space: Space) -> Boxes:
    """Return the subscriptions of a table, a DataFrame, a dict of columns or a list of dicts.

    Their columns are those that a file would have.
    """
    batches = _table_batches(table_of(given, "subscriptions"))
    reader = _Reader("subscriptions", space, BadRows(), ignore_unknown=False)
    kind = id_type(iter(batches), columnar=True)
    duplicates = Duplicates("subscriptions", reader.bad, lambda: iter(batches))
    parts = [reader.part(batch, *duplicates.check(batch, kind)) for batch in batches]
    return _joined(parts, space)


def check_columns(source: str, space: Space, names: Sequence[str]) -> None:
    """Refuse columns that subscriptions can't have, and a table that lacks what they need."""
    _Reader(source, space, BadRows(), ignore_unknown=False).check(names)


def encode_part(space: Space, batch: Batch, ids: pa.Array, good: Bool, bad: BadRows) -> Part:
    """Return the subscriptions of one batch of many, of which `good` have an id that may stand.

    Rows that can't be used go to `bad` and are cleared in `good`.
    """
    return _Reader("subscriptions", space, bad, ignore_unknown=False).part(batch, ids, good)


def _table_batches(table: pa.Table) -> list[Batch]:
    batches, first = [], 0
    empty = pa.RecordBatch.from_pylist([], table.schema)
    for data in table.to_batches() or [empty]:
        batches.append(Batch(np.arange(first, first + data.num_rows), data))
        first += data.num_rows
    return batches


class _Reader:
    """Turns batches into parts; knows the columns and where bad rows go."""

    def __init__(self, source: str, space: Space, bad: BadRows, ignore_unknown: bool):
        self.source = source
        self.space = space
        self.bad = bad
        self.ignore_unknown = ignore_unknown
        self.weights = [Number(f"weight_{name}", min=0) for name in space.names]
        wide = [f"{name}_{end}" for name in space.names for end in ("lo", "hi")]
        self.wide = wide
        self.known = ["id", "filter", "score", "seq", *wide, *(w.name for w in self.weights)]

    def broken(self, row: int, text: str, why: str) -> None:
        bad = BadRow(self.source, row, "(all)", text[:200], f"the row {why}", REMEDY)
        self.bad.add(bad, text)

    def part(self, batch: Batch, ids: pa.Array, good: Bool) -> Part:
        names = batch.data.schema.names
        self.check(names)
        scores = self._values(batch, _SCORE, good, 0.0)
        seq = self._values(batch, _SEQ, good, None) if "seq" in names else None
        weights = None
        if any(weight.name in names for weight in self.weights):
            columns = [self._values(batch, weight, good, 1.0) for weight in self.weights]
            weights = np.stack(columns, axis=1)
        make = self._filters if "filter" in names else self._ranges
        lo, hi, sizes = make(batch, good)
        return Part(
            ids.filter(pa.array(good)),
            lo,
            hi,
            sizes,
            scores[good],
            None if weights is None else weights[good],
            None if seq is None else seq[good],
        )

    def check(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.known and not self.ignore_unknown:
                raise FileError(
                    f"{self.source}: unknown column {name!r}: {near(name, self.known)}\n"
                    "  expected: 'id', then 'filter' or <attribute>_lo and <attribute>_hi columns, "
                    "and optionally 'score', 'seq' and weight_<attribute>\n"
                    "  to do: rename it, drop it, or pass --ignore-unknown-columns"
                )
        wide = [name for name in names if name in self.wide]
        if "id" not in names or ("filter" in names) == bool(wide):
            raise FileError(
                f"{self.source}: subscriptions need 'id' and either 'filter' or "
                f"<attribute>_lo and <attribute>_hi columns; found: {', '.join(names)}"
            )

    def _refuse(
        self,
        batch: Batch,
        good: Bool,
        place: int,
        column: str,
        reason: str,
        remedy: str = REMEDY,
        more: int = 0,
    ) -> None:
        good[place] = False
        data = row_data(batch.data, place)
        row = int(batch.rows[place])
        given = str(data.get(column))
        self.bad.add(BadRow(self.source, row, column, given, reason, remedy, more=more), data)

    def _values(self, batch: Batch, attribute: Attribute, good: Bool, default: float | None) -> F64:
        """Return a column of plain numbers; without a default, null is refused."""
        if attribute.name not in batch.data.schema.names:
            return np.full(len(batch.rows), default or 0.0)
        column = batch.data.column(attribute.name)
        values, refused = encode(attribute, column)
        missing = np.isposinf(values) & ~refused
        places = np.flatnonzero(refused & good).tolist()
        for place in places:
            reason = explain(attribute, column, place)
            self._refuse(batch, good, place, attribute.name, reason, more=len(places) - 1)
        if default is None:
            for place in np.flatnonzero(missing & good).tolist():
                self._refuse(batch, good, place, attribute.name, "an order of arrival is missing")
        else:
            values[missing] = default
        return values

    def _filters(self, batch: Batch, good: Bool) -> tuple[F64, F64, I64]:
        filters = []
        texts = batch.data.column("filter").to_pylist()
        for place in np.flatnonzero(good).tolist():
            text = texts[place]
            try:
                if not isinstance(text, str):
                    raise FilterError("a filter is a text", "write true for one that always holds")
                filters.append(Filter.parse(text, self.space))
            except FilterError as error:
                to_do = error.to_do or REMEDY
                self._refuse(batch, good, place, "filter", error.reason, to_do)
        lo, hi, owner = boxes_of(self.space, filters)
        return lo, hi, np.bincount(owner, minlength=len(filters)).astype(np.int64)

    def _ranges(self, batch: Batch, good: Bool) -> tuple[F64, F64, I64]:
        lo = np.full((len(batch.rows), len(self.space)), -np.inf)
        hi = np.full((len(batch.rows), len(self.space)), np.inf)
        names = batch.data.schema.names
        for axis, attribute in enumerate(self.space):
            low, high = (
                batch.data.column(name) if name in names else None
                for name in (f"{attribute.name}_lo", f"{attribute.name}_hi")
            )
            lo[:, axis], hi[:, axis], refused = encode_bounds(attribute, low, high, len(good))
            for place in np.flatnonzero(refused & good).tolist():
                self._refuse(batch, good, place, *explain_bounds(attribute, low, high, place))
        return lo[good], hi[good], np.ones(int(good.sum()), np.int64)


def _joined(parts: list[Part], space: Space) -> Boxes:
    dimensions = len(space)
    if not parts:
        return Boxes.of(np.zeros((0, dimensions)), np.zeros((0, dimensions)), space=space)
    sizes = np.concatenate([part.sizes for part in parts])
    weighted = any(part.weights is not None for part in parts)
    boxes = Boxes.of(
        np.concatenate([part.lo for part in parts]).reshape(-1, dimensions),
        np.concatenate([part.hi for part in parts]).reshape(-1, dimensions),
        owner=np.repeat(np.arange(len(sizes)), sizes),
        ids=pa.concat_arrays([part.ids for part in parts]),
        scores=np.concatenate([part.scores for part in parts]),
        weights=np.concatenate(list(_weights(parts, dimensions))) if weighted else None,
        space=space,
    )
    arrival = [part.seq for part in parts if part.seq is not None]
    if not arrival:
        return boxes
    if len(arrival) < len(parts):
        raise FileError("some subscriptions have a 'seq' and some have none; give one to all")
    return boxes.take(np.argsort(np.concatenate(arrival), kind="stable"))


def _weights(parts: list[Part], dimensions: int) -> Iterator[F64]:
    for part in parts:
        yield np.ones((len(part.ids), dimensions)) if part.weights is None else part.weights
