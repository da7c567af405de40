"""Covering: commands under every index, live sets that grow, and whole sets beside the peers.

Every contestant plays the same commands on the same data in this run, in seconds of a core; all
must send the same messages. `play` times the commands alone: their boxes are stored beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.frame import Report
from benchmarks.harness import expected
from benchmarks.peers import in_duckdb
from experiments.cover.commands import Played, Trace, live_set, paper_trace, play
from experiments.timing import best_of, race, timed
from rangecast import Boxes, Integer, Space
from rangecast.cover import CoverSet, covered_by
from rangecast.cover.choose import INDEXES
from rangecast.cover.live import Live
from rangecast.cover.store import COMPARISONS, NODES
from rangecast.kernels.arrays import I64
from rangecast.report.markdown import Table
from rangecast.report.plots import figure
from rangecast.workloads.draws import mentions

SCAN_KD, KD_BLOCKS, RATE, GROWTH = 10.0, 5.0, 25_000, 4.0
"""Expected: k-d over the scan, blocks over k-d, commands a second, n to 10 n."""

ABOUT = f"""
Seconds are of a core, and everybody plays the same commands on the same data in one run; the scan
is compiled. All send the same messages. *Times the scan* is how many times as long the scan takes.
*Nodes* and *comparisons* are those of a command, for all questions that it asks. Expected: the k-d
tree at least {SCAN_KD:.0f} times the scan with 8 attributes and 100,000 commands, blocks at least
{KD_BLOCKS:.0f} times the k-d tree; a million live subscriptions at {RATE:,} commands a second; at
most {GROWTH:.0f} times the time for 10 times the set.
"""


def same_messages(one: Played, other: Played) -> bool:
    """Return whether the same commands caused the same messages, in the same order."""
    first, second = one.sent, other.sent
    return (
        np.array_equal(first.command, second.command)
        and np.array_equal(first.row, second.row)
        and np.array_equal(first.withdraws, second.withdraws)
    )


def half_mentioned(commands: int) -> Trace:
    """Return commands whose boxes mention four of eight attributes each."""
    trace = paper_trace(commands, 8)
    shown = mentions(np.random.default_rng(1), trace.boxes.rows, 8, 4)
    lo, hi = np.where(shown, trace.boxes.lo, -np.inf), np.where(shown, trace.boxes.hi, np.inf)
    return trace._replace(boxes=Boxes.of(lo, hi))


def duplicated(commands: int) -> Trace:
    """Return commands whose boxes come twenty times each, on average."""
    trace = paper_trace(commands, 8)
    n = trace.boxes.rows
    same = np.random.default_rng(2).integers(0, max(1, n // 20), n)
    return trace._replace(boxes=Boxes.of(trace.boxes.lo[same], trace.boxes.hi[same]))


def run(report: Report, *, quick: bool) -> None:
    """Play traces under every index, then grow live sets, then cover whole sets."""
    report.begin("Covering", ABOUT, "duckdb")
    picture = report.picture("cover.png", "Time per command by index")
    size, small = (1_000, 1_000) if quick else (100_000, 30_000)
    cases = {
        f"the paper's, 8 attributes, {size:,} commands": paper_trace(size, 8),
        f"the paper's, 5 attributes, {small:,} commands": paper_trace(small, 5),
        f"4 of 8 attributes mentioned, {small:,} commands": half_mentioned(small),
        f"every box 20 times, 8 attributes, {small:,} commands": duplicated(small),
    }
    times = {
        name: _contest(report, name, trace, wanted=place == 0)
        for place, (name, trace) in enumerate(cases.items())
    }
    million = 5_000 if quick else 1_000_000
    report.table(_growth(million))
    report.table(_live(million))
    report.table(_whole(million, 500 if quick else 10_000))
    _draw(picture, times)


def _contest(report: Report, name: str, trace: Trace, *, wanted: bool) -> dict[str, float]:
    """Play one trace under every index; return the seconds per command."""
    played = race(
        {index: partial(play, trace, index) for index in INDEXES}, rounds=1, same=same_messages
    )
    commands = len(trace.ids)
    expectations = {"kdtree": ("scan", SCAN_KD), "blocks": ("kdtree", KD_BLOCKS)}
    rows = []
    for index, one in played.items():
        scan, tree = (played[other].least / one.least for other in ("scan", "kdtree"))
        than, least = expectations.get(index, ("scan", None)) if wanted else ("scan", None)
        rows.append(
            [
                index,
                one.least / commands * 1e6,
                scan,
                tree,
                expected(scan if than == "scan" else tree, least=least),
                one.answer.work(NODES) / commands,
                one.answer.work(COMPARISONS) / commands,
                one.answer.live.memory / max(1, trace.boxes.rows),
            ]
        )
    headings = ["index", "us per command", "times the scan", "times the k-d tree", "expected"]
    headings += ["nodes", "comparisons", "bytes per subscription"]
    live = played["scan"].answer.live
    title = f"{name}: {int(live.live.sum()):,} live at the end, {len(live.roots()):,} kept"
    report.table(Table(title, headings, rows))
    return {index: one.least / commands for index, one in played.items()}


def random_boxes(seed: int, n: int) -> Boxes:
    """Return boxes of five attributes whose edges are random segments."""
    ends = np.random.default_rng(seed).integers(0, 2**31, (n, 5, 2)).astype(np.float64)
    ends.sort(axis=2)
    return Boxes.of(ends[..., 0], ends[..., 1])


def _filled(index: str, n: int) -> tuple[Live, float, Boxes]:
    """Return a set of n live subscriptions, the seconds that took, and as many new boxes."""
    boxes = random_boxes(3, 2 * n)
    live = live_set(index, 5)
    first, more = boxes.take(range(n)), boxes.take(range(n, 2 * n))
    rows = live.new_rows(first.lo, first.hi, first.owner, n)
    return live, timed(lambda: live.do(rows, np.ones(n, np.uint8)))[1], more


def _mixed(live: Live, boxes: Boxes, commands: int) -> float:
    """Return the seconds of commands, one new subscription and one that leaves in turns."""
    some = boxes.take(range(commands // 2))
    leaving = np.random.default_rng(4).permutation(live.rows)[: commands // 2]
    rows = np.empty(2 * some.rows, np.int32)
    rows[0::2] = live.new_rows(some.lo, some.hi, some.owner, some.rows)
    rows[1::2] = leaving
    comes = np.tile(np.array([1, 0], np.uint8), some.rows)
    return timed(lambda: live.do(rows, comes))[1]


def _growth(largest: int) -> Table:
    """Time mixed commands on sets of n, 10 n, 100 n."""
    rows = []
    for index, sizes in (
        ("kdtree", (largest // 100, largest // 10)),
        ("blocks", (largest // 100, largest // 10, largest)),
    ):
        before = None
        for n in sizes:
            live, _, more = _filled(index, n)
            commands = min(n, 20_000)
            each = _mixed(live, more, commands) / commands
            row = [f"{index}, {n:,} live", each * 1e6]
            row += [each / before, expected(each / before, most=GROWTH)] if before else ["", ""]
            rows.append(row)
            before = each
    headings = ["", "us per command", "times a tenth of it", "at most"]
    return Table("Growth: 5 attributes, half of the commands subscribe", headings, rows)


def _live(n: int) -> Table:
    """Build a large set, then let it change: in batches, and one by one from Python."""
    live, build, more = _filled("blocks", n)
    commands = min(n, 100_000)
    seconds = _mixed(live, more, commands)
    graph = CoverSet(Space(Integer(f"a{j}", min=0, max=2**31) for j in range(5)))
    graph.subscribe_many(more)
    count = min(2_000, n // 4)
    singles = [(more.lo[row] + 1, more.hi[row]) for row in range(count)]

    def one_by_one() -> None:
        for row, box in enumerate(singles):
            graph.subscribe(-1 - row, box)
        for row in range(count):
            graph.unsubscribe(-1 - row)

    alone = best_of(one_by_one, 2).least
    rate = commands / seconds
    rows = [
        [f"add {n:,} at once", build, n / build, ""],
        ["mixed commands, a batch", seconds, rate, expected(rate, least=RATE)],
        ["add and remove, one by one", alone, 2 * count / alone, ""],
    ]
    title = f"{n:,} live subscriptions, 5 attributes, {live.memory / n:,.0f} bytes each"
    return Table(title, ["", "seconds", "per second", "expected"], rows)


def _whole(n: int, few: int) -> Table:
    """Find what covers each of a whole set; the peers do a set that they can do."""
    boxes = random_boxes(5, n)
    some = boxes.take(range(few))
    covered_by(some)
    ways: dict[str, Callable[[Boxes], I64]] = {
        "covered_by": lambda boxes: np.flatnonzero(covered_by(boxes) < 0),
        "NumPy, box by box": _numpy_kept,
        "DuckDB, anti join": _duckdb_kept,
    }
    raced = race(
        {name: partial(partial, way, some) for name, way in ways.items()},
        rounds=2,
        same=np.array_equal,
    )
    ours = raced["covered_by"].least
    rows = [[name, few, one.least, one.least / ours, one.spread] for name, one in raced.items()]
    rows.append(["covered_by", n, best_of(lambda: covered_by(boxes), 1).least, "", ""])
    headings = ["", "subscriptions", "seconds", "times ours", "spread"]
    return Table("Whole sets, 5 attributes: kept ones, and their coverers", headings, rows)


def _numpy_kept(boxes: Boxes) -> I64:
    """Return what is kept, comparing each box with all; of equals the first."""
    kept = []
    for row in range(boxes.rows):
        above = ((boxes.lo <= boxes.lo[row]) & (boxes.hi >= boxes.hi[row])).all(axis=1)
        above[row] = False
        equal = above & (boxes.lo == boxes.lo[row]).all(axis=1)
        equal &= (boxes.hi == boxes.hi[row]).all(axis=1)
        equal[:row] = False
        if not (above & ~equal).any():
            kept.append(row)
    return np.array(kept, np.int64)


def _duckdb_kept(boxes: Boxes) -> I64:
    """Return what is kept, by a join on all bounds."""
    axes = range(boxes.dimensions)
    inside = " and ".join(f"t.lo{j} <= s.lo{j} and s.hi{j} <= t.hi{j}" for j in axes)
    larger = " or ".join(f"t.lo{j} < s.lo{j} or s.hi{j} < t.hi{j}" for j in axes)
    database = in_duckdb(boxes.lo, boxes.hi, "n")
    rows = database.execute(
        f"select n from boxes s where not exists (select 1 from boxes t "
        f"where t.n <> s.n and {inside} and (t.n < s.n or {larger})) order by n"
    )
    return np.asarray(rows.fetchnumpy()["n"], np.int64)


def _draw(path: Path, times: dict[str, dict[str, float]]) -> None:
    with figure(path, size=(10.0, 4.2)) as axes:
        one = axes[0, 0]
        one.set(title="Time per command, one core", ylabel="microseconds")
        for place, index in enumerate(INDEXES):
            at = np.arange(len(times)) + 0.2 * (place - 1.5)
            bars = one.bar(at, [each[index] * 1e6 for each in times.values()], 0.19, label=index)
            one.bar_label(bars, fmt="%.3g", fontsize=7)
        one.set_yscale("log")
        names = [name.replace(", ", ",\n", 1) for name in times]
        one.set_xticks(range(len(times)), names, fontsize=8)
        one.grid(axis="x", visible=False)
        one.legend(ncols=4, loc="upper right", fontsize=9)
