"""Section V of the covering paper (000): what each relation graph and each index costs.

    python -m experiments.cover graphs         tables I and II, figures 8 and 9
    python -m experiments.cover indexes        figures 10 to 12
    python -m experiments.cover example        the picture of docs/COVER.md

With --quick all sizes are a tenth, and nothing is written. Each part writes its own page beside
its plots. Seconds of 2004 and of today don't compare: what is shown beside the paper's is work
(cov() calls, nodes, point comparisons), and seconds are compared with one another.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cover import Played, Trace, paper_trace, play
from benchmarks.measure import Table, show
from benchmarks.page import machine, markdown, write
from rangecast import Integer, Space
from rangecast.cover import CoverSet
from rangecast.cover.store import CALLS, COMPARISONS, LATE, NODES, REJOIN, SUBSCRIBE, UNSUBSCRIBE
from rangecast.report.plots import COLOURS, figure

DOCS = Path(__file__).parents[1] / "docs"
FOLDER = DOCS / "experiments"
KS = range(1, 7)

TABLE_I = {
    1: (813, 782, 31, 6147, 5993, 154),
    2: (983, 974, 9, 9967, 9852, 115),
    3: (1140, 1131, 9, 13111, 12973, 138),
    4: (1275, 1266, 9, 15816, 15663, 153),
    5: (1400, 1390, 10, 18274, 18111, 163),
    6: (1508, 1498, 10, 20407, 20237, 170),
}
"""p = 5%, by k, in thousands: nodes, those of subscribes, of unsubscribes; comparisons likewise."""
TABLE_II = {
    1: (556, 415, 141, 6192, 4684, 1508),
    2: (634, 529, 105, 8952, 7376, 1576),
    3: (714, 615, 99, 11026, 9365, 1661),
    4: (780, 683, 97, 12661, 10936, 1725),
    5: (839, 740, 99, 14050, 12260, 1790),
    6: (889, 789, 100, 15233, 13389, 1844),
}
"""p = 40%."""
LOADS = ((0.05, "I", "heavy", TABLE_I), (0.4, "II", "light", TABLE_II))


def graphs(scale: int) -> None:
    """Tables I and II, figures 8 and 9: k = 1 .. 6 at both loads, under both indexes."""
    tables, seconds, calls = [], {}, {}
    for share, number, load, paper in LOADS:
        trace = paper_trace(60_000 // scale, 5, share)
        for index in ("kdtree", "zcurve"):
            played = {k: play(trace, index, k) for k in KS}
            title = f"Table {number}, {load} load (p = {share:.0%}), {index}, in thousands"
            tables.append(_costs(title, played, paper if index == "kdtree" else None))
            seconds[index, share] = [played[k].seconds for k in KS]
            if index == "kdtree":
                calls[share] = [int(_work(played[k])[UNSUBSCRIBE, CALLS]) for k in KS]
                tables.append(_calls(share, trace, played))
    for table in tables:
        show(*table)
    if scale > 1:
        return
    _draw_graphs(seconds, calls)
    lines = [
        "# Which relation graph? Section V-B of paper 000",
        "",
        "Made by `python -m experiments.cover graphs`: 60,000 commands, 5 attributes, k = 1 to 6.",
        "",
        "The paper says neither what a random segment is nor its bucket limits: here a segment has",
        "two uniform ends, and a bucket of the k-d tree splits past 32 points and joins below 8.",
        "With larger buckets nodes fall and comparisons rise. So look at the trend.",
        "",
        "*Late* and *rejoin* are not in the paper. They make Property 1 hold at every step, also",
        "for what was forwarded and covered later: `late` looks for the roots that a new root",
        "covers, `rejoin` finds another coverer for one that had been forwarded. They are counted",
        "apart, so that the other columns are the paper's cov() calls and nothing else. Seconds",
        "include them.",
        "",
        machine(("numpy", "numba")),
        "",
        "![Time and cov() calls by k](cover_graphs.png)",
        "",
    ]
    for table in tables:
        lines += markdown(table)
    write(FOLDER / "cover.md", lines)


def _work(played: Played) -> np.ndarray:
    return played.live.store.arrays.work


def _costs(title: str, played: dict[int, Played], paper: dict[int, Any] | None) -> Table:
    headings = ["k", "nodes", "subscribes", "unsubscribes"]
    headings += ["comparisons", "subscribes", "unsubscribes", "late + rejoin", "seconds"]
    rows = []
    for k, one in played.items():
        work = _work(one)
        cells = []
        for column in (NODES, COMPARISONS):
            both = [work[SUBSCRIBE, column], work[UNSUBSCRIBE, column]]
            cells += [sum(both), *both]
        shown = [f"{cell / 1000:,.0f}" for cell in cells]
        if paper is not None:
            shown = [f"{ours} ({theirs:,})" for ours, theirs in zip(shown, paper[k], strict=True)]
        extra = work[[LATE, REJOIN], COMPARISONS].sum()
        rows.append([str(k), *shown, f"{extra / 1000:,.0f}", f"{one.seconds:.2f}"])
    if paper is not None:
        title += "; the paper's in parentheses"
    return Table(title, headings, rows)


def _calls(share: float, trace: Trace, played: dict[int, Played]) -> Table:
    """Figure 9, Lemma 1 and Theorem 1."""
    leaves = int((trace.comes == 0).sum())
    paper = [SUBSCRIBE, UNSUBSCRIBE]
    totals = {k: int(_work(one)[paper, CALLS].sum()) for k, one in played.items()}
    rows = []
    for k, one in played.items():
        work = _work(one)
        rows.append(
            [
                str(k),
                f"{work[SUBSCRIBE, CALLS]:,}",
                f"{work[UNSUBSCRIBE, CALLS]:,}",
                f"{work[LATE, CALLS]:,}",
                f"{work[REJOIN, CALLS]:,}",
                f"{totals[k] / min(totals.values()):.3f}",
            ]
        )
    title = (
        f"cov() calls by cause, p = {share:.0%}: {leaves:,} unsubscribes, a bound for the calls "
        "that they cause at k = 1 (Lemma 1); the total at k = 1 is at most twice the least"
    )
    headings = ["k", "subscribes", "unsubscribes", "late", "rejoin", "total / least"]
    return Table(title, headings, rows)


def _draw_graphs(seconds: dict[Any, list[float]], calls: dict[float, list[int]]) -> None:
    with figure(FOLDER / "cover_graphs.png", columns=2, size=(5.6, 3.8)) as axes:
        time, count = axes[0]
        time.set(title="Time by k (figure 8)", xlabel="k", ylabel="seconds for 60,000 commands")
        for (index, share), values in seconds.items():
            style = {"color": COLOURS[index == "zcurve"], "ls": "-" if share < 0.1 else "--"}
            time.plot(KS, values, marker="o", label=f"{index}, p = {share:.0%}", **style)
        time.set_ylim(0, 1.35 * max(map(max, seconds.values())))
        time.legend(ncols=2, fontsize=9)
        count.set(title="cov() calls of unsubscribes (figure 9)", xlabel="k", ylabel="calls")
        for colour, (share, values) in zip(COLOURS, calls.items(), strict=False):
            count.plot(KS, values, marker="o", color=colour, label=f"p = {share:.0%}")
        count.set_ylim(bottom=0)
        count.legend()


def indexes(scale: int) -> None:
    """Figures 10 to 12: time and work by commands and by attributes, at p = 15%."""
    sizes = [n // scale for n in (10_000, 30_000, 100_000)]
    names = ("scan", "kdtree", "zcurve", "blocks")
    rows, curves = [], {}
    for attributes in (3, 5, 8):
        for n in sizes:
            trace = paper_trace(n, attributes)
            played = {index: play(trace, index) for index in names}
            assert len({one.messages for one in played.values()}) == 1, "the messages differ"
            for index, one in played.items():
                curves.setdefault((attributes, index), []).append(one.seconds)
                rows.append(
                    [
                        f"{attributes} attributes, {n:,} commands, {index}",
                        f"{one.seconds:.2f}",
                        f"{played['scan'].seconds / one.seconds:,.1f}",
                        f"{one.each(NODES, n):,.1f}",
                        f"{one.each(COMPARISONS, n):,.1f}",
                    ]
                )
    headings = ["", "seconds", "times the scan", "nodes a command", "comparisons a command"]
    table = Table("Time and work, p = 15%, k = 1", headings, rows)
    show(*table)
    if scale > 1:
        return
    with figure(FOLDER / "cover_indexes.png", columns=3, size=(4.2, 3.8)) as axes:
        for one, attributes, number in zip(axes[0], (3, 5, 8), (10, 11, 12), strict=True):
            one.set(title=f"{attributes} attributes ({2 * attributes} dimensions)")
            one.set(xlabel="commands", xscale="log", yscale="log")
            for index in names:
                one.plot(sizes, curves[attributes, index], marker="o", label=index)
            if number == 10:
                one.set_ylabel("seconds, all commands")
                one.legend()
    lines = [
        "# Which index? Section V-C of paper 000",
        "",
        "Made by `python -m experiments.cover indexes`: 10,000 to 100,000 commands, p = 15%, 3 to",
        "8 attributes (6 to 16 dimensions), k = 1. All send the same messages. Seconds of a core.",
        "",
        "The paper reports, in 16 dimensions, that k-d trees run 10 times as fast as its naive",
        "algorithm and about twice as fast as the Z-curve, and that the gain",
        "grows with the dimension. Its figures 10 to 12 are lost, so there are no more numbers to",
        "put beside these. The scan here is compiled; `blocks` is ours. Both searches of a command",
        "are counted: for what covers the new subscription, and for roots that it covers.",
        "",
        machine(("numpy", "numba")),
        "",
        "![Time by commands, with 3, 5 and 8 attributes](cover_indexes.png)",
        "",
        *markdown(table),
    ]
    write(FOLDER / "cover_indexes.md", lines)


EXAMPLE = {
    1: ((0, 60), (0, 60)),
    2: ((20, 100), (10, 100)),
    3: ((5, 50), (5, 55)),
    4: ((25, 45), (20, 50)),
    5: ((30, 40), (25, 35)),
}
"""Five subscriptions on two attributes, in order of arrival: the worked example of the docs."""


def example_graph(k: int | str) -> CoverSet:
    """Return the worked example in a relation graph."""
    space = Space([Integer("x", min=0, max=100), Integer("y", min=0, max=100)])
    graph = CoverSet(space, index="scan", k=k)
    for one, ((left, right), (low, high)) in EXAMPLE.items():
        graph.subscribe(one, f"x between {left} and {right} and y between {low} and {high}")
    return graph


def example(_scale: int) -> None:
    """Draw the five subscriptions and their four graphs."""
    places = {1: (0.8, 3.0), 2: (2.1, 3.0), 3: (0.0, 2.0), 4: (1.6, 1.0), 5: (0.5, 0.0)}
    with figure(DOCS / "images" / "cover.png", columns=5, size=(2.5, 3.1)) as axes:
        plan, *four = axes[0]
        plan.set(title="five boxes", xlim=(-3, 103), ylim=(-3, 103), xlabel="x", ylabel="y")
        plan.grid(visible=False)
        for one, ((left, right), (low, high)) in EXAMPLE.items():
            colour = COLOURS[one - 1]
            edges = [left, right, right, left, left], [low, low, high, high, low]
            plan.plot(*edges, color=colour, lw=1.8)
            plan.text(right - 1.5, high - 1.5, str(one), color=colour, ha="right", va="top")
        for one, (name, k) in zip(
            four, (("G*", "all"), ("G_1", 1), ("G_2", 2), ("strict poset", "poset")), strict=True
        ):
            one.set(title=name.replace("_1", "₁").replace("_2", "₂"))
            one.set(xlim=(-0.5, 2.6), ylim=(-0.5, 3.5))
            one.axis("off")
            for above, below in example_graph(k).edges():
                arrow = {"arrowstyle": "-|>", "shrinkA": 11, "shrinkB": 11, "color": "#5c6b73"}
                one.annotate("", places[below], places[above], arrowprops=arrow)
            for name, (x, y) in places.items():
                one.plot(x, y, "o", ms=19, color="white", mec=COLOURS[name - 1], mew=1.8)
                one.text(x, y, str(name), ha="center", va="center")


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description="Section V of paper 000.")
    parts = {"graphs": graphs, "indexes": indexes, "example": example}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--quick", action="store_true", help="a tenth of every size")
    given = parser.parse_args()
    parts[given.part](10 if given.quick else 1)


if __name__ == "__main__":
    main()
