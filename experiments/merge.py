"""Section 7 of paper 004 (MICS): figures 7 to 12 and tables 1 to 3, ours beside the paper's.

    python -m experiments.merge            some minutes: up to 60,000 subscriptions
    python -m experiments.merge --full     the paper's sizes, up to 150,000

Writes docs/experiments/merge.md and merge.png. The figures are pictures without numbers in the
text that we have, so beside each stands what the paper says of it. Times are of one core; those of
the paper are of 2008. 256 values per attribute; workloads/equal_boxes.py says what else is open.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from benchmarks import linear
from rangecast.kernels.arrays import F64
from rangecast.merge import Cells, Summary
from rangecast.merge.holders import Holders
from rangecast.merge.ranges import Ranges, range_sets
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.report.plots import COLOURS, figure
from rangecast.workloads import generate

FOLDER = Path(__file__).parents[1] / "docs" / "experiments"
QUICK, FULL = (5_000, 20_000, 60_000), (20_000, 60_000, 100_000, 150_000)
DIMENSIONS, SIZES = (2, 3, 4), (2, 4, 8, 16)
DISTRIBUTIONS = ("zipf", "uniform")
EXACT = 1 << 14
"""Ranges of a subscription, where the paper sets no bound."""

TABLE_1 = {2: (0.1, 0.1, 0.3, 1.0), 3: (0.1, 0.3, 1.9, 12.8), 4: (0.1, 1.1, 10.2, 124.1)}
TABLE_2 = {
    20_000: ("5217", "5.54%", "209", "42.11%"),
    60_000: ("6472", "3.71%", "583", "42.37%"),
    100_000: ("7040", "3.15%", "858", "36.95%"),
    150_000: ("7502", "2.57%", "1325", "38.19%"),
}
TABLE_3 = {20_000: (64, 1), 60_000: (232, 1), 100_000: (414, 1), 150_000: (600, 1)}

_COLOURED = ("zipf", "2", "3", "4", "uniform", "8", "covering")
"""What a line is drawn by: its number, or the last word of its label."""

Lines = dict[str, tuple[list[int], list[float]]]
"""Label -> x, y."""


class Page:
    """Collects text, tables and panels."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.panels: list[tuple[str, str, Lines]] = []

    def section(self, title: str, says: str) -> None:
        print(f"\n{title}")
        self.lines += [f"## {title}", "", says, ""]

    def table(self, heads: Sequence[str], rows: Iterable[Iterable[Any]], note: str = "") -> None:
        texts = [[str(cell) for cell in row] for row in rows]
        for row in texts:
            print("  " + "  ".join(row))
        self.lines.append("| " + " | ".join(heads) + " |")
        self.lines.append("| --- |" + " ---: |" * (len(heads) - 1))
        self.lines += ["| " + " | ".join(row) + " |" for row in texts]
        self.lines += ["", *([note, ""] if note else [])]

    def panel(self, title: str, y: str, lines: Lines) -> None:
        """Add a panel, and the same numbers as a table."""
        self.panels.append((title, y, lines))
        xs = sorted({x for some, _ in lines.values() for x in some})
        rows = []
        for label, (some, values) in lines.items():
            known = dict(zip(some, values, strict=True))
            rows.append([label, *(_number(known[x]) for x in xs)])
        self.table([y, *(f"{x:,}" for x in xs)], rows)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


class Case(NamedTuple):
    """A workload of the paper."""

    space: Space
    boxes: Boxes
    points: F64


def case(
    n: int, d: int, size: int, subscriptions: str, events: str = "uniform", m: int = 10_000
) -> Case:
    """Return subscriptions and publications."""
    made = generate(
        "equal-boxes",
        seed=4,
        subscriptions=n,
        events=m,
        attributes=d,
        size=size,
        subscription_distribution=subscriptions,
        event_distribution=events,
    )
    return Case(made.space, made.boxes, made.points)


