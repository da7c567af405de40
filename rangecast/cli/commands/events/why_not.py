"""`rangecast why-not`: which subscriptions does an event nearly match, and what is in the way?"""

from __future__ import annotations

from typing import Annotated

import typer

from rangecast.cli.shared.options import (
    EventId,
    FileOfOneEvent,
    IgnoreUnknown,
    IsRow,
    Json,
    Nan,
    OneEvent,
    Quiet,
    RejectedFile,
    SpaceFile,
    SubscriptionId,
    SubscriptionsFile,
)
from rangecast.model.attributes.base import NanMeaning


def why_not(
    event: OneEvent,
    subscriptions: SubscriptionsFile,
    space: SpaceFile,
    k: Annotated[int, typer.Option("-k", min=1, help="How many subscriptions to show.")] = 5,
    events: FileOfOneEvent = None,
    is_row: IsRow = False,
    nan: Nan = NanMeaning.ERROR,
    ignore_unknown: IgnoreUnknown = False,
    rejected: RejectedFile = None,
    event_id: EventId = None,
    subscription_id: SubscriptionId = None,
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
    from rangecast.cli.shared.one_event import event_query
    from rangecast.cli.shared.run import Columns
    from rangecast.model.explain import explain_match, nearest_misses

    with event_query(
        event,
        subscriptions,
        space,
        events,
        is_row=is_row,
        rejected=rejected,
        columns=Columns.of(event_id, subscription_id),
        ignore_unknown=ignore_unknown,
        nan=nan,
        as_json=as_json,
        quiet=quiet,
    ) as asked:
        rows = nearest_misses(asked.space, asked.boxes, asked.point, k)
        found = [
            explain_match(asked.space, asked.boxes, row, asked.point, asked.values) for row in rows
        ]
        if not as_json:
            for one in found:
                print(one.verdict)
            if not found:
                print("Every subscription matches this event.")
        facts = {
            "near": [{"subscription": one.subscription, "verdict": one.verdict} for one in found]
        }
        asked.done(facts)
