"""`rangecast match`: all subscriptions that hold each event."""

from __future__ import annotations

from typing import Annotated

import typer

from rangecast.cli.options import (
    BadRowsFile,
    EventsFile,
    IgnoreUnknown,
    Json,
    NanIsMissing,
    Output,
    Quiet,
    SpaceFile,
    SubscriptionsFile,
)


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
        int, typer.Option("--threads", min=0, help="Threads that match; 0 is one a core.")
    ] = 1,
    explain_plan: Annotated[
        bool, typer.Option("--explain-plan", help="Say which structure is used, and why.")
    ] = False,
    bad_rows: BadRowsFile = None,
    ignore_unknown: IgnoreUnknown = False,
    nan_is_missing: NanIsMissing = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write every pair of an event and a subscription that holds it: event, subscription."""
    import os
    from collections.abc import Iterator

    import pyarrow as pa

    from rangecast.cli.job import Answer, Job
    from rangecast.cli.output import console
    from rangecast.kernels.jit import is_cold
    from rangecast.match.choose import build, check_index, choose
    from rangecast.match.ordered import stream_ordered
    from rangecast.model.boxes import Boxes, Floats
    from rangecast.model.space import Space

    check_index(index)
    workers = threads or os.cpu_count() or 1
    facts: dict[str, object] = {"threads": workers}

    def start(boxes: Boxes, _space: Space) -> Answer:
        plan = choose(boxes, index)
        facts["index"], facts["plan"] = plan.name, plan.why
        if explain_plan and not as_json:
            console.print(f"plan: {plan.name}: {plan.why}", markup=False)
        if is_cold("match") and not (quiet or as_json):
            console.print("compiling kernels: only the first time, for some seconds")
        built = build(boxes, plan.name)

        def answer(points: Floats) -> Iterator[list[pa.Array]]:
            for first, matches in stream_ordered(built, points, workers):
                yield [pa.array(matches.events + first), pa.array(matches.rows)]

        return answer

    job = Job(
        events,
        subscriptions,
        space,
        output,
        bad_rows,
        ignore_unknown,
        nan_is_missing,
        as_json,
        quiet,
        facts,
    )
    job.run(["event", "subscription"], start)
