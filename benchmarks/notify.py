"""Range top-k messages: Paint-Sparse and its kin beside Unicast over the same indexes.

All on the same updates in the same run; seconds are of a core, the least of several runs. A full
run also writes docs/benchmarks/notify.md and notify.png.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import Table, console, show
from experiments.notify_baselines import unicast
from rangecast.notify.board import Board
from rangecast.notify.interests import Interests
from rangecast.notify.subscriber import Lists
from rangecast.report.plots import figure
from rangecast.workloads import generate

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
K = 10
EXPECTED = {"ratio": 100.0, "rate": 20_000.0, "m": 1.5, "n": 2.0, "bytes": 40.0}
"""What we expect: Sparse over Unicast, updates a second, ten times the set, bytes an interest."""
SHARED = 500
"""Updates that Unicast is timed on, and the others too for the ratio."""


def tables(objects: int, interests: int, updates: int) -> dict[str, pa.Table]:
    """Return the paper's uniform workload."""
    return generate("topk", seed=1, objects=objects, interests=interests, updates=updates).tables


def index_of(data: dict[str, pa.Table]) -> Interests:
    """Return the index of the interests, which several boards may share."""
    table = data["interests"]
    return Interests(table["x_lo"].to_numpy(), table["x_hi"].to_numpy())


def changes_of(data: dict[str, pa.Table]) -> list[tuple[int, float]]:
    """Return the updates as rows."""
    columns = (data["updates"][name].to_pylist() for name in ("id", "y"))
    return list(zip(*columns, strict=True))


def timed(
    make: Callable[[], Board], changes: list[tuple[int, float]], runs: int
) -> tuple[float, Board, int]:
    """Return the core seconds of an update, the least of several runs, each on a fresh board.

    And the board and the number of messages of the last run.
    """
    spent = []
    for _ in range(runs):
        board = make()
        began = time.process_time()
        sent = len(board.run(changes))
        spent.append(time.process_time() - began)
    return min(spent) / len(changes), board, sent


def beside_unicast(data: dict[str, pa.Table], runs: int) -> tuple[Table, dict[str, float]]:
    """Time all approaches on the same updates."""
    changes = changes_of(data)
    few = changes[:SHARED]
    slots = np.array([name for name, _ in few], np.int32)
    ys = np.array([y for _, y in few])
    index = index_of(data)
    rows: list[list[str]] = []
    unicast(Board(K, data["objects"]).objects, index, slots[:5], ys[:5], K)
    spent = {}
    for name, by_staircase in (("Unicast", False), ("Unicast by staircase", True)):
        objects = Board(K, data["objects"]).objects
        began = time.process_time()
        told, _ = unicast(objects, index, slots, ys, K, by_staircase=by_staircase)
        spent[name] = (time.process_time() - began) / len(few)
        calls = f"2.0, {told.min_y / len(few):,.0f}"
        ratio = f"{spent['Unicast'] / spent[name]:,.0f}"
        sent = f"{told.sent / len(few):,.0f}"
        rows.append([name, f"{1 / spent[name]:,.0f}", ratio, sent, calls])
    alone = spent["Unicast"]
    rates = {name: 1 / seconds for name, seconds in spent.items()}
    options: dict[str, dict[str, Any]] = {
        "Paint-Sparse": {},
        "Paint-Sparse(1)": {"epsilon": 1.0},
        "Paint-Sparse, sketch of 10,000": {"sketch": 10_000},
        "Paint-Dense": {"algorithm": "dense"},
        "Paint-Dense(1)": {"algorithm": "dense", "epsilon": 1.0},
    }
    for name, option in options.items():
        make = partial(Board, K, data["objects"], index, **option)
        shared, _, _ = timed(make, few, runs + 1)
        each, board, sent = timed(make, changes, runs)
        calls = [count / len(changes) for count in board.work]
        rows.append(
            [
                name,
                f"{1 / each:,.0f}",
                f"{alone / shared:,.0f}",
                f"{sent / len(changes):,.1f}",
                ", ".join(f"{call:.1f}" for call in calls),
            ]
        )
        rates[name] = 1 / each
        rates[f"{name} ratio"] = alone / shared
    heads = ["", "updates/s", "x Unicast", "messages an update", "first_k, min_y, snap, probe"]
    m = len(data["interests"])
    return Table(f"{m:,} interests, k = {K}, one update after the other", heads, rows), rates


def growth(sizes: list[tuple[str, int, int]], updates: int, runs: int) -> list[list[str]]:
    """Time Paint-Sparse and Paint-Dense at several sizes."""
    rows = []
    for name, n, m in sizes:
        data = tables(n, m, updates)
        changes = changes_of(data)
        index, objects = index_of(data), data["objects"]
        del data
        each = []
        for algorithm in ("dense", "sparse"):
            make = partial(Board, K, objects, index, algorithm=algorithm)
            spent, board, _ = timed(make, changes, runs)
            each.append(1e6 * spent)
        calls = (board.work.snap + board.work.probe) / len(changes)
        bytes_ = index.memory / m
        rows.append([name, *(f"{e:.1f}" for e in each), f"{calls:.0f}", f"{bytes_:.1f}"])
    return rows


