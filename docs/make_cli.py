"""The reference of the command line, from the help of every command: `make reference`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any

import typer

from rangecast.cli.main import app

HEAD = """\
# The command line

Generated from the help of the commands by `make reference`. `rangecast COMMAND --help` shows the
same text, and `rangecast --install-completion` completes commands, options and values.

Exit codes: 0, success; 1, an internal error, or a difference that `verify` has found; 2, an error
that the caller can correct; 130 and 143, stopped by Ctrl-C and by SIGTERM.

"""
WIDTH = 100
_VERBATIM = "\b"
"""Begins a paragraph of a help text whose lines stay as they are."""


def commands() -> Iterator[tuple[Any, Any]]:
    """Yield every command and subcommand, parents first, each with its context."""
    yield from _walk(typer.main.get_command(app), "rangecast", None)


def _walk(command: Any, name: str, parent: Any) -> Iterator[tuple[Any, Any]]:
    context = command.context_class(
        command,
        info_name=name,
        parent=parent,
        **command.context_settings,
    )
    context.terminal_width = WIDTH
    yield command, context
    for each in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from _walk(command.get_command(context, each), each, context)


def page() -> str:
    """Return the page as Markdown."""
    listed = list(commands())[1:]
    contents = "| command | |\n| --- | --- |\n"
    for command, context in listed:
        link = f"[`{context.command_path}`](#{_anchor(context)})"
        contents += f"| {link} | {_cell(command.get_short_help_str(limit=WIDTH))} |\n"
    return HEAD + contents + "".join(_section(*each) for each in listed)


def _anchor(context: Any) -> str:
    return re.sub(r"[^\w\- ]", "", context.command_path.lower()).replace(" ", "-")


def _section(command: Any, context: Any) -> str:
    depth = "##" if context.parent.parent is None else "###"
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    shown = f"\n{depth} {context.command_path}\n\n```sh\n{usage}\n```\n"
    for block in (command.help or command.get_short_help_str()).split("\n\n"):
        shown += _verbatim(block) if block.startswith(_VERBATIM) else f"\n{_prose(block)}\n"
    rows = [(each.param_type_name, each.get_help_record(context)) for each in command.params]
    for kind in ("argument", "option"):
        if of_kind := [record for each, record in rows if each == kind and record]:
            shown += f"\n| {kind} | |\n| --- | --- |\n"
            shown += "".join(f"| `{name}` | {_cell(text)} |\n" for name, text in of_kind)
    return shown


def _verbatim(block: str) -> str:
    title, _, lines = block.removeprefix(_VERBATIM).strip("\n").partition("\n")
    return f"\n{title}\n\n```sh\n{textwrap.dedent(lines)}\n```\n"


def _prose(block: str) -> str:
    return _escaped(textwrap.fill(" ".join(block.split()), WIDTH, break_on_hyphens=False))


def _cell(text: str) -> str:
    return _escaped(" ".join(text.split())).replace("|", "\\|")


def _escaped(text: str) -> str:
    """Keep `<attribute>_lo` and `*` in plain text from being read as HTML or emphasis."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(each if each[:1] == "`" else re.sub(r"([<*_])", r"\\\1", each) for each in parts)
