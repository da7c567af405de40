"""The pages: one per paper, and an index of all tables and figures, the paper's values beside ours.

Everything is made from rows that were measured before. An experiment whose rows of the full size
aren't all there is shown at the quick size, and says so; if those are missing too, it isn't shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import nan
from pathlib import Path
from statistics import median
from textwrap import wrap
from typing import Any, NamedTuple

from experiments.experiment import Claim, Experiment, Panel, Results
from experiments.papers import PAPERS, Paper
from experiments.rows import RowFile
from experiments.verdicts import Compared, rests_on, verdict
from rangecast.report.markdown import Page, Table, cell
from rangecast.report.plots import COLOURS, figure

MADE_QUICKLY = "Made at the quick size:"
"""Begins the second paragraph of a page that isn't made at the papers' sizes."""
_QUICK = f"""{MADE_QUICKLY} numbers are smaller than the papers', and so is what they can show. The
sentences that were written about the full run are left out."""
_SHARED = """Counts are the same on every machine. Times are seconds of a core; those of the full
pages were taken on machines whose other cores were at work, so that they tell ratios and
growth rather than speed."""


class Shown(NamedTuple):
    """An experiment with its rows, as far as they are there."""

    experiment: Experiment
    results: Results | None
    """Those of the quick size while some of the full one are missing; `None`: there are none."""
    there: int
    all: int
    seed: int
    machines: list[str]
    size: str
    """That of the rows."""
    command: str
    by_hand: bool
    """Whether this is the run that the verdicts are about."""


def load(one: Experiment, rows: RowFile, size: str, seed: int | None) -> Shown:
    """Gather the rows of an experiment; those of the quick size while the full one isn't whole."""
    used = one.seed if seed is None else seed
    found = _found(one, rows, size, used)
    there, wanted = len(found), len(one.sweep(size))
    if there < wanted and size == "full":
        quick = _found(one, rows, "quick", used)
        if len(quick) == len(one.sweep("quick")):
            found, size = quick, "quick"
    command = f"python -m experiments run {one.name}" + ("" if size == "full" else " --quick")
    return Shown(
        one,
        Results({**row["point"], **row["row"]} for row in found)
        if len(found) == len(one.sweep(size))
        else None,
        there,
        wanted,
        used,
        list(dict.fromkeys(row["machine"] for row in found)),
        size,
        command if seed is None else f"{command} --seed {seed}",
        size == "full" and used == one.seed,
    )


def _found(one: Experiment, rows: RowFile, size: str, seed: int) -> list[dict[str, Any]]:
    sweep = one.sweep(size)
    return [row for point in sweep if (row := rows.get(one.name, seed, point)) is not None]


def described(one: Experiment) -> str:
    """Return what an experiment is, for a terminal."""
    lines = [f"{one.name}: {one.title}", _listed(one.parts), ""]
    lines += wrap(" ".join(one.about.split()), 80, break_on_hyphens=False)
    for part, values in one.printed.items():
        lines += ["", f"{part}, the paper's values:"]
        for row, by_column in values.items():
            printed = (f"{name}: {cell(value)}" for name, value in by_column.items())
            lines.append(f"  {row}: {'; '.join(printed)}")
    quick, full = (len(one.sweep(size)) for size in ("quick", "full"))
    how = "rows measure time, one by one" if one.is_timed else "rows are counts, also on Spark"
    return "\n".join([*lines, "", f"{full} rows, with --quick {quick}; seed {one.seed}; {how}"])


# ---- the page of a paper


def write_page(paper: Paper, path: Path, rows: RowFile, size: str, seed: int | None) -> None:
    """Write the page of a paper, and its pictures beside it."""
    page = Page(path)
    shown = [load(one, rows, size, seed) for one in paper.experiments()]
    page.text(f"# {paper.heading}")
    if size != "full":
        page.text(_QUICK)
    seeds = ", ".join(dict.fromkeys(str(one.seed) for one in shown))
    page.text(f"{_SHARED} Ratios are ours / the paper's. Seed {seeds}.")
    for machine in dict.fromkeys(text for one in shown for text in one.machines):
        page.text(machine)
    for one in shown:
        _section(page, one)
    if paper.missing:
        page.text("## Not here")
        page.table(Table("", ["part", "why"], list(paper.missing.items()), words=["why"]))
    page.write()


