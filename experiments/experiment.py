"""Experiments: the paper's values as data, rows to measure, and how to show them.

A row is one point of a sweep. What it gives depends on its point and on the seed only, so a run can
be stopped after any row and continued later, and rows can be measured in any order.

Two kinds of words must not be mixed up. Whatever depends on a run is computed from its rows:
`ours`, `claims` and `facts`. What a person makes of it, `verdicts`, is about one run, that of the
papers' sizes with the usual seed, and is shown beside no other. `verdicts.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rangecast.report.markdown import Table

SIZES = ("tiny", "quick", "full")
"""To see that it works; minutes; hours: the papers' sizes, or as near to them as they can be."""

Point = dict[str, Any]
"""Plain values: all that a row depends on but the seed, its sizes too."""
Values = Mapping[str, Mapping[str, float | None]]
"""The values of a table, by row and column."""


class Claim(NamedTuple):
    """A claim of the paper about a table or figure, compared with the rows."""

    part: str
    says: str
    holds: bool
    measured: str
    is_ours: bool = False
    """Whether it stands in for what the paper says, which wasn't tested: it counts for nothing."""


class Line(NamedTuple):
    """A line of a plot."""

    label: str
    xs: Sequence[Any]
    ys: Sequence[Any]
    colour: int | None = None
    """Its number; by default lines take them in order."""
    style: str = "o-"


class Panel(NamedTuple):
    """One pair of axes of an experiment's picture."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log: str = ""
    """The axes with a logarithmic scale: x, y or xy."""
    bars: bool = False
    """Whether the first line is drawn as bars, its xs as their names."""


class Results(Sequence[dict[str, Any]]):
    """Rows with their points, in the order of the sweep."""

    def __init__(self, rows: Iterable[dict[str, Any]]):
        self._rows = list(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        return self._rows[place]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    def where(self, **given: Any) -> Results:
        """Return the rows with these values."""
        return Results(
            row for row in self if all(row.get(name) == value for name, value in given.items())
        )

    def column(self, name: str, **given: Any) -> list[Any]:
        """Return a column of the rows with these values."""
        return [row[name] for row in self.where(**given)]

    def one(self, name: str, **given: Any) -> Any:
        """Return a value of the one row with these values."""
        (value,) = self.column(name, **given)
        return value

    def distinct(self, name: str) -> list[Any]:
        """Return the values of a column, each once, in order."""
        return list(dict.fromkeys(row[name] for row in self if name in row))

    def line(self, label: str, x: str, y: str, **given: Any) -> Line:
        """Return a column by another one, as a line of a plot."""
        some = self.where(**given)
        return Line(label, some.column(x), some.column(y))

    def by(self, label: str, names: Iterable[str], **given: Any) -> Values:
        """Return columns as rows of a table: name -> the label of each row -> its value."""
        some = self.where(**given)
        labels = [label.format(**row) for row in some]
        return {name: dict(zip(labels, some.column(name), strict=True)) for name in names}


def in_order(columns: Iterable[str], rows: Mapping[str, Sequence[float | None]]) -> Values:
    """Return a table as it is printed: the headings once, the values of each row."""
    heads = list(columns)
    return {name: dict(zip(heads, values, strict=True)) for name, values in rows.items()}


def _no_values(_: Results) -> Mapping[str, Values]:
    return {}


def _no_facts(_: Results) -> Mapping[str, object]:
    return {}


def _none(_: Results) -> tuple[()]:
    return ()


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper, or several that come from one run."""

    name: str
    """Its folder and its file: `vcr-side` is in vcr/side.py."""
    title: str
    parts: Sequence[str]
    """The tables and figures, as the paper numbers them."""
    about: str
    """The quantities measured, and how: nothing that a run could contradict."""
    points: Callable[[str], Iterable[Point]]
    """The sweep at a size."""
    measure: Callable[..., dict[str, Any]]
    """(seed, **point) -> plain values."""
    verdicts: Mapping[str, str]
    """By part, with fields that `facts` fills; `verdicts.py` has their form."""
    reduced: Mapping[str, str] = field(default_factory=dict)
    """By part: in what even the full size is below the paper's."""
    facts: Callable[[Results], Mapping[str, object]] = _no_facts
    """Numbers of the rows, for the fields of the verdicts."""
    printed: Mapping[str, Values] = field(default_factory=dict)
    """By part: what the paper prints."""
    ours: Callable[[Results], Mapping[str, Values]] = _no_values
    """By part: the same values here, and others that belong beside them."""
    claims: Callable[[Results], Iterable[Claim]] = _none
    tables: Callable[[Results], Iterable[Table]] = _none
    """Further tables."""
    panels: Callable[[Results], Sequence[Panel]] = _none
    columns: int = 2
    """Of panels."""
    panel_size: tuple[float, float] = (5.6, 3.8)
    seed: int = 0
    is_timed: bool = False
    """Whether rows hold seconds: then they are measured one after another, on this machine."""
    needs: Sequence[str] = ()
    """Packages beyond those that rangecast always has."""

    def sweep(self, size: str) -> list[Point]:
        """Return the points of a size."""
        return list(self.points(size))
