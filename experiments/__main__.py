"""`python -m experiments`: run the papers' tables and figures again, and show them beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rangecast.cli.shared.option_groups import App, EngineOptions, OutputOptions

app = App(
    name="experiments",
    help="The papers' tables and figures: what they print, and what comes out here.",
    pretty_exceptions_enable=False,
)


@app.command("list", short_help="List all experiments.")
def list_() -> None:
    """List all experiments: name, paper, tables and figures, title.

    \b
    Examples:
      python -m experiments list
    """
    from experiments.papers import PAPERS

    for paper in PAPERS:
        for one in paper.experiments():
            parts = ", ".join(one.parts)
            print(f"{one.name:20} {paper.heading.partition(':')[0]}: {one.title}: {parts}")


@app.command("show", short_help="Show what one measures, and the paper's values.")
def show(
    name: Annotated[str, typer.Argument(help="An experiment; `list` lists them.")],
) -> None:
    """Show what an experiment measures, what the paper prints, and how large it is.

    \b
    Examples:
      python -m experiments show vcr-overlap
    """
    from experiments.page import described
    from experiments.papers import chosen, experiment

    print("\n\n".join(described(experiment(one)) for one in chosen([name])))


@app.command("run", short_help="Run some, or all, and write their pages.")
def run(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="Experiments, papers (vcr or 002), or all."),
    ],
    on: EngineOptions,
    options: OutputOptions,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes: minutes for all, instead of hours.")
    ] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder for the pages and the rows.")
    ] = Path("out"),
    seed: Annotated[
        int | None, typer.Option("--seed", help="Other random numbers than each experiment's own.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Measure also the rows that are there already.")
    ] = False,
) -> None:
    """Run experiments and write their pages: RESULTS.md, and experiments/ with a page per paper.

    A run that was stopped goes on where it was: finished rows are kept in experiments/rows.jsonl.
    With --engine spark, rows that count and don't measure time run on all cores.

    \b
    Examples:
      python -m experiments run all --quick
      python -m experiments run vcr-overlap rank -o results
    """
    from experiments.papers import chosen
    from experiments.run import run as run_experiments
    from rangecast.cli.shared.output import counted
    from rangecast.cli.shared.run import Run

    wanted = chosen(names)
    with Run.started(options=options) as frame:
        pages = run_experiments(
            wanted,
            output,
            size="quick" if quick else "full",
            seed=seed,
            again=again,
            spark=frame.spark(on.master) if on.is_spark else None,
            say=frame.say,
        )
        text = f"{counted(len(wanted), 'experiment')}: {', '.join(map(str, pages))}"
        facts = {"experiments": wanted, "pages": [str(page) for page in pages], "output": output}
        frame.done(text, None, facts)


if __name__ == "__main__":
    from rangecast.cli.main import main

    main(app)