def filled(one: Case, n: int, **options: Any) -> Summary:
    """Return the summary of the first n subscriptions."""
    return Summary.of(one.boxes.take(np.arange(n)), one.space, bits=8, limit=EXACT, **options)


def traffic(page: Page, sizes: Sequence[int]) -> None:
    """Figure 7."""
    page.section(
        "Figure 7: subscriptions sent on to a neighbour",
        "Size 4, Zipf. The paper: both covering and subsumption reduce the traffic much, "
        "subsumption more than covering, the more so with few attributes. All boxes have one size "
        "here, so one covers another only if they are equal.",
    )
    lines: Lines = {"no covering": (list(sizes), [float(n) for n in sizes])}
    for d in DIMENSIONS:
        one = case(sizes[-1], d, 4, "zipf", m=1)
        _, first = np.unique(one.boxes.lo, axis=0, return_index=True)
        gained = Summary(one.space, bits=8, limit=EXACT).subscribe_many(one.boxes).add
        told = np.diff(gained.offsets) > 0
        lines[f"covering, {d} attributes"] = list(sizes), [float((first < n).sum()) for n in sizes]
        lines[f"subsumption, {d} attributes"] = list(sizes), [float(told[:n].sum()) for n in sizes]
    page.panel("7: sent on", "subscriptions", lines)


def insertion(page: Page, sizes: Sequence[int]) -> None:
    """Figures 8 and 9."""
    eights: Lines = {}
    nines: Lines = {}
    for distribution in DISTRIBUTIONS:
        for d in DIMENSIONS:
            one = case(sizes[-1] + 1_000, d, 2, distribution, m=1)
            new = one.boxes.take(np.arange(sizes[-1], sizes[-1] + 1_000))
            times, linears = [], []
            for n in sizes:
                table = filled(one, n)
                times.append(_timed(table, new))
                if d == 3:
                    lo, hi = one.boxes.lo[:n], one.boxes.hi[:n]
                    out = np.empty(100, np.bool_)
                    linear.covered(lo, hi, new.lo[:1], new.hi[:1], out[:1])
                    began = process_time()
                    linear.covered(lo, hi, new.lo[:100], new.hi[:100], out)
                    linears.append((process_time() - began) * 1e6 / 100)
            eights[f"{distribution}, {d} attributes"] = list(sizes), times
            if d == 3:
                nines[f"ours, {distribution}"] = list(sizes), times
                nines[f"linear, {distribution}"] = list(sizes), linears
    page.section(
        "Figure 8: insertion with covering, subsumption and merging",
        "Size 2. The paper: about 0.1 ms, nearly the same for every size of the table, growing "
        "with the attributes, more for uniform than for Zipf. Ours, with the conversion, is as "
        "flat; between uniform and Zipf there is no clear difference.",
    )
    page.panel("8: insertion", "us a subscription", eights)
    page.section(
        "Figure 9: covering",
        "Size 2, 3 attributes. The paper: much faster than the linear check, and flat. Ours is the "
        "whole insertion of figure 8; the linear check is compiled and stops at the first cover.",
    )
    page.panel("9: covering", "us a subscription", nines)


def _timed(table: Summary, new: Boxes) -> float:
    """Return the microseconds of an insertion, the least of three runs."""
    best = np.inf
    for _ in range(3):
        began = process_time()
        table.subscribe_many(new)
        best = min(best, process_time() - began)
        table.unsubscribe_many(new.ids.to_pylist())
    return best * 1e6 / new.rows


