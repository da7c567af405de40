"""`rangecast space`: spaces, guessed from data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.shared.option_groups import App, Said
from rangecast.cli.shared.options import Overwrite

app = App()


@app.callback()
def _group() -> None:
    """Guess a space from data."""


@app.command()
def infer(
    events: Annotated[
        Path, typer.Argument(help="Events: .csv, .jsonl, .parquet, .arrow, or - for stdin.")
    ],
    options: Said,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The TOML file to write; - is stdout.")
    ] = Path("-"),
    bounds: Annotated[
        bool,
        typer.Option(
            "--bounds", help="Give min and max of the data; events outside will be rejected."
        ),
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Guess the type of every column of a file, and write them as a space.

    What each column was taken for, and why, is shown, and written beside it as a comment. The
    column id is left out, and so is what can't be an attribute, with the reason. Fields within
    fields have a source. All rows are read. Correct the file where a guess is wrong.

    \b
    Examples:
      rangecast space infer events.csv -o space.toml
      cat events.csv | rangecast space infer - > space.toml
    """
    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run, check_new
    from rangecast.cli.shared.stdin import is_pipe
    from rangecast.model.space import Space, commented

    check_new(output, overwrite=overwrite)
    with Run.started(reads=[events], texts=[output], options=options) as run:
        with run.task("reading events"):
            space = Space.infer(run.file(events), bounds=bounds)
        if is_pipe(output):
            print(space.to_toml(), end="")
        else:
            space.save(output, overwrite=overwrite)
        for name, guess in space.guesses.items():
            run.say(commented(name, guess))
        left_out = len(space.guesses) - len(space)
        text = f"{counted(len(space), 'attribute')}, {counted(left_out, 'column')} left out"
        run.done(text, None, {"guesses": space.guesses, "output": str(output)})
