"""Score factors as a table: event, subscription, factor.

The score of a subscription for an event is its own score times the factor of the pair, 1 if the
table has none. Rows about events or subscriptions that are not there are not used.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import FileError, UsageError
from rangecast.kernels.arrays import F64, I32, I64
from rangecast.model.attributes.base import Number
from rangecast.model.io.records import Rows, Source
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.sets.ids import NO_ID, Places, as_ids

COLUMNS = ("event", "subscription", "factor")
_FACTOR = Number("factor", min=0)


class Factors(NamedTuple):
    """Score factors by event and row: event e has rows and values [offsets[e]:offsets[e + 1]].

    Events are numbered by their index in `FactorTable.events`.
    """

    offsets: I64
    rows: I32
    """Ascending for each event."""
    values: F64
    bounds: tuple[float, float]
    """Minimum and maximum of the values and 1."""

    def of(self, number: float, rows: I32) -> F64:
        """Return the factors of an event and some rows; the number is inf if it has none."""
        factors = np.ones(len(rows))
        if np.isfinite(number):
            piece = slice(self.offsets[int(number)], self.offsets[int(number) + 1])
            mine, values = self.rows[piece], self.values[piece]
            if len(mine):
                at = np.minimum(np.searchsorted(mine, rows), len(mine) - 1)
                factors = np.where(mine[at] == rows, values[at], 1.0)
        return factors


class FactorTable(NamedTuple):
    """Factors as they were given, in the order of their events."""

    events: pa.Array
    """Distinct."""
    offsets: I64
    subscriptions: pa.Array
    values: F64

    def rows_of(self, ids: pa.Array) -> Factors:
        """Return the factors of the subscriptions of a set, which have these ids."""
        rows = Places(ids).find(self.subscriptions)
        event = np.repeat(np.arange(len(self.events)), np.diff(self.offsets))
        known = np.flatnonzero(rows >= 0)
        order = known[np.lexsort((rows[known], event[known]))]
        same = (np.diff(event[order]) == 0) & (np.diff(rows[order]) == 0)
        for index in order[1:][same][:1].tolist():
            raise UsageError(
                f"two factors are given for event {self.events[event[index]].as_py()!r} and "
                f"subscription {self.subscriptions[index].as_py()!r}\n  hint: keep one of them"
            )
        values = self.values[order]
        offsets = np.searchsorted(event[order], np.arange(len(self.events) + 1))
        bounds = float(values.min(initial=1.0)), float(values.max(initial=1.0))
        return Factors(offsets, rows[order].astype(np.int32), values, bounds)


def read_factors(
    source: Source,
    event_ids: pa.DataType,
    subscription_ids: pa.DataType,
    rejected: RejectedRows | None = None,
) -> FactorTable:
    """Read a table of factors, whose ids have these types."""
    bad = rejected or RejectedRows()
    events: list[Any] = [pa.array([], event_ids)]
    subscriptions: list[Any] = [pa.array([], subscription_ids)]
    values = [np.zeros(0)]

    def broken(row: int, text: str, why: str) -> None:
        file, at = source.place(row)
        raise FileError(f"{file}: row {at} {why}: {text[:80]}")

    for batch in source.read(broken):
        names = sorted(batch.columns)
        if names != sorted(COLUMNS):
            raise FileError(
                f"{source.name}: factors must have the columns {', '.join(COLUMNS)}; "
                f"given: {', '.join(names)}\n  hint: rename or drop columns"
            )
        rows = Rows(source.name, batch, bad, source.place)
        rows.take_ids(batch.columns["event"], event_ids, "event")
        ids, missing = as_ids(batch.columns["subscription"], subscription_ids)
        for index in np.flatnonzero(missing & rows.good).tolist():
            rows.reject(index, "subscription", NO_ID)
        factors = rows.needed(_FACTOR, "the factor is missing")
        good = pa.array(rows.good)
        events.append(rows.ids.filter(good))
        subscriptions.append(ids.filter(good))
        values.append(factors[rows.good])
    coded = pa.concat_arrays(events).dictionary_encode()
    number = coded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(number, kind="stable")
    return FactorTable(
        coded.dictionary,
        np.searchsorted(number[order], np.arange(len(coded.dictionary) + 1)),
        pa.concat_arrays(subscriptions).take(pa.array(order)),
        np.concatenate(values)[order],
    )