def matching(page: Page, sizes: Sequence[int]) -> None:
    """Figure 10."""
    page.section(
        "Figure 10: matching a publication",
        "Size 2, 3 attributes, uniform publications. The paper: the linear algorithm grows with "
        "the table, the summary hardly, and it is faster for Zipf, whose table is smaller. Ours in "
        "one large batch reads one bit a publication; in small batches it goes down the tree.",
    )
    lines: Lines = {}
    for distribution in DISTRIBUTIONS:
        one = case(sizes[-1], 3, 2, distribution, m=100_000)
        ours, by_tree, linears = [], [], []
        for n in sizes:
            table = filled(one, n)
            blocks = np.array_split(one.points, 50)
            table.holds_many(blocks[0])
            began = process_time()
            for block in blocks:
                table.holds_many(block)
            by_tree.append((process_time() - began) * 1e6 / len(one.points))
            table.holds_many(one.points)
            began = process_time()
            table.holds_many(one.points)
            ours.append((process_time() - began) * 1e6 / len(one.points))
            some, out = one.points[:200], np.empty(200, np.bool_)
            linear.matched(one.boxes.lo[:n], one.boxes.hi[:n], some[:1], out[:1])
            began = process_time()
            linear.matched(one.boxes.lo[:n], one.boxes.hi[:n], some, out)
            linears.append((process_time() - began) * 1e6 / len(some))
        lines[f"ours, {distribution}"] = list(sizes), ours
        lines[f"ours by the tree, {distribution}"] = list(sizes), by_tree
        lines[f"linear, {distribution}"] = list(sizes), linears
    page.panel("10: matching", "us a publication", lines)


def storage(page: Page, sizes: Sequence[int]) -> None:
    """Figures 11 and 12."""
    page.section(
        "Figure 11: stored ranges by attributes",
        "Size 2. The paper: more with more attributes, but fewer than the d ranges of every "
        "subscription itself, and fewest for Zipf. Ours are the maximal ranges. They are fewer "
        "with 2 attributes, and for Zipf with 3. With 4 a box is 8 ranges by the paper's own "
        "formula, and boxes of 2 of 256 values a side have too little in common to make up for it.",
    )
    lines: Lines = {}
    for d in DIMENSIONS:
        lines[f"d ranges each, {d} attributes"] = list(sizes), [float(d * n) for n in sizes]
        for distribution in DISTRIBUTIONS:
            one = case(sizes[-1], d, 2, distribution, m=1)
            kept = [float(len(filled(one, n).ranges())) for n in sizes]
            lines[f"merged, {distribution}, {d} attributes"] = list(sizes), kept
    page.panel("11: stored ranges, size 2", "ranges", lines)
    page.section(
        "Figure 12: stored ranges by size",
        "3 attributes. The paper: many more from size 2 to 8, slowing down as subscriptions "
        "overlap, for Zipf most of all.",
    )
    lines = {}
    for size in SIZES[:3]:
        for distribution in DISTRIBUTIONS:
            one = case(sizes[-1], 3, size, distribution, m=1)
            kept = [float(len(filled(one, n).ranges())) for n in sizes]
            lines[f"size {size}, {distribution}"] = list(sizes), kept
    page.panel("12: stored ranges, 3 attributes", "ranges", lines)


def conversion(page: Page) -> None:
    """Table 1."""
    page.section(
        "Table 1: conversion of a subscription",
        "Microseconds, ours without a bound on ranges and with at most 64, beside the paper's "
        "(milliseconds there, a MacBook of 2 GHz).",
    )
    rows = []
    for d in DIMENSIONS:
        for size, theirs in zip(SIZES, TABLE_1[d], strict=True):
            one = case(500, d, size, "uniform", m=1)
            cells = Cells.uniform(one.space, 8)
            row: list[Any] = [f"{d} attributes, size {size}"]
            for limit in (EXACT, 64):
                best = np.inf
                for _ in range(3):
                    began = process_time()
                    sets = range_sets(cells, one.boxes.lo, one.boxes.hi, one.boxes.owner, limit)
                    best = min(best, process_time() - began)
                row += [f"{len(sets.starts) / 500:,.1f}", f"{best * 1e6 / 500:,.1f}"]
            rows.append([*row, f"{theirs * 1000:,.0f}"])
    heads = ["", "ranges", "us", "at most 64", "us", "paper us"]
    page.table(heads, rows)


