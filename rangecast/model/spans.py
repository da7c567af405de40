"""Events whose values may be spans: pairs (first, last) instead of single values.

One event is a dict with pairs in it. Many events are a list of dicts, a dict of columns, or a table
in which a column of spans is a column of lists of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64
from rangecast.model.events import encode_event, encode_events, values_of
from rangecast.model.space import Space
from rangecast.model.tables import table_of

Spans = tuple[F64, F64]
"""The beginnings and the ends of events, (events, d) each."""


def encode_span(
    event: Mapping[str, Any], space: Space, *, ignore_unknown: bool = False, nan: str = "refuse"
) -> Spans:
    """Return the beginnings and the ends of one event's values, (1, d) each."""
    pairs = {name: _pair(name, value) for name, value in values_of(event)}
    lo, hi = (
        encode_event(
            {name: pair[end] for name, pair in pairs.items()},
            space,
            ignore_unknown=ignore_unknown,
            nan=nan,
        )[None]
        for end in (0, 1)
    )
    _check_order(lo, hi, space)
    return lo, hi


def encode_spans(
    events: Any, space: Space, *, ignore_unknown: bool = False, nan: str = "refuse"
) -> tuple[pa.Array, Spans]:
    """Return the ids of many events, and the beginnings and the ends of their values."""
    firsts, lasts = _split(events)
    ids, lo = encode_events(firsts, space, ignore_unknown=ignore_unknown, nan=nan)
    hi = encode_events(lasts, space, ignore_unknown=ignore_unknown, nan=nan).points
    _check_order(lo, hi, space)
    return ids, (lo, hi)


def _split(events: Any) -> tuple[Any, Any]:
    """Return two sets of events with single values: where the spans begin, and where they end."""
    if isinstance(events, Mapping):
        pairs = {
            name: [_pair(name, value) for value in column] if _is_plain(column) else column
            for name, column in events.items()
        }
        first, last = (
            {
                name: [pair[end] for pair in column] if _is_plain(column) else column
                for name, column in pairs.items()
            }
            for end in (0, 1)
        )
        return first, last
    if not _is_plain(events):
        table = table_of(events, "events")
        return _ends(table, 0), _ends(table, 1)
    rows = [{name: _pair(name, value) for name, value in values_of(event)} for event in events]
    first_rows, last_rows = (
        [{name: pair[end] for name, pair in row.items()} for row in rows] for end in (0, 1)
    )
    return first_rows, last_rows


def _is_plain(given: Any) -> bool:
    """Whether these are Python values, not the table or the column of a library."""
    is_foreign = hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__")
    return isinstance(given, Iterable) and not is_foreign and not isinstance(given, str | bytes)


def _pair(name: str, value: Any) -> Any:
    if not isinstance(value, tuple | list):
        return value, value
    if len(value) != 2:
        raise UsageError(f"a span is a pair, (first, last); given for {name!r}: {value!r}")
    return value


def _ends(table: pa.Table, end: int) -> pa.Table:
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            if not pc.all(pc.equal(pc.list_value_length(column), 2), min_count=0).as_py():
                raise UsageError(f"a span is a pair, (first, last); some of {name!r} are not")
            columns[name] = pc.list_element(column, end)
        elif pa.types.is_fixed_size_list(column.type) and column.type.list_size == 2:
            columns[name] = pc.list_element(column, end)
        else:
            columns[name] = column
    return pa.table(columns)


def _check_order(lo: F64, hi: F64, space: Space) -> None:
    for event, axis in np.argwhere(lo > hi)[:1].tolist():
        attribute = space.attributes[axis]
        raise UsageError(
            "a span is a pair, (first, last), the first not above the last\n"
            f"  given: {lo[event, axis]:g} to {hi[event, axis]:g} for {attribute.name!r}, "
            f"event {event}\n"
            "  to do: swap them"
        )
