"""`rangecast log`: inspect a server's log without the server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.shared.option_groups import App

app = App(help="Inspect, verify and repair a server's log, without the server.")
Data = Annotated[Path, typer.Argument(help="The server's data folder.", metavar="{data}")]


@app.command()
def check(data: Data) -> None:
    """Verify the checksum of every unit of a log, and report whether the log is intact.

    \b
    Examples:
      rangecast log check data
    """
    from rangecast.server.log_tools import checked

    print(checked(data))


@app.command()
def dump(
    data: Data,
    after: Annotated[int, typer.Option("--after", min=0, help="Start after this seq.")] = 0,
    with_secrets: Annotated[
        bool, typer.Option("--with-secrets", help="Include the signing secrets of webhooks.")
    ] = False,
) -> None:
    """Print a log as JSON lines: each event, edit and board update, with its seq and time.

    \b
    Examples:
      rangecast log dump data | head
    """
    from rangecast.server.log_tools import dumped

    for line in dumped(data, after, with_secrets=with_secrets):
        print(line)


@app.command()
def export(
    data: Data,
    space: Annotated[str, typer.Option("--space", help="The space to export.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A folder: events, edits and the space.")
    ],
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant of the space.")] = "default",
) -> None:
    """Write the events, the final subscriptions and the definition of a space as files.

    The ids of the events are their seqs. `rangecast match` and Spark can read the files.

    \b
    Examples:
      rangecast log export data --space market -o exported
    """
    from rangecast.server.log_tools import exported

    print(exported(data, tenant, space, output))


@app.command()
def repair(
    data: Data,
    force: Annotated[
        bool,
        typer.Option("--force", help="Confirm that everything after the damage may be cut off."),
    ] = False,
) -> None:
    """Truncate a damaged log after its last intact unit. The rest is moved aside, not deleted.

    The log gets a new epoch, so consumers notice that events may be lost.

    \b
    Examples:
      rangecast log repair data --force
    """
    from rangecast.server.log_tools import repaired

    print(repaired(data, force=force))


@app.command()
def verify(
    data: Data,
    delivered: Annotated[
        Path,
        typer.Argument(
            help="Received messages: JSON lines with position and subscriptions, or lists."
        ),
    ],
    consumer: Annotated[str, typer.Option("--consumer", help="The consumer that received them.")],
    tenant: Annotated[str, typer.Option("--tenant", help="Its tenant.")] = "default",
) -> None:
    """Verify that a consumer got every message that it should have got by the log, and no other.

    If it did not, the exit code is 1, and the first differences are shown.

    \b
    Examples:
      rangecast log verify data delivered.jsonl --consumer alerts
    """
    from rangecast.server.verify.deliveries import verify_deliveries

    report = verify_deliveries(data, tenant, consumer, delivered)
    print(
        f"{report.expected:,} messages expected: {report.missing:,} missing, {report.extra:,} "
        f"unexpected, {report.differing:,} with other subscriptions or lists; "
        f"{report.repeated:,} repeated."
    )
    for text in report.samples:
        print(f"  {text}")
    if not report.holds:
        raise typer.Exit(1)
