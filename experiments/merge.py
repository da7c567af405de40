"""Section 7 of paper 004 (MICS): figures 7 to 12 and tables 1 to 3, ours beside the paper's.

The figures are pictures without numbers in the text that we have, so beside each stands what the
paper says of it; what we make of ours is in docs/experiments/README.md. Times are of one core;
those of the paper are of 2008. workloads/equal_boxes.py says what is open about the data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import merge_peers
from benchmarks.frame import Report
from rangecast.experiments.timing import best_of, race
from rangecast.merge import Cells, Summary
from rangecast.merge.holders import Holders
from rangecast.merge.ranges import Ranges, range_sets
from rangecast.model.boxes import Boxes
from rangecast.report.markdown import Table
from rangecast.report.plots import COLOURS, figure
from rangecast.workloads import Workload, generate


class Size(NamedTuple):
    """How much to run."""

    subscriptions: tuple[int, ...]
    new: int
    """Subscriptions that come on top of these."""
    publications: int


SIZES = {
    "quick": Size((200, 400), 50, 500),
    "usual": Size((5_000, 20_000, 60_000), 1_000, 10_000),
    "full": Size((20_000, 60_000, 100_000, 150_000), 1_000, 10_000),
}
SEED = 4
DIMENSIONS, WIDTHS = (2, 3, 4), (2, 4, 8, 16)
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

Lines = dict[str, list[float]]
"""Label -> values, one for each number of subscriptions."""


Panel = tuple[str, str, Lines]
"""Title, y axis, lines."""


class Run:
    """One run: its page, its sizes, its seed, and the panels of its picture."""

    def __init__(self, report: Report, size: Size, seed: int):
        self.report, self.seed = report, seed
        self.sizes, self.new, self.publications = size
        self.panels: list[Panel] = []

    def table(self, title: str, text: str, heads: Sequence[str], rows: Sequence[Any]) -> None:
        """Add a section with a table."""
        self.report.text(f"## {title}\n\n{text}")
        self.report.table(Table("", heads, rows))

    def panel(self, title: str, text: str, y: str, lines: Lines) -> None:
        """Add a panel, and the same numbers as a table."""
        self.panels.append((title, y, lines))
        heads = [y, *(f"{n:,}" for n in self.sizes)]
        self.table(title, text, heads, [[label, *values] for label, values in lines.items()])

    def case(
        self, n: int, d: int, size: int, subscriptions: str, events: str = "uniform", m: int = 1
    ) -> Workload:
        """Return subscriptions and publications."""
        return generate(
            "equal-boxes",
            seed=self.seed,
            subscriptions=n,
            events=m,
            attributes=d,
            size=size,
            subscription_distribution=subscriptions,
            event_distribution=events,
        )


def run(report: Report, size: Size, seed: int) -> None:
    """Run all figures and tables."""
    report.begin("Section 7 of paper 004: merging on the Hilbert curve", "8 bits per attribute.")
    picture = report.picture("merge.png", "Figures 7 to 12")
    whole = Run(report, size, seed)
    for part in (traffic, insertion, matching, storage, conversion, projection, indexing, options):
        part(whole)
    _draw(picture, size.subscriptions, whole.panels)


def filled(one: Workload, n: int, **options: Any) -> Summary:
    """Return the summary of the first n subscriptions."""
    return Summary.of(one.boxes.take(np.arange(n)), one.space, bits=8, limit=EXACT, **options)


def traffic(whole: Run) -> None:
    """Figure 7."""
    sizes = whole.sizes
    lines: Lines = {"no covering": [float(n) for n in sizes]}
    for d in DIMENSIONS:
        one = whole.case(sizes[-1], d, 4, "zipf")
        _, first = np.unique(one.boxes.lo, axis=0, return_index=True)
        gained = Summary(one.space, bits=8, limit=EXACT).subscribe_many(one.boxes).add
        told = np.diff(gained.offsets) > 0
        lines[f"covering, {d} attributes"] = [float((first < n).sum()) for n in sizes]
        lines[f"subsumption, {d} attributes"] = [float(told[:n].sum()) for n in sizes]
    whole.panel(
        "Figure 7: subscriptions sent on to a neighbour",
        """Size 4, Zipf. The paper: both covering and subsumption reduce the traffic much,
        subsumption more than covering, the more so with few attributes. All boxes have one size
        here, so one covers another only if they are equal.""",
        "subscriptions",
        lines,
    )


def insertion(whole: Run) -> None:
    """Figures 8 and 9."""
    sizes, count = whole.sizes, whole.new
    eights: Lines = {}
    nines: Lines = {}
    for distribution in DISTRIBUTIONS:
        for d in DIMENSIONS:
            one = whole.case(sizes[-1] + count, d, 2, distribution)
            new = one.boxes.take(np.arange(sizes[-1], sizes[-1] + count))
            times = [_insertion(filled(one, n), new) for n in sizes]
            eights[f"{distribution}, {d} attributes"] = times
            if d == 3:
                nines[f"ours, {distribution}"] = times
                nines[f"linear, {distribution}"] = [_linear(one.boxes, new, n) for n in sizes]
    whole.panel(
        "Figure 8: insertion with covering, subsumption and merging",
        """Size 2. The paper: about 0.1 ms, nearly the same for every size of the table, growing
        with the attributes, more for uniform than for Zipf. Ours includes the conversion.""",
        "us per subscription",
        eights,
    )
    whole.panel(
        "Figure 9: covering",
        """Size 2, 3 attributes. The paper: much faster than the linear check, and flat. Ours is the
        whole insertion of figure 8; the linear check is compiled and stops at the first cover.""",
        "us per subscription",
        nines,
    )


def _insertion(table: Summary, new: Boxes) -> float:
    """Return the microseconds of an insertion, the least of three runs."""

    def without() -> Any:
        table.unsubscribe_many([one for one in new.ids.to_pylist() if one in table])
        return partial(table.subscribe_many, new)

    return race({"": without})[""].least * 1e6 / new.rows


def _linear(boxes: Boxes, new: Boxes, n: int) -> float:
    """Return the microseconds of a linear check against the first n boxes."""
    out = np.empty(min(100, new.rows), np.bool_)
    some = slice(0, len(out))
    work = partial(merge_peers.covered, boxes.lo[:n], boxes.hi[:n], new.lo[some], new.hi[some], out)
    return best_of(work).least * 1e6 / len(out)


def matching(whole: Run) -> None:
    """Figure 10."""
    sizes = whole.sizes
    lines: Lines = {}
    for distribution in DISTRIBUTIONS:
        one = whole.case(sizes[-1], 3, 2, distribution, m=10 * whole.publications)
        blocks = np.array_split(one.points, 50)
        some, out = one.points[:200], np.empty(200, np.bool_)
        for n in sizes:
            table, lo, hi = filled(one, n), one.boxes.lo[:n], one.boxes.hi[:n]
            works: dict[str, tuple[Any, int]] = {
                "ours": (partial(table.holds_many, one.points), len(one.points)),
                "linear": (partial(merge_peers.covered, lo, hi, some, some, out), len(some)),
            }
            by_tree = best_of(partial(_by_blocks, table, blocks)).least  # before there is a bitmap
            times = {"ours by the tree": by_tree * 1e6 / len(one.points)}
            for name, (work, events) in works.items():
                times[name] = best_of(work).least * 1e6 / events
            for name in ("ours", "ours by the tree", "linear"):
                lines.setdefault(f"{name}, {distribution}", []).append(times[name])
    whole.panel(
        "Figure 10: matching a publication",
        """Size 2, 3 attributes, uniform publications. The paper: the linear algorithm grows with
        the table, the summary hardly, and it is faster for Zipf, whose table is smaller. Ours in
        one large batch reads one bit per publication; in small batches it goes down the tree.""",
        "us per publication",
        lines,
    )


def _by_blocks(table: Summary, blocks: Sequence[Any]) -> None:
    for block in blocks:
        table.holds_many(block)


def storage(whole: Run) -> None:
    """Figures 11 and 12."""
    sizes = whole.sizes

    def kept(d: int, size: int, distribution: str) -> list[float]:
        one = whole.case(sizes[-1], d, size, distribution)
        return [float(len(filled(one, n).ranges())) for n in sizes]

    lines: Lines = {}
    for d in DIMENSIONS:
        lines[f"d ranges each, {d} attributes"] = [float(d * n) for n in sizes]
        for distribution in DISTRIBUTIONS:
            lines[f"merged, {distribution}, {d} attributes"] = kept(d, 2, distribution)
    whole.panel(
        "Figure 11: stored ranges by attributes",
        """Size 2. The paper: more with more attributes, but fewer than the d ranges of every
        subscription itself, and fewest for Zipf. Ours are the maximal ranges. With 4 attributes a
        box is 8 ranges by the paper's own formula.""",
        "ranges",
        lines,
    )
    whole.panel(
        "Figure 12: stored ranges by size",
        """3 attributes. The paper: many more from size 2 to 8, slowing down as subscriptions
        overlap, for Zipf most of all.""",
        "ranges",
        {
            f"size {size}, {distribution}": kept(3, size, distribution)
            for size in WIDTHS[:3]
            for distribution in DISTRIBUTIONS
        },
    )


