"""Step `match`: find the subscriptions that match each event of a DataFrame.

    pairs = match(events, subscriptions, space)          # event, subscription
    rows = match(events, subscriptions, space, output="arrays")   # event, subscriptions

`events` may be a batch or a streaming DataFrame. `prepare_match` builds the structure once, for
many calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from rangecast.match.answerer import MatchAnswerer
from rangecast.match.choose import check_index
from rangecast.model.space import Space
from rangecast.spark.lifetime import release_with_frame
from rangecast.spark.steps.prepared import (
    MAX_WORKER_MEMORY,
    Prepared,
    Subscriptions,
    match_maker,
    prepare_answers,
)
from rangecast.spark.steps.query import EventQuery, need_one_of, reject_ignored

OUTPUTS = ("rows", "arrays")


def match(
    events: DataFrame,
    subscriptions: Subscriptions | Prepared,
    space: Space,
    *,
    output: str = "rows",
    keep: Sequence[str] = (),
    event_id: str = "id",
    rejected: str = "error",
    index: str = "auto",
    allow_missing: bool = False,
    ignore_unknown: bool = False,
    nan: str = "error",
    max_worker_memory: int = MAX_WORKER_MEMORY,
) -> DataFrame:
    """Return the subscriptions that match each event.

    subscriptions   a DataFrame, `Boxes`, a snapshot folder, a file, or what `prepare_match` gave
    output          "rows": event, subscription; "arrays": event, subscriptions, one row per event
    keep            event columns to include in the result
    event_id        column of the event ids
    rejected        "error": an event that can't be used fails the job; "column": one more column
                    `error` has the reason, and is null for all others
    allow_missing   whether events may lack the column of an attribute: all lack a value then
    ignore_unknown  whether events may have columns that are neither attributes nor kept
    nan             "error": NaN in events is rejected; "missing": it is a missing value
    max_worker_memory   memory that a worker should need, as a target and no limit: a set that is
                    large for it is built by the workers, in shards
    """
    check_index(index)
    if isinstance(subscriptions, Prepared):
        subscriptions.check(space, MatchAnswerer)
        reject_ignored(index, max_worker_memory)
    asked = match_query(
        events,
        space,
        output=output,
        keep=keep,
        event_id=event_id,
        rejected=rejected,
        allow_missing=allow_missing,
        ignore_unknown=ignore_unknown,
        nan=nan,
    )
    if isinstance(subscriptions, Prepared):
        return asked.answer(subscriptions)
    make = match_maker(index, max_worker_memory)
    prepared = prepare_answers(asked.session, subscriptions, space, make, max_worker_memory)
    matches = asked.answer(prepared)
    release_with_frame(matches, prepared.release, prepared.memory)
    return matches


def match_query(events: DataFrame, space: Space, *, output: str, **options: Any) -> EventQuery:
    """Check the columns of the events to match; options are those of `EventQuery.of`."""
    need_one_of("output", output, OUTPUTS)
    taken = ("subscription", "subscriptions")
    return EventQuery.of(events, space, taken=taken, arrays=output == "arrays", **options)
