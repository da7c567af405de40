"""`rangecast match`: all subscriptions that hold each event."""

from __future__ import annotations

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
    bad_rows: BadRowsFile = None,
    ignore_unknown: IgnoreUnknown = False,
    nan_is_missing: NanIsMissing = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write every pair of an event and a subscription that holds it: event, subscription."""
    from collections.abc import Iterator

    import pyarrow as pa

    from rangecast.cli.job import Answer, Job
    from rangecast.match.scan import Scan
    from rangecast.model.boxes import Boxes, Floats

    def start(boxes: Boxes) -> Answer:
        index = Scan(boxes)

        def answer(points: Floats) -> Iterator[list[pa.Array]]:
            for first, matches in index.stream(points):
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
    )
    job.run(["event", "subscription"], start)
