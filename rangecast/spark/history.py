"""How often a filter would have matched, over history, by day: before it is saved.

One pass over the events: each is matched with the one filter, counted on its day, and the first
one that matches on each day is kept as a sample.
"""

from __future__ import annotations

import json
from datetime import date
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from rangecast.errors import UsageError, near
from rangecast.model.boxes import Boxes
from rangecast.model.filters import boxes_of, parse
from rangecast.model.space import Space
from rangecast.spark.answering import is_good
from rangecast.spark.matching import match
from rangecast.spark.sources import BROKEN


class Day(NamedTuple):
    """What happened on one day; `day` is `None` for events whose time isn't known."""

    day: date | None
    events: int
    matches: int
    bad_rows: int
    sample: dict[str, Any] | None
    """The first event that matched."""


def backfill(events: DataFrame, text: str, space: Space, time: str | None = None) -> list[Day]:
    """Return how often a filter holds on each day, by the column `time`, UTC.

    Without `time` it is the first timestamp of the space; if there is none, all events are one
    day that isn't known.
    """
    lo, hi, owner = boxes_of(space, [parse(space, text)])
    time = time or next((a.name for a in space if a.type == "timestamp"), None)
    if time is not None and time not in events.columns:
        raise UsageError(f"the events have no column {time!r}: {near(time, events.columns)}")
    if "id" not in events.columns:
        events = events.withColumn("id", F.monotonically_increasing_id())
    row = F.to_json(F.struct(*(f"`{name}`" for name in events.columns if name != BROKEN)))
    moment = F.lit(None).cast("timestamp") if time is None else _moment(events, time)
    events = events.withColumns({"_row": row, "_moment": moment})
    boxes = Boxes.of(lo, hi, owner=owner)
    keep = ["_row", "_moment", *([BROKEN] if BROKEN in events.columns else [])]
    found = match(events, boxes, space, output="arrays", keep=keep, errors="column")
    good = is_good(found)
    held = good & (F.size("subscriptions") > 0)
    first = F.min_by("_row", F.when(held, F.struct("_moment", "event")))
    days = found.groupBy(F.to_date("_moment").alias("day")).agg(
        F.count(F.lit(1)).alias("events"),
        F.count_if(held).alias("matches"),
        F.count_if(~good).alias("bad_rows"),
        first.alias("sample"),
    )
    return [
        Day(one.day, one.events, one.matches, one.bad_rows, json.loads(one.sample or "null"))
        for one in days.orderBy(F.col("day").asc_nulls_last()).collect()
    ]


def _moment(events: DataFrame, time: str) -> Any:
    column = F.col(f"`{time}`")
    kind = events.schema[time].dataType.simpleString()
    if kind == "string":
        return F.try_to_timestamp(column)
    if kind in ("timestamp", "timestamp_ntz", "date"):
        return column.cast("timestamp")
    expected = "a timestamp, a date or a text"
    raise UsageError(f"column {time!r} has the type {kind}; expected: {expected}")
