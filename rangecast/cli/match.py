"""`rangecast match`: all subscriptions that hold each event."""

from __future__ import annotations

from typing import Annotated

import typer

from rangecast.cli.options import (
    BadRowsFile,
    EventsFile,
    IgnoreUnknown,
    Json,
    Master,
    Nan,
    Output,
    Quiet,
    SpaceFile,
    SubscriptionsFile,
    at_least,
)
from rangecast.model.attributes import NanMeaning


def match(
    events: EventsFile,
    subscriptions: SubscriptionsFile,
    space: SpaceFile,
    output: Output = "-",
    index: Annotated[
        str,
        typer.Option("--index", help="auto, scan, vcr, hilbert, rtree, slabs or cells."),
    ] = "auto",
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            callback=at_least(0),
            help="Threads that match, by default 1; 0 is one a core.",
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", help="local, or spark: the workers of --master match.")
    ] = "local",
    master: Master = None,
    explain_plan: Annotated[
        bool, typer.Option("--explain-plan", help="Say which structure is used, and why.")
    ] = False,
    bad_rows: BadRowsFile = None,
    ignore_unknown: IgnoreUnknown = False,
    nan: Nan = NanMeaning.REFUSE,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write every pair of an event and a subscription that holds it: event, subscription."""
    import os
    from collections.abc import Iterator
    from contextlib import ExitStack

    import pyarrow as pa

    from rangecast.cli.job import Answer, AnswerAll, Job
    from rangecast.cli.output import console
    from rangecast.cli.progress import working
    from rangecast.cli.spark import check_engine, spark_session
    from rangecast.errors import UsageError
    from rangecast.kernels.arrays import F64
    from rangecast.match.choose import Plan, build, check_index, choose
    from rangecast.match.ordered import stream_ordered
    from rangecast.model.boxes import Boxes
    from rangecast.model.space import Space

    check_engine(engine, master)
    check_index(index)
    if threads is not None and engine == "spark":
        raise UsageError("--threads is for --engine local; Spark's are said by --master local[N]")
    workers = 1 if threads is None else threads or os.cpu_count() or 1
    facts: dict[str, object] = {"threads": workers}

    def tell(plan: Plan) -> None:
        facts["index"], facts["plan"] = plan.name, plan.why
        if explain_plan and not as_json:
            console.print(f"plan: {plan.name}: {plan.why}", markup=False)

    def start(boxes: Boxes) -> Answer:
        plan = choose(boxes, index)
        tell(plan)
        built = build(boxes, plan.name)

        def answer(points: F64) -> Iterator[list[pa.Array]]:
            for first, matches in stream_ordered(built, points, workers):
                yield [pa.array(matches.events + first), pa.array(matches.rows)]

        return answer

    def start_on_spark(boxes: Boxes) -> AnswerAll:
        from rangecast.spark import prepare
        from rangecast.spark.steps.in_order import match_in_order, named_by_row

        prepared = prepare(session, named_by_row(boxes), Space.load(space), index=index)
        tell(prepared.plan)
        return lambda batches: match_in_order(session, prepared, batches)

    job = Job(
        events,
        subscriptions,
        space,
        output,
        bad_rows,
        ignore_unknown,
        nan,
        as_json,
        quiet,
        facts,
    )
    columns = ["event", "subscription"]
    if engine == "local":
        job.run(columns, start)
        return
    with ExitStack() as closing:
        with working("starting Spark", quiet=quiet or as_json):
            session = closing.enter_context(spark_session(master))
        job.run_all(columns, start_on_spark)
