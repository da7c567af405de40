"""Merging: insertion with everything checked, removal, matching by summary, and the curve itself.

The workload is that of paper 004, section 7: 256 values an attribute, boxes of one size. A linear
check, compiled, is what insertion and matching are compared with; the `hilbertcurve` package is
what the curve is compared with. A full run also writes docs/benchmarks/merge.md and merge.png.
"""

from __future__ import annotations

import time
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np

from benchmarks import linear
from benchmarks.measure import Table as Shown
from benchmarks.measure import best_of, console, show
from rangecast.kernels.arrays import F64
from rangecast.kernels.hilbert import indexes_of, turns_of
from rangecast.merge import Cells, Summary
from rangecast.merge.ranges import range_sets
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.report.plots import figure
from rangecast.workloads import generate

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
INSERTION, GROWTH, MATCHING, CURVE = 10.0, 3.0, 3.0, 150.0
"""Expected: ratio to the linear check at 100,000; times dearer from 10^4 to 10^6; million
publications a second; ratio to the `hilbertcurve` package."""
NEW = 2_000


class Measured(NamedTuple):
    """One size of one workload."""

    distribution: str
    size: int
    n: int
    ranges: float
    steps: int
    bytes: float
    insert: float
    remove: float
    linear: float
    touched: float
    looked: float
    matching: float
    by_tree: float
    linear_matching: float


def made(n: int, size: int, distribution: str, events: int) -> tuple[Space, Boxes, F64]:
    """Return the space, boxes and publications; both follow the distribution."""
    workload = generate(
        "equal-boxes",
        seed=7,
        subscriptions=n,
        events=events,
        size=size,
        subscription_distribution=distribution,
        event_distribution=distribution,
    )
    return workload.space, workload.boxes, workload.points


