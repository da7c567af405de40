"""`rangecast match`: all subscriptions that hold each event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

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

    import pyarrow as pa

    from rangecast.cli.answer import Answer, answer_events
    from rangecast.cli.run import Run
    from rangecast.cli.spark import check_engine
    from rangecast.errors import UsageError
    from rangecast.match.choose import build, check_index, choose
    from rangecast.match.ordered import stream_ordered

    check_engine(engine, master)
    check_index(index)
    if threads is not None and engine == "spark":
        raise UsageError("--threads is for --engine local; Spark's are said by --master local[N]")
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
        from rangecast.spark.steps.in_order import match_in_order, named_by_row

        session = run.spark(master)
        prepared = prepare(session, named_by_row(boxes), where, index=name)
        return lambda batches: match_in_order(session, prepared, batches)

    def start(boxes: Boxes, where: Space) -> Answer:
        plan = choose(boxes, index)
        facts.update(index=plan.name, plan=plan.why)
        if explain_plan:
            run.say(f"plan: {plan.name}: {plan.why}")
        return local(boxes, plan.name) if engine == "local" else on_spark(boxes, plan.name, where)

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
