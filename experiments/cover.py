"""Section V of the covering paper (000): what each relation graph and each index costs.

Seconds of 2004 and of today don't compare: what is shown beside the paper's is work (cov() calls,
nodes, point comparisons), and seconds are compared with one another.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cover import Played, Trace, paper_trace, play, same_messages
from benchmarks.frame import Report
from rangecast.cover.store import CALLS, COMPARISONS, LATE, NODES, REJOIN, SUBSCRIBE, UNSUBSCRIBE
from rangecast.experiments.timing import Timed, race
from rangecast.kernels.arrays import I64
from rangecast.report.markdown import Table
from rangecast.report.plots import COLOURS, figure

Results = dict[int, Timed[Played]]
"""By k."""
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
READINGS = {"length": "length first", "ends": "both ends"}
"""What a random segment may be: the workload's option, and its name."""
LOADS = ((0.05, "I", "heavy", TABLE_I), (0.4, "II", "light", TABLE_II))


class Size(NamedTuple):
    """How much to run."""

    commands_for_graphs: int
    commands_for_indexes: tuple[int, ...]


_PAPER = Size(60_000, (10_000, 30_000, 100_000))
SIZES = {"quick": Size(600, (200, 400)), "usual": _PAPER, "full": _PAPER}
SEED = 0

GRAPHS = """
## Which relation graph? Section V-B

Tables I and II, figures 8 and 9: 5 attributes, k = 1 to 6, the algorithm as it is printed.

The paper doesn't say what a random segment is. Both readings are shown: its length is drawn first
and then its place (*length first*), or both of its ends are drawn (*both ends*). It doesn't give
its bucket limits either: here a bucket of the k-d tree splits past 32 points and joins below 8.
With larger buckets nodes fall and comparisons rise.

`CoverSet` does more than the printed algorithm: a new root looks for roots that it covers
(`late`), and one of those that loses its coverer looks for another one (`rejoin`), so that
Property 1 holds at every step. The last table has what that costs. The messages are the same.
"""
INDEXES = """
## Which index? Section V-C

Figures 10 to 12: p = 15%, 3 to 8 attributes (6 to 16 dimensions), k = 1. All send the same
messages. Seconds of a core.

The paper reports, in 16 dimensions, that k-d trees run 10 times as fast as its naive algorithm and
about twice as fast as the Z-curve, and that the gain grows with the dimension. Its figures 10 to
12 are lost, so there are no more numbers to put beside these. The scan here is compiled; `blocks`
is ours. Both searches of a command are counted: for what covers the new subscription, and for
roots that it covers.
"""


def run(report: Report, size: Size, seed: int) -> None:
    """Compare relation graphs, then indexes."""
    report.begin("Section V of paper 000: covering", "Sizes are numbers of commands.")
    graphs(report, size.commands_for_graphs, seed)
    indexes(report, size.commands_for_indexes, seed)


def graphs(report: Report, commands: int, seed: int) -> None:
    """Tables I and II, figures 8 and 9: k = 1 .. 6 at both loads, under both indexes."""
    report.text(GRAPHS)
    picture = report.picture("cover_graphs.png", "Time and cov() calls by k")
    seconds, calls, extra = {}, {}, []
    for share, number, load, paper in LOADS:
        for segment, reading in READINGS.items():
            trace = paper_trace(commands, 5, share, seed, segment)
            for index in ("kdtree", "zcurve") if segment == "length" else ("kdtree",):
                played = race({k: partial(play, trace, index, k, late=False) for k in KS}, rounds=1)
                title = f"Table {number}, {load} load (p = {share:.0%}), {index}, {reading}"
                report.table(_costs(title, played, paper if index == "kdtree" else None))
                if segment == "length":
                    seconds[index, share] = [played[k].least for k in KS]
                if (index, segment) == ("kdtree", "length"):
                    calls[share] = [float(_work(played[k].answer)[UNSUBSCRIBE, CALLS]) for k in KS]
                    leaving = int((trace.comes == 0).sum())
                    report.table(_calls(f"p = {share:.0%}: {leaving:,} unsubscribes", played))
                    extra += _extra(trace, share, played)
    heads = ["", "late", "rejoin", "their comparisons / printed", "seconds / printed"]
    report.table(Table("What keeping Property 1 at every step adds, kdtree", heads, extra))
    _draw_graphs(picture, seconds, calls)


