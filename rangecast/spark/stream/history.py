"""Backfill: matches of a filter over history, by day, before it is saved.

One pass over the events: each is matched with the one filter and counted on its day. A day's
events are dealt into as many heaps as samples are wanted, and the first match of each heap is kept.
"""

from __future__ import annotations

import json
from datetime import date
from itertools import groupby
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from rangecast.errors import UsageError, abbreviate, did_you_mean
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter, boxes_of
from rangecast.model.space import Space
from rangecast.spark.events import BROKEN
from rangecast.spark.steps.match import match
from rangecast.spark.stream.sinks.base import MOMENTS
from rangecast.spark.stream.steps import is_good

_DAY_SECONDS = 86_400


class Day(NamedTuple):
    """Counts of one day; `day` is `None` for events whose time isn't known."""

    day: date | None
    events: int
    matches: int
    rejected: int
    samples: list[dict[str, Any]]
    """Events that matched, the earliest first."""


def backfill(
    events: DataFrame, text: str, space: Space, time: str | None = None, samples: int = 5
) -> list[Day]:
    """Count the matches of a filter per day (UTC), by the column `time`.

    Without `time` it is the first timestamp of the space; if there is none, all events are one
    day that isn't known. Texts are read as ISO 8601; a column without a single timestamp is
    rejected. At most `samples` of the events that match are kept for each day. Events need no ids.
    """
    lo, hi, owner = boxes_of(space, [Filter.parse(text, space)])
    time = time or next((a.name for a in space if a.type == "timestamp"), None)
    if time is not None and time not in events.columns:
        raise UsageError(
            f"the events have no column {time!r}: {did_you_mean(time, events.columns)}"
        )
    position = F.monotonically_increasing_id().cast("string")
    named = F.coalesce(F.col("id").cast("string"), position) if "id" in events.columns else position
    row = F.to_json(F.struct(*(f"`{name}`" for name in events.columns if name != BROKEN)), MOMENTS)
    moment = F.lit(None).cast("timestamp") if time is None else _moment(events, time)
    unread = F.lit(None) if time is None else F.col(f"`{time}`")
    unread = F.when(moment.isNull() & (F.trim(unread.cast("string")) != ""), unread.cast("string"))
    events = events.withColumns({"_row": row, "_moment": moment, "_unread": unread, "_name": named})
    keep = ["_row", "_moment", "_unread", *([BROKEN] if BROKEN in events.columns else [])]
    boxes = Boxes.of(lo, hi, owner=owner, space=space)
    matches = match(
        events,
        boxes,
        space,
        output="arrays",
        keep=keep,
        event_id="_name",
        rejected="column",
        ignore_unknown=True,
    )
    good = is_good()
    held = good & (F.size("subscriptions") > 0)
    order = F.when(held, F.struct("_moment", "event"))
    heaps = matches.groupBy(
        _day_of(F.col("_moment")).alias("day"),
        F.pmod(F.xxhash64("event"), F.lit(max(1, samples))).alias("heap"),
    ).agg(
        F.count(F.lit(1)).alias("events"),
        F.count_if(held).alias("matches"),
        F.count_if(~good).alias("rejected"),
        F.min_by("_row", order).alias("sample"),
        F.min(order).alias("place"),
        F.min("_unread").alias("unread"),
    )
    rows = heaps.orderBy(F.col("day").asc_nulls_last(), "place").collect()
    unreadable = min((one.unread for one in rows if one.unread is not None), default=None)
    if unreadable is not None and all(one.day is None for one in rows):
        raise UsageError(
            f"column {time!r} contains no timestamps\n  given: {abbreviate(unreadable)}\n"
            "  hint: name a column of timestamps, as strings such as '2026-01-31T09:30:00Z'"
        )
    return [_day(day, list(of_day), samples) for day, of_day in groupby(rows, lambda row: row.day)]


def _day(day: date | None, heaps: list[Any], samples: int) -> Day:
    kept = [json.loads(heap.sample) for heap in heaps if heap.sample is not None]
    return Day(
        day,
        events=sum(heap.events for heap in heaps),
        matches=sum(heap.matches for heap in heaps),
        rejected=sum(heap.rejected for heap in heaps),
        samples=kept[:samples],
    )


def _day_of(moment: Column) -> Column:
    """Return the UTC day of a timestamp, regardless of the session's time zone."""
    return F.date_from_unix_date(F.floor(F.unix_seconds(moment) / _DAY_SECONDS).cast("int"))


def _moment(events: DataFrame, time: str) -> Column:
    """Return the timestamp of an event; without a zone it is UTC, not the session's zone."""
    column = F.col(f"`{time}`")
    kind = events.schema[time].dataType.simpleString()
    if kind == "timestamp":
        return column
    if kind in ("string", "timestamp_ntz", "date"):
        text = F.trim(column.cast("string"))
        in_utc = [F.concat(text, F.lit(zone)) for zone in ("Z", "T00:00:00Z")]
        return F.coalesce(*(text_.try_cast("timestamp") for text_ in (*in_utc, text)))
    expected = "a timestamp, a date or a text"
    raise UsageError(f"column {time!r} has the type {kind}; expected: {expected}")
