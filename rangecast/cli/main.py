"""The `rangecast` command. Commands load when they are called, so that `--help` is quick."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from rangecast import __version__
from rangecast.cli import (
    carry,
    check,
    cover,
    demo,
    experiment,
    generate,
    match,
    merge,
    network,
    notify,
    pipeline,
    rank,
    remote,
    report,
    route,
    serve,
    serverlog,
    space,
    verify,
    warm,
    why,
    worker,
)
from rangecast.cli import (
    filter as filtering,
)
from rangecast.cli.number_options import reworded
from rangecast.cli.signals import ending_on_sigterm
from rangecast.errors import FULL, RangecastError

_COMMANDS: dict[str, tuple[typer.Typer | Callable[..., None], str]] = {
    "match": (match.match, "Find the subscriptions that hold each event."),
    "rank": (rank.rank, "Find the k best subscriptions of each event."),
    "cover": (cover.cover, "Find the subscriptions that others make redundant."),
    "merge": (merge.merge, "Sum subscriptions up into a few ranges."),
    "filter": (filtering.filter_, "Let through the events that a summary holds."),
    "notify": (notify.notify, "Keep top-k lists up to date with the fewest messages."),
    "network": (network.network, "Compare what messages cost in a network of brokers."),
    "route": (route.app, "Send events through a network of brokers; break it."),
    "serve": (serve.serve, "Serve subscriptions and events over HTTP, durably."),
    "worker": (worker.app, "Share the matching of a topic of Kafka."),
    "publish": (remote.publish, "Publish events to a server."),
    "subscribe": (remote.subscribe, "Subscribe at a server, and follow the matches."),
    "token": (remote.token, "Make a token for a server."),
    "log": (serverlog.app, "Look at a server's log: check, dump, export, verify, repair."),
    "check": (check.check, "Show what a filter means, covers and would have matched."),
    "why": (why.why, "Explain why a subscription holds an event, or doesn't."),
    "verify": (verify.verify, "Prove that a result of matching is right."),
    "report": (report.report, "Make a page of a result of matching."),
    "space": (space.app, "Guess a space from data."),
    "generate": (generate.app, "Make data to try: events, subscriptions, their space."),
    "import": (carry.import_, "Make subscriptions of the rules of another system."),
    "export": (carry.export, "Write subscriptions as rules of another system."),
    "pipeline": (pipeline.app, "Run pipelines on Spark, batch and streaming."),
    "experiment": (experiment.app, "Run the papers' tables and figures again."),
    "warm": (warm.warm, "Compile kernels ahead, for a quick first answer."),
    "demo": (demo.demo, "Run the market example on Spark, from data to a page."),
}
"""In the order of help, and what that lists: a line of 80 characters. The docstrings say more."""


class _InOrder(TyperGroup):
    """Lists all commands in one order; typer lists groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = reworded(error) or error.message
            raise


app = typer.Typer(
    name="rangecast",
    cls=_InOrder,
    help="Content-based publish/subscribe over ranges: which subscriptions hold an event?",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, (_command, _text) in _COMMANDS.items():
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name, short_help=_text)
    else:
        app.command(_name, short_help=_text)(_command)


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    shown: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


def main() -> None:
    """Run a command.

    Exit codes: 0 fine; 2 what a user can mend; 1 an internal error, or what `verify` found; 130 and
    143 ended by Ctrl-C and by SIGTERM.
    """
    try:
        with ending_on_sigterm():
            app()
    except RangecastError as error:
        _fail(str(error), 2)
    except MemoryError:
        _fail("not enough memory for this; use a smaller set", 1)
    except OSError as error:
        if error.errno not in FULL:
            _internal(error)
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror}; free some space, or use another disk", 2)
    except Exception as error:
        _internal(error)


def _internal(error: Exception) -> NoReturn:
    if os.environ.get("RANGECAST_TRACEBACK"):
        raise error
    text = f"internal error ({type(error).__name__}): {error}"
    _fail(f"{text}; please report it with the output of RANGECAST_TRACEBACK=1", 1)


def _fail(text: str, code: int) -> NoReturn:
    """End with an error: a line for a person, or JSON."""
    try:
        sys.stdout.flush()
    except OSError:  # what can't be written now can't be at the end either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    said = json.dumps({"error": text}) if "--json" in sys.argv else f"rangecast: {text}"
    print(said, file=sys.stderr)
    sys.exit(code)