def conversion(whole: Run) -> None:
    """Table 1."""
    count = min(500, whole.sizes[0])
    rows = []
    for d in DIMENSIONS:
        for size, theirs in zip(WIDTHS, TABLE_1[d], strict=True):
            one = whole.case(count, d, size, "uniform")
            given = (Cells.uniform(one.space, 8), one.boxes.lo, one.boxes.hi, one.boxes.owner)
            row: list[object] = [f"{d} attributes, size {size}"]
            for limit in (EXACT, 64):
                done = best_of(partial(range_sets, *given, limit))
                row += [len(done.answer.starts) / count, done.least * 1e6 / count]
            rows.append([*row, theirs * 1000])
    whole.table(
        "Table 1: conversion of a subscription",
        """Microseconds, ours without a bound on ranges and with at most 64, beside the paper's
        (milliseconds there, a MacBook of 2 GHz).""",
        ["", "ranges", "us", "at most 64", "us", "paper us"],
        rows,
    )


def projection(whole: Run) -> None:
    """Table 2."""
    heads, rows = ["subscriptions"], []
    for n in whole.sizes:
        row: list[object] = [f"{n:,}"]
        for place, distribution in enumerate(DISTRIBUTIONS):
            one = whole.case(n, 7, 4, distribution, distribution, whole.publications)
            names = one.space.names[:3]
            table = Summary.of(one.boxes, one.space, bits=8, attributes=names, limit=EXACT)
            held, right = passed(table, one)
            paper = TABLE_2.get(n, ("", "", "", ""))[2 * place : 2 * place + 2]
            row += [held, f"{1 - right / max(held, 1):.1%}", *paper]
        rows.append(row)
    for distribution in DISTRIBUTIONS:
        heads += [f"traffic, {distribution}", "false", "paper", "paper"]
    whole.table(
        "Table 2: false positives when 3 of 7 attributes are used",
        """Size 4; subscriptions and publications follow the same distribution. The paper's numbers
        can't be regenerated from the parameters it states: boxes of 4 of 256 values in 7 attributes
        hold so little that almost nothing matches exactly.""",
        heads,
        rows,
    )


