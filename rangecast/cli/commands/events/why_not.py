"""`rangecast why-not`: which subscriptions does an event nearly match, and what fails?"""

from __future__ import annotations

from typing import Annotated

import typer

from rangecast.cli.shared.option_groups import BothOptions
from rangecast.cli.shared.options import (
    FileOfOneEvent,
    IsRow,
    OneEvent,
    SpaceFile,
    SubscriptionsFile,
)


def why_not(
    event: OneEvent,
    subscriptions: SubscriptionsFile,
    space: SpaceFile,
    options: BothOptions,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of subscriptions to show.")] = 5,
    events: FileOfOneEvent = None,
    is_row: IsRow = False,
) -> None:
    """Show the subscriptions that nearly match an event, and the conditions that fail.

    Those with the fewest failing attributes come first.

    \b
    Examples:
      rangecast why-not '{"price": 12.5}' subscriptions.csv --space space.toml
      rangecast why-not 1 subscriptions.csv --space space.toml --events events.csv --row -k 3
    """
    from rangecast.cli.shared.one_event import event_query
    from rangecast.model.explain import explain_match, nearest_misses

    with event_query(event, subscriptions, space, events, options, is_row=is_row) as asked:
        rows = nearest_misses(asked.space, asked.boxes, asked.point, k)
        explanations = [
            explain_match(asked.space, asked.boxes, row, asked.point, asked.values) for row in rows
        ]
        if not options.as_json:
            for explanation in explanations:
                print(explanation.verdict)
            if not explanations:
                print("Every subscription matches this event.")
        facts = {
            "near": [
                {"subscription": explanation.subscription, "verdict": explanation.verdict}
                for explanation in explanations
            ]
        }
        asked.done(facts)
