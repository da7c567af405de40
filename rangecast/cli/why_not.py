"""`rangecast why-not`: which subscriptions does an event nearly match, and what is in the way?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.options import (
    BadRowsFile,
    IgnoreUnknown,
    Json,
    Nan,
    Quiet,
    SpaceFile,
    SubscriptionsFile,
)
from rangecast.model.attributes import NanMeaning


def why_not(
    event: Annotated[
        str,
        typer.Argument(
            help="The event as JSON, such as '{\"price\": 12.5}'; - reads it from stdin. "
            "With --events, the id of an event there."
        ),
    ],
    subscriptions: SubscriptionsFile,
    space: SpaceFile,
    k: Annotated[int, typer.Option("-k", min=1, help="How many subscriptions to show.")] = 5,
    events: Annotated[
        Path | None,
        typer.Option("--events", help="A file of events that has the event; - is stdin."),
    ] = None,
    is_row: Annotated[
        bool,
        typer.Option("--row", help="EVENT is a row of --events, counted from 0, not an id."),
    ] = False,
    nan: Nan = NanMeaning.REFUSE,
    ignore_unknown: IgnoreUnknown = False,
    bad_rows: BadRowsFile = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the subscriptions that come nearest to an event without matching it, and what fails.

    Those with the fewest failing attributes come first.

    \b
    Examples:
      rangecast why-not '{"price": 12.5}' subscriptions.csv --space space.toml
      rangecast why-not 1 subscriptions.csv --space space.toml --events events.csv --row -k 3
    """
    from rangecast.cli.output import counted
    from rangecast.cli.run import Run
    from rangecast.cli.sets import one_set
    from rangecast.cli.why import event_of
    from rangecast.model.why import explain_match, nearest_misses

    with Run.started(
        reads=[event if event == "-" else None, subscriptions, space, events],
        bad_rows=bad_rows,
        ignore_unknown=ignore_unknown,
        nan=nan,
        as_json=as_json,
        quiet=quiet,
    ) as run:
        boxes, where = one_set(run, subscriptions, run.space(space), None)
        values, point = event_of(run, event, where, events, is_row=is_row)
        rows = nearest_misses(where, boxes, point, k)
        found = [explain_match(where, boxes, row, point, values) for row in rows]
        if not as_json:
            for one in found:
                print(one.verdict)
            if not found:
                print("Every subscription matches this event.")
        facts = {
            "near": [{"subscription": one.subscription, "verdict": one.verdict} for one in found]
        }
        run.done(f"{counted(boxes.rows, 'subscription')} read", boxes.rows, facts)
