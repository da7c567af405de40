"""`rangecast space`: infer spaces from data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.shared.option_groups import App, OutputOptions
from rangecast.cli.shared.options import Overwrite

app = App()


@app.callback()
def _group() -> None:
    """Infer a space from data."""


@app.command()
def infer(
    events: Annotated[
        Path, typer.Argument(help="Events: .csv, .jsonl, .parquet, .arrow, or - for stdin.")
    ],
    options: OutputOptions,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The TOML file to write; - is stdout.")
    ] = Path("-"),
    bounds: Annotated[
        bool,
        typer.Option(
            "--bounds",
            help="Use the minimum and maximum of the data as bounds; events outside are rejected.",
        ),
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Infer the type of every column of a file, and write them as a space.

    The inferred type of each column and the reason are printed, and written as a comment. The
    column id and columns that can't be attributes are omitted. Nested fields get a `source`. All
    rows are read. Edit the file where a guess is wrong.

    \b
    Examples:
      rangecast space infer events.csv -o space.toml
      cat events.csv | rangecast space infer - > space.toml
    """
    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run, check_new
    from rangecast.cli.shared.stdin import is_pipe
    from rangecast.model.space import Space, inferred_line

    check_new(output, overwrite=overwrite)
    with Run.started(reads=[events], texts=[output], options=options) as run:
        with run.task("reading events"):
            space = Space.infer(run.file(events), bounds=bounds)
        if is_pipe(output):
            print(space.to_toml(), end="")
        else:
            space.save(output, overwrite=overwrite)
        for name, guess in space.guesses.items():
            run.say(inferred_line(name, guess))
        left_out = len(space.guesses) - len(space)
        text = f"{counted(len(space), 'attribute')}, {counted(left_out, 'column')} left out"
        run.done(text, None, {"guesses": space.guesses, "output": str(output)})
