"""The `rangecast` command. Commands load when they are called, so that `--help` is quick."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version

import typer

from rangecast.cli import (
    cover,
    demo,
    generate,
    match,
    merge,
    notify,
    pipeline,
    rank,
    report,
    verify,
    why,
)
from rangecast.errors import RangecastError

app = typer.Typer(
    name="rangecast",
    help="Content-based publish/subscribe over ranges: which subscriptions hold an event?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(version("rangecast"))
        raise typer.Exit


@app.callback()
def _root(
    shown: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


app.command("generate")(generate.generate)
app.command("match")(match.match)
app.command("rank")(rank.rank)
app.command("merge")(merge.merge)
app.command("notify")(notify.notify)
app.command("cover")(cover.cover)
app.command("why")(why.why)
app.command("verify")(verify.verify)
app.command("report")(report.report)
app.command("demo")(demo.demo)
app.add_typer(pipeline.app, name="pipeline")


def main() -> None:
    """Run a command. Exit codes: 0 fine, 2 the user's mistake, 1 ours or what `verify` found."""
    try:
        app()
    except RangecastError as error:
        if "--json" in sys.argv:
            print(json.dumps({"error": str(error)}), file=sys.stderr)
        else:
            print(f"rangecast: {error}", file=sys.stderr)
        sys.exit(2)
    except MemoryError:
        print("rangecast: not enough memory for this; use a smaller set", file=sys.stderr)
        sys.exit(1)
    except Exception as error:
        if os.environ.get("RANGECAST_TRACEBACK"):
            raise
        print(
            f"rangecast: a fault of ours: {type(error).__name__}: {error}\n"
            "  please report it, with what RANGECAST_TRACEBACK=1 shows",
            file=sys.stderr,
        )
        sys.exit(1)
