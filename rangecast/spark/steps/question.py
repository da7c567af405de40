"""From a DataFrame of events to one of answers: what `match` and `rank` have in common.

Two plans, the same answer:

* broadcast: the structure is built once on the driver and mapped by every worker (`shipped`);
  events stay where they are, nothing is shuffled.
* partitioned: for sets that are too large for that; see `partitioned`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from rangecast.errors import UsageError, near
from rangecast.model.answers import Answerer
from rangecast.model.boxes import Boxes
from rangecast.model.event_columns import EventColumns
from rangecast.model.events import PLAIN
from rangecast.model.space import Space
from rangecast.spark.columns import id_kind, kept_fields, need_attributes
from rangecast.spark.events import encode_batch
from rangecast.spark.session import session_of
from rangecast.spark.steps import partitioned
from rangecast.spark.steps.partitioned import GROUP_BYTES
from rangecast.spark.steps.prepared import Prepared, gathered
from rangecast.spark.steps.results import Form, answer, result_schema
from rangecast.spark.subscriptions import (
    EncodedSet,
    count_mentions,
    encode,
    encoded_boxes,
    need_distinct_ids,
    need_no_errors,
)

PLANS = ("auto", "broadcast", "partitioned")
MAPPED_BYTES = 2 << 30
"""The largest structure that every host is given whole, by default."""
_BYTES = 20
"""About what a structure takes for each attribute that a box mentions."""


@dataclass(frozen=True)
class Question:
    """Events, and what is asked about them."""

    events: DataFrame
    """The columns that are needed, ids of one of two types."""
    form: Form
    space: Space
    nan: str
    columns: EventColumns
    """What columns events may have beside values."""

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
        errors: str = "raise",
        allow_missing: bool = False,
        nan: str = "refuse",
        columns: EventColumns = PLAIN,
    ) -> Question:
        """Check the columns before anything runs; `taken` are those of the result itself."""
        need_one_of("errors", errors, ("raise", "column"))
        need_frame(events)
        attributes = need_attributes(events, space, columns, allow_missing=allow_missing)
        event_kind = id_kind(events, event_id, "events")
        events = events.withColumn(event_id, events[f"`{event_id}`"].cast(event_kind))
        kept = kept_fields(events, keep, ("event", "error", *taken))
        form = Form(arrays, event_id, event_kind, kept, errors == "column")
        wanted = dict.fromkeys([event_id, *attributes, *kept.names])
        events = events.select([events[f"`{name}`"] for name in wanted])
        return cls(events, form, space, nan, columns)

    @property
    def session(self) -> SparkSession:
        """The session of the events."""
        return session_of(self.events)

    def answer(
        self,
        subscriptions: DataFrame | Boxes | Prepared,
        make: Callable[[Boxes], Answerer],
        *,
        plan: str,
        mapped_bytes: int,
        group_bytes: int,
        settings: Callable[[Any], Answerer] = lambda one: one,
        best: int | None = None,
    ) -> DataFrame:
        """Answer the events, by the plan that suits the set.

        make        builds an answerer over some subscriptions
        settings    fits the answerer of a prepared set to this question
        best        any subscription may answer any event: merge this many of the best of each group
        """
        need_one_of("plan", plan, PLANS)
        if plan == "partitioned":
            self._need_no_broadcast(subscriptions)
        if isinstance(subscriptions, Prepared):
            return self._by_broadcast(subscriptions, settings)
        with _encoded_once(subscriptions, self.space) as given:
            may_be_cut = plan == "auto" and not self.events.isStreaming
            if plan == "partitioned" or (may_be_cut and is_large(given, mapped_bytes)):
                return self._by_partitions(given, make, group_bytes, best)
            boxes, known = gathered(given, self.space)
        width = self.columns.width(len(known))
        return self._by_broadcast(Prepared.of(self.session, make(boxes), known, width))

    def _need_no_broadcast(self, subscriptions: DataFrame | Boxes | Prepared) -> None:
        """Refuse what can't be partitioned."""
        if isinstance(subscriptions, Prepared):
            raise UsageError(
                "these subscriptions are prepared for the broadcast plan; give them as they were"
            )
        if self.events.isStreaming:
            raise UsageError(
                "a streaming DataFrame can't be partitioned as a whole; to do: answer each "
                "micro-batch, as rangecast.spark.run_stream does, or use plan='broadcast'"
            )

    def _by_broadcast(
        self, prepared: Prepared, settings: Callable[[Any], Answerer] = lambda one: one
    ) -> DataFrame:
        """Let every worker answer its events with the whole set."""
        shipped, known, form, nan = prepared.shipped, prepared.space, self.form, self.nan
        columns = self.columns

        def answer_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            answerer = settings(shipped.open())
            for batch in batches:
                encoded = encode_batch(
                    known, batch, form.event_id, columns, nan=nan, raising=not form.errors
                )
                yield from answer(answerer, batch, encoded, form)

        schema = settings(prepared.answerer).schema
        return self.events.mapInArrow(answer_all, result_schema(form, schema))

    def _by_partitions(
        self,
        given: Boxes | EncodedSet,
        make: Callable[[Boxes], Answerer],
        group_bytes: int,
        best: int | None,
    ) -> DataFrame:
        """Let each worker answer some events with some of the subscriptions."""
        if isinstance(given, Boxes):
            encoded, known = encoded_boxes(self.session, given), self.space
        else:
            encoded, known = given
            need_no_errors(encoded)
            need_distinct_ids(encoded)
        given_as = (self.events, encoded, known, self.form)
        how = (*given_as, make, self.nan, self.columns, group_bytes)
        if best is None:
            return partitioned.by_space(*how)
        return partitioned.by_subscriptions(*how, best)


