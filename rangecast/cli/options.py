"""Options that several commands share: each is declared once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from rangecast.model.attributes import NanMeaning


def at_least(least: int, most: int | None = None) -> Callable[[int | None], int | None]:
    """Return the check of a number that an option takes; it says what was given."""

    def check(value: int | None) -> int | None:
        if value is not None and (value < least or (most is not None and value > most)):
            limits = f"at least {least}" if most is None else f"{least} to {most}"
            raise typer.BadParameter(f"takes a number, {limits}; given: {value}")
        return value

    return check


def _picture(path: Path | None) -> Path | None:
    """Refuse a name that is no picture's."""
    if path is not None and path.suffix.lower() not in (".png", ".svg"):
        raise typer.BadParameter(f"takes a file that ends in .png or .svg; given: {path}")
    return path


EventsFile = Annotated[
    Path, typer.Argument(help="Events: .csv, .jsonl, .parquet or .arrow, a column an attribute.")
]
SubscriptionsFile = Annotated[
    Path,
    typer.Argument(help="Subscriptions: id and filter, or id and <attribute>_lo, <attribute>_hi."),
]
SpaceFile = Annotated[Path, typer.Option("--space", help="The space: a TOML file of attributes.")]
Output = Annotated[
    str,
    typer.Option("--output", "-o", help="Result file, format by suffix; - is CSV on stdout."),
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", callback=_picture, help="Draw what was found: a .png or .svg file."),
]
BadRowsFile = Annotated[
    Path | None,
    typer.Option("--bad-rows", help="Set bad rows aside in this file and go on with the rest."),
]
IgnoreUnknown = Annotated[
    bool,
    typer.Option("--ignore-unknown-columns", help="Pass over columns that mean nothing here."),
]
Nan = Annotated[
    NanMeaning, typer.Option("--nan", help="Refuse NaN in events, or read it as a missing value.")
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Give the summary as JSON: on stdout, or on stderr where the result is on stdout.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Where Spark runs: local[*], or a cluster's URL."),
]
Seed = Annotated[int, typer.Option("--seed", help="The same seed gives the same data.")]
