"""`rangecast report`: an HTML page about a result of matching."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rangecast.cli.shared.option_groups import BothOptions
from rangecast.cli.shared.options import EventsFile, SpaceFile, Version

if TYPE_CHECKING:
    from rangecast.model.space import Space


def report(
    events: EventsFile,
    subscriptions: Annotated[
        Path,
        typer.Argument(
            help="Subscriptions: a file, a snapshot, or a folder of versions; - is stdin."
        ),
    ],
    result: Annotated[
        Path,
        typer.Argument(help="The result: event and subscription, or subscriptions; - is stdin."),
    ],
    space: SpaceFile,
    options: BothOptions,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The page, replaced if it exists; - is stdout.")
    ] = Path("report.html"),
    version: Version = None,
    map_of: Annotated[
        str | None,
        typer.Option("--map", help="Two attributes for the axes of a map, such as price,risk."),
    ] = None,
) -> None:
    """Write an HTML page: matches by subscription, events without a match, hot regions.

    The page is one self-contained file. To verify that the result is right, use `rangecast verify`.

    \b
    Examples:
      rangecast report events.csv subscriptions.csv matches.csv --space space.toml -o page.html
    """
    from rangecast.cli.shared.run import Run
    from rangecast.cli.shared.stdin import is_pipe
    from rangecast.cli.shared.subscription_sets import check_version, one_set
    from rangecast.model.io.atomic import write_whole
    from rangecast.model.io.files import read_tables
    from rangecast.model.io.writer import unwritable
    from rangecast.report.facts import MatchReport
    from rangecast.report.match import match_page
    from rangecast.report.tally import tally

    check_version(subscriptions, version)
    with Run.started(
        reads=[events, subscriptions, result, space], pictures=[output], options=options
    ) as run:
        where = run.space(space)
        shown = _map_attributes(where, map_of)
        source = run.events(events, where)  # a mistake in their header is reported first
        boxes, known = one_set(run, subscriptions, where, version)
        if known is not where:  # a snapshot has words of its own
            source, where = run.events(events, known), known
        batches = run.batches("reading events", source)
        tables = read_tables(run.file(result))
        counted = tally(batches, boxes, where, tables, map_of=shown)
        page = match_page(
            MatchReport(
                title=f"Matches in {result.name}",
                lead=f"{len(counted.per_event):,} events of {events}, matched with {boxes.rows:,} "
                f"subscriptions of {subscriptions}{_of_version(subscriptions, version)}.",
                per_event=counted.per_event,
                per_subscription=counted.per_subscription,
                busiest=counted.busiest(10),
                idle=counted.idle(4),
                over_time=counted.over_time(),
                by_value=counted.by_value(),
                region=counted.region(),
            )
        )
        if is_pipe(output):
            print(page)
        else:
            try:
                write_whole(output, page.encode())
            except OSError as error:
                raise unwritable(output, error) from None
        matches = int(counted.per_event.sum())
        facts = {"events": len(counted.per_event), "matches": matches, "output": output}
        run.done(f"{output}: {matches:,} matches", len(counted.per_event), facts)


def _of_version(path: Path, version: int | None) -> str:
    """Return a text with the version used, empty for a set without versions."""
    from rangecast.store.versions import Versions, has_versions

    return f", version {version or Versions(path).latest()}" if has_versions(path) else ""


def _map_attributes(space: Space, names: str | None) -> tuple[str, str] | None:
    """Return the two attributes of a map; reject anything but two ordered attributes."""
    from rangecast.errors import UsageError, did_you_mean
    from rangecast.model.attributes.base import Integer, Number

    if names is None:
        return None
    columns = [name.strip() for name in names.split(",")]
    fit = [attribute.name for attribute in space if isinstance(attribute, Number | Integer)]
    for name in columns:
        if name not in fit:
            raise UsageError(
                f"a map requires numeric attributes: {name!r}: {did_you_mean(name, fit)}"
            )
    if len(columns) != 2 or columns[0] == columns[1]:
        raise UsageError(f"a map requires two attributes, such as price,risk; given: {names!r}")
    return columns[0], columns[1]