def projection(page: Page, sizes: Sequence[int]) -> None:
    """Table 2."""
    page.section(
        "Table 2: false positives when 3 of 7 attributes are used",
        "10,000 publications, size 4; subscriptions and publications follow the same distribution. "
        "The paper's numbers can't be regenerated from the parameters it states: boxes of 4 of 256 "
        "values in 7 attributes hold so little that almost nothing matches exactly.",
    )
    rows = []
    for n in sizes:
        row: list[Any] = [f"{n:,}"]
        for place, distribution in enumerate(DISTRIBUTIONS):
            one = case(n, 7, 4, distribution, distribution)
            truth = np.empty(len(one.points), np.bool_)
            linear.matched(one.boxes.lo, one.boxes.hi, one.points, truth)
            names = one.space.names[:3]
            summary = Summary.of(one.boxes, one.space, bits=8, attributes=names, limit=EXACT)
            held = summary.holds_many(one.points)
            assert (held >= truth).all()
            false = 1 - truth.sum() / max(held.sum(), 1)
            paper = TABLE_2.get(n, ("", "", "", ""))[2 * place : 2 * place + 2]
            row += [f"{held.sum():,}", f"{false:.1%}", *paper]
        rows.append(row)
    heads = ["subscriptions"]
    for distribution in DISTRIBUTIONS:
        heads += [f"traffic, {distribution}", "false", "paper", "paper"]
    page.table(heads, rows)


def indexing(page: Page, sizes: Sequence[int]) -> None:
    """Table 3."""
    page.section(
        "Table 3: subscriptions to evaluate when a new one comes",
        "7 attributes, indexed by 3, size 4. *Sharing a cell* are all whose ranges meet those of "
        "the new one: what subsumption and merging need. *Holding its first cell* are those that "
        "can cover it. The paper's uniform column can't be regenerated; its Zipf column lies "
        "between the two.",
    )
    rows = []
    for n in sizes:
        row: list[Any] = [f"{n:,}"]
        for place, distribution in enumerate(DISTRIBUTIONS):
            one = case(n + 1_000, 7, 4, distribution, m=1)
            cells = Cells.uniform(one.space, 8, one.space.names[:3])
            sets = range_sets(cells, one.boxes.lo, one.boxes.hi, one.boxes.owner, EXACT)
            holders = Holders()
            old = slice(0, int(sets.offsets[n]))
            owner = np.repeat(np.arange(n), np.diff(sets.offsets[: n + 1]))
            holders.add(owner, Ranges(sets.starts[old], sets.ends[old]))
            meeting = holding = 0
            for new in range(n, n + 1_000):
                some = slice(sets.offsets[new], sets.offsets[new + 1])
                ranges = Ranges(sets.starts[some], sets.ends[some])
                meeting += len(holders.overlapping(ranges)[0])
                first = Ranges(ranges.starts[:1], ranges.starts[:1])
                holding += len(holders.overlapping(first)[0])
            paper = TABLE_3.get(n, ("", ""))[place]
            row += [f"{meeting / 1_000:,.1f}", f"{holding / 1_000:,.1f}", paper]
        rows.append(row)
    heads = ["subscriptions"]
    for distribution in DISTRIBUTIONS:
        heads += [f"{distribution}: sharing a cell", "holding its first cell", "paper"]
    page.table(heads, rows)


