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
    output: Output = "-",
    bad_rows: BadRowsFile = None,
    ignore_unknown: IgnoreUnknown = False,
    nan_is_missing: NanIsMissing = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the k best subscriptions of each event: event, rank, subscription, score."""
    from collections.abc import Iterator

    import numpy as np
    import pyarrow as pa

    from rangecast.cli.job import Answer, Job
    from rangecast.model.boxes import Boxes, Floats
    from rangecast.rank.scan import Scan

    def start(boxes: Boxes) -> Answer:
        index = Scan(boxes)

        def answer(points: Floats) -> Iterator[list[pa.Array]]:
            for event, best in enumerate(index.rank(points, k, relaxed=relaxed)):
                places = np.full(len(best.rows), event)
                ranks = np.arange(1, len(best.rows) + 1)
                yield [pa.array(column) for column in (places, ranks, best.rows, best.scores)]

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
        {"k": k, "relaxed": relaxed},
    )
    job.run(["event", "rank", "subscription", "score"], start)
