"""`rangecast worker`: processes that share the matching of a Kafka topic."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from rangecast.cli.commands.server.serve import LogFormatOption, LogLevel
from rangecast.cli.shared.option_groups import App

app = App(help="Processes that share the matching of a Kafka topic.")
Log = Annotated[
    str, typer.Argument(help="The server's log: kafka://HOST:PORT/PREFIX.", metavar="{log}")
]
SpaceName = Annotated[str, typer.Option("--space", help="The space of the events.")]
EventsTopic = Annotated[str, typer.Option("--events", help="The topic of events.")]
MatchesTopic = Annotated[str, typer.Option("--matches", help="The topic of matches.")]
Tenant = Annotated[str, typer.Option("--tenant", help="The tenant of the space.")]


Begin = Literal["start", "now"]
"""Position where a new group begins."""


@app.command()
def run(
    log: Log,
    space: SpaceName,
    events: EventsTopic,
    matches: MatchesTopic,
    tenant: Tenant = "default",
    group: Annotated[
        str,
        typer.Option("--group", help="The consumer group (default: PREFIX-SPACE-MATCHES)."),
    ] = "",
    name: Annotated[
        str,
        typer.Option(
            "--name",
            help="Static name of this worker, with which it resumes at once after a restart.",
        ),
    ] = "",
    begin: Annotated[
        Begin, typer.Option("--from", help="Where a new group starts in the topic.")
    ] = "start",
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="The server's data folder or a copy of it, to load snapshots from."
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="Stop after this many events.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the current end of the topic.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=0,
            max=65535,
            help="Serve /metrics, /healthz and /readyz on this port; 0: any free port.",
        ),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option("--metrics-host", help="The address of that port.")
    ] = "127.0.0.1",
    log_format: LogFormatOption = "text",
    log_level: Annotated[
        LogLevel,
        typer.Option("--log-level", help="What to log on stderr: warnings, or also each batch."),
    ] = "warning",
) -> None:
    """Match the events of a topic with the subscriptions of a server that logs to Kafka.

    Start up to one worker per partition of the topic: they share the partitions. Matches and
    offsets are written in one transaction, so that readers of committed records get each match
    once.

    \b
    Examples:
      rangecast worker run kafka://127.0.0.1:9092/market --space market --events in --matches out
    """
    from rangecast.cli.signals import until_interrupted
    from rangecast.server import need_server

    need_server()
    from rangecast.server.connectors.base import require_package
    from rangecast.server.log_format import configure
    from rangecast.server.shutdown import exit_after
    from rangecast.server.workers.worker import STOP_SECONDS, Worker, WorkerSettings

    require_package("kafka")
    configure(log_format, log_level)
    settings = WorkerSettings(
        log,
        space,
        events,
        matches,
        tenant,
        group,
        name,
        begin == "start",
        data,
        count or 0,
        until_end,
    )
    worker = Worker(settings)
    ending = partial(exit_after, STOP_SECONDS, "the worker")
    with until_interrupted(ending) as is_over, ExitStack() as opened:
        opened.callback(worker.close)
        if metrics_port is not None:
            from rangecast.server.workers.metrics import answering

            where = opened.enter_context(answering(worker, metrics_host, metrics_port))
            print(f"Metrics: {where}/metrics.", flush=True)
        worker.prepare(is_over)
        if not is_over():
            print(
                f"Matching {events} as {worker.name} of the group {settings.group_name}, at "
                f"{worker.position}: {worker.subscriptions:,} subscriptions. Stop with Ctrl-C.",
                flush=True,
            )
        worker.run(is_over)
    done = worker.totals
    print(
        f"{done.events:,} events, {done.matches:,} matches, {done.rejected:,} rejected, in "
        f"{done.batches:,} batches" + (f"; the last by {done.edits}." if done.edits else ".")
    )


@app.command()
def verify(
    log: Log,
    space: SpaceName,
    events: EventsTopic,
    matches: MatchesTopic,
    tenant: Tenant = "default",
) -> None:
    """Verify with the server's log that workers wrote every match exactly once, and no other.

    Each event is verified with the subscriptions at the log position that its batch was matched
    with. If anything differs, the exit code is 1, and the first differences are shown.

    \b
    Examples:
      rangecast worker verify kafka://127.0.0.1:9092/market --space market --events in --matches out
    """
    from rangecast.server import need_server

    need_server()
    from rangecast.server.connectors.base import require_package

    require_package("kafka")
    from rangecast.server.verify.workers import verify_workers
    from rangecast.server.workers.worker import WorkerSettings

    report = verify_workers(WorkerSettings(log, space, events, matches, tenant))
    print(
        f"{report.events:,} events, {report.rejected:,} rejected, "
        f"{report.waiting:,} not matched yet; "
        f"{report.expected:,} messages expected: {report.missing:,} missing, {report.extra:,} "
        f"unexpected, {report.differing:,} with other subscriptions, {report.repeated:,} repeated."
    )
    for text in report.samples:
        print(f"  {text}")
    if not report.holds:
        raise typer.Exit(1)
