"""Step `rank`: find the top k subscriptions of each event of a DataFrame.

    best = rank(events, subscriptions, space, k=20)      # event, rank, subscription, score

`events` may be a batch or a streaming DataFrame. `prepare_rank` builds the structure once, for
many calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from rangecast.errors import UsageError
from rangecast.model.io.records import file_source, table_source
from rangecast.model.sets.ids import Places
from rangecast.model.space import Space
from rangecast.rank.answerer import RankAnswerer, RankQuery
from rangecast.rank.choose import check_index
from rangecast.rank.rate_limit import WINDOW, time_axis
from rangecast.rank.result import Span, check_k
from rangecast.rank.scores.adjusted import check_adjusted
from rangecast.rank.scores.combine import check_combine
from rangecast.rank.scores.factors import FactorTable, read_factors
from rangecast.rank.scores.tolerances import Tolerances, check_tolerances, encode_tolerances
from rangecast.spark.columns import arrow_ids, id_kind
from rangecast.spark.lifetime import release_with_frame
from rangecast.spark.steps.prepared import (
    MAX_WORKER_MEMORY,
    Prepared,
    Subscriptions,
    prepare_answers,
)
from rangecast.spark.steps.query import EventQuery, need_frame, need_one_of, reject_ignored

OUTPUTS = ("rows", "arrays")
PLACE = "_place"
"""A column on the way: the place of an answer in its second."""
TAKEN = ("rank", "subscription", "subscriptions", "score", WINDOW, PLACE)
"""Columns that can't be kept of the events."""


def rank(
    events: DataFrame,
    subscriptions: Subscriptions | Prepared,
    space: Space,
    k: int = 10,
    *,
    relaxed: bool = False,
    combine: str = "sum",
    tolerances: Tolerances | None = None,
    span: Span | None = None,
    probabilities: bool = False,
    score_factors: Any = None,
    max_per_second: int | None = None,
    time_attribute: str | None = None,
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
    """Return the top k subscriptions of each event: event, rank (from 1), subscription, score.

    subscriptions   a DataFrame, `Boxes`, a snapshot folder, a file, or what `prepare_rank` gave
    relaxed         one matching attribute is enough; by the sum of the matching weights
    combine         how a relaxed ranking combines these weights: "sum", "product", "min" or "max"
    tolerances      in a relaxed ranking, distance by attribute below which a value outside its
                    range still counts: weight * (1 - distance / tolerance)
    span            values may be spans, which a subscription must "overlap" or "contain": columns
                    <attribute>_lo and <attribute>_hi, or arrays of two
    probabilities   values lie in their spans with a probability, <attribute>_probability; by score
                    times the probability that a subscription contains the spans
    score_factors   factors of scores: event, subscription, factor, as a DataFrame, a file or a
                    table. It is held in memory. Other pairs have the factor 1
    max_per_second  at most this many per second: the best ones, of equals those of the event with
                    the lower id
    time_attribute  the timestamp for `max_per_second`, if the space has several
    output          "rows": one row per answer; "arrays": one row per event, with the lists rank,
                    subscriptions and score, which are empty for events without an answer
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
    check_k(k)
    check_index(index)
    need_one_of("output", output, OUTPUTS)
    check_combine(combine, relaxed=relaxed)
    check_tolerances(tolerances, relaxed=relaxed, index=index)
    near = tuple(encode_tolerances(tolerances, space).tolist())
    check_adjusted(
        relaxed=relaxed,
        span=span,
        probabilities=probabilities,
        score_factors=score_factors is not None,
    )
    axis = time_axis(space, max_per_second, time_attribute)
    if isinstance(subscriptions, Prepared):
        check_prepared(subscriptions, space, relaxed=relaxed, combine=combine)
        reject_ignored(index, max_worker_memory)
        made: Any = subscriptions.answerer.empty
        if probabilities or score_factors is not None:
            raise UsageError(
                "probabilities and score factors don't work with prepared subscriptions"
            )
    factors = _factors(score_factors, events, event_id)
    rank_query = RankQuery(k, axis, span, probabilities, factors, near)
    columns = rank_query.columns
    if rank_query.factors is not None:
        columns = columns._replace(factor_events=Places(rank_query.factors.events))
    query = EventQuery.of(
        events,
        space,
        taken=TAKEN,
        arrays=output == "arrays",
        keep=keep,
        event_id=event_id,
        rejected=rejected,
        allow_missing=allow_missing,
        ignore_unknown=ignore_unknown,
        nan=nan,
        columns=columns,
    )
    if axis is not None and output == "arrays":
        raise UsageError(
            "max_per_second drops rows, which output='arrays' doesn't have\n"
            "  hint: use output='rows', or limit the results per event with k"
        )
    if axis is not None and events.isStreaming:
        raise UsageError(
            "max_per_second requires a batch DataFrame: on a stream, no second is ever complete\n"
            "  hint: limit the results per event with k, or rank each micro-batch"
        )
    if isinstance(subscriptions, Prepared):
        made.check(rank_query)
        ranked = query.answer(subscriptions, partial(replace, query=rank_query))
    else:
        make = partial(
            RankAnswerer.of, index=index, relaxed=relaxed, combine=combine, query=rank_query
        )
        width = columns.width(len(space))
        prepared = prepare_answers(
            query.session, subscriptions, space, make, max_worker_memory, width=width
        )
        ranked = query.answer(prepared)
        release_with_frame(ranked, prepared.release, prepared.memory)
    return ranked if axis is None else best_of_seconds(ranked, max_per_second or 0)


def check_prepared(prepared: Prepared, space: Space, *, relaxed: bool, combine: str) -> None:
    """Reject a set that was prepared for another space or another ranking."""
    prepared.check(space, RankAnswerer)
    made: Any = prepared.answerer.empty
    if (made.relaxed, made.combine) != (relaxed, combine):
        raise UsageError(
            f"these subscriptions were prepared for relaxed={made.relaxed}, "
            f"combine={made.combine!r}; "
            f"given: relaxed={relaxed}, combine={combine!r}"
        )


def _factors(value: Any, events: DataFrame, event_id: str) -> FactorTable | None:
    """Load the table of factors on the driver; subscription ids are compared as strings."""
    if value is None:
        return None
    if isinstance(value, str | Path):
        source = file_source(value)
    else:
        table = value.toArrow() if isinstance(value, DataFrame) else value
        source = table_source(table, "factors")
    need_frame(events)
    kind = arrow_ids(id_kind(events, event_id, "events"))
    return read_factors(source, kind, pa.string())


def best_of_seconds(frame: DataFrame, max_per_second: int) -> DataFrame:
    """Return the best answers of each second; rejected events are kept unchanged."""
    order = [F.col("score").desc(), F.col("event"), F.col("rank")]
    is_bad = F.col("rank").isNull()
    rank = F.row_number().over(Window.partitionBy(WINDOW, is_bad).orderBy(*order))
    best = frame.withColumn(PLACE, rank).filter(is_bad | (F.col(PLACE) <= max_per_second))
    return best.drop(PLACE, WINDOW)
