"""Query over a DataFrame of events: the common part of `match` and `rank`.

Events stay where they are: every worker maps the structures of the set (`prepared`, `shards`) and
answers its own. Nothing is shuffled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from rangecast.errors import UsageError, did_you_mean
from rangecast.model.encoding.event_columns import EventColumns
from rangecast.model.encoding.events import PLAIN
from rangecast.model.space import Space
from rangecast.model.validation.flags import flag
from rangecast.spark.columns import (
    id_kind,
    kept_fields,
    need_attributes,
    reject_unknown_events,
)
from rangecast.spark.events import encode_batch
from rangecast.spark.shipped import ShippedObject
from rangecast.spark.steps.prepared import MAX_WORKER_MEMORY
from rangecast.spark.steps.results import ResultForm, answer, result_schema
from rangecast.spark.steps.shards.sharded_set import Settings, as_it_is

Finish = Callable[
    [Iterator[pa.RecordBatch], Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]],
    Iterator[pa.RecordBatch],
]
"""Takes the batches of a task, and what answers one; gives the batches that the task gives."""


class QuerySource(Protocol):
    """Protocol of what answers a query: `Prepared`, or an object without subscriptions."""

    @property
    def shipped_space(self) -> ShippedObject:
        """Space of the events."""

    @property
    def answerer(self) -> Any:
        """The part that a task needs: `fitted` to a query, with a `schema` and `answers`."""


@dataclass(frozen=True)
class EventQuery:
    """Events to answer, and the form of the answers."""

    events: DataFrame
    """The columns that are needed, ids of one of two types."""
    form: ResultForm
    space: Space
    nan: str
    columns: EventColumns
    """Columns that events may have beside values."""

    @classmethod
    def of(
        cls,
        events: DataFrame,
        space: Space,
        *,
        taken: Sequence[str],
        arrays: bool = False,
        keep: Sequence[str] = (),
        event_id: str = "id",
        rejected: str = "error",
        allow_missing: bool = False,
        ignore_unknown: bool = False,
        nan: str = "error",
        columns: EventColumns = PLAIN,
    ) -> EventQuery:
        """Check the columns before anything runs; `taken` are those of the result itself."""
        need_one_of("rejected", rejected, ("error", "column"))
        need_frame(events)
        attributes = need_attributes(events, space, columns, allow_missing=allow_missing)
        if not flag("ignore_unknown", ignore_unknown):
            reject_unknown_events(events.columns, space, columns, (event_id, *keep))
        event_kind = id_kind(events, event_id, "events")
        events = events.withColumn(event_id, events[f"`{event_id}`"].cast(event_kind))
        kept = kept_fields(events, keep, ("event", "error", *taken))
        form = ResultForm(arrays, event_id, event_kind, kept, rejected == "column")
        wanted = dict.fromkeys([event_id, *attributes, *kept.names])
        events = events.select([events[f"`{name}`"] for name in wanted])
        return cls(events, form, space, nan, columns)

    @property
    def session(self) -> SparkSession:
        """The session of the events."""
        return self.events.sparkSession

    def answer(
        self,
        prepared: QuerySource,
        settings: Settings = as_it_is,
        *,
        prefilters: Sequence[ShippedObject] = (),
        finish: Finish | None = None,
        schema: str | None = None,
    ) -> DataFrame:
        """Answer the events on the workers that hold them.

        settings     fits the set to this query
        prefilters   objects with `may_match(points)`: only events that pass all of them are
                     answered
        finish       consumes the answers of a task; its batches have the columns of `schema`
        """
        sharded, space = prepared.answerer.fitted(settings), prepared.shipped_space
        form, nan, columns = self.form, self.nan, self.columns

        def answer_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            known = space.open()

            def answer_one(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
                encoded = encode_batch(
                    known, batch, form.event_id, columns, nan=nan, raising=not form.errors
                )
                for prefilter in prefilters:
                    encoded = encoded.only(prefilter.open().may_match(encoded.points))
                yield from answer(sharded, batch, encoded, form)

            if finish is not None:
                yield from finish(batches, answer_one)
                return
            for batch in batches:
                yield from answer_one(batch)

        return self.events.mapInArrow(answer_all, schema or self.schema(prepared, settings))

    def schema(self, prepared: QuerySource, settings: Settings = as_it_is) -> StructType:
        """Return the columns of the answers."""
        return result_schema(self.form, prepared.answerer.fitted(settings).schema)


def need_frame(events: Any) -> None:
    """Raise an error if events are not a Spark DataFrame."""
    if not hasattr(events, "sparkSession"):
        raise UsageError(
            f"events must be a Spark DataFrame; given: {str(events)[:80]!r}\n"
            "  hint: read a file with session.read.parquet(path), session.read.csv(...)"
        )


def reject_ignored(index: str, max_worker_memory: int) -> None:
    """Reject options that have no effect on a prepared set."""
    if index != "auto":
        ignored = f"index={index!r}"
    elif max_worker_memory != MAX_WORKER_MEMORY:
        ignored = f"max_worker_memory={max_worker_memory!r}"
    else:
        return
    raise UsageError(
        f"{ignored} has no effect: these subscriptions are already prepared\n"
        "  hint: pass it when preparing them"
    )


def need_one_of(name: str, text: str, known: Sequence[str]) -> None:
    """Raise an error if a value is not one of the known choices."""
    if text not in known:
        raise UsageError(f"no {name} {text!r}: {did_you_mean(text, known)}")
