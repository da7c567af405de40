"""`rangecast generate`: write a workload, seeded, in the file formats of everything else."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.options import Json, Quiet, Seed


class Format(Enum):
    """The file formats that can be written."""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"
    ARROW = "arrow"


def generate(
    name: Annotated[
        str | None, typer.Argument(help="The workload, such as market; --list shows all.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")] = Path(
        "data"
    ),
    subscriptions: Annotated[
        int | None, typer.Option("--subscriptions", help="Short for --set subscriptions=N.")
    ] = None,
    events: Annotated[
        int | None, typer.Option("--events", help="Short for --set events=N.")
    ] = None,
    seed: Seed = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter: name=value. May be repeated.")
    ] = None,
    kind: Annotated[
        Format, typer.Option("--format", help="The format of the tables.")
    ] = Format.PARQUET,
    listed: Annotated[
        bool, typer.Option("--list", help="Show the workloads and their parameters, and exit.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a workload: its tables, and space.toml. The same seed gives the same files."""
    from rangecast.cli.output import summary
    from rangecast.errors import FileError, UsageError, near
    from rangecast.model.files import write_table
    from rangecast.workloads import WORKLOADS

    if listed:
        _show_all()
        return
    if name not in WORKLOADS:
        raise UsageError(f"no workload {name or ''!r}: {near(name or '', list(WORKLOADS))}")
    generator = WORKLOADS[name]
    texts = list(settings or [])
    for short, value in (("subscriptions", subscriptions), ("events", events)):
        if value is not None:
            texts.append(f"{short}={value}")
    made = generator.generate(seed=seed, **generator.settings(texts))
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{output}: can't be written: {error.strerror}") from None
    written = {}
    for table, rows in made.tables.items():
        path = output / f"{table}.{kind.value}"
        write_table(rows, path)
        written[str(path)] = rows.num_rows
    if made.space is not None:
        made.space.save(output / "space.toml")
    listing = ", ".join(f"{path} ({rows:,} rows)" for path, rows in written.items())
    facts = {"workload": name, "seed": seed, "files": written}
    summary(f"{name}, seed {seed}: {listing}", facts, as_json=as_json, quiet=quiet)


def _show_all() -> None:
    from rich.console import Console
    from rich.table import Table

    from rangecast.workloads import WORKLOADS

    table = Table(title="workloads: rangecast generate NAME --set parameter=value")
    for heading in ("name", "what it is", "from", "parameters (default)"):
        table.add_column(heading)
    for one in WORKLOADS.values():
        parameters = "\n".join(f"{p.name} ({p.default}): {p.meaning}" for p in one.parameters)
        table.add_row(one.name, one.description, one.source, parameters, end_section=True)
    Console(highlight=False).print(table, markup=False)
