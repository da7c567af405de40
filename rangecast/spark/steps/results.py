"""Answers in the Python workers: events of a record batch in, pairs or arrays of ids out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, StructType

from rangecast.kernels.arrays import F64, I64
from rangecast.match.choose import Index
from rangecast.match.ordered import stream_ordered
from rangecast.spark.columns import ERROR, ERROR_TYPE
from rangecast.spark.events import Encoded


class Served(NamedTuple):
    """A matching structure and the ids of its rows."""

    structure: Index
    ids: pa.Array


class Form(NamedTuple):
    """How the answers look."""

    arrays: bool
    """One row an event with all its subscriptions, instead of one row a pair."""
    event_id: str
    """The column that names an event."""
    event_type: DataType
    kept: StructType
    """Columns that travel along."""
    errors: bool
    """Whether a column tells what is wrong with an event."""

    @property
    def keep(self) -> list[str]:
        """The names of the columns that travel along."""
        return list(self.kept.names)


def result_schema(form: Form, subscription_type: DataType) -> StructType:
    """Return the columns of an answer."""
    schema = StructType().add("event", form.event_type)
    if form.arrays:
        schema = schema.add("subscriptions", ArrayType(subscription_type))
    else:
        schema = schema.add("subscription", subscription_type)
    for field in form.kept:
        schema = schema.add(field)
    return schema.add("error", ERROR) if form.errors else schema


def answer(
    served: Served, batch: pa.RecordBatch, encoded: Encoded, form: Form
) -> Iterator[pa.RecordBatch]:
    """Yield the answers to one batch of events in pieces of bounded size, bad events last.

    `batch` has the event's id and the kept columns. An event is answered in one piece.
    """
    for first, matches in stream_ordered(served.structure, encoded.points, 1):
        found = served.ids.take(pa.array(matches.rows))
        if form.arrays:
            places = encoded.places[first : first + len(matches.offsets) - 1]
            found = pa.ListArray.from_arrays(pa.array(matches.offsets.astype(np.int32)), found)
        else:
            places = encoded.places[first + matches.events]
        yield _made(batch, places, found, None, form)
    if len(encoded.bad_places):
        bad = len(encoded.bad_places)
        found = pa.nulls(bad, served.ids.type)
        if form.arrays:
            found = pa.ListArray.from_arrays(pa.array(np.zeros(bad + 1, np.int32)), found[:0])
        yield _made(batch, encoded.bad_places, found, encoded.errors, form)


def _made(
    batch: pa.RecordBatch,
    places: I64,
    found: pa.Array,
    errors: pa.Array | None,
    form: Form,
) -> pa.RecordBatch:
    taken = pa.array(places)
    columns = {
        "event": batch.column(form.event_id).take(taken),
        "subscriptions" if form.arrays else "subscription": found,
    }
    for name in form.keep:
        columns[name] = batch.column(name).take(taken)
    if form.errors:
        columns["error"] = pa.nulls(len(places), ERROR_TYPE) if errors is None else errors
    return pa.record_batch(columns)


def warm(index: Index, dimensions: int) -> None:
    """Compile what workers will call, for arrays as they map them, before they all would."""
    for events in (1, 4096):
        points: F64 = np.full((events, dimensions), np.inf)
        next(stream_ordered(index, points, 1), None)
