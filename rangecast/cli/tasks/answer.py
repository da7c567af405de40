"""Common part of `match` and `rank`: read both files, answer batch by batch, write, sum up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rangecast.cli.shared.keep import kept_by
from rangecast.cli.shared.option_groups import PlannedEngine
from rangecast.cli.shared.output import counted
from rangecast.cli.shared.run import Run
from rangecast.cli.shared.subscription_sets import one_set, version_as_of
from rangecast.match.verified import Verified
from rangecast.model.answers.answerer import Answerer
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.event_columns import EventColumns
from rangecast.model.encoding.events import PLAIN, Events
from rangecast.model.sets.ids import Places
from rangecast.model.space import Space
from rangecast.rank.rate_limit import WINDOW
from rangecast.rank.scores.factors import FactorTable

_SAMPLE = 1000
"""Number of events that a plan is explained with."""
Pieces = Iterator[dict[str, pa.Array]]
"""Pieces of the result: the ids of events as `event`, and the columns of the answers."""


def answer_events(
    run: Run,
    files: tuple[Path, Path, Path],
    make: Callable[[Boxes, Space, FactorTable | None], Any],
    facts: dict[str, Any],
    on: PlannedEngine,
    *,
    limit: Callable[[Pieces, Space], Pieces] = lambda pieces, _: pieces,
    columns: EventColumns = PLAIN,
    score_factors: Path | None = None,
    as_of: str | None = None,
) -> None:
    """Write the answers to all events of a file.

    files           events, subscriptions and the space
    make            builds the answerer
    limit           drops answers beyond a rate limit
    columns         columns that events may have besides values
    score_factors   the file of a table of factors
    as_of           the version of the subscriptions, by number or time
    """
    where = run.space(files[2])
    version = version_as_of(files[1], as_of)
    source = run.events(files[0], where, columns=columns)
    boxes, known = one_set(run, files[1], where, version)
    if known is not where:  # a snapshot has words of its own
        source, where = run.events(files[0], known, columns=columns), known
    kept = kept_by(run, source, files[1], boxes)
    table = None if score_factors is None else run.score_factors(score_factors, source, boxes)
    if table is not None:
        source.columns = columns._replace(factor_events=Places(table.events))
    count = 0

    def batches() -> Iterator[Events]:
        nonlocal count
        for batch in run.batches("answering events", source):
            count += len(batch.points)
            yield batch

    if not on.is_spark:
        rows = pa.array(np.arange(boxes.rows))  # small, and turned into ids when they are written
        answerer = replace(make(boxes, where, table), ids=rows)
        choice, answers, pieces = (
            answerer.choice,
            answerer.schema,
            _answer_locally(answerer, batches()),
        )
    else:
        from rangecast.spark.steps.in_order import answer_in_order
        from rangecast.spark.steps.prepared import MAX_WORKER_MEMORY, prepare_answers
        from rangecast.spark.steps.shards.explain import explain_shards

        session = run.spark(on.master)
        prepared = prepare_answers(
            session,
            boxes,
            where,
            lambda part: make(part, where, table),
            MAX_WORKER_MEMORY,
            width=source.columns.width(len(where)),
        )
        choice, answers = prepared.choice, prepared.answerer.schema
        pending = batches()
        if on.explain_plan:
            first = list(islice(pending, 1))
            pending = chain(first, pending)
            points = first[0].points[:_SAMPLE] if first else None
            run.say(explain_shards(prepared.answerer, prepared.rows, points))
        pieces = answer_in_order(session, prepared, pending)
    facts.update(index=choice.name, plan=choice.why)
    if on.explain_plan:
        run.say(f"plan: {choice.name}: {choice.why}")
    types = {"event": source.id_type or pa.int64(), "subscription": boxes.ids.type}
    written = ["event", *(name for name in answers.names if name != WINDOW)]
    kinds = [types.get(name) or answers.field(name).type for name in written]
    schema = kept.schema(pa.schema(list(zip(written, kinds, strict=True))))
    with run.writer(schema) as writer:
        for piece in limit(pieces, where):
            rows = piece["subscription"]
            if not on.is_spark:
                piece["subscription"] = boxes.ids.take(rows)
            else:
                piece["subscription"] = rows.cast(boxes.ids.type)
                rows = kept.rows_of(piece["subscription"])
            piece["event"], *carried = kept.columns(piece["event"], rows)
            answer = [piece[name] for name in written]
            writer.write(pa.record_batch([*answer, *carried], schema=schema))
    if on.explain_plan and not on.is_spark and isinstance(answerer.index, Verified):
        run.say(f"plan: {answerer.index.counts}")
    text = f"{counted(count, 'event')} against {counted(boxes.rows, 'subscription')}"
    run.done(
        f"{text}: {counted(writer.rows, 'row')}",
        count,
        {
            "events": count,
            "subscriptions": boxes.rows,
            "rows": writer.rows,
            "version": version,
            **facts,
        },
    )


def _answer_locally(answerer: Answerer, batches: Iterator[Events]) -> Pieces:
    """Answer events in this process."""
    for ids, points in batches:
        for answer in answerer.answers(points):
            yield {"event": ids.take(pa.array(answer.events)), **answer.columns}
