"""`rangecast rank`: the k best subscriptions of each event."""

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


def rank(
    events: EventsFile,
    subscriptions: SubscriptionsFile,
    space: SpaceFile,
    k: Annotated[int, typer.Option("-k", min=1, help="How many subscriptions an event gets.")] = 10,
    relaxed: Annotated[
        bool,
        typer.Option("--relaxed", help="One attribute is enough; rank by the weights that hold."),
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            help="At most so many notifications, best first: 5 an event, or 5000/s a second.",
        ),
    ] = None,
    clock: Annotated[
        str | None,
        typer.Option("--clock", help="The timestamp that a budget per second goes by."),
    ] = None,
    index: Annotated[
        str,
        typer.Option(
            "--index",
            help="auto, scan, segment, interval, interval-ends, rtree, ir, sopt or slabs.",
        ),
    ] = "auto",
    explain_plan: Annotated[
        bool, typer.Option("--explain-plan", help="Say which structure is used, and why.")
    ] = False,
    output: Output = "-",
    bad_rows: BadRowsFile = None,
    ignore_unknown: IgnoreUnknown = False,
    nan_is_missing: NanIsMissing = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the k best subscriptions of each event: event, rank, subscription, score."""
    from collections.abc import Iterator

    import pyarrow as pa

    from rangecast.cli.job import Answer, AnswerAll, Job
    from rangecast.cli.output import console
    from rangecast.cli.shedding import clock_of, per_second, read_budget
    from rangecast.kernels.jit import is_cold
    from rangecast.model.boxes import Boxes, Floats
    from rangecast.model.space import Space
    from rangecast.rank.choose import Index, build, check_index, choose

    check_index(index)
    limit, by_second = read_budget(budget)
    k = k if limit is None else min(k, limit)
    facts: dict[str, object] = {"k": k, "relaxed": relaxed, "budget": budget}

    def built(boxes: Boxes) -> Index:
        plan = choose(boxes, index, relaxed=relaxed)
        facts["index"], facts["plan"] = plan.name, plan.why
        if explain_plan and not as_json:
            console.print(f"plan: {plan.name}: {plan.why}", markup=False)
        if is_cold("rank") and not (quiet or as_json):
            console.print("compiling kernels: only the first time, for some seconds")
        return build(boxes, plan.name, relaxed=relaxed)

    def start(boxes: Boxes) -> Answer:
        ranker = built(boxes)

        def answer(points: Floats) -> Iterator[list[pa.Array]]:
            for first in range(0, len(points), _PIECE):
                event, *others = ranker.best(points[first : first + _PIECE], k).pairs()
                yield [pa.array(column) for column in (event + first, *others)]

        return answer

    def start_all(boxes: Boxes) -> AnswerAll:
        ranker = built(boxes)
        assert limit is not None
        axis = clock_of(Space.load(space), clock)
        return lambda batches: per_second(batches, axis, limit, lambda p: ranker.best(p, k))

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
    columns = ["event", "rank", "subscription", "score"]
    if by_second:
        job.run_all(columns, start_all)
    else:
        job.run(columns, start)


_PIECE = 10_000
"""Events that are answered at a time."""
