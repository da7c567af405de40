"""What commands tell a person or a machine while and after they work; all of it on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

console = Console(stderr=True, highlight=False, soft_wrap=True)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Progress]:
    """Show progress bars on a terminal, nothing elsewhere."""
    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=quiet or not sys.stderr.isatty(),
    )
    with bars:
        yield bars


def summary(text: str, facts: dict[str, Any], *, as_json: bool, quiet: bool) -> None:
    """Tell what was done: a sentence, or all facts as one line of JSON."""
    if as_json:
        print(json.dumps(facts, default=str), file=sys.stderr)
    elif not quiet:
        for warning in facts.get("warnings", []):
            console.print(f"warning: {warning}", markup=False)
        console.print(text, markup=False)


def per_second(count: int, seconds: float) -> str:
    """Return a rate for a person."""
    return f"{count / max(seconds, 1e-9):,.0f}/s"
