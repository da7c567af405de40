"""Answer events in the Python workers: record batches in, result rows out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from rangecast.kernels.arrays import F64, I64
from rangecast.model.answers.answerer import Answers
from rangecast.model.answers.merge_parts import PartAnswers
from rangecast.spark.columns import ERROR, ERROR_TYPE
from rangecast.spark.events import EncodedEvents


class ResultForm(NamedTuple):
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
        """Names of the kept columns."""
        return list(self.kept.names)

    def name(self, column: str) -> str:
        """Return the result name of an answer column; lists have a name of their own."""
        return "subscriptions" if self.arrays and column == "subscription" else column


def result_schema(form: ResultForm, answers: pa.Schema) -> StructType:
    """Return the schema of a result."""
    fields = [StructField("event", form.event_type)]
    for field in from_arrow_schema(answers):
        kind = ArrayType(field.dataType) if form.arrays else field.dataType
        fields.append(StructField(form.name(field.name), kind))
    fields += form.kept.fields
    return StructType([*fields, *([StructField("error", ERROR)] if form.errors else [])])


class EventAnswerer(Protocol):
    """Protocol of an answerer for the events of a task."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the answers."""

    def answers(self, points: F64) -> Iterator[Answers]:
        """Yield the answers for events (n, d) in ordered chunks that never split an event."""

    def rows(self, points: F64) -> Iterator[PartAnswers]:
        """Yield the answers for events (n, d) in chunks, in any order."""


def answer(
    answerer: EventAnswerer, batch: pa.RecordBatch, encoded: EncodedEvents, form: ResultForm
) -> Iterator[pa.RecordBatch]:
    """Yield the answers for a batch of events in bounded chunks, rejected events last.

    `batch` has the event's id and the kept columns.
    """
    if form.arrays:
        for answer_ in answerer.answers(encoded.points):
            places = encoded.places[answer_.first : answer_.first + len(answer_.offsets) - 1]
            ends = pa.array(answer_.offsets.astype(np.int32))
            columns = {
                form.name(name): pa.ListArray.from_arrays(ends, column)
                for name, column in answer_.columns.items()
            }
            yield _made(batch, places, columns, None, form)
    else:
        for events, columns in answerer.rows(encoded.points):
            yield _made(batch, encoded.places[events], columns, None, form)
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
    arrays: dict[str, pa.Array],
    errors: pa.Array | None,
    form: ResultForm,
) -> pa.RecordBatch:
    taken = pa.array(places)
    columns = {"event": batch.column(form.event_id).take(taken), **arrays}
    for name in form.keep:
        columns[name] = batch.column(name).take(taken)
    if form.errors:
        columns["error"] = pa.nulls(len(places), ERROR_TYPE) if errors is None else errors
    return pa.record_batch(columns)
