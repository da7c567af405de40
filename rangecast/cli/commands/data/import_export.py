"""`rangecast import` and `rangecast export`: rules of other systems as subscriptions, and back."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rangecast.cli.shared.options import (
    BadRowsFile,
    IgnoreUnknown,
    Json,
    Output,
    Overwrite,
    Quiet,
    SpaceFile,
    SubscriptionsFile,
)

if TYPE_CHECKING:
    from rangecast.cli.shared.run import Run
    from rangecast.interop import Refusal


class System(StrEnum):
    """The modules of `rangecast.interop`."""

    EVENTBRIDGE = "eventbridge"
    SNS = "sns"
    PERCOLATOR = "percolator"
    POSTGRES = "postgres"
    VESPA = "vespa"
    GEOJSON = "geojson"


SystemName = Annotated[System, typer.Argument(metavar="KIND", help="|".join(System))]
RefusedFile = Annotated[
    Path | None,
    typer.Option(
        "--refused",
        help="Write what can't be carried over to this file (id, place, reason); do the rest.",
    ),
]


def import_(
    kind: SystemName,
    rules: Annotated[Path, typer.Argument(help="The rules, as their system writes them.")],
    output: Output = "-",
    space: Annotated[
        Path | None,
        typer.Option("--space", help="The space to import into; otherwise the rules decide."),
    ] = None,
    space_out: Annotated[
        Path | None,
        typer.Option("--space-out", help="Write the space that the rules need: a TOML file."),
    ] = None,
    overwrite: Overwrite = False,
    refused: RefusedFile = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make subscriptions of the rules of another system.

    A rule is carried over exactly, or it is refused with the reason. docs/how-to/import.md says
    what is exact for each system.

    \b
    Examples:
      rangecast import eventbridge rules.json -o subscriptions.csv --space-out rules.toml
      rangecast import eventbridge rules.json --refused refused.csv -o subscriptions.csv
    """
    import pyarrow as pa

    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run, check_new

    check_new(space_out, overwrite=overwrite)
    with Run.started(
        output,
        reads=[rules, space],
        tables=[refused],
        texts=[space_out],
        as_json=as_json,
        quiet=quiet,
    ) as run:
        where = None if space is None else run.space(space)
        done = import_module(f"rangecast.interop.{kind}").read(run.file(rules), where)
        run.warnings.extend(done.notes)
        _refuse(run, done.refused, refused, "rule")
        columns = {"id": pa.string(), "filter": pa.string()}
        run.write(pa.Table.from_pylist(done.subscriptions, pa.schema(columns)), output)
        if space_out is not None and done.space is not None:
            done.space.save(space_out, overwrite=overwrite)
        count = len(done.subscriptions)
        facts = {"subscriptions": count, "refused": len(done.refused)}
        run.done(f"{counted(count, 'subscription')}{_left(done.refused, refused)}", None, facts)


def export(
    kind: SystemName,
    subscriptions: SubscriptionsFile,
    space: SpaceFile,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", help="The file of rules, replaced if it exists; - is stdout."
        ),
    ] = "-",
    refused: RefusedFile = None,
    bad_rows: BadRowsFile = None,
    ignore_unknown: IgnoreUnknown = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write subscriptions as rules of another system.

    A subscription is written exactly, or it is refused with the reason.

    \b
    Examples:
      rangecast export eventbridge subscriptions.csv --space space.toml -o rules.json
    """
    import sys

    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run
    from rangecast.cli.shared.stdin import is_pipe
    from rangecast.model.io.atomic import write_whole
    from rangecast.model.io.writer import unwritable

    with Run.started(
        reads=[subscriptions, space],
        tables=[refused],
        texts=[output],
        bad_rows=bad_rows,
        ignore_unknown=ignore_unknown,
        as_json=as_json,
        quiet=quiet,
    ) as run:
        where = run.space(space)
        boxes = run.subscriptions(subscriptions, where)
        done = import_module(f"rangecast.interop.{kind}").write(boxes, where)
        run.warnings.extend(done.notes)
        _refuse(run, done.refused, refused, "subscription")
        if is_pipe(output):
            sys.stdout.write(done.text)
        else:
            try:
                write_whole(output, done.text.encode())
            except OSError as error:
                raise unwritable(output, error) from None
        count = len(done.rules)
        facts = {"rules": count, "refused": len(done.refused), "output": output}
        run.done(f"{counted(count, 'rule')}{_left(done.refused, refused)}", None, facts)


def _refuse(run: Run, found: Sequence[Refusal], path: Path | None, noun: str) -> None:
    """Write what was refused, or fail with the first if no file is given for it."""
    from rangecast.cli.shared.output import counted
    from rangecast.errors import UsageError

    if path is not None:
        import pyarrow as pa

        rows = [{"id": one.id, "place": one.place, "reason": one.reason} for one in found]
        columns = dict.fromkeys(("id", "place", "reason"), pa.string())
        run.write(pa.Table.from_pylist(rows, pa.schema(columns)), path)
    elif found:
        first = found[0]
        where = f", {first.place}" if first.place else ""
        raise UsageError(
            f"{counted(len(found), noun)} can't be carried over exactly; the first: "
            f"{first.id}{where}: {first.reason}\n"
            "  hint: correct it, or set such ones aside with --refused FILE"
        )


def _left(found: Sequence[Refusal], path: Path | None) -> str:
    return "" if path is None else f", {len(found):,} refused, listed in {path}:"
