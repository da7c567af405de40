"""Subscriptions of a table as rows with a filter text, as a server saves them.

The columns are those of a file (`subscriptions`): `id`, then `filter` or `<attribute>_lo` and
`<attribute>_hi`, `score` and `weight_<attribute>`; and `consumer` and `ttl`, which only servers
use. Ranges are converted to an equivalent filter text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import FileError
from rangecast.kernels.arrays import F64
from rangecast.model.attributes.base import Number
from rangecast.model.encoding.subscriptions import SubscriptionColumns
from rangecast.model.filters.formatting import text_of_bounds
from rangecast.model.io.batch import Batch, text_at, value_at
from rangecast.model.io.records import Rows
from rangecast.model.io.rejected import RejectedRows
from rangecast.model.sets.ids import id_type
from rangecast.model.sets.members import Id
from rangecast.model.space import Space

_TTL = Number("ttl", min=0)


class SubscriptionRow(NamedTuple):
    """One subscription, with its row number."""

    row: int
    id: Id
    filter: str
    score: float | None
    weights: dict[str, float]
    """Those that are given."""
    consumer: str
    ttl: float | None


def subscription_rows(
    batch: Batch, space: Space, bad: RejectedRows, source: str
) -> Iterator[SubscriptionRow]:
    """Yield the subscriptions of a batch; unusable rows go to `bad`.

    Filters are not parsed. Invalid columns raise a `FileError`.
    """
    columns = SubscriptionColumns(space, more=("consumer", "ttl"))
    columns.check(list(batch.columns), source)
    if "seq" in batch.columns:
        raise FileError(
            f"{source}: a server keeps subscriptions in the order of the rows, without 'seq'\n"
            "  hint: order the rows by it, and drop the column"
        )
    rows = Rows(source, batch, bad)
    kind = id_type([batch.columns["id"]], texts_too=False)
    rows.take_ids(batch.columns["id"], kind or pa.large_string())
    scores = columns.scores(rows)
    weights = columns.all_weights(rows)
    ttl = rows.coordinates(_TTL)
    consumers = _texts(rows, "consumer")
    texts = _texts(rows, "filter") if "filter" in rows else _ranges(columns, rows)
    ids, numbers = rows.ids.to_pylist(), batch.rows.tolist()
    for index in np.flatnonzero(rows.good).tolist():
        yield SubscriptionRow(
            numbers[index],
            ids[index],
            texts[index],
            None if np.isnan(scores[index]) else float(scores[index]),
            {} if weights is None else _weights(space, weights[index]),
            consumers[index],
            None if np.isposinf(ttl[index]) else float(ttl[index]),
        )


def _texts(rows: Rows, name: str) -> list[str]:
    """Return a text column; reject rows with other types, or without a filter."""
    values = rows.batch.columns.get(name)
    if values is None:
        return [""] * len(rows)
    texts = []
    for index in range(len(rows)):
        value = value_at(values, index)
        if value is None and name == "consumer":
            value = ""
        if not isinstance(value, str):
            if rows.good[index]:
                rows.reject(index, name, f"a {name} is a text", "give a text")
            value = "" if value is None else text_at(values, index)
        texts.append(value)
    return texts


def _ranges(columns: SubscriptionColumns, rows: Rows) -> list[str]:
    lo, hi = columns.bounds(rows)
    return [
        text_of_bounds(columns.space, lo[index : index + 1], hi[index : index + 1]) if good else ""
        for index, good in enumerate(rows.good.tolist())
    ]


def _weights(space: Space, row: F64) -> dict[str, float]:
    pairs = zip(space.names, row.tolist(), strict=True)
    return {name: weight for name, weight in pairs if not np.isnan(weight)}
