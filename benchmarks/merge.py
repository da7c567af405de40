"""Merging: insertion with everything checked, removal, matching by summary, and the curve itself.

The workload is that of paper 004, section 7: 256 values per attribute, boxes of one size. A linear
check, compiled, is what insertion and matching are compared with; the `hilbertcurve` package is
what the curve is compared with.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.frame import Report
from benchmarks.harness import expected
from experiments.merge import linear
from experiments.timing import DisagreementError, best_of, timed
from rangecast import Integer, Space
from rangecast.kernels.curves.hilbert import indexes_of, turns_of
from rangecast.merge import Cells, Summary
from rangecast.merge.ranges import range_sets, union_of_boxes, within_budget
from rangecast.report.markdown import Table
from rangecast.report.plots import figure
from rangecast.workloads import generate

INSERTION, GROWTH, MATCHING, CURVE = 10.0, 3.0, 3.0, 150.0
"""Expected: ratio to the linear check at 100,000; times as long from 10^4 to 10^6; million
publications a second; ratio to the `hilbertcurve` package."""
NEW = 2_000

ABOUT = """
Times are of one core, the least of several runs. Insertion is everything that a broker does with a
new subscription: its ranges, what of them is covered or subsumed, the merge, and the difference to
send. The linear check only looks for one subscription that covers the new one; it is compiled, and
stops there. What the linear scan matches is compared with the summary, which may hold more, never
less.
"""


class Measured(NamedTuple):
    """One size of one workload."""

    distribution: str
    size: int
    n: int
    ranges: float
    breakpoints: int
    bytes: float
    insert: float
    remove: float
    linear: float
    touched: float
    looked: float
    matching: float
    by_tree: float
    linear_matching: float


def measured(n: int, size: int, distribution: str, *, quick: bool) -> Measured:
    """Fill a table with n subscriptions, then time what comes on top."""
    made = generate(
        "equal-boxes",
        seed=7,
        subscriptions=n + NEW,
        events=4_000 if quick else 300_000,
        size=size,
        subscription_distribution=distribution,
        event_distribution=distribution,
    )
    points = made.points
    old, new = made.boxes.take(np.arange(n)), made.boxes.take(np.arange(n, n + NEW))
    table = Summary.of(old, made.space, bits=8)
    runs = 2 if quick else 5
    blocks = np.array_split(points, -(-len(points) // 4_000))  # too small for a bitmap to be made
    by_tree = best_of(lambda: [table.may_match_many(block) for block in blocks], runs)
    matching = best_of(lambda: table.may_match_many(points), runs)
    inserts, removes = [], []  # from here on with a bitmap to keep up
    for _ in range(runs):
        before = table.work
        inserts.append(timed(lambda: table.subscribe_many(new))[1])
        touched, looked = (np.array(table.work) - before) / NEW
        removes.append(timed(lambda: table.unsubscribe_many(new.ids.to_pylist()))[1])
    few = slice(0, max(5, min(NEW, 20_000_000 // n)))
    out, held = np.empty((2, NEW), np.bool_)
    bounds = (new.lo[few], new.hi[few], out[few])
    covering = best_of(lambda: linear.covered(old.lo, old.hi, *bounds))
    corners = (points[few], points[few], held[few])
    scanning = best_of(lambda: linear.covered(old.lo, old.hi, *corners))
    if (held[few] > matching.answer[few]).any():
        raise DisagreementError("the summary lacks a publication that a subscription holds")
    sets = range_sets(table.cells, new.lo, new.hi, new.owner, table.max_ranges_per_subscription)
    return Measured(
        distribution,
        size,
        n,
        len(sets.starts) / NEW,
        table.breakpoints,
        sum(array.nbytes for array in table._levels._tree) / n,
        min(inserts) / NEW,
        min(removes) / NEW,
        covering.least / len(out[few]),
        touched,
        looked,
        matching.least / len(points),
        by_tree.least / len(points),
        scanning.least / len(held[few]),
    )


def run(report: Report, *, quick: bool) -> None:
    """Measure tables of several sizes, then the curve and the range sets of boxes."""
    report.begin("Merging", ABOUT, "hilbertcurve")
    picture = report.picture("merge.png", "Insertion by the size of the table")
    sizes = (1_000, 2_000) if quick else (10_000, 100_000, 1_000_000)
    rows = [
        measured(n, size, distribution, quick=quick)
        for distribution in ("uniform", "zipf")
        for size in (2, 4)
        for n in sizes
    ]
    report.table(_insertion(rows))
    report.table(_growth(rows, sizes))
    report.table(_matching(rows))
    report.table(_curve(5_000 if quick else 1_000_000))
    report.table(_range_sets(40 if quick else 400))
    report.table(_gaps(2_000 if quick else 40_000))
    _draw(picture, rows)


def _insertion(rows: list[Measured]) -> Table:
    shown = []
    for row in rows:
        ratio = row.linear / row.insert
        wanted = expected(ratio, least=INSERTION) if row.n == 100_000 else ""
        shown.append(
            [
                *(f"{row.distribution}, size {row.size}", row.n, row.ranges),
                *(row.insert * 1e6, row.linear * 1e6, ratio, wanted, row.remove * 1e6),
                *(row.touched, row.looked, row.breakpoints, row.bytes),
            ]
        )
    headings = ["3 attributes, 8 bits", "in the table", "ranges each", "insert us", "linear us"]
    headings += ["ratio", "expected", "remove us", "touched", "looked for", "breakpoints"]
    title = "Insertion with conversion, covering, subsumption and merging; the linear check covers"
    return Table(title, [*headings, "bytes each"], shown)


def _growth(rows: list[Measured], sizes: tuple[int, ...]) -> Table:
    shown = []
    for first in rows:
        if first.n == sizes[0]:
            last = next(r for r in rows if r[:2] == first[:2] and r.n == sizes[-1])
            insert, remove = last.insert / first.insert, last.remove / first.remove
            name, linear = f"{first.distribution}, size {first.size}", last.linear / first.linear
            shown.append([name, insert, expected(insert, most=GROWTH), remove, linear])
    title = f"How many times as long at {sizes[-1]:,} as at {sizes[0]:,}"
    return Table(title, ["", "insertion", "at most", "removal", "linear check"], shown)


def _matching(rows: list[Measured]) -> Table:
    shown = []
    for row in rows:
        rate = 1e-6 / row.matching
        name, times = f"{row.distribution}, size {row.size}", row.linear_matching / row.matching
        shown.append([name, row.n, rate, expected(rate, least=MATCHING), 1e-6 / row.by_tree, times])
    headings = ["3 attributes, 8 bits", "in the table", "million a second", "expected"]
    headings += ["by 4,000, without a bitmap", "times the linear scan"]
    return Table("Publications against the summary, in batches, one core", headings, shown)


def _curve(points: int) -> Table:
    from hilbertcurve.hilbertcurve import HilbertCurve

    rng = np.random.default_rng(1)
    shown = []
    for axes, bits in ((2, 16), (3, 8), (4, 15)):
        cells = rng.integers(0, 1 << bits, (points, axes), np.uint64)
        out = np.empty(points, np.uint64)
        few = cells[: max(points // 50, 2_000)].astype(np.int64).tolist()
        ours = best_of(partial(indexes_of, cells, bits, turns_of(axes), out), 4).least / points
        curve = HilbertCurve(bits, axes)  # turned another way than ours, so not compared with it
        theirs = best_of(partial(curve.distances_from_points, few)).least / len(few)
        wanted = CURVE if (axes, bits) == (4, 15) else None
        name, ratio = f"{axes} attributes, {bits} bits", theirs / ours
        shown.append([name, ours * 1e9, theirs * 1e9, ratio, expected(ratio, least=wanted)])
    title = f"Hilbert index of {points:,} points (the package: {len(few):,} of them)"
    return Table(title, ["", "ns", "hilbertcurve ns", "ratio", "expected"], shown)


def _range_sets(count: int) -> Table:
    """Boxes of growing size: the time for a range stays about the same, that for a cell falls."""
    rng = np.random.default_rng(2)
    shown = []
    for axes, bits, widths in (
        (2, 16, (16, 128, 1024)),
        (3, 12, (8, 24, 72)),
        (4, 12, (4, 10, 24)),
    ):
        space = Space(Integer(f"a{i}", min=0, max=(1 << bits) - 1) for i in range(axes))
        cells = Cells.uniform(space, bits)
        for width in widths:
            lo = rng.integers(0, (1 << bits) - width, (count, axes)).astype(np.float64)
            make = partial(range_sets, cells, lo, lo + width - 1, np.arange(count), 1 << 15)
            made = best_of(make)
            ranges, volume = len(made.answer.starts), width**axes
            shown.append(
                [
                    *(f"{axes} attributes, {width} cells wide", volume, ranges / count),
                    *(width ** (axes - 1), made.answer.visited / ranges),
                    *(made.least / ranges * 1e9, made.least / count / volume * 1e9),
                ]
            )
    headings = ["boxes", "cells", "ranges", "surface / 2d", "nodes per range", "ns per range"]
    return Table("Range sets of boxes", [*headings, "ns per cell"], shown)


def _gaps(events: int) -> Table:
    """One half of the publications weighs the gaps, the other half measures."""
    shown = []
    for subscriptions, publications in (("uniform", "zipf"), ("zipf", "zipf"), ("uniform",) * 2):
        made = generate(
            "equal-boxes",
            seed=3,
            subscriptions=2_000,
            events=events,
            size=8,
            subscription_distribution=subscriptions,
            event_distribution=publications,
        )
        weighing, measuring = made.points[::2], made.points[1::2]
        matched = np.empty(len(measuring), np.bool_)
        bounds = made.boxes.lo, made.boxes.hi
        linear.covered(*bounds, measuring, measuring, matched)
        for kind in ("uniform", "quantiles"):
            cells = Cells.uniform(made.space, 6)
            if kind == "quantiles":
                cells = Cells.quantiles(made.space, 6, weighing)
            exact = union_of_boxes(
                cells, *bounds, made.boxes.owner, max_ranges_per_subscription=1 << 14
            )
            wanted = cells.places(measuring)
            for budget in (100, 1_000):
                false = []
                for sample in (None, cells.places(weighing)):
                    held = within_budget(exact, budget, sample)[0].contains_cells(wanted)
                    if (matched > held).any():
                        raise DisagreementError("the summary lacks a publication that is matched")
                    false.append(int((held & ~matched).sum()))
                name = f"{subscriptions} subscriptions, {publications} publications"
                shown.append([name, kind, len(exact), budget, *false, false[0] / max(false[1], 1)])
    headings = ["3 attributes, 6 bits", "cells", "all ranges", "ranges", "by length", "by weight"]
    title = f"False forwards of {events // 2:,} publications, gaps closed by length and by weight"
    return Table(title, [*headings, "ratio"], shown)


def _draw(path: Path, rows: list[Measured]) -> None:
    with figure(path, columns=2, size=(5.5, 3.8)) as axes:
        for axis, distribution in zip(axes[0], ("uniform", "zipf"), strict=True):
            for size in (2, 4):
                mine = [r for r in rows if (r.distribution, r.size) == (distribution, size)]
                n = [r.n for r in mine]
                axis.plot(n, [r.insert * 1e6 for r in mine], "o-", label=f"insert, size {size}")
                axis.plot(n, [r.linear * 1e6 for r in mine], "s--", label=f"linear, size {size}")
            axis.set(
                title=distribution, xscale="log", yscale="log", xlabel="subscriptions", ylabel="us"
            )
            axis.legend()
