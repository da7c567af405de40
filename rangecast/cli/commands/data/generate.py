"""`rangecast generate`: write a seeded workload, in the same file formats as all other commands.

Each workload is a command with its own options, made from the signature of its generator on demand,
so that `rangecast --help` need not load NumPy.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperGroup

from rangecast.cli.shared.option_groups import App, OutputOptions
from rangecast.cli.shared.options import Format, Seed

if TYPE_CHECKING:
    from rangecast.workloads import Generator


class _Workloads(TyperGroup):
    """A command per workload."""

    def list_commands(self, ctx: Any) -> list[str]:
        from rangecast.workloads import WORKLOADS

        return list(WORKLOADS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from rangecast.workloads.base import named

        return _command(named(cmd_name))


app = App(
    cls=_Workloads,
    help="Write a workload: its tables, and space.toml. The same seed gives the same files.",
)


def _command(generator: Generator) -> Any:
    """Return the command of a workload: its parameters, then the output options."""

    def run(**arguments: Any) -> None:
        settings = {name: arguments.pop(name) for name in generator.parameters}
        _write(generator, settings, **arguments)

    signature = inspect.signature(_write, eval_str=True, locals={"Generator": object})
    declared = signature.parameters.values()
    where = [option for option in declared if option.kind is option.KEYWORD_ONLY]
    what = [_option(parameter) for parameter in generator.parameters.values()]
    run.__signature__ = inspect.Signature([*what, *where])  # type: ignore[attr-defined]
    made = App(add_completion=False, no_args_is_help=False)
    example = f"rangecast generate {generator.name} --seed 1 -o data"
    text = f"{inspect.getdoc(generator.function)}\n\nFrom: {generator.source}."
    text += f"\n\n\b\nExamples:\n  {example}"
    made.command(generator.name, help=text, short_help=generator.description)(run)
    return typer.main.get_command(made)


def _option(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter of a generator as an option; the generator checks its limits."""
    kind, meta = get_args(parameter.annotation)
    return parameter.replace(annotation=Annotated[kind, typer.Option(help=meta.description)])


def _write(
    generator: Generator,
    settings: dict[str, Any],
    *,
    options: OutputOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")] = Path(
        "data"
    ),
    seed: Seed = 0,
    kind: Annotated[Format, typer.Option("--format", help="The format of the tables.")] = "parquet",
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Also replace files that were not written by generate."),
    ] = False,
) -> None:
    """Write the tables and the space.

    Files that an earlier generate wrote into the folder are replaced; others, and those that were
    changed since, only with --overwrite.
    """
    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run
    from rangecast.errors import FileError
    from rangecast.model.io.writer import write_table

    with Run.started(options=options) as run:
        with run.task("generating"):
            made = generator.generate(seed=seed, **settings)
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{output}: can't be written: {error.strerror}") from None
        tables = {f"{table}.{kind}": rows for table, rows in made.tables.items()}
        names = [*tables, "space.toml"]
        if not overwrite:
            _check_ours(output, names)
        for file, rows in tables.items():
            write_table(rows, output / file)
        made.space.save(output / "space.toml", overwrite=True)
        _remember(output, names)
        paths = {file: str(output / file) for file in names}
        sizes = {file: f" ({counted(rows.num_rows, 'row')})" for file, rows in tables.items()}
        listing = ", ".join(path + sizes.get(file, "") for file, path in paths.items())
        facts = {
            "workload": generator.name,
            "seed": seed,
            "files": {paths[file]: rows.num_rows for file, rows in tables.items()},
            "space": paths["space.toml"],
            "output": output,
        }
        run.done(f"{generator.name}, seed {seed}: {listing}", None, facts)


_MARK = ".rangecast-generate"
"""File in the folder that lists the files written, each with a hash of its contents."""


def _hash(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _written(folder: Path) -> dict[str, str]:
    """Return the files that earlier calls wrote."""
    import json

    try:
        return dict(json.loads((folder / _MARK).read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def _check_ours(folder: Path, names: Sequence[str]) -> None:
    """Reject overwriting a file that generate didn't write, or that was changed since."""
    from rangecast.errors import FileError

    ours = _written(folder)
    for name in names:
        path = folder / name
        if path.exists() and (path.is_dir() or ours.get(name) != _hash(path)):
            what = "has changed since it was generated" if name in ours else "wasn't generated"
            raise FileError(
                f"{path}: already exists, and {what}\n"
                "  hint: choose another folder with -o, or replace it with --overwrite"
            )


def _remember(folder: Path, names: Sequence[str]) -> None:
    import json

    from rangecast.model.io.atomic import write_whole

    hashes = _written(folder) | {name: _hash(folder / name) for name in names}
    write_whole(folder / _MARK, (json.dumps(hashes, indent=1) + "\n").encode())
