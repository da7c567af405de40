"""Is the choice of a structure right? Random shapes of sets, each timed under every structure.

The shapes come from a seed and were not looked at when the choice was fitted. The regret is the
time of the chosen structure over that of the fastest one; at most 1.5 is what we expect.
"""

from __future__ import annotations

from functools import partial
from time import process_time

import numpy as np

from benchmarks.measure import best_of, show
from rangecast.kernels.arrays import F64
from rangecast.match.choose import INDEXES, choose
from rangecast.model.boxes import Boxes

CONTESTANTS = [name for name in INDEXES if name not in ("scan", "vcr")]
"""The scan and VCR are far behind on most shapes and would take most of the time."""
REGRET = 1.5


def run(*, quick: bool) -> None:
    """Print a line a shape, and how often the choice was right."""
    rows, regrets = [], []
    for seed in range(100, 104 if quick else 124):
        about, boxes, points = _shape(np.random.default_rng(seed), quick)
        seconds = {}
        matches = 0
        for name in CONTESTANTS:
            index = INDEXES[name](boxes)
            matches = len(index.match(points[:200]).rows) // 200
            match = partial(index.match, points)
            seconds[name] = best_of(match, 3, process_time)[0]
        chosen = choose(boxes).name
        fastest = min(seconds, key=lambda name: seconds[name])
        regrets.append(seconds[chosen] / seconds[fastest])
        times = [f"{seconds[name] / len(points) * 1e6:.1f}" for name in CONTESTANTS]
        rows.append([about, f"{matches:,}", *times, chosen, f"{regrets[-1]:.2f}"])
    headings = ["shape", "matches", *(f"{n}, us" for n in CONTESTANTS), "chosen", "regret"]
    show("The choice of a structure, processor time an event", headings, rows)
    right = sum(regret <= REGRET for regret in regrets)
    line = [[f"{right} of {len(regrets)}", f"{np.median(regrets):.2f}", f"{max(regrets):.2f}"]]
    show("Regret", [f"at most {REGRET}", "median", "largest"], line)


def _shape(rng: np.random.Generator, quick: bool) -> tuple[str, Boxes, F64]:
    """Return a random kind of set: its size, attributes, grid, widths and what is mentioned."""
    n = int(10 ** rng.uniform(3, 3.5 if quick else 5.2))
    d = int(rng.choice([1, 2, 2, 3, 4, 6, 10, 16]))
    mentioned = int(rng.integers(1, d + 1))
    share = rng.uniform(0.5, 3) * (30 / n) ** (1 / mentioned)  # of an attribute, for some matches
    widths = rng.random((n, d)) * min(0.9, share)
    middle = rng.random((n, d)) if rng.random() < 0.5 else rng.beta(2, 5, (n, d))
    lo, hi = middle - widths / 2, middle + widths / 2
    points = rng.random((3000, d))
    grid = int(rng.choice([0, 0, 20, 300, 5000]))
    if grid:
        lo, hi, points = (np.round(each * grid) for each in (lo, hi, points))
    free = rng.random((n, d)).argsort(axis=1) >= mentioned
    boxes = Boxes.of(np.where(free, -np.inf, lo), np.where(free, np.inf, hi))
    about = f"{n:,} x {d}, {mentioned} mentioned, " + (f"grid {grid}" if grid else "reals")
    return about, boxes, points
