"""Section 4 of the ranking paper (003): its experiments 1 to 4, as memory, work and ratios of time.

Seconds of 2008 in Java and of today don't compare; what is shown is how the structures compare with
one another, beside what the paper says of them. Memory is that of all arrays of a structure but the
boxes. Relaxed ranking, as in the paper: a structure on each attribute, merged by the Threshold
Algorithm. What we make of the numbers is in docs/experiments/README.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.frame import Report
from rangecast.experiments.timing import Timed, race
from rangecast.kernels.arrays import F64
from rangecast.model.boxes import Boxes
from rangecast.rank.choose import INDEXES, Index
from rangecast.rank.result import Best
from rangecast.report.markdown import Table
from rangecast.report.plots import figure, plot
from rangecast.workloads import generate

STRUCTURES = ("segment", "interval", "rtree", "ir", "sopt", "slabs")
"""Those of the paper's plots, and ours."""
K = 20
PAPER_BYTES = {
    "interval": (9.2, 8.5, 8.4, 8.3),
    "rtree": (12.0, 12.0, 12.0, 12.0),
    "segment": (400.0, 445.0, 428.0, 429.0),
    "ir": (17.6, 17.2, 16.7, 16.5),
}
"""Table 2: bytes an interval for 100,000, 200,000, 500,000 and a million."""
MOST_BYTES = 3 << 30
"""What would need more isn't built."""


class Size(NamedTuple):
    """How much to run."""

    memory: tuple[int, ...]
    subscriptions: int
    events: int
    subscriptions_in_dimensions: int
    """Where there are several attributes."""
    events_in_dimensions: int
    k: tuple[int, ...]


SIZES = {
    "quick": Size((1_000, 2_000), 1_000, 10, 500, 5, (1, 20)),
    "usual": Size((10_000, 20_000), 20_000, 60, 5_000, 20, (1, 20, 200)),
    "full": Size(
        *((100_000, 200_000, 500_000, 1_000_000), 1_000_000, 2_000, 1_000_000, 10),
        (1, 5, 20, 100, 500, 2_000),
    ),
}
SEED = 3

ABOUT = """
*Examined* counts intervals looked at, *pages* nodes opened, *holes* leaves opened in vain, *calls*
calls of getnext, *tested* subscriptions looked up whole; all per event. Times are of a core, the
least of three alternating runs. `slabs` is ours and not one of the paper's. All give the same
answers.
"""

Results = dict[str, Timed[Best]]
"""Of the structures that took part."""


def run(report: Report, size: Size, seed: int) -> None:
    """Run the four experiments."""
    report.begin("Section 4 of paper 003: ranking", ABOUT)
    memory(report, size, seed)
    getnext(report, size, seed)
    dimensions(report, size, seed)
    overlap(report, size, seed)


def made(seed: int, n: int, events: int, attributes: int = 1, **skew: float) -> tuple[Boxes, F64]:
    """Return the subscriptions and events of Table 1."""
    sizes = {"subscriptions": n, "events": events, "attributes": attributes}
    workload = generate("ranked", seed=seed, **sizes, **skew)
    return workload.boxes, workload.points


