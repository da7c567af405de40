"""`rangecast match`: all subscriptions that hold each event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rangecast.cli.options import (
    BadRowsFile,
    Engine,
    EngineOption,
    EventsFile,
    ExplainPlan,
    IgnoreUnknown,
    Json,
    Master,
    MatchIndex,
    Nan,
    Output,
    Quiet,
    SpaceFile,
    SubscriptionsFile,
)
from rangecast.model.attributes import NanMeaning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rangecast.model.boxes import Boxes
    from rangecast.model.events import Events
    from rangecast.model.space import Space


def match(
    events: EventsFile,
    subscriptions: SubscriptionsFile,
    space: SpaceFile,
    output: Output = "-",
    index: Annotated[
        MatchIndex, typer.Option("--index", help="The structure; auto suits it to the set.")
    ] = MatchIndex.AUTO,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", min=0, help="Number of matching threads (default 1; 0 = one per core)."
        ),
    ] = None,
    engine: EngineOption = Engine.LOCAL,
    master: Master = None,
    explain_plan: ExplainPlan = False,
    bad_rows: BadRowsFile = None,
    ignore_unknown: IgnoreUnknown = False,
    nan: Nan = NanMeaning.REFUSE,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write every pair of an event and a subscription that holds it: event, subscription.

    \b
    Examples:
      rangecast match events.csv subscriptions.csv --space space.toml -o matches.parquet
      cat events.csv | rangecast match - subscriptions.csv --space space.toml --threads 0
    """
    import os

    import pyarrow as pa

    from rangecast.cli.answer import Answer, answer_events
    from rangecast.cli.run import Run
    from rangecast.cli.spark import check_master
    from rangecast.errors import UsageError
    from rangecast.match.choose import build, choose
    from rangecast.match.ordered import stream_ordered

    check_master(engine, master)
    if threads is not None and engine == Engine.SPARK:
        raise UsageError("--threads is for --engine local; for Spark, pass --master local[N]")
    workers = 1 if threads is None else threads or os.cpu_count() or 1
    facts: dict[str, object] = {"threads": workers}

    def local(boxes: Boxes, name: str) -> Answer:
        built = build(boxes, name)

        def answer(batches: Iterator[Events]) -> Iterator[list[pa.Array]]:
            for ids, points in batches:
                for first, found in stream_ordered(built, points, workers):
                    yield [ids.take(pa.array(found.events + first)), pa.array(found.rows)]

        return answer

    def on_spark(boxes: Boxes, name: str, where: Space) -> Answer:
        from rangecast.spark import prepare
        from rangecast.spark.steps.in_order import match_in_order
        from rangecast.spark.subscriptions import named_by_row

        session = run.spark(master)
        prepared = prepare(session, named_by_row(boxes), where, index=name)
        return lambda batches: match_in_order(session, prepared, batches)

    def start(boxes: Boxes, where: Space) -> Answer:
        plan = choose(boxes, index)
        facts.update(index=plan.name, plan=plan.why)
        if explain_plan:
            run.say(f"plan: {plan.name}: {plan.why}")
        return (
            local(boxes, plan.name) if engine == Engine.LOCAL else on_spark(boxes, plan.name, where)
        )

    with Run.started(
        output,
        reads=[events, subscriptions, space],
        bad_rows=bad_rows,
        ignore_unknown=ignore_unknown,
        nan=nan,
        as_json=as_json,
        quiet=quiet,
    ) as run:
        columns = ["event", "subscription"]
        answer_events(run, events, subscriptions, space, columns, start, facts)