def _section(page: Page, shown: Shown) -> None:
    one, results = shown.experiment, shown.results
    page.text(f"## {one.title}")
    page.text(f"{_listed(one.parts)}. {one.about}")
    page.text(f"Made by `{shown.command}`.")
    if results is None:
        page.text(f"{shown.there} of {shown.all} rows are measured; the command measures the rest.")
        return
    if shown.there < shown.all:
        page.text(
            f"At the quick size; {shown.there} of {shown.all} rows of the full one are there."
        )
    sizes = rests_on(results)
    if sizes:
        page.text(f"Rows rest on {sizes}.")
    panels = one.panels(results)
    if panels:
        draw(page.picture(f"{one.name}.png", one.title), panels, one.columns, one.panel_size)
    ours, claims = one.ours(results), list(one.claims(results))
    for part in one.parts:
        page.text(f"### {part}")
        if shown.by_hand and part in one.verdicts:
            page.text(verdict(one, part, results))
        if part in one.reduced:
            page.text(f"Below the paper's size: {one.reduced[part]}.")
        compared = Compared(one.printed.get(part, {}), ours.get(part, {}), shown.size)
        if compared.printed or compared.ours:
            page.table(_beside(compared))
        said = [claim for claim in claims if claim.part == part]
        if said:
            page.table(_said(said))
    for table in one.tables(results):
        page.text(f"### {table.title}")
        page.table(table._replace(title=""))


def _beside(compared: Compared) -> Table:
    """Return the paper's values, ours and the ratios: in columns, or below one another."""
    printed, ours, _ = compared
    names = dict.fromkeys([*printed, *ours])
    columns = dict.fromkeys(
        column for values in (*ours.values(), *printed.values()) for column in values
    )
    if len(columns) == 1:
        (column,) = columns
        heads = [column, "paper", "ours", "ratio"]
        cells = [_cells(compared, name, column) for name in names]
        return Table("", heads, [[name, *one] for name, one in zip(names, cells, strict=True)])
    lines: list[list[object]] = []
    for name in names:
        by_kind = zip(*(_cells(compared, name, column) for column in columns), strict=True)
        for kind, values in zip(("paper", "ours", "ratio"), by_kind, strict=True):
            if any(value is not None for value in values):
                lines.append([f"{name}, {kind}", *values])
    return Table("", ["", *columns], lines)


def _cells(
    compared: Compared, row: str, column: str
) -> tuple[float | None, float | None, str | None]:
    paper = compared.printed.get(row, {}).get(column)
    ours = compared.ours.get(row, {}).get(column)
    ratio = compared.ratio(row, column)
    return paper, ours, None if ratio is None else f"{ratio:.2f}"


def _said(claims: Iterable[Claim]) -> Table:
    rows = [
        [_attributed(claim), "yes" if claim.holds else "no", claim.measured] for claim in claims
    ]
    heads = ["the paper says", "holds here", "measured"]
    return Table("", heads, rows, words=heads)


def _attributed(claim: Claim) -> str:
    return f"(ours, not counted) {claim.says}" if claim.is_ours else claim.says


