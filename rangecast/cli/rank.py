"""`rangecast rank`: the k best subscriptions of each event."""

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


def rank(
    events: EventsFile,
    subscriptions: SubscriptionsFile,
    space: SpaceFile,
    k: Annotated[
        int,
        typer.Option("-k", callback=at_least(1), help="How many subscriptions an event gets."),
    ] = 10,
    relaxed: Annotated[
        bool,
        typer.Option("--relaxed", help="One attribute is enough; rank by the weights that hold."),
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            help="At most so many notifications, best first: 5 an event, or 5000/s a second. By "
            "second, events in order of time need the least memory.",
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
            help="auto (slabs), scan, segment, interval, interval-ends, rtree, ir, sopt or slabs. "
            "Events are points here; spans are for Python, and take slabs.",
        ),
    ] = "auto",
    engine: Annotated[
        str, typer.Option("--engine", help="local, or spark: the workers of --master rank.")
    ] = "local",
    master: Master = None,
    explain_plan: Annotated[
        bool, typer.Option("--explain-plan", help="Say which structure is used, and why.")
    ] = False,
    output: Output = "-",
    bad_rows: BadRowsFile = None,
    ignore_unknown: IgnoreUnknown = False,
    nan: Nan = NanMeaning.REFUSE,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the k best subscriptions of each event: event, rank, subscription, score."""
    import pyarrow as pa

    from rangecast.cli.answer import Answer, answer_events
    from rangecast.cli.run import Run
    from rangecast.cli.shedding import clock_of, in_order, per_second, read_budget
    from rangecast.cli.spark import check_engine
    from rangecast.rank.choose import build, check_index, choose
    from rangecast.rank.shed import Budget, seconds_of

    check_engine(engine, master)
    check_index(index)
    limit, by_second = read_budget(budget, clock)
    k = k if limit is None else min(k, limit)
    facts: dict[str, object] = {"k": k, "relaxed": relaxed, "budget": budget}

    def local(boxes: Boxes, name: str, axis: int | None) -> Answer:
        ranker = build(boxes, name, relaxed=relaxed)

        def answer(batches: Iterator[Events]) -> Iterator[list[pa.Array]]:
            for ids, points in batches:
                for first in range(0, len(points), _PIECE):
                    some = points[first : first + _PIECE]
                    event, *others = ranker.best(some, k).pairs()
                    if axis is not None:
                        others.append(seconds_of(some[event, axis]))
                    yield [ids.take(pa.array(event + first)), *map(pa.array, others)]

        return answer

    def on_spark(boxes: Boxes, name: str, axis: int | None, where: Space) -> Answer:
        from rangecast.spark import prepare_ranking
        from rangecast.spark.steps.in_order import named_by_row, rank_in_order

        session = run.spark(master)
        rows = named_by_row(boxes)
        prepared = prepare_ranking(session, rows, where, relaxed=relaxed, index=name)
        return lambda batches: rank_in_order(session, prepared, batches, k, axis)

    def start(boxes: Boxes, where: Space) -> Answer:
        plan = choose(boxes, index, relaxed=relaxed)
        facts.update(index=plan.name, plan=plan.why)
        if explain_plan:
            run.say(f"plan: {plan.name}: {plan.why}")
        axis = clock_of(where, clock) if by_second else None
        if engine == "local":
            answer = local(boxes, plan.name, axis)
        else:
            answer = on_spark(boxes, plan.name, axis, where)
        if limit is None or axis is None:
            return answer
        ordered = facts["in_order"] = in_order(events, where.attributes[axis])
        if not ordered:
            name = where.names[axis]
            run.say(
                f"events aren't in order of {name!r}, or lack it: answers wait for the last one"
            )
        shedding = Budget(limit, in_order=ordered)
        return lambda batches: per_second(answer(batches), shedding)

    with Run.started(
        output,
        reads=[events, subscriptions, space],
        bad_rows=bad_rows,
        ignore_unknown=ignore_unknown,
        nan=nan,
        as_json=as_json,
        quiet=quiet,
    ) as run:
        columns = ["event", "rank", "subscription", "score"]
        answer_events(run, events, subscriptions, space, columns, start, facts)


_PIECE = 10_000
"""Events that are answered at a time."""
