"""The frame of every benchmark: what to run, how large, and where its page goes.

A benchmark is a module with `run(report, quick=...)`. A page says which command made it. It goes to
docs/reference/, but that of a quick run to out/.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import rich.table
from rich.console import Console

from benchmarks.compare import complaints
from experiments.timing import machine
from rangecast.report.markdown import Page, Table

ROOT = Path(__file__).parents[1]

console = Console(highlight=False, width=max(Console().width, 165))


class Report(Page):
    """A page of measurements; the tables that are added to it are also printed."""

    def __init__(self, path: Path, made: str):
        super().__init__(path)
        self.made = made

    def begin(self, title: str, text: str, *packages: str) -> None:
        """Begin the page: the title, how it was made, what to know, and the machine."""
        for block in (f"# {title}", self.made, text, machine(("numpy", "numba", *packages))):
            self.text(block)

    def table(self, table: Table, *, at: int | None = None) -> None:
        super().table(table, at=at)
        show(table)


def show(table: Table) -> None:
    """Print a table."""
    printed = rich.table.Table(title=table.title, title_justify="left")
    for place, heading in enumerate(table.headings):
        printed.add_column(heading, justify="right" if place else "left", no_wrap=not place)
    for row in table.texts():
        printed.add_row(*row)
    console.print(printed, markup=False)


def run(name: str, *, quick: bool, folder: Path | None = None) -> Path:
    """Run a benchmark, write its page, and return where it is."""
    began = time.perf_counter()
    module = importlib.import_module(f"benchmarks.{name}")
    where = folder or ROOT / ("out" if quick else "docs/reference") / "benchmarks"
    made = ": tiny sizes, at which expectations of large ones mean nothing" if quick else made_on()
    command = f"python -m benchmarks {name}" + (" --quick" if quick else "")
    report = Report(where / f"{name}.md", f"Made by `{command}`{made}.")
    module.run(report, quick=quick)
    report.write()
    console.print(f"{report.path}: written in {time.perf_counter() - began:.0f} s")
    return report.path


def made_on() -> str:
    """Return when a page is made, from which source, and the load of the machine."""
    return f" on {time.strftime('%Y-%m-%d')}, {_source()}, load {os.getloadavg()[0]:.1f} before"


def _source() -> str:
    """Return which source was measured: its commit, and whether it was edited since."""
    describe = ("describe", "--always", "--dirty=, edited since", "--exclude=*")
    try:
        told = subprocess.run(
            ("git", "-C", str(ROOT), *describe), check=True, capture_output=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "commit unknown"
    return f"commit {told}"


def main(about: Mapping[str, str]) -> None:
    """Run what the command line names."""
    listed = "\n".join(f"  {name:<12}{text}" for name, text in about.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"Run benchmarks:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="all of them if none is named")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write the pages here")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument(
        "--compare",
        type=Path,
        metavar="FOLDER",
        help="say what is 20%% worse than on the pages in this folder, of an earlier run with "
        "--output; then the exit code is 1",
    )
    given = parser.parse_args()
    for name in given.names:
        if name not in about:
            parser.error(f"there is no {name!r}; choose from: {', '.join(about)}")
    before = given.compare
    for name in given.names or about:
        if before is not None and not (before / f"{name}.md").is_file():
            parser.error(f"there is no page to compare with: {before / name}.md")
    is_worse = False
    for name in given.names or about:
        page = run(name, quick=given.quick, folder=given.output)
        found = None if before is None else complaints(before, page)
        if found is not None:
            is_worse = True
            show(found)
    sys.exit(int(is_worse))