@contextmanager
def _encoded_once(subscriptions: DataFrame | Boxes, space: Space) -> Iterator[EncodedSet | Boxes]:
    """Encode a DataFrame, and keep that on disk while a plan is made: it is read several times."""
    if not isinstance(subscriptions, DataFrame):
        yield subscriptions
        return
    encoded = encode(subscriptions, space)
    encoded.rows.persist(StorageLevel.DISK_ONLY)
    try:
        yield encoded
    finally:
        encoded.rows.unpersist()  # what is returned runs later, perhaps never: it starts again


def is_large(given: Boxes | EncodedSet, mapped_bytes: int = MAPPED_BYTES) -> bool:
    """Whether a set is too large to be given whole to every host."""
    mentions = int(given.mentions.sum()) if isinstance(given, Boxes) else count_mentions(given)
    return mentions * _BYTES > mapped_bytes


def need_frame(events: Any) -> None:
    """Refuse events that are no DataFrame of Spark."""
    if not hasattr(events, "sparkSession"):
        raise UsageError(
            f"events are a DataFrame of Spark; given: {str(events)[:80]!r}\n"
            "  to do: read a file with session.read.parquet(path), session.read.csv(...)"
        )


def refuse_ignored(index: str, mapped_bytes: int, group_bytes: int) -> None:
    """Refuse options that mean nothing for a set that is prepared."""
    to_do = "leave it out, or give the subscriptions as they were"
    if index != "auto":
        ignored, to_do = f"index={index!r}", "give the index where they are prepared"
    elif mapped_bytes != MAPPED_BYTES:
        ignored = f"mapped_bytes={mapped_bytes!r}"
    elif group_bytes != GROUP_BYTES:
        ignored = f"group_bytes={group_bytes!r}"
    else:
        return
    raise UsageError(
        f"{ignored} would be ignored: these subscriptions are prepared\n  to do: {to_do}"
    )


def need_one_of(name: str, given: str, known: Sequence[str]) -> None:
    """Refuse a choice that isn't one."""
    if given not in known:
        raise UsageError(f"no {name} {given!r}: {near(given, known)}")
