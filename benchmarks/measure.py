"""Timing on noisy machines: the least of several runs counts, its spread is shown."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import rich.table
from rich.console import Console

console = Console(highlight=False, width=max(Console().width, 165))


class Table(NamedTuple):
    """A table to print with `show(*table)` and to save."""

    title: str
    headings: list[str]
    rows: list[list[str]]


def best_of(
    work: Callable[[], object], runs: int = 3, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float]:
    """Return the seconds of the fastest run, and how many times that the slowest took.

    `clock=time.process_time` counts the seconds of a core instead, for work of one thread.
    """
    seconds = []
    for _ in range(runs):
        gc.collect()
        began = clock()
        work()
        seconds.append(clock() - began)
    return min(seconds), max(seconds) / min(seconds)


def show(title: str, headings: list[str], rows: list[list[str]]) -> None:
    """Print a table."""
    table = rich.table.Table(title=title, title_justify="left")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=not place)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def peak_memory(arguments: list[str], folder: Path) -> tuple[float, float]:
    """Run a command in a process of its own; return its seconds and its peak memory in MB."""
    code = (
        "import resource, subprocess, sys, time; began = time.perf_counter();"
        "subprocess.run(sys.argv[1:], check=True);"
        "print(time.perf_counter() - began,"
        "resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, megabytes = done.stdout.split()[-2:]
    return float(seconds), float(megabytes)
