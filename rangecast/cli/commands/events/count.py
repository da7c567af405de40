"""`rangecast count`: how many subscriptions match each event."""

from __future__ import annotations

from rangecast.cli.shared.option_groups import BothOptions
from rangecast.cli.shared.options import AsOf, EventsFile, Output, SpaceFile, SubscriptionsFile


def count(
    events: EventsFile,
    subscriptions: SubscriptionsFile,
    space: SpaceFile,
    options: BothOptions,
    as_of: AsOf = None,
    output: Output = "-",
) -> None:
    """Write the number of subscriptions that match each event: event, count.

    Events that match no subscription are included. Counting is faster than listing the matches
    where subscriptions have conditions on at most two attributes.

    \b
    Examples:
      rangecast count events.csv subscriptions.csv --space space.toml
      rangecast count events.csv subscriptions.csv --space space.toml -o counts.parquet
    """
    import pyarrow as pa

    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run
    from rangecast.cli.shared.subscription_sets import one_set, version_as_of
    from rangecast.engine import Engine

    with Run.started(output, reads=[events, subscriptions, space], options=options) as run:
        declared = run.space(space)
        source = run.events(events, declared)
        version = version_as_of(subscriptions, as_of)
        boxes, known = one_set(run, subscriptions, declared, version)
        if known is not declared:  # a snapshot has numbered its strings
            source = run.events(events, known)
        engine = Engine(known)
        engine.subscribe_many(boxes)
        number = matches = 0
        schema = pa.schema([("event", source.id_type or pa.int64()), ("count", pa.int64())])
        with run.writer(schema) as writer:
            for batch in run.batches("counting", source):
                counts = engine.count_points(batch.points)
                number, matches = number + len(counts), matches + int(counts.sum())
                writer.write(pa.record_batch([batch.ids, pa.array(counts)], schema=schema))
        text = f"{counted(number, 'event')} against {counted(boxes.rows, 'subscription')}"
        run.done(
            f"{text}: {counted(matches, 'match', 'matches')}",
            number,
            {"events": number, "subscriptions": boxes.rows, "matches": matches, "version": version},
        )
