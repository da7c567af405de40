"""`rangecast worker`: processes that share the matching of a topic of Kafka."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from rangecast.cli.commands.server.serve import LogFormatOption, LogLevel
from rangecast.cli.shared.option_groups import App

app = App()
Log = Annotated[
    str, typer.Argument(help="The server's log: kafka://HOST:PORT/PREFIX.", metavar="{log}")
]
SpaceName = Annotated[str, typer.Option("--space", help="The space that the events are of.")]
EventsTopic = Annotated[str, typer.Option("--events", help="The topic of events.")]
MatchesTopic = Annotated[str, typer.Option("--matches", help="The topic of matches.")]
Tenant = Annotated[str, typer.Option("--tenant", help="Whose space it is.")]


Begin = Literal["start", "now"]
"""Where a group that is new begins."""


@app.command()
def run(
    log: Log,
    space: SpaceName,
    events: EventsTopic,
    matches: MatchesTopic,
    tenant: Tenant = "default",
    group: Annotated[
        str,
        typer.Option("--group", help="The group that shares the work; else PREFIX-SPACE-MATCHES."),
    ] = "",
    name: Annotated[
        str,
        typer.Option(
            "--name", help="This worker's own name: restarted under it, it goes on at once."
        ),
    ] = "",
    begin: Annotated[
        Begin, typer.Option("--from", help="Where a group that is new begins in the topic.")
    ] = "start",
    data: Annotated[
        Path | None,
        typer.Option("--data", help="The server's data folder, or a copy, for its snapshots."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="Stop after this many events.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="End where the topic ends now.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=0,
            max=65535,
            help="Answer /metrics, /healthz and /readyz on this port; 0 takes a free one.",
        ),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option("--metrics-host", help="The address of that port.")
    ] = "127.0.0.1",
    log_format: LogFormatOption = "text",
    log_level: Annotated[
        LogLevel,
        typer.Option("--log-level", help="What is said there: warnings, or also each batch."),
    ] = "warning",
) -> None:
    """Match the events of a topic with the subscriptions of a server whose log is on Kafka.

    Start as many as the topic has partitions: they share them. Matches and offsets are written in
    one transaction, so that readers of committed records get each of them once.

    \b
    Examples:
      rangecast worker run kafka://127.0.0.1:9092/market --space market --events in --matches out
    """
    from rangecast.cli.signals import until_interrupted
    from rangecast.server import need_server

    need_server()
    from rangecast.server.connectors.base import need
    from rangecast.server.log_format import configure
    from rangecast.server.shutdown import exit_after
    from rangecast.server.workers.worker import STOP_SECONDS, Worker, WorkerSettings

    need("kafka")
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
            print(f"Its numbers are at {where}/metrics.", flush=True)
        worker.prepare(is_over)
        if not is_over():
            print(
                f"Working on {events} as {worker.name} of the group {settings.group_name}, by "
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
    """Verify that workers wrote every match, each once and no other, by the log of the server.

    Each event is verified with the subscriptions of the place in the log that its batch was matched
    with. The exit code is 1 if something differs; the first differences are shown.

    \b
    Examples:
      rangecast worker verify kafka://127.0.0.1:9092/market --space market --events in --matches out
    """
    from rangecast.server import need_server

    need_server()
    from rangecast.server.connectors.base import need

    need("kafka")
    from rangecast.server.verify.workers import verify_workers
    from rangecast.server.workers.worker import WorkerSettings

    report = verify_workers(WorkerSettings(log, space, events, matches, tenant))
    print(
        f"{report.events:,} events, {report.rejected:,} rejected, "
        f"{report.waiting:,} not matched yet; "
        f"{report.expected:,} messages expected: {report.missing:,} missing, {report.extra:,} too "
        f"many, {report.differing:,} with other subscriptions, {report.repeated:,} repeated."
    )
    for text in report.samples:
        print(f"  {text}")
    if not report.holds:
        raise typer.Exit(1)
