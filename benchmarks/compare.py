"""Compare a run of benchmarks with an earlier one, by their pages.

    python -m benchmarks match --output before       # then change something
    python -m benchmarks match --output after --compare before

Numbers are compared by table, row and heading. A heading says whether more is better: ratios to a
peer and rates are, seconds and bytes aren't; what it doesn't say isn't compared. Ratios to a peer
of the same run mean most: both runs had the machine of their own minute. Times of the wall aren't
compared: other work on the machine changes them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rangecast.report.markdown import Table

WORSE = 1.2
"""Factor by which a value must be worse to be reported."""
_MORE = re.compile(r"^x |/s$|a second$|per second$|^times ours$|^of the structure's rate$")
_LESS = re.compile(
    r"(^|\b)(ns|us|ms|s)(\b|$)|bytes|\bCPU\b|\bMB\b|"
    r"^times untouched|^times as much$|^times the structure$"
)
_NEVER = re.compile(r"expected|at most|at least|spread|^wall\b")


class Number(NamedTuple):
    """Where a number stands on a page."""

    table: str
    row: str
    heading: str

    @property
    def more_is_better(self) -> bool | None:
        """`None`: nobody can tell."""
        if _NEVER.search(self.heading):
            return None
        if _MORE.search(self.heading) or self.table.startswith("How many times"):
            return True
        return False if _LESS.search(self.heading) else None


def numbers(page: str) -> dict[Number, float]:
    """Return all numbers of the tables of a page."""
    found, title, headings = dict[Number, float](), "", list[str]()
    seen = Counter[str]()
    for line in page.splitlines():
        if line.startswith("#"):
            title, headings, seen = line.lstrip("# "), [], Counter()
        elif not line.startswith("|"):
            headings = []
        elif not headings:
            headings = list(_distinct(_cells(line), Counter()))
        elif not line.startswith("| ---"):
            first, *cells = _cells(line)
            (row,) = _distinct([first], seen)
            for heading, cell in zip(headings[1:], cells, strict=True):
                if re.fullmatch(r"-?[\d,]+(\.\d+)?", cell):
                    found[Number(title, row, heading)] = float(cell.replace(",", ""))
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _distinct(names: list[str], seen: Counter[str]) -> Iterator[str]:
    """Yield names; one that was seen before gets a number."""
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})"


def worse(before: str, after: str) -> Iterator[tuple[Number, float, float, float]]:
    """Yield what is worse on a page than on an earlier one: before, after, how many times."""
    earlier = numbers(before)
    for number, now in numbers(after).items():
        then, more = earlier.get(number), number.more_is_better
        if then is None or more is None or min(then, now) <= 0:
            continue
        times = then / now if more else now / then
        if times > WORSE:
            yield number, then, now, times


def complaints(before: Path, after: Path) -> Table | None:
    """Return what is worse on a page than on that of the same name in a folder."""
    earlier = before / after.name
    rows = [
        [f"{number.table}: {number.row}", number.heading, then, now, f"{times:.2f}"]
        for number, then, now, times in worse(earlier.read_text(), after.read_text())
    ]
    heads = ["what", "measure", "before", "now", "times worse"]
    title = f"{after.stem}: worse than in {before} by more than {WORSE - 1:.0%}"
    return Table(title, heads, rows, words=["what", "measure"]) if rows else None
