"""The step `rank`: the k best subscriptions of each event of a DataFrame.

    best = rank(events, subscriptions, space, k=20)      # event, rank, subscription, score

`events` may be a batch or a streaming DataFrame. `prepare_ranking` builds the structure once, for
many calls. `question` has the two plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from rangecast.errors import UsageError
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.rank.answerer import RankAnswerer
from rangecast.rank.choose import check_index
from rangecast.rank.combine import check_combine
from rangecast.rank.result import check_k
from rangecast.rank.shed import WINDOW, limits
from rangecast.spark.steps.partitioned import ARRIVAL, GROUP_BYTES, NUMBER, PLACE
from rangecast.spark.steps.prepared import Prepared, Subscriptions, loaded
from rangecast.spark.steps.question import MAPPED_BYTES, Question, refuse_ignored


def rank(
    events: DataFrame,
    subscriptions: Subscriptions | Prepared,
    space: Space,
    k: int = 10,
    *,
    relaxed: bool = False,
    combine: str = "sum",
    limit: int | None = None,
    clock: str | None = None,
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
    """Return the k best subscriptions of each event: event, rank from 1 on, subscription, score.

    subscriptions   a DataFrame, `Boxes`, a snapshot folder, a file, or what `prepare_ranking` gave
    relaxed         one attribute is enough; by the sum of the weights that hold
    combine         what of these weights a relaxed ranking is by: their "sum", "product", "min" or
                    "max"
    limit           at most this many per event, or, with `clock` (a timestamp attribute), per
                    second: the best ones, of equals those of the event with the lower id
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
    check_k(k)
    check_index(index)
    check_combine(combine, relaxed=relaxed)
    k, axis = limits(space, k, limit, clock)
    if isinstance(subscriptions, Boxes | str | Path):
        subscriptions, space = loaded(subscriptions, space)
    if isinstance(subscriptions, Prepared):
        subscriptions.check(space, RankAnswerer)
        refuse_ignored(index, mapped_bytes, group_bytes)
        made: Any = subscriptions.answerer
        if (made.relaxed, made.combine) != (relaxed, combine):
            raise UsageError(
                "these subscriptions are prepared for "
                f"relaxed={made.relaxed}, combine={made.combine!r}; "
                f"given: relaxed={relaxed}, combine={combine!r}"
            )
    asked = Question.of(
        events,
        space,
        taken=("rank", "subscription", "score", WINDOW, NUMBER, ARRIVAL, PLACE),
        keep=keep,
        event_id=event_id,
        errors=errors,
        allow_missing=allow_missing,
        nan=nan,
    )
    if axis is not None and events.isStreaming:
        raise UsageError(
            f"clock={clock!r} takes a batch DataFrame: a stream never tells when a second is over\n"
            "  to do: give a limit per event, without a clock, or rank each micro-batch"
        )
    found = asked.answer(
        subscriptions,
        partial(RankAnswerer.of, index=index, relaxed=relaxed, combine=combine, k=k, clock=axis),
        plan=plan,
        mapped_bytes=mapped_bytes,
        group_bytes=group_bytes,
        settings=partial(replace, k=k, clock=axis),
        best=k if relaxed else None,
    )
    return found if axis is None else _best_of_seconds(found, limit or 0)


def _best_of_seconds(found: DataFrame, limit: int) -> DataFrame:
    """Return the best answers of each second; events that couldn't be used stay as they are."""
    order = [F.col("score").desc(), F.col("event"), F.col("rank")]
    is_bad = F.col("rank").isNull()
    place = F.row_number().over(Window.partitionBy(WINDOW, is_bad).orderBy(*order))
    best = found.withColumn(PLACE, place).filter(is_bad | (F.col(PLACE) <= limit))
    return best.drop(PLACE, WINDOW)
