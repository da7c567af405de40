"""Columns of events: values and, on request, spans, probabilities and score factors.

    <attribute>                       a value; or a span, as a pair or a list of two
    <attribute>_lo, <attribute>_hi    a span: the value lies between these, both included
    <attribute>_probability           the probability that it does; 1 if absent

An event is encoded as one row of coordinates, in the same form as a point:

    lo (d)   hi (d), with spans   probability (d), with probabilities   number (1), with factors

`number` is the event's row in a table of factors, or `MISSING` if it has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.kernels.arrays import F64
from rangecast.model.attributes.base import MISSING, Attribute, Number
from rangecast.model.attributes.field_paths import value_at
from rangecast.model.attributes.patterns import Patterns
from rangecast.model.io.batch import Values, as_values, text_at
from rangecast.model.io.records import Rows
from rangecast.model.sets.ids import Places
from rangecast.model.space import Space

_PAIR = "a span is a pair, (first, last)"


class Parts(NamedTuple):
    """Coordinates of events, split by meaning, (events, d) each."""

    lo: F64
    hi: F64
    """Equal to `lo` unless values are spans."""
    probabilities: F64 | None
    last: F64
    """(events,) the number, where there are factors."""


class EventColumns(NamedTuple):
    """Columns that events may have, and their encoding as coordinates."""

    spans: bool = False
    probabilities: bool = False
    """Values may be uncertain; there are spans, too, then."""
    factor_events: Places | None = None
    """The events of a table of factors."""
    by_name: bool = False
    """Values are under the names of attributes, whatever their sources."""
    texts: bool = True
    """Whether conditions read texts. If none does, points lack what only these would read."""

    @property
    def are_values(self) -> bool:
        """Whether an event has nothing but values."""
        return not self.spans and not self.probabilities and self.factor_events is None

    def names(self, attribute: Attribute) -> list[str]:
        """Return the columns of an attribute; with a source, the first field of its path."""
        name = attribute.name
        ends = [f"{name}_lo", f"{name}_hi"] if self.spans else []
        value = name if attribute.path is None else attribute.path[0]
        return [value, *ends, *([f"{name}_probability"] if self.probabilities else [])]

    def all_names(self, space: Space) -> list[str]:
        """Return the columns of all attributes, without duplicates."""
        return [*dict.fromkeys(column for attribute in space for column in self.names(attribute))]

    def width(self, dimensions: int) -> int:
        """Return the number of coordinates per event."""
        return dimensions * (1 + self.spans + self.probabilities) + (self.factor_events is not None)

    def points_of(self, space: Space, rows: Rows, nan: str) -> F64:
        """Return the coordinates of events, (rows, width); unusable rows are rejected."""
        d = len(space)
        points = np.full((len(rows), self.width(d)), MISSING)
        for axis, attribute in enumerate(space):
            if not self.texts and isinstance(attribute, Patterns):
                continue
            if self.spans:
                points[:, axis], points[:, d + axis] = _span(rows, attribute, nan)
            else:
                points[:, axis] = _values(rows, attribute, nan, by_name=self.by_name)
            if self.probabilities:
                probability = Number(f"{attribute.name}_probability", min=0, max=1)
                points[:, 2 * d + axis] = rows.coordinates(probability, nan)
        if self.factor_events is not None:
            places = self.factor_events.find(rows.ids)
            points[:, -1] = np.where(places < 0, MISSING, places)
        return points

    def parts(self, points: F64, dimensions: int) -> Parts:
        """Split coordinates by meaning; the default probability is 1."""
        if points.shape[1] == dimensions:
            return Parts(points, points, None, points[:, -1])
        lo, hi, probabilities = (
            np.ascontiguousarray(points[:, i * dimensions : (i + 1) * dimensions]) for i in range(3)
        )
        return Parts(
            lo,
            hi if self.spans else lo,
            np.where(probabilities == MISSING, 1.0, probabilities) if self.probabilities else None,
            points[:, -1],
        )


def column_of(columns: Mapping[str, Values], attribute: Attribute) -> Values | None:
    """Return an attribute's values, by name or by source; `None` if absent."""
    first, *rest = attribute.path or (attribute.name,)
    column = columns.get(first)
    while rest and isinstance(column, pa.Array) and pa.types.is_struct(column.type):
        field = column.type.get_field_index(rest[0])
        if field < 0:
            return pa.nulls(len(column))
        column = pc.struct_field(column, field)
        first, *rest = rest
    if column is None or not rest:
        return column
    values = column if isinstance(column, list) else column.to_pylist()
    return as_values([value_at({first: value}, (first, *rest)) for value in values])


