"""Is the choice of a structure right? Random shapes of sets, each timed under every structure."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.frame import Report
from benchmarks.harness import expected
from experiments.timing import race
from rangecast.kernels.arrays import F64
from rangecast.match.choose import INDEXES, choose
from rangecast.match.result import MatchRows
from rangecast.model.boxes import Boxes
from rangecast.report.markdown import Table

CONTESTANTS = [name for name in INDEXES if name not in ("scan", "vcr")]
"""The scan and VCR are far behind on most shapes and would take most of the time."""
REGRET = 1.5


ABOUT = f"""
Random shapes of sets, each timed under every structure; the shapes come from seeds that were not
looked at when the choice was fitted. The regret is the time of the chosen structure over that of
the fastest one; at most {REGRET} is expected. All give the same matches.
"""


def run(report: Report, *, quick: bool) -> None:
    """Show a line per shape, and how often the choice was right."""
    report.begin("The choice of a structure", ABOUT)
    top = len(report.blocks)
    rows = []
    regrets = []
    for seed in range(100, 102 if quick else 124):
        about, boxes, points = _shape(np.random.default_rng(seed), quick)
        matchers = {name: INDEXES[name](boxes) for name in CONTESTANTS}
        for matcher in matchers.values():
            matcher.match(points[:200])  # compiles
        raced = race(
            {name: partial(partial, matcher.match, points) for name, matcher in matchers.items()},
            same=_same,
        )
        chosen = choose(boxes).name
        regrets.append(raced[chosen].least / min(one.least for one in raced.values()))
        times = [raced[name].least / len(points) * 1e6 for name in CONTESTANTS]
        matches = len(raced[chosen].answer.rows) / len(points)
        wanted = expected(regrets[-1], most=REGRET)
        rows.append([about, matches, *times, chosen, regrets[-1], wanted])
    headings = ["shape", "matches", *(f"{n}, us" for n in CONTESTANTS), "chosen", "regret"]
    report.table(Table("Processor time per event", [*headings, "at most"], rows))
    right = sum(regret <= REGRET for regret in regrets)
    line = [f"{right} of {len(regrets)}", np.median(regrets), max(regrets)]
    report.table(Table("Regret", [f"at most {REGRET}", "median", "largest"], [line]), at=top)


def _same(one: MatchRows, other: MatchRows) -> bool:
    mine, theirs = (found.rows[np.lexsort((found.rows, found.events))] for found in (one, other))
    return np.array_equal(one.events, other.events) and np.array_equal(mine, theirs)


def _shape(rng: np.random.Generator, quick: bool) -> tuple[str, Boxes, F64]:
    """Return a random kind of set: its size, attributes, grid, widths and what is mentioned."""
    n = int(10 ** rng.uniform(3, 3.5 if quick else 5.2))
    d = int(rng.choice([1, 2, 2, 3, 4, 6, 10, 16]))
    mentioned = int(rng.integers(1, d + 1))
    share = rng.uniform(0.5, 3) * (30 / n) ** (1 / mentioned)  # of an attribute, for some matches
    widths = rng.random((n, d)) * min(0.9, share)
    middle = rng.random((n, d)) if rng.random() < 0.5 else rng.beta(2, 5, (n, d))
    lo, hi = middle - widths / 2, middle + widths / 2
    points = rng.random((300 if quick else 3000, d))
    grid = int(rng.choice([0, 0, 20, 300, 5000]))
    if grid:
        lo, hi, points = (np.round(each * grid) for each in (lo, hi, points))
    free = rng.random((n, d)).argsort(axis=1) >= mentioned
    boxes = Boxes.of(np.where(free, -np.inf, lo), np.where(free, np.inf, hi))
    about = f"{n:,} x {d}, {mentioned} mentioned, " + (f"grid {grid}" if grid else "reals")
    return about, boxes, points
