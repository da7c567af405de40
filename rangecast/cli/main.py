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


# What `--help` lists has a line of 80 characters; the docstrings say more.
app.add_typer(
    generate.app,
    name="generate",
    short_help="Make data to try: events, subscriptions, their space.",
)
app.command("match", short_help="Find the subscriptions that hold each event.")(match.match)
app.command("rank", short_help="Find the k best subscriptions of each event.")(rank.rank)
app.command("merge", short_help="Sum subscriptions up into a few ranges.")(merge.merge)
app.command("notify", short_help="Keep top-k lists up to date with the fewest messages.")(
    notify.notify
)
app.command("cover", short_help="Find the subscriptions that others make redundant.")(cover.cover)
app.command("why", short_help="Explain why a subscription holds an event, or doesn't.")(why.why)
app.command("verify", short_help="Prove that a result of matching is right.")(verify.verify)
app.command("report", short_help="Make a page of a result of matching.")(report.report)
app.command("demo", short_help="Run the market example on Spark, from data to a page.")(demo.demo)
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