def passed(table: Summary, one: Workload, first: int = 0) -> tuple[int, int]:
    """Return how many publications, from the first one on, pass a summary, and how many should."""
    truth = np.empty(len(one.points), np.bool_)
    merge_peers.covered(one.boxes.lo, one.boxes.hi, one.points, one.points, truth)
    held = table.holds_many(one.points)
    assert (held >= truth).all(), "the summary lacks a publication that a subscription holds"
    return int(held[first:].sum()), int(truth[first:].sum())


def indexing(whole: Run) -> None:
    """Table 3."""
    count = whole.new
    heads, rows = ["subscriptions"], []
    for n in whole.sizes:
        row: list[object] = [f"{n:,}"]
        for place, distribution in enumerate(DISTRIBUTIONS):
            one = whole.case(n + count, 7, 4, distribution)
            cells = Cells.uniform(one.space, 8, one.space.names[:3])
            sets = range_sets(cells, one.boxes.lo, one.boxes.hi, one.boxes.owner, EXACT)
            holders = Holders()
            old = slice(0, int(sets.offsets[n]))
            owner = np.repeat(np.arange(n), np.diff(sets.offsets[: n + 1]))
            holders.add(owner, Ranges(sets.starts[old], sets.ends[old]))
            meeting = holding = 0
            for new in range(n, n + count):
                some = slice(sets.offsets[new], sets.offsets[new + 1])
                ranges = Ranges(sets.starts[some], sets.ends[some])
                meeting += len(holders.overlapping(ranges)[0])
                first = Ranges(ranges.starts[:1], ranges.starts[:1])
                holding += len(holders.overlapping(first)[0])
            row += [meeting / count, holding / count, TABLE_3.get(n, ("", ""))[place]]
        rows.append(row)
    for distribution in DISTRIBUTIONS:
        heads += [f"{distribution}: sharing a cell", "holding its first cell", "paper"]
    whole.table(
        "Table 3: subscriptions to evaluate when a new one comes",
        """7 attributes, indexed by 3, size 4. *Sharing a cell* are all whose ranges meet those of
        the new one: what subsumption and merging need. *Holding its first cell* are those that can
        cover it.""",
        heads,
        rows,
    )


