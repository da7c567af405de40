"""`rangecast rank`: the k best subscriptions of each event."""

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
    Nan,
    Output,
    Quiet,
    RankIndex,
    SpaceFile,
    SubscriptionsFile,
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
        int, typer.Option("--top", "-k", min=1, help="Number of subscriptions per event.")
    ] = 10,
    relaxed: Annotated[
        bool,
        typer.Option(
            "--relaxed", help="One attribute is enough; rank by the sum of the weights that hold."
        ),
    ] = False,
    limit: Annotated[
        str | None,
        typer.Option(
            "--limit",
            help="Limit on notifications, best first: 5 per event, or 5000/s. A limit per second "
            "needs the least memory if events are in order of time.",
        ),
    ] = None,
    clock: Annotated[
        str | None,
        typer.Option("--clock", help="The timestamp that a limit per second goes by."),
    ] = None,
    index: Annotated[
        RankIndex, typer.Option("--index", help="The structure; auto takes slabs.")
    ] = RankIndex.AUTO,
    engine: EngineOption = Engine.LOCAL,
    master: Master = None,
    explain_plan: ExplainPlan = False,
    output: Output = "-",
    bad_rows: BadRowsFile = None,
    ignore_unknown: IgnoreUnknown = False,
    nan: Nan = NanMeaning.REFUSE,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the k best subscriptions of each event: event, rank, subscription, score.

    \b
    Examples:
      rangecast rank events.csv subscriptions.csv --space space.toml --top 3 -o best.csv
      rangecast rank events.csv subscriptions.csv --space space.toml --limit 5000/s
    """
    import pyarrow as pa

    from rangecast.cli.answer import Answer, answer_events
    from rangecast.cli.limit import clock_of, in_order, per_second, read_limit
    from rangecast.cli.run import Run
    from rangecast.cli.spark import check_master
    from rangecast.rank.choose import build, choose
    from rangecast.rank.shed import Budget, seconds_of

    check_master(engine, master)
    most, by_second = read_limit(limit, clock)
    k = k if most is None else min(k, most)
    facts: dict[str, object] = {"k": k, "relaxed": relaxed, "limit": limit}

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
        from rangecast.spark.steps.in_order import rank_in_order
        from rangecast.spark.subscriptions import named_by_row

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
        if engine == Engine.LOCAL:
            answer = local(boxes, plan.name, axis)
        else:
            answer = on_spark(boxes, plan.name, axis, where)
        if most is None or axis is None:
            return answer
        ordered = facts["in_order"] = in_order(run.file(events), where.attributes[axis])
        if not ordered:
            name = where.names[axis]
            run.say(
                f"events aren't in order of {name!r}, or lack it: answers wait for the last one"
            )
        shedding = Budget(most, in_order=ordered)
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
