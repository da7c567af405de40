"""`rangecast generate`: write a workload, seeded, in the file formats of everything else."""

from __future__ import annotations

from collections.abc import Sequence
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
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write also over files that aren't generate's.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a workload: its tables, and space.toml. The same seed gives the same files.

    Files that an earlier generate wrote into the folder are replaced; others, and those that were
    changed since, only with --overwrite.
    """
    from rangecast.cli.output import counted, summary
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
    tables = {f"{table}.{kind.value}": rows for table, rows in made.tables.items()}
    names = [*tables, *([] if made.space is None else ["space.toml"])]
    if not overwrite:
        _check_ours(output, names)
    for file, rows in tables.items():
        write_table(rows, output / file)
    if made.space is not None:
        made.space.save(output / "space.toml")
    _remember(output, names)
    paths = {file: str(output / file) for file in names}
    sizes = {file: f" ({counted(rows.num_rows, 'row')})" for file, rows in tables.items()}
    listing = ", ".join(path + sizes.get(file, "") for file, path in paths.items())
    facts = {
        "workload": name,
        "seed": seed,
        "files": {paths[file]: rows.num_rows for file, rows in tables.items()},
        "space": paths.get("space.toml"),
    }
    summary(f"{name}, seed {seed}: {listing}", facts, as_json=as_json, quiet=quiet)


_MARK = ".rangecast-generate"
"""In the folder: the files that were written into it, each with a hash of what it held."""


def _hash(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _written(folder: Path) -> dict[str, str]:
    """Return what earlier calls wrote."""
    import json

    try:
        return dict(json.loads((folder / _MARK).read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def _check_ours(folder: Path, names: Sequence[str]) -> None:
    """Refuse to write over a file that generate didn't write, or that was changed since."""
    from rangecast.errors import FileError

    ours = _written(folder)
    for name in names:
        path = folder / name
        if path.exists() and (path.is_dir() or ours.get(name) != _hash(path)):
            what = "was changed since it was generated" if name in ours else "wasn't generated"
            raise FileError(
                f"{path}: is there already, and {what}\n"
                "  to do: choose another folder with -o, or replace it with --overwrite"
            )


def _remember(folder: Path, names: Sequence[str]) -> None:
    import json

    hashes = _written(folder) | {name: _hash(folder / name) for name in names}
    (folder / _MARK).write_text(json.dumps(hashes, indent=1) + "\n")


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