def options(page: Page, n: int) -> None:
    """What the paper describes without numbers: imperfect merging, variable cells."""
    one = case(n, 3, 4, "zipf", "zipf", 50_000)
    truth = np.empty(len(one.points), np.bool_)
    linear.matched(one.boxes.lo, one.boxes.hi, one.points, truth)
    page.section(
        "Section 3.6: imperfect merging, and the extra traffic that it costs",
        f"{n:,} subscriptions, 3 attributes, size 4, Zipf; {len(one.points):,} publications, Zipf.",
    )
    rows = []
    for gap in (0, 1, 4, 16, 64, 256, 1024):
        table = filled(one, n, gap=gap)
        held = table.holds_many(one.points)
        assert (held >= truth).all()
        rows.append(
            [
                gap,
                f"{len(table.ranges()):,}",
                f"{table.share():.2%}",
                f"{held.sum():,}",
                f"{held.sum() / truth.sum() - 1:+.2%}",
            ]
        )
    page.table(["gap", "ranges", "share of the space", "passed", "extra traffic"], rows)
    page.section(
        "Section 6.3: variable cells",
        "3 attributes, size 4, Zipf publications, fewer cells than values: cells of equal size, or "
        "cut by the first half of the publications and measured on the second. Where subscriptions "
        "crowd at the same values as publications nearly all is held there anyway, and coarse "
        "cells are better spent elsewhere; where they don't, quantiles pay.",
    )
    rows = []
    half = len(one.points) // 2
    for distribution, count in (("zipf", n), ("uniform", n // 20)):
        one = case(count, 3, 4, distribution, "zipf", 50_000)
        linear.matched(one.boxes.lo, one.boxes.hi, one.points, truth)
        for bits in (4, 5, 6, 7):
            row: list[Any] = [f"{count:,} subscriptions, {distribution}, {bits} bits"]
            for cells in (
                Cells.uniform(one.space, bits),
                Cells.quantiles(one.space, bits, one.points[:half]),
            ):
                table = Summary.of(one.boxes, one.space, cells=cells, limit=EXACT)
                held = table.holds_many(one.points)[half:]
                assert (held >= truth[half:]).all()
                false = 1 - truth[half:].sum() / held.sum()
                row += [f"{len(table.ranges()):,}", f"{held.sum():,}", f"{false:.1%}"]
            rows.append(row)
    heads = ["", "ranges, equal cells", "passed", "false"]
    page.table([*heads, "ranges, quantiles", "passed", "false"], rows)


def draw(page: Page, path: Path) -> None:
    """Draw all panels into one picture: a colour a number, a style a kind."""
    with figure(path, columns=2, rows=3, size=(6.8, 4.2)) as axes:
        for axis, (title, y, lines) in zip(axes.ravel(), page.panels, strict=True):
            for label, (xs, values) in lines.items():
                number = re.search(r"(\d) attributes|size (\d)", label)
                key = (number.group(1) or number.group(2)) if number else label.split()[-1]
                colour = COLOURS[_COLOURED.index(key)]
                reference = label.startswith(("linear", "no ", "d ranges", "covering"))
                style = "o--" if reference else "o:" if "uniform" in label and number else "o-"
                axis.plot(xs, values, style, color=colour, markersize=3, label=label)
            axis.set(title=title, xlabel="subscriptions", ylabel=y, yscale="log")
            axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def main() -> None:
    """Run all and write the page."""
    parser = argparse.ArgumentParser(prog="python -m experiments.merge", description=__doc__)
    parser.add_argument("--full", action="store_true", help="the paper's sizes")
    full = parser.parse_args().full
    sizes = FULL if full else QUICK
    command = "python -m experiments.merge" + (" --full" if full else "")
    page = Page()
    page.lines += [
        "# Section 7 of paper 004: merging on the Hilbert curve",
        "",
        f"Made by `{command}`. 256 values an attribute, 8 bits.",
        "",
        "![Figures 7 to 12](merge.png)",
        "",
    ]
    traffic(page, sizes)
    insertion(page, sizes)
    matching(page, sizes)
    storage(page, sizes)
    conversion(page)
    projection(page, sizes)
    indexing(page, sizes)
    options(page, sizes[1])
    FOLDER.mkdir(parents=True, exist_ok=True)
    draw(page, FOLDER / "merge.png")
    (FOLDER / "merge.md").write_text("\n".join(page.lines).rstrip() + "\n", encoding="utf-8")
    print(f"\nSaved in {FOLDER}")


if __name__ == "__main__":
    main()
