"""Encoding of events in the Python workers: points, and errors of rejected rows as a column."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rangecast.errors import RejectedRow, RejectedRowError
from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.model.attributes.text_store import TEXTS
from rangecast.model.encoding.event_columns import EventColumns
from rangecast.model.io.batch import Batch
from rangecast.model.io.records import REMEDY, Rows
from rangecast.model.io.rejected import CollectedRows, RejectedRows
from rangecast.model.space import Space
from rangecast.spark.columns import ERROR_TYPE

BROKEN = "_corrupt_record"
"""The column in which a reader keeps a row whole that it couldn't split."""
UNSPLIT = "the row can't be split into its columns"
"""Why such a row can't be used."""
TO_DO = "\n  hint: "
"""Stands in a reason before a remedy, where that is more than to correct the value."""


class EncodedEvents(NamedTuple):
    """Encoded batch of events: points of the valid ones, and errors of the rejected ones."""

    points: F64
    places: I64
    """The place in the batch of each point."""
    bad_places: I64
    errors: pa.Array
    """Error of each bad place, in the same order, of `ERROR_TYPE`."""

    def only(self, wanted: Bool) -> EncodedEvents:
        """Return the batch with only the selected valid events."""
        return self._replace(points=self.points[wanted], places=self.places[wanted])


class RaisingRows(RejectedRows):
    """Handler that raises the first rejected row, named by its event id: rows have no order.

    Without ids, the error shows the other values of the row.
    """

    def __init__(self, ids: pa.Array | None):
        super().__init__()
        self._ids = ids

    def add(self, rejected: RejectedRow, data: dict[str, object] | str) -> None:
        which = f"with {data}" if self._ids is None else repr(self._ids[rejected.row].as_py())
        raise RejectedRowError(
            RejectedRow(
                f"event {which}",
                None,
                rejected.column,
                rejected.value,
                rejected.reason,
                "correct the value, or get a column of errors with rejected='column'",
            )
        )


def encode_batch(
    space: Space,
    batch: pa.RecordBatch,
    event_id: str | None,
    columns: EventColumns,
    *,
    nan: str,
    raising: bool,
) -> EncodedEvents:
    """Encode a batch as points; `raising`: raise an error for the first rejected row.

    event_id   column of the event ids, if there is one
    """
    ids = None if event_id is None else batch.column(event_id)
    bad = RaisingRows(ids) if raising else CollectedRows()
    rows = Rows("events", Batch.of(batch), bad)
    if ids is not None and event_id is not None:
        rows.take_ids(ids, pa.int64() if pa.types.is_integer(ids.type) else pa.string(), event_id)
    _reject_broken(rows, batch)
    with TEXTS.batch() as keep_texts:
        points = columns.points_of(space, rows, nan)
        points = points if rows.good.all() else points[rows.good]
        keep_texts(points)
    places = np.arange(len(rows))
    if rows.good.all():
        return EncodedEvents(points, places, places[:0], pa.nulls(0, ERROR_TYPE))
    assert isinstance(bad, CollectedRows)
    return EncodedEvents(points, places[rows.good], places[~rows.good], error_array(bad))


def _reject_broken(rows: Rows, batch: pa.RecordBatch) -> None:
    """Reject rows that a reader couldn't split into their columns."""
    if BROKEN in batch.schema.names:
        broken = batch.column(BROKEN).is_valid().to_numpy(zero_copy_only=False)
        for index in np.flatnonzero(broken & rows.good).tolist():
            rows.reject(index, "(all)", UNSPLIT)


def error_array(bad: CollectedRows) -> pa.Array:
    """Return the error of each rejected row, in row order."""
    ordered = sorted(bad.kept, key=lambda rejection: rejection[0].row or 0)
    errors = [
        {
            "column": rejection.column,
            "value": rejection.value,
            "reason": _reason(rejection),
            "row": data,
        }
        for rejection, data in ordered
    ]
    return pa.array(errors, ERROR_TYPE)


def _reason(bad: RejectedRow) -> str:
    """Return why a row was rejected, with a hint if correcting the row isn't enough."""
    return bad.reason if bad.remedy == REMEDY else f"{bad.reason}{TO_DO}{bad.remedy}"