def _extra(trace: Trace, share: float, printed: Results) -> list[list[object]]:
    """Return what the later searches cost, by k; the messages must be the same."""
    rows: list[list[object]] = []
    for k in (KS[0], KS[-1]):
        whole = race({k: partial(play, trace, "kdtree", k)}, rounds=1)[k]
        assert same_messages(whole.answer, printed[k].answer), "the messages differ"
        work, before = _work(whole.answer), _work(printed[k].answer)
        added = work[[LATE, REJOIN], COMPARISONS].sum() / before[:, COMPARISONS].sum()
        calls = (f"{work[kind, CALLS]:,}" for kind in (LATE, REJOIN))
        rows.append([f"p = {share:.0%}, k = {k}", *calls, added, whole.least / printed[k].least])
    return rows


def _work(played: Played) -> I64:
    work: I64 = played.live.store.arrays.work
    return work


def _costs(title: str, played: Results, paper: dict[int, Any] | None) -> Table:
    headings = ["k", "nodes", "subscribes", "unsubscribes"]
    headings += ["comparisons", "subscribes", "unsubscribes", "seconds"]
    rows = []
    for k, one in played.items():
        work = _work(one.answer)
        cells = []
        for column in (NODES, COMPARISONS):
            both = [work[SUBSCRIBE, column], work[UNSUBSCRIBE, column]]
            cells += [sum(both), *both]
        shown = [f"{cell / 1000:,.0f}" for cell in cells]
        if paper is not None:
            shown = [f"{ours} ({theirs:,})" for ours, theirs in zip(shown, paper[k], strict=True)]
        rows.append([str(k), *shown, one.least])
    title += ", in thousands"
    if paper is not None:
        title += "; the paper's in parentheses"
    return Table(title, headings, rows)


def _calls(load: str, played: Results) -> Table:
    """Figure 9, Lemma 1 and Theorem 1."""
    paper = [SUBSCRIBE, UNSUBSCRIBE]
    totals = {k: int(_work(one.answer)[paper, CALLS].sum()) for k, one in played.items()}
    rows = []
    for k, one in played.items():
        work = _work(one.answer)
        rows.append(
            [
                str(k),
                f"{work[SUBSCRIBE, CALLS]:,}",
                f"{work[UNSUBSCRIBE, CALLS]:,}",
                f"{totals[k] / min(totals.values()):.3f}",
            ]
        )
    title = (
        f"cov() calls by cause, {load}, a bound for the calls that they cause at k = 1 "
        "(Lemma 1); the total at k = 1 is at most twice the least"
    )
    headings = ["k", "subscribes", "unsubscribes", "total / least"]
    return Table(title, headings, rows)


def _draw_graphs(
    path: Path, seconds: dict[Any, list[float]], calls: dict[float, list[float]]
) -> None:
    with figure(path, columns=2, size=(5.6, 3.8)) as axes:
        time, count = axes[0]
        time.set(title="Time by k (figure 8)", xlabel="k", ylabel="seconds for all commands")
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


def indexes(report: Report, sizes: tuple[int, ...], seed: int) -> None:
    """Figures 10 to 12: time and work by commands and by attributes, at p = 15%."""
    report.text(INDEXES)
    picture = report.picture("cover_indexes.png", "Time by commands, with 3, 5 and 8 attributes")
    names = ("scan", "kdtree", "zcurve", "blocks")
    rows = []
    curves: dict[tuple[int, str], list[float]] = {}
    for attributes in (3, 5, 8):
        for n in sizes:
            trace = paper_trace(n, attributes, seed=seed)
            plays = {index: partial(play, trace, index) for index in names}
            played = race(plays, rounds=1, same=same_messages)
            for index, one in played.items():
                curves.setdefault((attributes, index), []).append(one.least)
                name, times = f"{attributes} attributes, {n:,} commands, {index}", one.least
                work = [one.answer.work(column) / n for column in (NODES, COMPARISONS)]
                rows.append([name, times, played["scan"].least / times, *work])
    headings = ["", "seconds", "times the scan", "nodes per command", "comparisons per command"]
    report.table(Table("Time and work, p = 15%, k = 1", headings, rows))
    with figure(picture, columns=3, size=(4.2, 3.8)) as axes:
        for one_plot, attributes in zip(axes[0], (3, 5, 8), strict=True):
            one_plot.set(title=f"{attributes} attributes ({2 * attributes} dimensions)")
            one_plot.set(xlabel="commands", xscale="log", yscale="log")
            for index in names:
                one_plot.plot(sizes, curves[attributes, index], marker="o", label=index)
        axes[0, 0].set_ylabel("seconds, all commands")
        axes[0, 0].legend()
