"""The step `rank`: the k best subscriptions of each event of a DataFrame.

    best = rank(events, subscriptions, space, k=20)      # event, rank, subscription, score

`events` may be a batch or a streaming DataFrame. The structure is built once on the driver and
mapped by every worker (`shipped`); events stay where they are, nothing is shuffled.
`prepare_ranking` does the first part once, for many calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, DoubleType, LongType, StructType

from rangecast.errors import UsageError, near
from rangecast.model.badrows import BadRows
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.rank.choose import Index, Plan, build, check_index, choose
from rangecast.rank.result import check_k
from rangecast.spark.columns import ERROR, ERROR_TYPE, id_kind, kept_fields, need_attributes
from rangecast.spark.events import Encoded, encode_batch
from rangecast.spark.session import session_of
from rangecast.spark.shipped import Shipped, ship
from rangecast.spark.steps.match import gathered, spark_ids

_PIECE = 4096
"""Events that are answered at a time."""
_TAKEN = ("event", "rank", "subscription", "score", "error")


class Ranked(NamedTuple):
    """A ranking structure and the ids of its rows."""

    structure: Index
    ids: pa.Array


@dataclass(frozen=True)
class PreparedRanking:
    """Subscriptions on their way to the workers: what `rank` can use many times."""

    space: Space
    id_type: DataType
    """Of the subscriptions' ids: long or string."""
    plan: Plan
    relaxed: bool
    shipped: Shipped


def prepare_ranking(
    session: SparkSession,
    subscriptions: DataFrame | Boxes | str | Path,
    space: Space,
    *,
    relaxed: bool = False,
    index: str = "auto",
    bad_rows: BadRows | None = None,
) -> PreparedRanking:
    """Build a ranking structure over a DataFrame, `Boxes` or a snapshot folder, and ship it."""
    check_index(index)
    boxes, known = gathered(subscriptions, space, bad_rows)
    plan = choose(boxes, index, relaxed=relaxed)
    ids, kind = spark_ids(boxes)
    shipped = ship(session, Ranked(build(boxes, plan.name, relaxed=relaxed), ids))
    # Compiled here, for arrays as they are mapped, before all workers would.
    shipped.open_here().structure.best(np.full((1, len(space)), np.inf), 1)
    return PreparedRanking(known, kind, plan, relaxed, shipped)


def rank(
    events: DataFrame,
    subscriptions: DataFrame | Boxes | str | Path | PreparedRanking,
    space: Space,
    k: int = 10,
    *,
    relaxed: bool = False,
    keep: Sequence[str] = (),
    event_id: str = "id",
    errors: str = "raise",
    index: str = "auto",
    allow_missing: bool = False,
    nan: str = "refuse",
) -> DataFrame:
    """Return the k best subscriptions of each event: event, rank from 1 on, subscription, score.

    relaxed         one attribute is enough; by the sum of the weights that hold
    keep            columns of the events to keep in the output
    event_id        the column that names an event
    errors          "raise": an event that can't be used fails the job; "column": one more column
                    `error` tells what is wrong with it, and is null for all others
    allow_missing   whether events may lack the column of an attribute: all lack a value then
    """
    check_k(k)
    if errors not in ("raise", "column"):
        raise UsageError(f"no errors {errors!r}: {near(errors, ('raise', 'column'))}")
    session = session_of(events)
    attributes = need_attributes(events, space, allow_missing=allow_missing)
    event_kind = id_kind(events, event_id, "events")
    kept = kept_fields(events, keep, _TAKEN)
    columns = dict.fromkeys([event_id, *attributes, *kept.names])
    events = events.select([events[f"`{name}`"] for name in columns])
    events = events.withColumn(event_id, events[f"`{event_id}`"].cast(event_kind))
    if isinstance(subscriptions, PreparedRanking):
        prepared = subscriptions
        if prepared.relaxed != relaxed:
            raise UsageError(f"these subscriptions are prepared for relaxed={prepared.relaxed}")
    else:
        prepared = prepare_ranking(session, subscriptions, space, relaxed=relaxed, index=index)
    shipped, known, telling = prepared.shipped, prepared.space, errors == "column"
    names = list(kept.names)

    def answer_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ranked: Ranked = shipped.open()
        for batch in batches:
            encoded = encode_batch(known, batch, event_id, nan=nan, raising=not telling)
            for places, *found in answered(ranked, encoded, k):
                yield _made(batch, event_id, names, places, found, None, telling=telling)
            if len(encoded.bad_places):
                found = [
                    pa.nulls(len(encoded.bad_places), kind)
                    for kind in (pa.int64(), ranked.ids.type, pa.float64())
                ]
                places = pa.array(encoded.bad_places)
                yield _made(batch, event_id, names, places, found, encoded.errors, telling=True)

    schema = StructType().add("event", event_kind).add("rank", LongType())
    schema = schema.add("subscription", prepared.id_type).add("score", DoubleType())
    for field in kept:
        schema = schema.add(field)
    return events.mapInArrow(answer_all, schema.add("error", ERROR) if telling else schema)


def answered(ranked: Ranked, encoded: Encoded, k: int) -> Iterator[list[pa.Array]]:
    """Yield places in the batch, ranks, subscriptions and scores, some events at a time."""
    for first in range(0, len(encoded.points), _PIECE):
        event, place, rows, scores = ranked.structure.best(
            encoded.points[first : first + _PIECE], k
        ).pairs()
        yield [
            pa.array(encoded.places[first + event]),
            pa.array(place),
            ranked.ids.take(pa.array(rows)),
            pa.array(scores),
        ]


def _made(
    batch: pa.RecordBatch,
    event_id: str,
    keep: Sequence[str],
    places: pa.Array,
    found: Sequence[pa.Array],
    errors: pa.Array | None,
    *,
    telling: bool,
) -> pa.RecordBatch:
    columns = {"event": batch.column(event_id).take(places)}
    columns |= dict(zip(("rank", "subscription", "score"), found, strict=True))
    columns |= {name: batch.column(name).take(places) for name in keep}
    if telling:
        columns["error"] = pa.nulls(len(places), ERROR_TYPE) if errors is None else errors
    return pa.record_batch(columns)
