"""`rangecast rank`: the top k subscriptions of each event."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rangecast.cli.shared.option_groups import PlannedEngine, RunOptions
from rangecast.cli.shared.options import (
    AsOf,
    CombineOption,
    DeviceOption,
    EventsFile,
    Output,
    RankIndexOption,
    SpaceFile,
    Span,
    SubscriptionsFile,
    ToleranceOption,
)

if TYPE_CHECKING:
    from rangecast.cli.tasks.answer import Pieces
    from rangecast.model.boxes import Boxes
    from rangecast.model.space import Space
    from rangecast.rank.scores.factors import FactorTable


def rank(
    events: EventsFile,
    subscriptions: SubscriptionsFile,
    space: SpaceFile,
    on: PlannedEngine,
    options: RunOptions,
    k: Annotated[
        int, typer.Option("--top", "-k", min=1, help="Number of subscriptions per event.")
    ] = 10,
    relaxed: Annotated[
        bool,
        typer.Option(
            "--relaxed",
            help="Also rank subscriptions that match in part: by the sum of the weights of "
            "matching attributes.",
        ),
    ] = False,
    combine: CombineOption = "sum",
    tolerance: ToleranceOption = None,
    span: Annotated[
        Span | None,
        typer.Option(
            "--span",
            help="Values may be spans, <attribute>_lo to <attribute>_hi, that subscriptions must "
            "overlap or contain.",
        ),
    ] = None,
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities",
            help="Values lie in their spans with a probability, <attribute>_probability: rank by "
            "score times the probability that a subscription contains them.",
        ),
    ] = False,
    score_factors: Annotated[
        Path | None,
        typer.Option(
            "--score-factors",
            help="Score factors: a file with the columns event, subscription, factor; the default "
            "factor is 1.",
        ),
    ] = None,
    max_per_second: Annotated[
        int | None,
        typer.Option(
            "--max-per-second",
            min=1,
            help="Keep only this many notifications per second, the best ones. Uses the least "
            "memory if events are in order of time.",
        ),
    ] = None,
    time_attribute: Annotated[
        str | None,
        typer.Option(
            "--time-attribute",
            help="The timestamp for --max-per-second, if the space has several.",
        ),
    ] = None,
    index: RankIndexOption = "auto",
    device: DeviceOption = None,
    as_of: AsOf = None,
    output: Output = "-",
) -> None:
    """Write the top k subscriptions of each event: event, rank, subscription, score.

    \b
    Examples:
      rangecast rank events.csv subscriptions.csv --space space.toml --top 3 -o best.csv
      rangecast rank events.csv subscriptions.csv --space space.toml --max-per-second 5000
      rangecast rank events.csv subscriptions.csv --space space.toml --span overlap
    """
    from rangecast.cli.shared.run import Run
    from rangecast.cli.tasks.answer import answer_events
    from rangecast.cli.tasks.limit import in_order, per_second
    from rangecast.errors import UsageError
    from rangecast.rank.answerer import RankAnswerer, RankQuery
    from rangecast.rank.rate_limit import RateLimiter, time_axis
    from rangecast.rank.scores.adjusted import check_adjusted
    from rangecast.rank.scores.combine import check_combine
    from rangecast.rank.scores.tolerances import (
        check_tolerances,
        encode_tolerances,
        read_tolerances,
    )

    if time_attribute is not None and max_per_second is None:
        raise UsageError(
            f"--time-attribute {time_attribute} requires a limit, such as --max-per-second 5000"
        )
    check_combine(combine, relaxed=relaxed)
    tolerances = read_tolerances(tolerance or [])
    check_tolerances(tolerances, relaxed=relaxed, index=index)
    check_adjusted(
        relaxed=relaxed,
        span=span,
        probabilities=probabilities,
        score_factors=score_factors is not None,
    )
    query = RankQuery(k, span=span, probabilities=probabilities)
    facts: dict[str, object] = {
        "k": k,
        "relaxed": relaxed,
        "combine": combine,
        "tolerances": tolerances,
        "max_per_second": max_per_second,
        "span": span,
        "probabilities": probabilities,
        "score_factors": score_factors,
        "device": device,
    }

    def make(boxes: Boxes, where: Space, table: FactorTable | None) -> RankAnswerer:
        axis = time_axis(where, max_per_second, time_attribute)
        near = tuple(encode_tolerances(tolerances, where).tolist())
        wanted = replace(query, time_axis=axis, factors=table, tolerances=near)
        how: dict[str, Any] = {"relaxed": relaxed, "combine": combine, "query": wanted}
        return RankAnswerer.of(boxes, index, **how, at_once=not on.is_spark, device=device)

    def limit(pieces: Pieces, where: Space) -> Pieces:
        axis = time_axis(where, max_per_second, time_attribute)
        if max_per_second is None or axis is None:
            return pieces
        time = where.attributes[axis]
        ordered = facts["in_order"] = in_order(run.file(events), time)
        if not ordered:
            wait = "results are held back until the end"
            run.say(f"events are not ordered by {time.name!r}, or lack it: {wait}")
        return per_second(pieces, RateLimiter(max_per_second, in_order=ordered))

    with Run.started(
        output, reads=[events, subscriptions, space, score_factors], options=options
    ) as run:
        answer_events(
            run,
            (events, subscriptions, space),
            make,
            facts,
            on,
            limit=limit,
            columns=query.columns,
            score_factors=score_factors,
            as_of=as_of,
        )
