"""`rangecast import` and `rangecast export`: rules of other systems as subscriptions, and back."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from rangecast.cli.shared.option_groups import OutputOptions, SubscriptionOptions
from rangecast.cli.shared.options import Output, Overwrite, SpaceFile, SubscriptionsFile

if TYPE_CHECKING:
    from rangecast.cli.shared.run import Run
    from rangecast.interop import Rejection


System = Literal[
    "eventbridge", "sns", "percolator", "postgres", "vespa", "geojson", "geoparquet", "tile38"
]
"""The modules of `rangecast.interop`."""


SystemName = Annotated[System, typer.Argument(metavar="KIND", help="|".join(get_args(System)))]
RejectedRulesFile = Annotated[
    Path | None,
    typer.Option(
        "--rejected",
        help="Write rejected rules to this file (id, place, reason) and import the others.",
    ),
]
UnsupportedFile = Annotated[
    Path | None,
    typer.Option(
        "--unsupported",
        help="Write subscriptions that the system cannot express to this file (id, place, "
        "reason) and export the others.",
    ),
]


def import_(
    kind: SystemName,
    options: OutputOptions,
    rules: Annotated[Path, typer.Argument(help="The rules, in the format of their system.")],
    output: Output = "-",
    space: Annotated[
        Path | None,
        typer.Option(
            "--space", help="The space to import into (default: inferred from the rules)."
        ),
    ] = None,
    space_out: Annotated[
        Path | None,
        typer.Option("--space-out", help="Write the inferred space to this TOML file."),
    ] = None,
    overwrite: Overwrite = False,
    rejected: RejectedRulesFile = None,
    id_property: Annotated[
        str | None,
        typer.Option("--id-property", help="geojson, geoparquet: the property with the id."),
    ] = None,
) -> None:
    """Convert the rules of another system to subscriptions.

    A rule is imported exactly, or it is rejected with the reason. docs/how-to/import.md lists what
    each system supports.

    \b
    Examples:
      rangecast import eventbridge rules.json -o subscriptions.csv --space-out rules.toml
      rangecast import eventbridge rules.json --rejected rejected.csv -o subscriptions.csv
    """
    import pyarrow as pa

    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run, check_new
    from rangecast.errors import UsageError

    if id_property is not None and kind not in ("geojson", "geoparquet"):
        raise UsageError(f"--id-property is only for geojson and geoparquet; given: {kind}")
    named = {} if id_property is None else {"id_property": id_property}
    check_new(space_out, overwrite=overwrite)
    with Run.started(
        output, reads=[rules, space], tables=[rejected], texts=[space_out], options=options
    ) as run:
        where = None if space is None else run.space(space)
        done = import_module(f"rangecast.interop.{kind}").read(run.file(rules), where, **named)
        run.warnings.extend(done.notes)
        _write_rejections(run, done.rejected, rejected, "rule", "--rejected")
        columns = {"id": pa.string(), "filter": pa.string()}
        run.write(pa.Table.from_pylist(done.subscriptions, pa.schema(columns)), output)
        if space_out is not None and done.space is not None:
            done.space.save(space_out, overwrite=overwrite)
        count = len(done.subscriptions)
        facts = {"subscriptions": count, "rejected": len(done.rejected)}
        run.done(f"{counted(count, 'subscription')}{_left(done.rejected, rejected)}", None, facts)


def export(
    kind: SystemName,
    subscriptions: SubscriptionsFile,
    space: SpaceFile,
    options: SubscriptionOptions,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", help="The file of rules, replaced if it exists; - is stdout."
        ),
    ] = "-",
    unsupported: UnsupportedFile = None,
) -> None:
    """Write subscriptions as rules of another system.

    A subscription is exported exactly, or it is unsupported, with the reason.

    \b
    Examples:
      rangecast export eventbridge subscriptions.csv --space space.toml -o rules.json
    """
    import sys

    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run
    from rangecast.cli.shared.stdin import is_pipe
    from rangecast.errors import UsageError
    from rangecast.model.io.atomic import write_whole
    from rangecast.model.io.writer import unwritable

    if kind in ("geoparquet", "tile38"):
        raise UsageError(f"{kind} can only be imported; export geojson instead")
    with Run.started(
        reads=[subscriptions, space], tables=[unsupported], texts=[output], options=options
    ) as run:
        where = run.space(space)
        boxes = run.subscriptions(subscriptions, where)
        done = import_module(f"rangecast.interop.{kind}").write(boxes, where)
        run.warnings.extend(done.notes)
        _write_rejections(run, done.unsupported, unsupported, "subscription", "--unsupported")
        if is_pipe(output):
            sys.stdout.write(done.text)
        else:
            try:
                write_whole(output, done.text.encode())
            except OSError as error:
                raise unwritable(output, error) from None
        count = len(done.rules)
        facts = {"rules": count, "unsupported": len(done.unsupported), "output": output}
        run.done(f"{counted(count, 'rule')}{_left(done.unsupported, unsupported)}", None, facts)


def _write_rejections(
    run: Run, rejections: Sequence[Rejection], path: Path | None, noun: str, option: str
) -> None:
    """Write the rejections, or raise the first one if there is no file for them."""
    from rangecast.cli.shared.output import counted
    from rangecast.errors import UsageError

    if path is not None:
        import pyarrow as pa

        rows = [
            {"id": rejection.id, "place": rejection.place, "reason": rejection.reason}
            for rejection in rejections
        ]
        columns = dict.fromkeys(("id", "place", "reason"), pa.string())
        run.write(pa.Table.from_pylist(rows, pa.schema(columns)), path)
    elif rejections:
        first = rejections[0]
        where = f", {first.place}" if first.place else ""
        raise UsageError(
            f"{counted(len(rejections), noun)} can't be converted exactly; the first: "
            f"{first.id}{where}: {first.reason}\n"
            f"  hint: correct it, or list such rows in a file with {option} FILE"
        )


def _left(rejections: Sequence[Rejection], path: Path | None) -> str:
    return "" if path is None else f", {len(rejections):,} not converted, listed in {path}:"
