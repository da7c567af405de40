"""Answers in the Python workers: events of a record batch in, rows of the result out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from rangecast.kernels.arrays import I64
from rangecast.model.answers.answerer import Answerer
from rangecast.spark.columns import ERROR, ERROR_TYPE
from rangecast.spark.events import Encoded
from rangecast.spark.steps.shards.sharded_set import ShardedSet


class Form(NamedTuple):
    """Shape of the answers."""

    arrays: bool
    """One row per event with lists of all its answers, instead of one row per answer."""
    event_id: str
    """The column that names an event."""
    event_type: DataType
    kept: StructType
    """Columns that travel along."""
    errors: bool
    """Whether a column has the reasons of rejected events."""

    @property
    def keep(self) -> list[str]:
        """The names of the columns that travel along."""
        return list(self.kept.names)

    def name(self, column: str) -> str:
        """Return what a column of answers is called: a list of them has a name of its own."""
        return "subscriptions" if self.arrays and column == "subscription" else column


def result_schema(form: Form, answers: pa.Schema) -> StructType:
    """Return the columns of a result."""
    fields = [StructField("event", form.event_type)]
    for field in from_arrow_schema(answers):
        kind = ArrayType(field.dataType) if form.arrays else field.dataType
        fields.append(StructField(form.name(field.name), kind))
    fields += form.kept.fields
    return StructType([*fields, *([StructField("error", ERROR)] if form.errors else [])])


def answer(
    answerer: Answerer | ShardedSet, batch: pa.RecordBatch, encoded: Encoded, form: Form
) -> Iterator[pa.RecordBatch]:
    """Yield the answers to one batch of events in pieces of bounded size, bad events last.

    `batch` has the event's id and the kept columns. An event is answered in one piece.
    """
    for found in answerer.answers(encoded.points):
        if form.arrays:
            places = encoded.places[found.first : found.first + len(found.offsets) - 1]
            ends = pa.array(found.offsets.astype(np.int32))
            columns = {
                form.name(name): pa.ListArray.from_arrays(ends, column)
                for name, column in found.columns.items()
            }
        else:
            places, columns = encoded.places[found.events], found.columns
        yield _made(batch, places, columns, None, form)
    bad = len(encoded.bad_places)
    if bad:
        columns = {}
        for field in answerer.schema:
            nothing = pa.nulls(bad, field.type)
            if form.arrays:
                ends = pa.array(np.zeros(bad + 1, np.int32))
                nothing = pa.ListArray.from_arrays(ends, nothing[:0])
            columns[form.name(field.name)] = nothing
        yield _made(batch, encoded.bad_places, columns, encoded.errors, form)


def _made(
    batch: pa.RecordBatch,
    places: I64,
    found: dict[str, pa.Array],
    errors: pa.Array | None,
    form: Form,
) -> pa.RecordBatch:
    taken = pa.array(places)
    columns = {"event": batch.column(form.event_id).take(taken), **found}
    for name in form.keep:
        columns[name] = batch.column(name).take(taken)
    if form.errors:
        columns["error"] = pa.nulls(len(places), ERROR_TYPE) if errors is None else errors
    return pa.record_batch(columns)
