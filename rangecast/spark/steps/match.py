"""The step `match`: which subscriptions hold each event of a DataFrame.

    pairs = match(events, subscriptions, space)          # event, subscription
    rows = match(events, subscriptions, space, output="arrays")   # event, subscriptions

`events` may be a batch or a streaming DataFrame. `prepare` builds the structure once, for many
calls. `question` has the two plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from rangecast.match.answerer import MatchAnswerer
from rangecast.match.choose import check_index
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.spark.steps.partitioned import GROUP_BYTES
from rangecast.spark.steps.prepared import Prepared, Subscriptions, loaded
from rangecast.spark.steps.question import (
    MAPPED_BYTES,
    Question,
    need_one_of,
    refuse_ignored,
)

OUTPUTS = ("pairs", "arrays")


def match(
    events: DataFrame,
    subscriptions: Subscriptions | Prepared,
    space: Space,
    *,
    output: str = "pairs",
    keep: Sequence[str] = (),
    event_id: str = "id",
    errors: str = "raise",
    index: str = "auto",
    plan: str = "auto",
    allow_missing: bool = False,
    nan: str = "refuse",
    mapped_bytes: int = MAPPED_BYTES,
    group_bytes: int = GROUP_BYTES,
) -> DataFrame:
    """Return which subscriptions hold each event.

    subscriptions   a DataFrame, `Boxes`, a snapshot folder, a file, or what `prepare` gave
    output          "pairs": event, subscription; "arrays": event, subscriptions, one row per event
    keep            columns of the events that travel along
    event_id        the column that names an event
    errors          "raise": an event that can't be used fails the job; "column": one more column
                    `error` tells what is wrong with it, and is null for all others
    plan            "broadcast", "partitioned", or "auto": by whether the structure would take more
                    than `mapped_bytes`
    group_bytes     about what the boxes of one partition may take in a worker
    allow_missing   whether events may lack the column of an attribute: all lack a value then
    nan             "refuse" NaN in events, or read it as "missing"
    """
    need_one_of("output", output, OUTPUTS)
    check_index(index)
    if isinstance(subscriptions, Boxes | str | Path):
        subscriptions, space = loaded(subscriptions, space)
    if isinstance(subscriptions, Prepared):
        subscriptions.check(space, MatchAnswerer)
        refuse_ignored(index, mapped_bytes, group_bytes)
    asked = Question.of(
        events,
        space,
        taken=("subscription", "subscriptions"),
        arrays=output == "arrays",
        keep=keep,
        event_id=event_id,
        errors=errors,
        allow_missing=allow_missing,
        nan=nan,
    )
    return asked.answer(
        subscriptions,
        partial(MatchAnswerer.of, index=index),
        plan=plan,
        mapped_bytes=mapped_bytes,
        group_bytes=group_bytes,
    )
