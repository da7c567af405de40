"""Paper 004, table 1: converting a subscription to ranges."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from experiments.experiment import Experiment, Panel, Point, Results, Values, in_order
from experiments.merge.workload import DIMENSIONS, EXACT, made
from experiments.timing import best_of
from rangecast.merge.cells import Cells
from rangecast.merge.ranges import range_sets
from rangecast.report.markdown import Table

WIDTHS = (2, 4, 8, 16)
COUNT = {"tiny": 50, "quick": 300, "full": 500}
LIMITS = {"no bound": EXACT, "at most 64": 64}
TABLE_1 = {2: (0.1, 0.1, 0.3, 1.0), 3: (0.1, 0.3, 1.9, 12.8), 4: (0.1, 1.1, 10.2, 124.1)}
"""Milliseconds."""


def points(size: str) -> Iterator[Point]:
    """Each number of attributes, size of boxes and bound."""
    for d in DIMENSIONS:
        for width in WIDTHS:
            for limit in LIMITS:
                yield {"n": COUNT[size], "d": d, "width": width, "limit": limit}


def measure(seed: int, n: int, d: int, width: int, limit: str) -> dict[str, Any]:
    """Convert all subscriptions."""
    one = made(seed, n, d, width, "uniform")
    boxes, cells = one.boxes, Cells.uniform(one.space, 8)
    done = best_of(partial(range_sets, cells, boxes.lo, boxes.hi, boxes.owner, LIMITS[limit]))
    return {"ms": done.least * 1e3 / n, "ranges": len(done.answer.starts) / n}


def ours(results: Results) -> dict[str, Values]:
    """Table 1."""
    found = {
        f"{d} attributes, ms": results.by("size {width}", ["ms"], d=d, limit="no bound")["ms"]
        for d in DIMENSIONS
    }
    return {"Table 1": found}


def tables(results: Results) -> Iterator[Table]:
    """Ranges and microseconds, with and without a bound."""
    rows = []
    for d in DIMENSIONS:
        for width in WIDTHS:
            whole, bound = results.where(d=d, width=width)
            times = [1000 * row["ms"] for row in (whole, bound)]
            row = [whole["ranges"], times[0], bound["ranges"], times[1]]
            rows.append([f"{d} attributes, size {width}", *row])
    heads = ["", "ranges", "us", "ranges, at most 64", "us"]
    yield Table("Ranges of a subscription, and the time of its conversion", heads, rows)


def panels(results: Results) -> list[Panel]:
    """Table 1 as lines."""
    some = results.where(limit="no bound")
    lines = []
    for colour, d in enumerate(DIMENSIONS):
        line = some.line(f"{d} attributes, ours", "width", "ms", d=d)
        lines.append(line._replace(colour=colour))
        label = f"{d} attributes, paper"
        lines.append(line._replace(label=label, ys=TABLE_1[d], colour=colour, style="o:"))
    return [Panel("Conversion (table 1)", "size of a box", "ms per subscription", lines, "xy")]


EXPERIMENT = Experiment(
    name="merge-conversion",
    title="Conversion of a subscription (table 1)",
    parts=("Table 1",),
    about="""Uniform boxes, without a bound on the ranges, as in the paper; the last table also has
    those with at most 64, which is what `Summary` takes by default.""",
    points=points,
    measure=measure,
    printed={
        "Table 1": in_order(
            (f"size {width}" for width in WIDTHS),
            {f"{d} attributes, ms": values for d, values in TABLE_1.items()},
        )
    },
    ours=ours,
    tables=tables,
    panels=panels,
    panel_size=(6.8, 4.2),
    seed=4,
    is_timed=True,
    verdicts={
        "Table 1": """Agrees in part: it grows with attributes and size; differs in
        steepness, 115 times instead of 1,241 from size 2 to 16 with 4 attributes, because
        ours looks at no single cell; it takes at most {most} of the time of a laptop of
        2008.""",
    },
)