def edits(data: dict[str, pa.Table], quick: bool) -> Table:
    """Time single calls, changes of the sets, and batches."""
    board = Board(K, data["objects"], index_of(data))
    changes = changes_of(data)
    count = 200 if quick else 2_000
    rng = np.random.default_rng(3)
    ends = np.sort(rng.random((count, 2)), axis=1).tolist()
    rows = []

    def repeat(name: str, work: Callable[[int], object], per: int = 1) -> None:
        began = time.process_time()
        for i in range(count):
            work(i)
        spent = (time.process_time() - began) / count / per
        rows.append([name, f"{1e6 * spent:.1f}", f"{1 / spent:,.0f}"])

    board.update(*changes[0])
    board.apply(changes[:2])
    repeat("Board.update, one call each", lambda i: board.update(*changes[i]))
    names = [-1 - i for i in range(count)]
    board.interests.remove(board.interests.add(0.1, 0.2))
    repeat("interest put in", lambda i: board.interests.add(*ends[i]))
    repeat("interest taken out", lambda i: board.interests.remove(i))
    places = rng.random((count, 2)).tolist()
    repeat("object inserted, with its messages", lambda i: board.insert(names[i], *places[i]))
    repeat("object moved, with its messages", lambda i: board.move(names[i], places[i][1]))
    repeat("object deleted, with its messages", lambda i: board.delete(names[i]))
    size = 1_000
    batch = changes[:size]
    board.apply(batch)
    count = 2 if quick else 8
    repeat(f"Board.apply, batches of {size:,}", lambda _: board.apply(batch), len(batch))
    return Table("Single calls and edits", ["", "us", "a second"], rows)


def checked(quick: bool) -> int:
    """Apply all messages of a smaller run to all lists; return how many are wrong."""
    data = tables(1_000, 20_000, 500 if quick else 3_000)
    wrong = 0
    for option in ({}, {"algorithm": "dense"}, {"epsilon": 1.0}, {"sketch": 500}):
        board = Board(K, data["objects"], index_of(data), **option)
        lists = Lists.now(board.objects, board.interests, K)
        changes = changes_of(data)
        lists.deliver(board.run(changes[: len(changes) // 2]))
        lists.deliver(board.apply(changes[len(changes) // 2 :]))
        wrong += len(lists.wrong(board.objects))
    return wrong


def run(*, quick: bool) -> None:
    """Run the suite."""
    console.print(f"lists that differ from a recomputation: {checked(quick)}")
    runs = 1 if quick else 3
    m = 20_000 if quick else 2_000_000
    updates = 1_000 if quick else 20_000
    data = tables(10_000, m, updates)
    speed, rates = beside_unicast(data, runs)
    show(*speed)
    single = edits(data, quick)
    show(*single)
    del data
    small, few = (20_000, 2_000) if quick else (1_000_000, 10_000)
    sizes = [
        (f"m = {small:,}", 10_000, small),
        (f"m = {10 * small:,}", 10_000, 10 * small),
        (f"n = {few:,}", few, m),
        (f"n = {10 * few:,}", 10 * few, m),
    ]
    rows = growth(sizes, updates, runs)
    for first in (0, 2):
        ratio = [f"{float(rows[first + 1][c]) / float(rows[first][c]):.2f}" for c in (1, 2)]
        calls = f"{float(rows[first + 1][3]) / float(rows[first][3]):.2f}"
        rows.append([f"ten times {'mn'[first // 2]}", *ratio, calls, ""])
    heads = ["", "Dense us", "Sparse us", "snaps and probes an update", "bytes an interest"]
    growing = Table("Growth: us of an update", heads, rows)
    show(*growing)
    if not quick:
        _write([speed, single, growing], rates)


def _write(found: list[Table], rates: dict[str, float]) -> None:
    ratio, rate, m, n, bytes_ = EXPECTED.values()
    text = f"""# Range top-k messages

Made by `python -m benchmarks notify`. Paper 001's uniform workload: 10,000 objects, 2 million
interests, k = {K}. Unicast uses the same indexes: for each interest that may be affected it asks
the objects, best first, how the changed one ranks and who replaces it. *By staircase* it takes
the rank from the lists of the changed object, as ours do (footnote 8 of the paper). These two, and
the ratios, are timed on the same {SHARED} updates. Seconds are of a core, the least of several
runs. Calls are counts, the same on every machine.

Expected: Paint-Sparse at least {ratio:.0f} times Unicast and {rate:,.0f} updates a second; ten
times the interests at most {m} times as long, ten times the objects {n:.0f} times; at most
{bytes_:.0f} bytes an interest.

Machine: {os.cpu_count()} cores, Python {platform.python_version()}.

![Updates a second](notify.png)
"""
    lines = [*text.splitlines(), ""]
    for table in found:
        lines += [f"## {table.title}", "", "| " + " | ".join(table.headings) + " |"]
        lines += ["| --- |" + " ---: |" * (len(table.headings) - 1)]
        lines += ["| " + " | ".join(row) + " |" for row in table.rows] + [""]
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "notify.md").write_text("\n".join(lines))
    names = [name for name in rates if not name.endswith("ratio")]
    with figure(FOLDER / "notify.png", size=(7.5, 3.2)) as axes:
        bars = axes[0, 0].barh(names, [rates[name] for name in names])
        axes[0, 0].bar_label(bars, [f"{rates[name]:,.0f}" for name in names], padding=3)
        axes[0, 0].set(xscale="log", xlabel="updates a second", title="2 million interests, k = 10")
        axes[0, 0].set_xlim(right=20 * max(rates[name] for name in names))
        axes[0, 0].invert_yaxis()
