"""`rangecast rank`: the k best subscriptions of each event."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rangecast.cli.shared.options import (
    Combine,
    CombineOption,
    Engine,
    EngineOption,
    EventId,
    EventsFile,
    ExplainPlan,
    IgnoreUnknown,
    Json,
    Keep,
    Master,
    Nan,
    Output,
    Quiet,
    RankIndexOption,
    RejectedFile,
    SpaceFile,
    Span,
    SubscriptionId,
    SubscriptionsFile,
)
from rangecast.model.attributes.base import NanMeaning

if TYPE_CHECKING:
    from rangecast.cli.tasks.answer import Pieces
    from rangecast.model.boxes import Boxes
    from rangecast.model.space import Space
    from rangecast.rank.factors import FactorTable


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
    combine: CombineOption = Combine.SUM,
    span: Annotated[
        Span | None,
        typer.Option(
            "--span",
            help="Values may be spans, <attribute>_lo to <attribute>_hi, that subscriptions must "
            "overlap or contain.",
        ),
    ] = None,
    uncertain: Annotated[
        bool,
        typer.Option(
            "--uncertain",
            help="Values lie in their spans with a probability, <attribute>_chance: rank by score "
            "times the probability that a subscription holds.",
        ),
    ] = False,
    factors: Annotated[
        Path | None,
        typer.Option(
            "--factors",
            help="What scores are multiplied with: a file of event, subscription, factor; others "
            "have the factor 1.",
        ),
    ] = None,
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
    index: RankIndexOption = "auto",
    engine: EngineOption = Engine.LOCAL,
    master: Master = None,
    explain_plan: ExplainPlan = False,
    output: Output = "-",
    rejected: RejectedFile = None,
    event_id: EventId = None,
    subscription_id: SubscriptionId = None,
    keep: Keep = None,
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
      rangecast rank events.csv subscriptions.csv --space space.toml --span overlap
    """
    from rangecast.cli.shared.run import Columns, Run
    from rangecast.cli.tasks.answer import answer_events
    from rangecast.cli.tasks.limit import clock_of, in_order, per_second, read_limit
    from rangecast.rank.adjusted import check_adjusted
    from rangecast.rank.answerer import Asked, RankAnswerer
    from rangecast.rank.combine import check_combine
    from rangecast.rank.rate_limit import Budget

    most, by_second = read_limit(limit, clock)
    k = k if most is None else min(k, most)
    check_combine(combine, relaxed=relaxed)
    check_adjusted(relaxed=relaxed, span=span, uncertain=uncertain, factors=factors is not None)
    asked = Asked(k, span=None if span is None else span.value, uncertain=uncertain)
    facts: dict[str, object] = {
        "k": k,
        "relaxed": relaxed,
        "combine": combine,
        "limit": limit,
        "span": span,
        "uncertain": uncertain,
        "factors": factors,
    }

    def make(boxes: Boxes, where: Space, table: FactorTable | None) -> RankAnswerer:
        axis = clock_of(where, clock) if by_second else None
        wanted = replace(asked, clock=axis, factors=table)
        how: dict[str, Any] = {"relaxed": relaxed, "combine": combine, "asked": wanted}
        return RankAnswerer.of(boxes, index, **how, at_once=engine == Engine.LOCAL)

    def shed(pieces: Pieces, where: Space) -> Pieces:
        if most is None or not by_second:
            return pieces
        time = where.attributes[clock_of(where, clock)]
        ordered = facts["in_order"] = in_order(run.file(events), time)
        if not ordered:
            wait = "answers wait for the last one"
            run.say(f"events aren't in order of {time.name!r}, or lack it: {wait}")
        return per_second(pieces, Budget(most, in_order=ordered))

    with Run.started(
        output,
        reads=[events, subscriptions, space, factors],
        rejected=rejected,
        ignore_unknown=ignore_unknown,
        nan=nan,
        columns=Columns.of(event_id, subscription_id, keep),
        as_json=as_json,
        quiet=quiet,
    ) as run:
        answer_events(
            run,
            (events, subscriptions, space),
            make,
            facts,
            engine=engine,
            master=master,
            explain_plan=explain_plan,
            shed=shed,
            columns=asked.columns,
            factors=factors,
        )