def draw(path: Path, panels: Sequence[Panel], columns: int, size: tuple[float, float]) -> None:
    """Draw panels into one picture."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    with figure(path, columns=columns, rows=rows, size=size) as axes:
        for one, panel in zip(axes.ravel(), panels, strict=False):
            one.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
            if panel.bars:
                one.barh(list(panel.lines[0].xs), list(panel.lines[0].ys))
                one.invert_yaxis()
                continue
            for number, line in enumerate(panel.lines):
                colour = COLOURS[(number if line.colour is None else line.colour) % len(COLOURS)]
                logarithmic = "y" in panel.log
                ys = [nan if y is None or (logarithmic and y <= 0) else y for y in line.ys]
                one.plot(line.xs, ys, line.style, color=colour, markersize=4, label=line.label)
            for axis in panel.log:
                one.set(**{f"{axis}scale": "log"})
            _tick(one, panel)
            if "y" not in panel.log:
                one.set_ylim(bottom=0)
            if len(panel.lines) > 5:
                one.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
            elif len(panel.lines) > 1:
                one.legend(fontsize=8)
        for one in axes.ravel()[len(panels) :]:
            one.axis("off")


def _tick(axes: Any, panel: Panel) -> None:
    """Mark the places that were measured, if they are few and their names short."""
    places = sorted({x for line in panel.lines for x in line.xs})
    names = [_short(place) for place in places]
    if len(places) <= 8 and max(map(len, names)) <= 5:
        axes.set_xticks([], minor=True)
        axes.set_xticks(places, names)
    if "y" in panel.log:
        from matplotlib.ticker import LogFormatter

        class Short(LogFormatter):
            def __call__(self, x: float, pos: int | None = None) -> str:
                return _short(x) if super().__call__(x, pos) else ""

        axes.yaxis.set_major_formatter(Short())
        axes.yaxis.set_minor_formatter(Short(labelOnlyBase=False, minor_thresholds=(1.5, 0.7)))


def _short(number: float) -> str:
    """Return a number as short as it can be: 1.5M, 32k, 0.25."""
    for factor, unit in ((1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:g}{unit}"
    return f"{number:g}"


# ---- the index


def write_results(path: Path, rows: RowFile, size: str, seed: int | None) -> None:
    """Write the index of all tables and figures."""
    page = Page(path)
    page.text("# The papers' results, and ours")
    if size != "full":
        page.text(_QUICK)
    page.text(
        """Every table and figure of the five papers. *Paper* and *ours* are the first of its
        values; *ratio* is ours / the paper's, at the full size: the median, and from the least to
        the largest where there are several. *Holds* counts what the paper says of it, and what of
        that holds here. *Rests on* has the sizes of the rows; a verdict says where they are below
        the paper's. The page of a paper has all values and statements, and plots."""
    )
    page.text(_SHARED)
    for paper in PAPERS:
        page.text(f"## {paper.heading}")
        page.text(f"[experiments/{paper.name}.md](experiments/{paper.name}.md)")
        lines: list[list[object]] = []
        for one in paper.experiments():
            lines += _index_lines(load(one, rows, size, seed))
        lines += [[part, "", "", "", "", why, "", ""] for part, why in paper.missing.items()]
        heads = ["part", "paper", "ours", "ratio", "holds", "verdict", "rests on", "command"]
        words = ["verdict", "rests on", "command", "paper"]
        page.table(Table("", heads, lines, words=words))
    page.write()


def _index_lines(shown: Shown) -> Iterator[list[object]]:
    one = shown.experiment
    command = f"`{shown.command}`"
    if shown.results is None:
        missing = f"{shown.there} of {shown.all} rows"
        yield [_listed(one.parts), "", "", "", "", missing, "", command]
        return
    ours, claims = one.ours(shown.results), list(one.claims(shown.results))
    sizes = rests_on(shown.results)
    for part in one.parts:
        compared = Compared(one.printed.get(part, {}), ours.get(part, {}), shown.size)
        holding = [claim.holds for claim in claims if claim.part == part and not claim.is_ours]
        said = verdict(one, part, shown.results) if shown.by_hand else ""
        if shown.there < shown.all:
            said = f"made at the quick size; {shown.there} of {shown.all} rows of the full one"
        yield [
            part,
            *_headline(compared),
            _ratio(compared.ratios()),
            f"{sum(holding)} of {len(holding)}" if holding else "",
            said,
            sizes,
            command,
        ]


def _headline(compared: Compared) -> tuple[str, str]:
    """Return the first value of the paper's that is beside one of ours, with its name, and ours."""
    both = [
        (f"{row}, {column}: {cell(paper)}", compared.ours.get(row, {}).get(column))
        for row, values in compared.printed.items()
        for column, paper in values.items()
        if paper
    ]
    beside = [(name, ours) for name, ours in both if ours is not None]
    name, ours = next(iter(beside or both), ("", None))
    return name, cell(ours)


def _ratio(ratios: list[float]) -> str:
    if not ratios:
        return ""
    if len(ratios) == 1:
        return f"{ratios[0]:.2f}"
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _listed(parts: Iterable[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last