def measured(n: int, size: int, distribution: str, *, quick: bool) -> Measured:
    """Fill a table with n subscriptions, then time what comes on top."""
    space, everything, points = made(n + NEW, size, distribution, 20_000 if quick else 300_000)
    old, new = everything.take(np.arange(n)), everything.take(np.arange(n, n + NEW))
    table = Summary.of(old, space, bits=8)
    runs = 2 if quick else 5
    blocks = np.array_split(points, -(-len(points) // 4_000))  # too small for a bitmap to be made
    by_tree, _ = best_of(lambda: [table.holds_many(block) for block in blocks], runs, process_time)
    matching, _ = best_of(lambda: table.holds_many(points), runs, process_time)
    inserts, removes = [], []  # from here on with a bitmap to keep up
    for _ in range(runs):
        before = table.work
        began = process_time()
        table.subscribe_many(new)
        inserts.append(process_time() - began)
        touched, looked = (np.array(table.work) - before) / NEW
        began = process_time()
        table.unsubscribe_many(new.ids.to_pylist())
        removes.append(process_time() - began)
    few = slice(0, max(5, min(NEW, 20_000_000 // n)))
    out = np.empty(len(new.lo[few]), np.bool_)
    covering, _ = best_of(
        lambda: linear.covered(old.lo, old.hi, new.lo[few], new.hi[few], out), 3, process_time
    )
    some = points[few]
    scanning, _ = best_of(
        lambda: linear.matched(old.lo, old.hi, some, np.empty(len(some), np.bool_)), 3, process_time
    )
    sets = range_sets(table.cells, new.lo, new.hi, new.owner, table.limit)
    return Measured(
        distribution,
        size,
        n,
        len(sets.starts) / NEW,
        table.steps,
        sum(array.nbytes for array in table._levels._tree) / n,
        min(inserts) / NEW,
        min(removes) / NEW,
        covering / len(out),
        touched,
        looked,
        matching / len(points),
        by_tree / len(points),
        scanning / len(some),
    )


def run(*, quick: bool) -> None:
    """Print all tables of this suite; save them if this is the full run."""
    began = time.perf_counter()
    sizes = (1_000, 10_000) if quick else (10_000, 100_000, 1_000_000)
    rows = [
        measured(n, size, distribution, quick=quick)
        for distribution in ("uniform", "zipf")
        for size in (2, 4)
        for n in sizes
    ]
    tables = [
        _insertion(rows),
        _growth(rows, sizes),
        _matching(rows),
        _curve(20_000 if quick else 1_000_000),
        _range_sets(),
    ]
    for table in tables:
        show(*table)
    if not quick:
        FOLDER.mkdir(parents=True, exist_ok=True)
        _write_page(FOLDER / "merge.md", tables)
        _draw(FOLDER / "merge.png", rows)
        console.print(f"Saved in {FOLDER}")
    console.print(f"The suite took {time.perf_counter() - began:.0f} s")


def _insertion(rows: list[Measured]) -> Shown:
    shown = []
    for row in rows:
        expected = f"{INSERTION:.0f}" if row.n == 100_000 else ""
        shown.append(
            [
                f"{row.distribution}, size {row.size}",
                f"{row.n:,}",
                f"{row.ranges:.1f}",
                f"{row.insert * 1e6:.1f}",
                f"{row.linear * 1e6:,.1f}",
                f"{row.linear / row.insert:,.1f}",
                expected,
                f"{row.remove * 1e6:.1f}",
                f"{row.touched:.1f}",
                f"{row.looked:.1f}",
                f"{row.steps:,}",
                f"{row.bytes:,.0f}",
            ]
        )
    headings = ["3 attributes, 8 bits", "in the table", "ranges each", "insert us", "linear us"]
    headings += ["ratio", "expected", "remove us", "touched", "looked for", "steps"]
    title = "Insertion with conversion, covering, subsumption and merging; the linear check covers"
    return Shown(title, [*headings, "bytes each"], shown)


def _growth(rows: list[Measured], sizes: tuple[int, ...]) -> Shown:
    shown = []
    for first in rows:
        if first.n == sizes[0]:
            last = next(r for r in rows if r[:2] == first[:2] and r.n == sizes[-1])
            shown.append(
                [
                    f"{first.distribution}, size {first.size}",
                    f"{last.insert / first.insert:.2f}",
                    f"{GROWTH:.0f}",
                    f"{last.remove / first.remove:.2f}",
                    f"{last.linear / first.linear:.1f}",
                ]
            )
    title = f"How many times dearer at {sizes[-1]:,} than at {sizes[0]:,}"
    return Shown(title, ["", "insertion", "at most", "removal", "linear check"], shown)


def _matching(rows: list[Measured]) -> Shown:
    shown = [
        [
            f"{row.distribution}, size {row.size}",
            f"{row.n:,}",
            f"{1e-6 / row.matching:.1f}",
            f"{MATCHING:.0f}",
            f"{1e-6 / row.by_tree:.1f}",
            f"{row.linear_matching / row.matching:,.0f}",
        ]
        for row in rows
    ]
    headings = ["3 attributes, 8 bits", "in the table", "million a second", "expected"]
    headings.append("by 4,000, without a bitmap")
    title = "Publications against the summary, in batches, one core"
    return Shown(title, [*headings, "times the linear scan"], shown)


def _curve(points: int) -> Shown:
    from hilbertcurve.hilbertcurve import HilbertCurve

    rng = np.random.default_rng(1)
    shown = []
    for axes, bits in ((2, 16), (3, 8), (4, 15)):
        cells = rng.integers(0, 1 << bits, (points, axes), np.uint64)
        out = np.empty(points, np.uint64)
        ours, _ = best_of(
            lambda c=cells, b=bits, a=axes, o=out: indexes_of(c, b, turns_of(a), o), 4, process_time
        )
        few = cells[: max(points // 50, 2_000)].astype(np.int64)
        curve = HilbertCurve(bits, axes)
        theirs, _ = best_of(
            lambda c=curve, f=few: c.distances_from_points(f.tolist()), 3, process_time
        )
        ratio = theirs / len(few) / (ours / points)
        shown.append(
            [
                f"{axes} attributes, {bits} bits",
                f"{ours / points * 1e9:.0f}",
                f"{theirs / len(few) * 1e9:,.0f}",
                f"{ratio:,.0f}",
                f"{CURVE:.0f}" if (axes, bits) == (4, 15) else "",
            ]
        )
    title = f"Hilbert index of {points:,} points (the package: a fiftieth of them)"
    return Shown(title, ["", "ns", "hilbertcurve ns", "ratio", "expected"], shown)


def _range_sets() -> Shown:
    """Boxes of growing size: the time for a range stays about the same, that for a cell falls."""
    rng = np.random.default_rng(2)
    shown = []
    for axes, bits, widths in (
        (2, 16, (16, 128, 1024)),
        (3, 12, (8, 24, 72)),
        (4, 12, (4, 10, 24)),
    ):
        space = Space.from_definition(
            {"attribute": [{"name": f"a{i}", "type": "integer", "min": 0, "max": (1 << bits) - 1}
                           for i in range(axes)]}
        )  # fmt: skip
        cells = Cells.uniform(space, bits)
        for width in widths:
            count = 400
            lo = rng.integers(0, (1 << bits) - width, (count, axes)).astype(np.float64)
            hi = lo + width - 1
            owner = np.arange(count)
            sets = range_sets(cells, lo, hi, owner, 1 << 15)
            seconds, _ = best_of(
                lambda c=cells, a=lo, b=hi, o=owner: range_sets(c, a, b, o, 1 << 15),
                3,
                process_time,
            )
            ranges = len(sets.starts)
            shown.append(
                [
                    f"{axes} attributes, {width} cells wide",
                    f"{width**axes:,}",
                    f"{ranges / count:,.1f}",
                    f"{width ** (axes - 1):,}",
                    f"{sets.visited / ranges:.1f}",
                    f"{seconds / ranges * 1e9:.0f}",
                    f"{seconds / count / width**axes * 1e9:.2f}",
                ]
            )
    headings = ["boxes", "cells", "ranges", "surface / 2d", "nodes a range", "ns a range"]
    return Shown("Range sets of boxes", [*headings, "ns a cell"], shown)


def _write_page(path: Path, tables: list[Shown]) -> None:
    lines = [
        "# Merging",
        "",
        "Made by `python -m benchmarks merge`. Times are of one core, the least of several runs.",
        "Insertion is everything that a broker does with a new subscription: its ranges, what of",
        "them is covered or subsumed, the merge, and the difference to tell. The linear check only",
        "looks for one subscription that covers the new one; compiled, and stops there.",
        "",
        "![Insertion by the size of the table](merge.png)",
        "",
    ]
    for table in tables:
        lines += [f"## {table.title}", "", "| " + " | ".join(table.headings) + " |"]
        lines += ["| --- |" + " ---: |" * (len(table.headings) - 1)]
        lines += ["| " + " | ".join(row) + " |" for row in table.rows] + [""]
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


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
