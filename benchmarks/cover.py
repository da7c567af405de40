"""Covering: commands under every index, live sets that grow, and whole sets beside the peers.

Every contestant plays the same commands on the same data in this run, in seconds of a core; all
must send the same messages. `play` times the commands alone: their boxes are stored beforehand.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.measure import Table, best_of, show
from benchmarks.page import machine, markdown, write
from rangecast import Boxes, Integer, Number, Space
from rangecast.cover import CoverSet, covered_by
from rangecast.cover.choose import INDEXES
from rangecast.cover.live import Live
from rangecast.report.plots import figure
from rangecast.workloads import generate

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "cover.md"
SCAN_KD, KD_BLOCKS, RATE, GROWTH = 10.0, 5.0, 25_000, 4.0
"""What is expected: k-d over the scan, blocks over k-d, commands a second, n to 10 n."""


class Trace(NamedTuple):
    """Commands: every subscription comes once, some go."""

    boxes: Boxes
    ids: npt.NDArray[np.int64]
    comes: npt.NDArray[np.uint8]


class Played(NamedTuple):
    """What playing a trace took."""

    seconds: float
    live: Live
    messages: int

    def each(self, column: int, commands: int) -> float:
        """Nodes (1) or comparisons (2) a command."""
        return float(self.live.store.arrays.work[:4, column].sum()) / commands


def play(trace: Trace, index: str, k: int = 1) -> Played:
    """Play commands on a new set."""
    _compiled(index, trace.boxes.dimensions)
    plan = INDEXES[index]
    dimensions = trace.boxes.dimensions
    live = Live(plan.build(dimensions), dimensions, k, roots_only=plan.roots_only and k == 1)
    rows = live.new_rows(trace.boxes.lo, trace.boxes.hi, trace.boxes.owner, trace.boxes.rows)
    began = time.process_time()
    told = live.do(rows[trace.ids], trace.comes)
    return Played(time.process_time() - began, live, len(told.row))


@cache
def _compiled(index: str, dimensions: int) -> None:
    """Let the kernels, those of a rebuild too, be there before anything is timed."""
    ends = np.sort(np.random.default_rng(0).random((2000, dimensions, 2)), axis=2)
    graph = CoverSet(Space(Number(f"a{j}") for j in range(dimensions)), index=index)
    graph.subscribe_many(Boxes.of(ends[..., 0], ends[..., 1]))
    graph.unsubscribe_many(range(10))
    graph.subscribe(-1, (ends[0, :, 0], ends[0, :, 1]))
    graph.unsubscribe(-1)


def paper_trace(commands: int, attributes: int, share: float = 0.15) -> Trace:
    """Return the commands of section V-A."""
    made = generate(
        "covering", commands=commands, attributes=attributes, unsubscribe_share=share, events=1
    )
    table = made.tables["commands"]
    words = table["command"].to_numpy() == "subscribe"
    return Trace(made.boxes, table["id"].to_numpy(), words.astype(np.uint8))


def half_mentioned(commands: int) -> Trace:
    """Return commands whose boxes mention four of eight attributes each."""
    trace = paper_trace(commands, 8)
    n = trace.boxes.rows
    free = np.random.default_rng(1).random((n, 8)).argsort(axis=1) >= 4
    lo, hi = np.where(free, -np.inf, trace.boxes.lo), np.where(free, np.inf, trace.boxes.hi)
    return trace._replace(boxes=Boxes.of(lo, hi))


def duplicated(commands: int) -> Trace:
    """Return commands whose boxes stand twenty times each, in the mean."""
    trace = paper_trace(commands, 8)
    n = trace.boxes.rows
    same = np.random.default_rng(2).integers(0, max(1, n // 20), n)
    return trace._replace(boxes=Boxes.of(trace.boxes.lo[same], trace.boxes.hi[same]))


def run(*, quick: bool) -> None:
    """Print all tables, and write the page and the plot."""
    size = 3_000 if quick else 100_000
    small = 3_000 if quick else 30_000
    cases = {
        f"the paper's, 8 attributes, {size:,} commands": paper_trace(size, 8),
        f"the paper's, 5 attributes, {small:,} commands": paper_trace(small, 5),
        f"4 of 8 attributes mentioned, {small:,} commands": half_mentioned(small),
        f"every box 20 times, 8 attributes, {small:,} commands": duplicated(small),
    }
    tables, ratios = [], {}
    for name, trace in cases.items():
        table, ratios[name] = _contest(name, trace)
        tables.append(table)
    million = 20_000 if quick else 1_000_000
    tables += [_growth(million), _live(million), _whole(million, 2_000 if quick else 10_000)]
    for table in tables:
        show(*table)
    if not quick:
        _write(tables, ratios)


def _contest(name: str, trace: Trace) -> tuple[Table, dict[str, float]]:
    """Play one trace under every index."""
    played = {index: play(trace, index) for index in INDEXES}
    assert len({one.messages for one in played.values()}) == 1, "the messages differ"
    commands = len(trace.ids)
    rows = []
    for index, one in played.items():
        rows.append(
            [
                index,
                f"{one.seconds / commands * 1e6:,.2f}",
                f"{played['scan'].seconds / one.seconds:,.1f}",
                f"{played['kdtree'].seconds / one.seconds:,.1f}",
                f"{one.each(1, commands):,.1f}",
                f"{one.each(2, commands):,.1f}",
                f"{one.live.memory / max(1, trace.boxes.rows):,.0f}",
            ]
        )
    headings = ["index", "us a command", "times the scan", "times the k-d tree"]
    headings += ["nodes", "comparisons", "bytes a subscription"]
    kept = len(played["scan"].live.roots())
    live = int(played["scan"].live.live.sum())
    title = f"{name}: {live:,} live at the end, {kept:,} kept"
    return Table(title, headings, rows), {i: one.seconds / commands for i, one in played.items()}


def _filled(index: str, n: int, attributes: int) -> tuple[Live, float, Boxes]:
    """Return a set of n live subscriptions, the seconds that took, and as many new boxes."""
    ends = np.random.default_rng(3).integers(0, 2**31, (2 * n, attributes, 2)).astype(np.float64)
    ends.sort(axis=2)
    boxes = Boxes.of(ends[..., 0], ends[..., 1])
    _compiled(index, attributes)
    plan = INDEXES[index]
    live = Live(plan.build(attributes), attributes, 1, roots_only=plan.roots_only)
    first, more = boxes.take(range(n)), boxes.take(range(n, 2 * n))
    rows = live.new_rows(first.lo, first.hi, first.owner, n)
    began = time.process_time()
    live.do(rows, np.ones(n, np.uint8))
    return live, time.process_time() - began, more


def _mixed(live: Live, boxes: Boxes, commands: int) -> float:
    """Return the seconds of commands, one new subscription and one that leaves in turns."""
    some = boxes.take(range(commands // 2))
    leaving = np.random.default_rng(4).permutation(live.rows)[: commands // 2]
    rows = np.empty(2 * some.rows, np.int32)
    rows[0::2] = live.new_rows(some.lo, some.hi, some.owner, some.rows)
    rows[1::2] = leaving
    comes = np.tile(np.array([1, 0], np.uint8), some.rows)
    began = time.process_time()
    live.do(rows, comes)
    return time.process_time() - began


def _growth(largest: int) -> Table:
    """Time mixed commands on sets of n, 10 n, 100 n."""
    rows = []
    for index, sizes in (
        ("kdtree", (largest // 100, largest // 10)),
        ("blocks", (largest // 100, largest // 10, largest)),
    ):
        before = None
        for n in sizes:
            live, _, more = _filled(index, n, 5)
            commands = min(n, 20_000)
            each = _mixed(live, more, commands) / commands
            rows.append(
                [
                    f"{index}, {n:,} live",
                    f"{each * 1e6:.2f}",
                    f"{each / before:.2f}" if before else "",
                    f"{GROWTH:.0f}" if before else "",
                ]
            )
            before = each
    headings = ["", "us a command", "times a tenth of it", "at most"]
    return Table("Growth: 5 attributes, half of the commands subscribe", headings, rows)


def _live(n: int) -> Table:
    """Build a large set, then let it change: in batches, and one by one from Python."""
    live, build, more = _filled("blocks", n, 5)
    commands = min(n, 100_000)
    seconds = _mixed(live, more, commands)
    space = Space(Integer(f"a{j}", min=0, max=2**31) for j in range(5))
    graph = CoverSet(space)
    graph.subscribe_many(more)
    count = min(2_000, n // 4)
    singles = [(more.lo[row] + 1, more.hi[row]) for row in range(count)]

    def one_by_one() -> None:
        for row, box in enumerate(singles):
            graph.subscribe(-1 - row, box)
        for row in range(count):
            graph.unsubscribe(-1 - row)

    alone, _ = best_of(one_by_one, 2, time.process_time)
    rows = [
        [f"add {n:,} at once", f"{build:.2f} s", f"{n / build:,.0f}", ""],
        ["mixed commands, a batch", f"{seconds:.2f} s", f"{commands / seconds:,.0f}", f"{RATE:,}"],
        ["add and remove, one by one", f"{alone:.2f} s", f"{2 * count / alone:,.0f}", ""],
    ]
    title = f"{n:,} live subscriptions, 5 attributes, {live.memory / n:,.0f} bytes each"
    return Table(title, ["", "took", "a second", "expected"], rows)


def _whole(n: int, few: int) -> Table:
    """Find what covers each of a whole set; the peers do a set that they can do."""
    ends = np.random.default_rng(5).integers(0, 2**31, (n, 5, 2)).astype(np.float64)
    ends.sort(axis=2)
    boxes = Boxes.of(ends[..., 0], ends[..., 1])
    some = boxes.take(range(few))
    covered_by(some)
    kept = int((covered_by(some) < 0).sum())
    ours, spread = best_of(lambda: covered_by(some), 3, time.process_time)
    rows = [["covered_by", f"{few:,}", f"{ours:.3f} s", "", f"{spread:.1f}"]]
    for name, peer in (("NumPy, box by box", _numpy_kept), ("DuckDB, anti join", _duckdb_kept)):
        found: list[int] = []
        seconds, _ = best_of(lambda p=peer, f=found: f.append(p(some)), 1, time.process_time)
        assert found == [kept], f"{name} keeps {found}, not {kept}"
        rows.append([name, f"{few:,}", f"{seconds:.3f} s", f"{seconds / ours:,.0f}", ""])
    seconds, spread = best_of(lambda: covered_by(boxes), 1, time.process_time)
    rows.append(["covered_by", f"{n:,}", f"{seconds:.2f} s", "", ""])
    headings = ["", "subscriptions", "took", "times ours", "spread"]
    return Table("Whole sets, 5 attributes: what is kept and what covers the rest", headings, rows)


def _numpy_kept(boxes: Boxes) -> int:
    """Count what is kept, comparing each box with all; of equals the first."""
    kept = 0
    for row in range(boxes.rows):
        above = ((boxes.lo <= boxes.lo[row]) & (boxes.hi >= boxes.hi[row])).all(axis=1)
        above[row] = False
        equal = above & (boxes.lo == boxes.lo[row]).all(axis=1)
        equal &= (boxes.hi == boxes.hi[row]).all(axis=1)
        equal[:row] = False
        kept += not (above & ~equal).any()
    return kept


def _duckdb_kept(boxes: Boxes) -> int:
    """Count what is kept by a join on all bounds, with all threads told to be one."""
    import duckdb

    d = boxes.dimensions
    columns = {"n": pa.array(np.arange(boxes.rows))}
    for j in range(d):
        columns[f"l{j}"], columns[f"h{j}"] = pa.array(boxes.lo[:, j]), pa.array(boxes.hi[:, j])
    connection = duckdb.connect(config={"threads": 1})
    connection.register("given", pa.table(columns))
    inside = " and ".join(f"t.l{j} <= s.l{j} and s.h{j} <= t.h{j}" for j in range(d))
    larger = " or ".join(f"t.l{j} < s.l{j} or s.h{j} < t.h{j}" for j in range(d))
    query = (
        f"select count(*) from given s where not exists (select 1 from given t "
        f"where t.n <> s.n and {inside} and (t.n < s.n or {larger}))"
    )
    (count,) = connection.execute(query).fetchall()[0]
    return int(count)


def _write(tables: list[Table], ratios: dict[str, dict[str, float]]) -> None:
    lines = [
        "# Covering",
        "",
        "Made by `python -m benchmarks cover`. Seconds are of a core, and everybody plays the same",
        "commands on the same data in one run; the scan is compiled. *Times the scan* is how many",
        "times as long the scan takes. *Nodes* and *comparisons* are those of a command, for all",
        "questions that it asks. Expected: the k-d tree at least 10 times the scan with 8",
        "attributes and 100,000 commands, blocks at least 5 times the k-d tree; a million live",
        "subscriptions at 25,000 commands a second; at most 4 times the time for 10 times the set.",
        "",
        machine(("numpy", "numba", "duckdb")),
        "",
        "![Time a command by index](cover.png)",
        "",
    ]
    for table in tables:
        lines += markdown(table)
    write(PAGE, lines)
    with figure(PAGE.with_suffix(".png"), size=(10.0, 4.2)) as axes:
        one = axes[0, 0]
        one.set(title="Time a command, one core", ylabel="microseconds")
        for place, index in enumerate(INDEXES):
            at = np.arange(len(ratios)) + 0.2 * (place - 1.5)
            bars = one.bar(at, [r[index] * 1e6 for r in ratios.values()], 0.19, label=index)
            one.bar_label(bars, fmt="%.3g", fontsize=7)
        one.set_yscale("log")
        names = [name.replace(", ", ",\n", 1) for name in ratios]
        one.set_xticks(range(len(ratios)), names, fontsize=8)
        one.grid(axis="x", visible=False)
        one.legend(ncols=4, loc="upper right", fontsize=9)
