"""`rangecast log`: a server's log, looked at without the server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.shared.option_groups import App

app = App()
Data = Annotated[Path, typer.Argument(help="The server's data folder.", metavar="{data}")]


@app.command()
def check(data: Data) -> None:
    """Read all of a log and say whether it is whole, by the checksum of every unit.

    \b
    Examples:
      rangecast log check data
    """
    from rangecast.server.log_tools import checked

    print(checked(data))


@app.command()
def dump(
    data: Data,
    after: Annotated[int, typer.Option("--after", min=0, help="Begin after this seq.")] = 0,
    with_secrets: Annotated[
        bool, typer.Option("--with-secrets", help="Show the secrets that webhooks are signed with.")
    ] = False,
) -> None:
    """Print a log as JSON lines: each event, edit and update of a board, with its seq and its time.

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
    space: Annotated[str, typer.Option("--space", help="The space whose events are wanted.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A folder: events, edits and the space.")
    ],
    tenant: Annotated[str, typer.Option("--tenant", help="Whose space it is.")] = "default",
) -> None:
    """Write the events of a space, its subscriptions at the end and the space itself as files.

    The events' ids are their seqs. `rangecast match` and Spark read what is written.

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
        bool, typer.Option("--force", help="Really cut off what comes after the damage.")
    ] = False,
) -> None:
    """Cut a damaged log where it is still whole. What comes after is moved aside, not deleted.

    The log gets another epoch: consumers learn that something may be lost.

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
        typer.Argument(help="What came: JSON lines with position and subscriptions, or lists."),
    ],
    consumer: Annotated[str, typer.Option("--consumer", help="The consumer that got it.")],
    tenant: Annotated[str, typer.Option("--tenant", help="Its tenant.")] = "default",
) -> None:
    """Verify that a consumer got every message that the log says it had to get, and no other.

    The exit code is 1 if it did not; the first differences are shown.

    \b
    Examples:
      rangecast log verify data delivered.jsonl --consumer alerts
    """
    from rangecast.server.verify.deliveries import verify_deliveries

    report = verify_deliveries(data, tenant, consumer, delivered)
    print(
        f"{report.expected:,} messages expected: {report.missing:,} missing, {report.extra:,} too "
        f"many, {report.differing:,} with other subscriptions or lists; "
        f"{report.repeated:,} repeated."
    )
    for text in report.samples:
        print(f"  {text}")
    if not report.holds:
        raise typer.Exit(1)
