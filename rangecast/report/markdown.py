"""Markdown pages of paragraphs, tables and pictures."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import NamedTuple

from rangecast.model.io.atomic import write_whole


def cell(value: object) -> str:
    """Return a value formatted for reading: numbers with at least three significant digits."""
    if value is None or value != value:
        return ""
    if not isinstance(value, Real):
        return str(value)
    number = float(value)
    if number.is_integer() or abs(number) >= 1000:
        return f"{number:,.0f}"
    if abs(number) >= 100:
        return f"{number:.1f}"
    return f"{number:.3g}" if abs(number) >= 0.001 else f"{number:.3f}"


class Table(NamedTuple):
    """A table with a title; numbers are formatted when it is shown."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[object]]
    words: Sequence[str] = ()
    """Headings of the text columns; all other columns but the first have numbers."""

    def texts(self) -> list[list[str]]:
        """Return the formatted cells."""
        return [[cell(value) for value in row] for row in self.rows]

    def markdown(self) -> str:
        """Return the table as Markdown, under its title if it has one."""
        rule = ["---", *("---" if name in self.words else "---:" for name in self.headings[1:])]
        lines = [self.headings, rule, *self.texts()]
        title = f"## {self.title}\n\n" if self.title else ""
        return title + "\n".join(f"| {' | '.join(line)} |" for line in lines)


class Page:
    """Contents of a Markdown file; its pictures lie beside it."""

    def __init__(self, path: Path):
        self.path = path
        self.blocks: list[str] = []

    def text(self, text: str) -> None:
        """Add headings and paragraphs, which are wrapped to lines of 100 characters."""
        for block in text.strip().split("\n\n"):
            self.blocks.append(textwrap.fill(" ".join(block.split()), 100, break_on_hyphens=False))

    def table(self, table: Table, *, at: int | None = None) -> None:
        """Add a table at the end, or `at` an earlier position."""
        self.blocks.insert(len(self.blocks) if at is None else at, table.markdown())

    def picture(self, name: str, about: str) -> Path:
        """Add a picture, and return the path to draw it to."""
        self.blocks.append(f"![{about}]({name})")
        return self.path.with_name(name)

    def write(self) -> None:
        """Write the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, ("\n\n".join(self.blocks) + "\n").encode())