def _values(rows: Rows, attribute: Attribute, nan: str, *, by_name: bool = False) -> F64:
    """Return an attribute's coordinates, by name or by source."""
    if by_name or attribute.path is None:
        return rows.coordinates(attribute, nan, attribute.of)
    values = column_of(rows.batch.columns, attribute)
    if values is None:
        return np.full(len(rows), MISSING)
    return rows.encoded(attribute, values, attribute.source or "", nan)


def _span(rows: Rows, attribute: Attribute, nan: str) -> tuple[F64, F64]:
    """Return the lower and upper ends of an attribute's spans; reject other values."""
    name = attribute.of or attribute.name
    low, high = f"{name}_lo", f"{name}_hi"
    pairs = None if attribute.path else _pairs(rows, name)
    if pairs is None:
        begins = ends = _values(rows, attribute, nan)
    else:
        begins, ends = (rows.encoded(attribute, values, name, nan) for values in pairs)
    column = np.full(len(rows), name, object)
    if low in rows or high in rows:
        lo, hi = (rows.coordinates(attribute, nan, end) for end in (low, high))
        is_span = ~(np.isposinf(lo) & np.isposinf(hi))
        for index in _good(rows, is_span & ~(np.isposinf(begins) & np.isposinf(ends))):
            rows.reject(index, name, f"there is a value and a span, {low} to {high}", "give one")
        column[is_span] = low
        begins, ends = np.where(is_span, lo, begins), np.where(is_span, hi, ends)
    for index in _good(rows, np.isposinf(begins) != np.isposinf(ends)):
        where = name if column[index] == name else (low, high)[int(np.isposinf(ends[index]))]
        rows.reject(index, where, "one end of a span is missing", "give both ends, or none")
    for index in _good(rows, begins > ends):
        reason = "the span begins above its end"
        if column[index] == low:
            reason += f", {high} = {text_at(rows.batch.columns[high], index)}"
        rows.reject(index, column[index], reason, "swap its ends")
    if not attribute.ordered:
        for index in _good(rows, begins != ends):
            reason = f"a {attribute.type} has no order, and so no spans"
            rows.reject(index, column[index], reason, "give a single value")
    return begins, ends


def _good(rows: Rows, at_fault: Any) -> Iterator[int]:
    return iter(np.flatnonzero(at_fault & rows.good).tolist())


def _pairs(rows: Rows, name: str) -> tuple[Values, Values] | None:
    """Return the first and second values of a column of pairs; `None` if it has no pairs."""
    values = rows.batch.columns.get(name)
    if isinstance(values, list):
        if not any(isinstance(value, tuple | list) for value in values):
            return None
        both: list[tuple[Any, Any]] = []
        for index, value in enumerate(values):
            is_pair = isinstance(value, tuple | list)
            if is_pair and len(value) != 2:
                rows.reject(index, name, _PAIR)
            fits = not is_pair or len(value) == 2
            both.append((tuple(value) if is_pair else (value, value)) if fits else (None, None))
        return as_values([bound for bound, _ in both]), as_values([bound for _, bound in both])
    if values is None or not (
        pa.types.is_list(values.type)
        or pa.types.is_large_list(values.type)
        or pa.types.is_fixed_size_list(values.type)
    ):
        return None
    lengths = pc.fill_null(pc.list_value_length(values), -1).to_numpy(zero_copy_only=False)
    for index in np.flatnonzero((lengths >= 0) & (lengths != 2)).tolist():
        rows.reject(index, name, _PAIR)
    fits = lengths == 2
    flat = values.filter(pa.array(fits)).flatten()
    at = np.where(fits, 2 * (np.cumsum(fits) - 1), 0)
    first, last = (flat.take(pa.array(at + end, mask=~fits)) for end in (0, 1))
    return first, last