def options(whole: Run) -> None:
    """What the paper describes without numbers: imperfect merging, variable cells."""
    n, events = whole.sizes[1], 5 * whole.publications
    one = whole.case(n, 3, 4, "zipf", "zipf", events)
    rows: list[list[object]] = []
    for gap in (0, 1, 4, 16, 64, 256, 1024):
        table = filled(one, n, gap=gap)
        held, right = passed(table, one)
        extra = f"{held / max(right, 1) - 1:+.2%}"
        rows.append([gap, len(table.ranges()), f"{table.share():.2%}", held, extra])
    whole.table(
        "Section 3.6: imperfect merging, and the extra traffic that it costs",
        f"{n:,} subscriptions, 3 attributes, size 4, Zipf; {events:,} publications, Zipf.",
        ["gap", "ranges", "share of the space", "passed", "extra traffic"],
        rows,
    )
    rows, half = [], events // 2
    for distribution, count in (("zipf", n), ("uniform", n // 20)):
        one = whole.case(count, 3, 4, distribution, "zipf", events)
        for bits in (4, 5, 6, 7):
            row: list[object] = [f"{count:,} subscriptions, {distribution}, {bits} bits"]
            for cells in (
                Cells.uniform(one.space, bits),
                Cells.quantiles(one.space, bits, one.points[:half]),
            ):
                table = Summary.of(one.boxes, one.space, cells=cells, limit=EXACT)
                held, right = passed(table, one, half)
                row += [len(table.ranges()), held, f"{1 - right / max(held, 1):.1%}"]
            rows.append(row)
    heads = ["", "ranges, equal cells", "passed", "false", "ranges, quantiles", "passed", "false"]
    whole.table(
        "Section 6.3: variable cells",
        """3 attributes, size 4, Zipf publications, fewer cells than values: cells of equal size, or
        cut by the first half of the publications and measured on the second.""",
        heads,
        rows,
    )


def _draw(path: Path, sizes: Sequence[int], panels: Sequence[Panel]) -> None:
    """Draw all panels into one picture: a colour per number, a style per kind."""
    with figure(path, columns=2, rows=3, size=(6.8, 4.2)) as axes:
        for axis, (title, y, lines) in zip(axes.ravel(), panels, strict=True):
            for label, values in lines.items():
                number = re.search(r"(\d) attributes|size (\d)", label)
                key = (number.group(1) or number.group(2)) if number else label.split()[-1]
                colour = COLOURS[_COLOURED.index(key)]
                reference = label.startswith(("linear", "no ", "d ranges", "covering"))
                style = "o--" if reference else "o:" if "uniform" in label and number else "o-"
                axis.plot(sizes, values, style, color=colour, markersize=3, label=label)
            axis.set(title=title, xlabel="subscriptions", ylabel=y, yscale="log")
            axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
