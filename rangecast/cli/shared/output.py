"""Output of commands, for people and for machines.

All of it goes to stderr, except that a summary as JSON goes to stdout where no data does.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text

from rangecast.model.display import counted as counted

if TYPE_CHECKING:
    from rangecast.kernels.jit import Compiling

console = Console(stderr=True, highlight=False, soft_wrap=True)


class _AmountColumn(ProgressColumn):
    """Progress column: a percentage, if known, and rows."""

    def render(self, task: Task) -> Text:
        share = "" if task.total is None else f"{task.percentage:3.0f}%"
        rows = task.fields.get("rows", int(task.completed))
        return Text(", ".join(filter(None, [share, f"{rows:,} rows" if rows else ""])))


def progress(*, quiet: bool, on_stdout: bool) -> Progress:
    """Return progress bars to start and stop; without a terminal they show nothing.

    They also show nothing if results are written to the same terminal (`on_stdout`).
    """
    shown = sys.stderr.isatty() and not (on_stdout and sys.stdout.isatty())
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        _AmountColumn(),
        console=console,
        transient=True,
        disable=quiet or not shown,
    )


@contextmanager
def compiling(*, quiet: bool) -> Iterator[Compiling]:
    """Report that kernels must be compiled, which makes the first run slow; sum up the time."""
    from rangecast.kernels.jit import timing_compilation

    def report_compiling() -> None:
        if not quiet:
            console.print(_COMPILING)

    logging.getLogger(
        "rangecast.kernels.progress"
    ).disabled = True  # the command reports it instead
    with timing_compilation(report_compiling) as listener:
        yield listener


_COMPILING = "compiling kernels: only once per installation, up to a minute per command"


def per_second(count: int, seconds: float) -> str:
    """Format a rate for display."""
    return f"{count / max(seconds, 1e-9):,.0f}/s"


def taken(seconds: float, compiled: float = 0.0, count: int | None = None) -> str:
    """Return the time taken, and the rate of `count` without the compilation time."""
    text = f"in {seconds:.2f} s"
    if compiled >= 0.01:
        text += f", {compiled:.2f} s of it compiling"
    return text if count is None else f"{text} ({per_second(count, seconds - compiled)})"


def aligned(rows: list[list[str]]) -> str:
    """Return rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(lines)
