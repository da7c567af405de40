"""What commands tell a person or a machine while and after they work.

All of it goes to stderr, except that a summary as JSON goes to stdout where no data does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

if TYPE_CHECKING:
    from rangecast.kernels.jit import Compiling

console = Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def progress(*, quiet: bool, output: str | None = None) -> Iterator[Progress]:
    """Show progress bars on a terminal, nothing elsewhere.

    Nor are there any where data is written to that terminal meanwhile: `output` is `-` then.
    """
    shown = sys.stderr.isatty() and not (output == "-" and sys.stdout.isatty())
    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=quiet or not shown,
    )
    with bars:
        yield bars


@contextmanager
def compiling(*, quiet: bool, indent: str = "") -> Iterator[Compiling]:
    """Say so when kernels must be compiled, which makes a first run slow; add up how long."""
    from rangecast.kernels.jit import noticing

    def tell() -> None:
        if not quiet:
            console.print(f"{indent}{_COMPILING}")

    with noticing(tell) as listener:
        yield listener


_COMPILING = "compiling kernels: once after an installation, up to a minute for each command"


def summary(text: str, facts: dict[str, Any], *, as_json: bool, quiet: bool) -> None:
    """Tell what was done: a sentence, or all facts as one line of JSON.

    JSON goes to stdout, unless the fact `output` says that the result went there.
    """
    if as_json:
        print_json(facts, output=facts.get("output"))
    elif not quiet:
        for warning in facts.get("warnings", []):
            console.print(f"warning: {warning}", markup=False)
        console.print(text, markup=False)


def print_json(facts: dict[str, Any], *, output: object = None) -> None:
    """Print facts for a machine: on stdout, or on stderr where stdout has the result."""
    stream = sys.stderr if output == "-" else sys.stdout
    print(json.dumps(facts, default=str), file=stream, flush=True)


def per_second(count: int, seconds: float) -> str:
    """Return a rate for a person."""
    return f"{count / max(seconds, 1e-9):,.0f}/s"


def taken(count: int, seconds: float, compiled: float = 0.0) -> str:
    """Return how long so many took, and their rate without the time that went into compiling."""
    of_it = f", {compiled:.2f} s of it compiling" if compiled >= 0.01 else ""
    return f"in {seconds:.2f} s{of_it} ({per_second(count, seconds - compiled)})"


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a number of things in words: 1 row, 2 rows."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
