"""The `rangecast` command. Commands load on demand, so that `--help` is quick."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from rangecast import __version__
from rangecast.cli.commands.data import generate, import_export, space
from rangecast.cli.commands.events import check, count, match, rank, report, verify, why, why_not
from rangecast.cli.commands.networks import precompile, route
from rangecast.cli.commands.server import consumers, log, publish, serve, subscribe, worker
from rangecast.cli.commands.sets import cover, merge, notify
from rangecast.cli.commands.sets import filter as filtering
from rangecast.cli.commands.spark import demo, pipeline
from rangecast.cli.shared.number_options import number_error
from rangecast.cli.shared.option_groups import App
from rangecast.cli.signals import ending_on_sigterm
from rangecast.errors import FULL, RangecastError, for_interface

_Command = typer.Typer | Callable[..., None]
_GROUPS: dict[str, dict[str, tuple[_Command, str]]] = {
    "Events and subscriptions": {
        "match": (match.match, "Find the subscriptions that match each event."),
        "rank": (rank.rank, "Find the top k subscriptions of each event."),
        "count": (count.count, "Count the subscriptions that match each event."),
        "why": (why.why, "Explain why a subscription matches an event, or doesn't."),
        "why-not": (why_not.why_not, "Find the subscriptions that an event nearly matches."),
        "check": (check.check, "Show what a filter means, covers and would have matched."),
        "verify": (verify.verify, "Verify that a match result is correct."),
        "report": (report.report, "Write an HTML page about a match result."),
    },
    "Sets of subscriptions": {
        "cover": (cover.cover, "Find the subscriptions that others make redundant."),
        "merge": (merge.merge, "Summarize subscriptions as a few ranges."),
        "filter": (filtering.filter_, "Pass on the events that may match a summary."),
        "notify": (notify.notify, "Keep top-k lists up to date with the fewest messages."),
    },
    "Server": {
        "serve": (serve.serve, "Serve subscriptions and events over HTTP, durably."),
        "publish": (publish.publish, "Publish events to a server."),
        "subscribe": (
            subscribe.subscribe,
            "Subscribe to events of a server, and follow the matches.",
        ),
        "unsubscribe": (subscribe.unsubscribe, "Remove subscriptions from a server."),
        "consumers": (consumers.consumers, "List, show and delete the consumers of a server."),
        "status": (publish.status, "Show the state of a server."),
        "token": (publish.token, "Create a token for a server."),
        "log": (log.app, "Read a server's log: check, dump, export, verify, repair."),
        "worker": (worker.app, "Share the matching of a Kafka topic."),
    },
    "Data": {
        "space": (space.app, "Infer a space from data."),
        "generate": (generate.app, "Generate events, subscriptions and their space."),
        "import": (import_export.import_, "Convert the rules of another system to subscriptions."),
        "export": (import_export.export, "Write subscriptions as rules of another system."),
    },
    "Spark": {
        "pipeline": (pipeline.app, "Run pipelines on Spark, batch and streaming."),
        "demo": (demo.demo, "Run the market example on Spark, from data to a page."),
    },
    "Networks and research": {
        "route": (route.app, "Route events through a network of brokers; inject faults."),
        "precompile": (
            precompile.precompile,
            "Compile kernels ahead of time, for a fast first answer.",
        ),
    },
}
"""Commands as listed by `--help`, one line of 80 characters each. The docstrings have the details.
"""
_COMMANDS = {name: command for group in _GROUPS.values() for name, command in group.items()}


class _TopicGroup(TyperGroup):
    """Command group whose help lists all commands by topic."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, _COMMANDS))
        for title, names in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", _COMMANDS[name][1]) for name in names])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = number_error(error) or error.message
            raise


app = App(
    name="rangecast",
    cls=_TopicGroup,
    help="Content-based publish/subscribe over ranges: which subscriptions match an event?",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, (_command, _text) in _COMMANDS.items():
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name, short_help=_text)
    else:
        _class = serve.ServeCommand if _command is serve.serve else None
        app.command(_name, cls=_class, short_help=_text)(_command)


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


_SIGNALLED = (130, 143)
"""Exit codes of commands ended by Ctrl-C and SIGTERM."""


def main(application: Callable[[], Any] = app) -> None:
    """Run a command of an application; map errors to one line and an exit code.

    Exit codes: 0 success; 2 an error that the user can fix; 1 an internal error, or differences
    found by `verify`; 130 and 143 ended by Ctrl-C and by SIGTERM.
    """
    try:
        with ending_on_sigterm():
            application()
    except SystemExit as end:
        if end.code in _SIGNALLED:
            _leave(end.code)
        raise
    except KeyboardInterrupt:
        _leave(_SIGNALLED[0])
    except RangecastError as error:
        _fail(for_interface(str(error), "shell"), 2)
    except MemoryError:
        _fail("not enough memory; use a smaller set", 1)
    except OSError as error:
        if error.errno not in FULL:
            _internal(error)
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror}; free some space, or use another disk", 2)
    except Exception as error:
        _internal(error)


def _leave(code: int) -> NoReturn:
    """Exit after a signal without finalizing the interpreter.

    Arrow's threads may be running Python code, which would abort a finalizing process.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _internal(error: Exception) -> NoReturn:
    if os.environ.get("RANGECAST_TRACEBACK"):
        raise error
    text = f"internal error ({type(error).__name__}): {error}"
    _fail(f"{text}; please report it with the output of RANGECAST_TRACEBACK=1", 1)


def _fail(text: str, code: int) -> NoReturn:
    """Report an error, as a line of text or as JSON, and exit."""
    try:
        sys.stdout.flush()
    except OSError:  # what can't be written now can't be at the end either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    output = json.dumps({"error": text}) if "--json" in sys.argv else f"rangecast: {text}"
    print(output, file=sys.stderr)
    sys.exit(code)
