"""`rangecast match`: all subscriptions that match each event."""

from __future__ import annotations

from typing import Annotated

import typer

from rangecast.cli.shared.option_groups import PlannedEngine, RunOptions, TrackOptions
from rangecast.cli.shared.options import (
    AsOf,
    DeviceOption,
    EventsFile,
    MatchIndexOption,
    Output,
    SpaceFile,
    SubscriptionsFile,
)


def match(
    events: EventsFile,
    subscriptions: SubscriptionsFile,
    space: SpaceFile,
    on: PlannedEngine,
    track: TrackOptions,
    options: RunOptions,
    output: Output = "-",
    index: MatchIndexOption = "auto",
    threads: Annotated[
        str | None,
        typer.Option(
            "--threads",
            metavar="[NUMBER|auto]",
            help="Number of matching threads (default 1); auto: one per usable core, fewer for "
            "small batches.",
        ),
    ] = None,
    device: DeviceOption = None,
    as_of: AsOf = None,
) -> None:
    """Write every pair of an event and a subscription that matches it: event, subscription.

    With --track, write when objects enter and leave subscriptions: event, subscription, transition,
    key, at, since, reason, number, id. An exit names the event that was outside; a transition
    caused by time names no event.

    \b
    Examples:
      rangecast match events.csv subscriptions.csv --space space.toml -o matches.parquet
      rangecast match quotes.csv subscriptions.csv --space space.toml --id quote_id --keep venue
      cat events.csv | rangecast match - subscriptions.csv --space space.toml --threads auto
      rangecast match trades.csv subscriptions.csv --space space.toml --track stock --dwell '1 h'
      rangecast match events.csv versions --space space.toml --as-of 1
    """
    from rangecast.cli.shared.run import Run
    from rangecast.cli.tasks.answer import answer_events
    from rangecast.cli.tasks.track import track_events
    from rangecast.errors import UsageError
    from rangecast.match.answerer import MatchAnswerer

    if threads is not None and on.is_spark:
        raise UsageError(
            "--threads only works with --engine local; for Spark, pass --master local[N]"
        )
    if threads not in (None, "auto") and not (threads.isdecimal() and int(threads)):
        raise UsageError(
            f"--threads must be a whole number, at least 1, or auto; given: {threads}\n"
            "  hint: give a number, such as --threads 2, or auto for all cores"
        )
    tracks = track.as_settings(
        taken={
            "--keep": options.keep,
            "--threads": threads,
            "--engine spark": on.is_spark,
            "--device": device,
        }
    )
    if device is not None and threads is not None:
        raise UsageError("--threads is for the CPU; drop either --threads or --device")
    workers = "auto" if threads == "auto" else int(threads or 1)
    with Run.started(output, reads=[events, subscriptions, space], options=options) as run:
        if tracks is not None:
            track_events(run, (events, subscriptions, space), tracks, index, as_of)
            return
        answer_events(
            run,
            (events, subscriptions, space),
            lambda boxes, _, __: MatchAnswerer.of(
                boxes, index, workers, at_once=True, device=device
            ),
            {"threads": workers, "device": device},
            on,
            as_of=as_of,
        )
