"""The frame of every benchmark and experiment: what to run, how large, and where its page goes.

A benchmark is a module with `run(report, quick=...)`; an experiment one with `SIZES`, `SEED` and
`run(report, size, seed)`. A page says which command made it, and at which size. It goes to docs/,
but a smaller run never replaces the page of a larger one: then, and when quick, it goes to out/.
"""

from __future__ import annotations

import argparse
import importlib
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rich.table
from rich.console import Console

from rangecast.experiments.timing import machine
from rangecast.report.markdown import Page, Table, cell

ROOT = Path(__file__).parents[1]
SIZES = ("quick", "usual", "full")
"""From the smallest to the largest; a benchmark has the first two."""

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


def folder_of(kind: str, name: str, size: str) -> Path:
    """Return where the page of a run goes."""
    docs = ROOT / "docs" / kind
    if size == "quick" or SIZES.index(size) < SIZES.index(_made_at(docs / f"{name}.md")):
        return ROOT / "out" / kind
    return docs


def _made_at(page: Path) -> str:
    """Return the size at which a page was made."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    found = re.search(r"`python -m \w+ \w+ --(quick|full)\b", text)
    return found[1] if found else "usual"


def run(
    kind: str, name: str, size: str, *, seed: int | None = None, folder: Path | None = None
) -> Path:
    """Run a benchmark or an experiment, write its page, and return where it is."""
    began = time.perf_counter()
    module = importlib.import_module(f"{kind}.{name}")
    where = folder or folder_of(kind, name, size)
    command = f"python -m {kind} {name}" + ("" if size == "usual" else f" --{size}")
    if kind == "benchmarks":
        quick = size == "quick"
        tiny = ": tiny sizes, at which expectations of large ones mean nothing" if quick else ""
        report = Report(where / f"{name}.md", f"Made by `{command}`{tiny}.")
        module.run(report, quick=quick)
    else:
        seed = module.SEED if seed is None else seed
        sizes = module.SIZES[size]
        report = Report(where / f"{name}.md", f"Made by `{command}`: {_told(sizes)}; seed {seed}.")
        module.run(report, sizes, seed)
    report.write()
    console.print(f"{report.path}: written in {time.perf_counter() - began:.0f} s")
    return report.path


def _told(size: Any) -> str:
    """Return the fields of a size in words."""
    told = []
    for name, value in size._asdict().items():
        values = value if isinstance(value, tuple) else (value,)
        told.append(f"{name.replace('_', ' ')} {', '.join(map(cell, values))}")
    return "; ".join(told)


def main(kind: str, about: Mapping[str, str]) -> None:
    """Run what the command line names."""
    listed = "\n".join(f"  {name:<12}{text}" for name, text in about.items())
    parser = argparse.ArgumentParser(
        prog=f"python -m {kind}",
        description=f"Run {kind}:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="all of them if none is named")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write the pages here")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    if kind == "experiments":
        how.add_argument("--full", action="store_true", help="the papers' sizes; may take hours")
        parser.add_argument("--seed", type=int, help="other random numbers than usual")
    given = vars(parser.parse_args())
    for name in given["names"]:
        if name not in about:
            parser.error(f"there is no {name!r}; choose from: {', '.join(about)}")
    size = next((size for size in SIZES if given.get(size)), "usual")
    for name in given["names"] or about:
        run(kind, name, size, seed=given.get("seed"), folder=given["output"])