def built(name: str, boxes: Boxes, *, relaxed: bool = True) -> Index | None:
    """Build a structure; `None` if it would need too much memory, judged by a few boxes."""
    few = boxes.take(np.arange(0, boxes.rows, max(1, boxes.rows // 5_000)))
    if INDEXES[name](few, relaxed=relaxed).memory / few.rows * boxes.rows > MOST_BYTES:
        return None
    return INDEXES[name](boxes, relaxed=relaxed)


def measured(
    boxes: Boxes, points: F64, ks: Iterable[int], *, relaxed: bool = True
) -> list[Results]:
    """Let each structure rank all events for each k, turn by turn."""
    indexes = {name: built(name, boxes, relaxed=relaxed) for name in STRUCTURES}
    there = {name: index for name, index in indexes.items() if index is not None}
    for index in there.values():
        index.best(points[:2], 1)  # compiles
    return [
        race({name: partial(partial, i.best, points, k) for name, i in there.items()}, same=same)
        for k in ks
    ]


def same(one: Best, other: Best) -> bool:
    """Return whether two structures gave the same ranking."""
    return np.array_equal(one.counts, other.counts) and all(
        np.array_equal(one.of(event)[0], other.of(event)[0]) for event in range(len(one.counts))
    )


def row(
    first: Any, name: str, results: Results, counts: Mapping[str, str], *, beside_sopt: bool = True
) -> list[object]:
    """Return a structure's time and work per event; the headings of its counters by their names."""
    one = results.get(name)
    if one is None:
        return [first, name, "too large"]
    events = len(one.answer.counts)
    times = [one.least / results["sopt"].least] if beside_sopt else []
    work = [np.sum(getattr(one.answer.work, count)) / events for count in counts]
    return [first, name, one.least / events * 1e6, *times, *work]


def microseconds(results: Results, name: str) -> float:
    """Return the time per event, NaN if the structure was too large."""
    one = results.get(name)
    return one.least / len(one.answer.counts) * 1e6 if one else np.nan


def memory(report: Report, size: Size, seed: int) -> None:
    """Experiment 1, Table 2: memory by structure and number of intervals."""
    by_name: dict[str, list[float]] = {}
    for name in STRUCTURES:
        for n in size.memory:
            index = built(name, made(seed, n, 1)[0], relaxed=False)
            by_name.setdefault(name, []).append(index.memory / n if index else np.nan)
    rows = []
    for name, each in by_name.items():
        theirs = PAPER_BYTES.get(name, ())
        ratio = theirs[-1] / PAPER_BYTES["interval"][-1] if theirs else None
        paper = ", ".join(f"{one:g}" for one in theirs)
        rows.append([name, *each, paper, each[-1] / by_name["interval"][-1], ratio])
    heads = ["structure", *(f"n = {n:,}" for n in size.memory)]
    heads += ["paper", "times the interval tree", "paper"]
    report.table(Table("Experiment 1: memory, bytes per interval (Table 2)", heads, rows))
    report.text(
        """The paper's figures are below the 16 bytes of two ends, so they count references to
        intervals that are kept elsewhere; ours have the ends in the tree, except the segment tree,
        which compares nothing and needs none."""
    )
    with figure(report.picture("rank-memory.png", "Memory")) as axes:
        for name, values in by_name.items():
            axes[0, 0].plot(size.memory, values, marker="o", label=name)
        axes[0, 0].set(title="Memory of one attribute", xlabel="intervals", xscale="log")
        axes[0, 0].set(ylabel="bytes per interval", ylim=(0, None))
        axes[0, 0].legend(loc="center left")


def getnext(report: Report, size: Size, seed: int) -> None:
    """Experiment 2, Figure 6: time and work by the number of getnext calls, one attribute."""
    boxes, points = made(seed, size.subscriptions, size.events)
    by_k = measured(boxes, points, size.k, relaxed=False)
    counts = {"examined": "examined", "opened": "pages", "holes": "holes"}
    rows = [
        row(k, name, results, counts)
        for k, results in zip(size.k, by_k, strict=True)
        for name in STRUCTURES
    ]
    heads = ["k", "structure", "us", "times sopt", *counts.values()]
    title = f"Experiment 2: number of getnext calls, one attribute, n = {size.subscriptions:,}"
    report.table(Table(title, heads, rows))
    report.text(
        """Paper: the interval tree is the slowest, the R-tree falls behind as k grows because of
        its holes, segment and IR are about equal, and SOPT-R is the fastest, up to 2 times."""
    )
    picture = report.picture("rank-getnext.png", "By the number of calls")
    with figure(picture, columns=2, size=(5.5, 4)) as axes:
        for name in STRUCTURES:
            times = [microseconds(results, name) for results in by_k]
            axes[0, 0].plot(size.k, times, marker="o", label=name)
            if name != "slabs":
                answers = [results[name].answer for results in by_k]
                seen = [answer.work.examined / len(points) for answer in answers]
                axes[0, 1].plot(size.k, seen, marker="o", label=name)
        axes[0, 0].set(title="Time", xlabel="getnext calls (k)", ylabel="µs per event")
        axes[0, 1].set(title="Work", xlabel="getnext calls (k)", ylabel="intervals examined")
        for one_axes in axes[0]:
            one_axes.set(xscale="log", yscale="log")
            one_axes.legend(fontsize=8)


def dimensions(report: Report, size: Size, seed: int) -> None:
    """Experiment 3, Figures 7 and 8: time by the number of attributes, relaxed."""
    numbers = (1, 2, 3, 4, 6, 8)
    n, events = size.subscriptions_in_dimensions, size.events_in_dimensions
    by_number = {d: measured(*made(seed, n, events, d), [K])[0] for d in numbers}
    counts = {"calls": "calls", "examined": "examined", "tested": "tested"}
    rows = [row(d, name, by_number[d], counts) for d in numbers for name in STRUCTURES]
    heads = ["attributes", "structure", "us", "times sopt", *counts.values()]
    title = f"Experiment 3: number of attributes, relaxed, n = {n:,}, k = {K}"
    report.table(Table(title, heads, rows))
    report.text(
        """Paper: the structures converge as attributes are added, since almost all intervals that
        hold are then fetched; up to 4 attributes SOPT-R leads by 1.5 to 16 times; the segment tree
        ran out of memory at 8."""
    )
    _draw(report, "rank-dimensions.png", "By the number of attributes", "attributes", by_number)


def overlap(report: Report, size: Size, seed: int) -> None:
    """Experiment 4, Figure 9: time by the skew of lengths, four attributes, relaxed."""
    skews = (0.25, 0.75, 1.25, 1.75)
    n, events = size.subscriptions_in_dimensions, size.events_in_dimensions
    by_skew = {
        skew: measured(*made(seed, n, events, 4, skew_length=skew), [K])[0] for skew in skews
    }
    counts = {"calls": "calls", "examined": "examined", "holes": "holes"}
    rows = [
        row(skew, name, by_skew[skew], counts, beside_sopt=False)
        for skew in skews
        for name in STRUCTURES
    ]
    heads = ["skew", "structure", "us", *counts.values()]
    title = f"Experiment 4: overlap, four attributes, relaxed, n = {n:,}, k = {K}"
    report.table(Table(title, heads, rows))
    report.text(
        """Paper: all become faster as intervals become shorter, except the scored R-tree, which
        degrades because of its holes."""
    )
    what = "skew of lengths: to the right intervals are shorter"
    _draw(report, "rank-overlap.png", "By overlap", what, by_skew)


def _draw(report: Report, name: str, about: str, x: str, by_x: Mapping[Any, Results]) -> None:
    picture = report.picture(name, about)
    title = f"Relaxed ranking: {about[0].lower()}{about[1:]}"
    with plot(picture, title=title, x=x, y="µs per event (log)") as axes:
        for structure in STRUCTURES:
            times = [microseconds(results, structure) for results in by_x.values()]
            axes.plot(list(by_x), times, marker="o", label=structure)
        axes.set(yscale="log")
