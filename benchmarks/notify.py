"""Range top-k messages: Paint-Sparse and its kin beside Unicast over the same indexes.

All on the same updates in the same run; seconds are of a core, the least of several runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.frame import Report
from benchmarks.harness import expected
from benchmarks.notify_boxes import ABOUT as BOXES
from benchmarks.notify_boxes import two_attributes
from benchmarks.notify_half import ABOUT as HALF
from benchmarks.notify_half import upper_bound
from benchmarks.notify_shapes import ABOUT as SHAPES
from benchmarks.notify_shapes import shapes
from experiments.notify.baselines import Sent, unicast
from experiments.notify.painting import board_over
from experiments.timing import DisagreementError, race, timed
from rangecast.notify import Board
from rangecast.notify.line.interests import Interests
from rangecast.report.markdown import Table
from rangecast.report.plots import figure
from rangecast.workloads import generate

K = 10
RATIO, RATE, MORE_INTERESTS, MORE_OBJECTS, BYTES = 100.0, 20_000.0, 1.5, 2.0, 40.0
"""Expected: Sparse over Unicast, updates a second, ten times m or n, bytes per interest."""
SHARED = 500
"""Updates that Unicast is timed on, and the others too for the ratio."""
OPTIONS: dict[str, dict[str, Any]] = {
    "Paint-Sparse": {},
    "Paint-Sparse(1)": {"epsilon": 1.0},
    "Paint-Sparse, sketch of 10,000": {"sketch": 10_000},
    "Paint-Dense": {"algorithm": "dense"},
    "Paint-Dense(1)": {"algorithm": "dense", "epsilon": 1.0},
}
Changes = list[tuple[int, float]]

ABOUT = f"""
Paper 001's uniform workload, k = {K}. Unicast uses the same indexes: for each interest that may be
affected it asks the objects, best first, how the changed one ranks and which one replaces it. *By
staircase* it takes the rank from the lists of the changed object, as ours do (footnote 8 of the
paper). These two, and the ratios, are timed on the same {SHARED} updates. Seconds are of a core,
the least of several runs. Calls are counts, the same on every machine. Before anything is timed,
all messages of a smaller run are applied to all lists, and the lists compared with recomputed ones.

Expected: Paint-Sparse at least {RATIO:.0f} times Unicast and {RATE:,.0f} updates a second; ten
times the interests at most {MORE_INTERESTS} times as long, ten times the objects
{MORE_OBJECTS:.0f} times; at most {BYTES:.0f} bytes per interest. Where there are more interests,
Paint-Sparse has to send more messages, up to as many as Paint-Dense: beside the time of an update
there is that of a message.
"""


def tables(objects: int, interests: int, updates: int) -> dict[str, pa.Table]:
    """Return the paper's uniform workload."""
    return generate("topk", seed=1, objects=objects, interests=interests, updates=updates).tables


def index_of(data: dict[str, pa.Table]) -> Interests:
    """Return the index of the interests, which several boards may share."""
    table = data["interests"]
    return Interests(table["position_lo"].to_numpy(), table["position_hi"].to_numpy())


def changes_of(data: dict[str, pa.Table]) -> Changes:
    """Return the updates as rows."""
    columns = (data["updates"][name].to_pylist() for name in ("id", "value"))
    return list(zip(*columns, strict=True))


def engine_of(board: Board) -> Any:
    """Return the engine of a board, whose objects and tree are measured."""
    return board.engine


def play(make: Callable[[], Board], changes: Changes) -> Callable[[], tuple[Board, int]]:
    """Make a new board; return what plays the changes and counts the messages."""
    board = make()
    return lambda: (board, len(board.update_many(changes)))


def alone(
    data: dict[str, pa.Table], index: Interests, few: Changes, by_staircase: bool
) -> Callable[[], Sent]:
    """Make new objects; return what writes to each affected interest alone."""
    objects = engine_of(Board(K, objects=data["objects"])).objects
    slots = np.array([name for name, _ in few], np.int32)
    ys = np.array([y for _, y in few])
    return lambda: unicast(objects, index, slots, ys, K, by_staircase=by_staircase)[0]


def beside_unicast(data: dict[str, pa.Table], runs: int) -> tuple[Table, dict[str, float]]:
    """Time all approaches on the same updates; return also the updates a second of each."""
    changes, index = changes_of(data), index_of(data)
    few = changes[:SHARED]
    for by_staircase in (False, True):  # compiles
        alone(data, index, few[:5], by_staircase)()
    letters = race(
        {
            "Unicast": partial(alone, data, index, few, False),
            "Unicast by staircase": partial(alone, data, index, few, True),
        },
        rounds=1,
        same=lambda one, other: one.sent == other.sent,
    )
    slowest = letters["Unicast"].least
    rates, rows = {}, []
    for name, one in letters.items():
        rates[name] = len(few) / one.least
        calls = f"2.0, {one.answer.min_y / len(few):,.0f}"
        sent = one.answer.sent / len(few)
        rows.append([name, rates[name], "", slowest / one.least, "", sent, calls])
    makes = {
        name: partial(board_over, K, data["objects"], index, **option)
        for name, option in OPTIONS.items()
    }
    shared = race({name: partial(play, make, few) for name, make in makes.items()}, rounds=runs + 1)
    whole = race({name: partial(play, make, changes) for name, make in makes.items()}, rounds=runs)
    for name, played in whole.items():
        board, messages = played.answer
        rates[name], ratio = len(changes) / played.least, slowest / shared[name].least
        wanted = (RATE, RATIO) if name == "Paint-Sparse" else (None, None)
        calls = ", ".join(f"{count / len(changes):.1f}" for count in board.work)
        rows.append(
            [
                *(name, rates[name], expected(rates[name], least=wanted[0])),
                *(ratio, expected(ratio, least=wanted[1]), messages / len(changes), calls),
            ]
        )
    heads = ["", "updates/s", "expected", "x Unicast", "expected"]
    heads += ["messages per update", "first_k, min_y, snap, probe"]
    m = len(data["interests"])
    return Table(f"{m:,} interests, k = {K}, one update after the other", heads, rows), rates


def growth(sizes: list[tuple[int, int]], most: float, what: str, updates: int, runs: int) -> Table:
    """Time Paint-Dense and Paint-Sparse at a size, (objects, interests), and at ten times it."""
    rows = []
    figures: list[list[float]] = []
    for n, m in sizes:
        data = tables(n, m, updates)
        changes, index = changes_of(data), index_of(data)
        raced = race(
            {
                name: partial(
                    play, partial(board_over, K, data["objects"], index, algorithm=name), changes
                )
                for name in ("dense", "sparse")
            },
            rounds=runs,
        )
        dense, sparse = (1e6 * one.least / len(changes) for one in raced.values())
        board, messages = raced["sparse"].answer
        asked = (board.work.snap + board.work.probe) / len(changes)
        sent = messages / len(changes)
        figures.append([dense, sparse, sent, sparse / sent, asked])
        size = index.memory / m
        title = f"{n:,} objects, {m:,} interests"
        rows.append([title, *figures[-1], "", size, expected(size, most=BYTES)])
    times = [large / small for small, large in zip(*figures, strict=True)]
    rows.append(["times", *times, expected(times[1], most=most), "", ""])
    heads = ["", "Dense us", "Sparse us", "messages of Sparse", "us per message"]
    heads += ["snaps and probes per update", "Sparse at most", "bytes per interest", "at most"]
    return Table(f"Ten times the {what}: us of an update", heads, rows)


def edits(data: dict[str, pa.Table], quick: bool) -> Table:
    """Time single calls, changes of the sets, and batches."""
    board = Board(K, objects=data["objects"], interests=data["interests"])
    changes = changes_of(data)
    count = 50 if quick else 2_000
    rng = np.random.default_rng(3)
    ends = np.sort(rng.random((count, 2)), axis=1).tolist()
    rows = []

    def repeat(name: str, work: Callable[[int], object], per: int = 1) -> None:
        spent = timed(lambda: [work(i) for i in range(count)])[1] / count / per
        rows.append([name, 1e6 * spent, 1 / spent])

    board.set_value(*changes[0])
    board.update_batch(changes[:2])
    repeat("Board.set_value, one call each", lambda i: board.set_value(*changes[i]))
    names = [-1 - i for i in range(count)]
    tree = engine_of(board).tree
    tree.remove(tree.add(0.1, 0.2))
    repeat("interest put in", lambda i: tree.add(*ends[i]))
    repeat("interest taken out", lambda i: tree.remove(i))
    places = rng.random((count, 2)).tolist()
    repeat("object added, with its messages", lambda i: board.add(names[i], *places[i]))
    repeat("object moved, with its messages", lambda i: board.move(names[i], places[i][1]))
    repeat("object removed, with its messages", lambda i: board.remove(names[i]))
    batch = changes[:1_000]
    board.update_batch(batch)
    count = 2 if quick else 8
    repeat(f"Board.update_batch of {len(batch):,}", lambda _: board.update_batch(batch), len(batch))
    return Table("Single calls and edits", ["", "us", "per second"], rows)


def checked(quick: bool) -> int:
    """Apply all messages of a smaller run to all lists; return how many are wrong."""
    data = tables(1_000, 2_000 if quick else 20_000, 200 if quick else 3_000)
    wrong = 0
    for option in ({}, {"algorithm": "dense"}, {"epsilon": 1.0}, {"sketch": 500}):
        board = Board(K, objects=data["objects"], interests=data["interests"], **option)
        lists = board.lists()
        changes = changes_of(data)
        lists.deliver(board.update_many(changes[: len(changes) // 2]))
        lists.deliver(board.update_batch(changes[len(changes) // 2 :]))
        wrong += len(board.mismatches(lists))
    return wrong


def run(report: Report, *, quick: bool) -> None:
    """Compare with Unicast, time single calls, then grow."""
    report.begin("Range top-k messages", ABOUT + BOXES + HALF + SHAPES)
    picture = report.picture("notify.png", "Updates a second")
    if wrong := checked(quick):
        raise DisagreementError(f"{wrong} lists differ from the recomputed ones")
    runs, m, updates = (1, 2_000, 200) if quick else (3, 2_000_000, 20_000)
    data = tables(1_000 if quick else 10_000, m, updates)
    table, rates = beside_unicast(data, runs)
    report.table(table)
    report.table(edits(data, quick))
    n, small, few = (1_000, 500, 100) if quick else (10_000, 1_000_000, 10_000)
    more = [(n, small), (n, 10 * small)]
    report.table(growth(more, MORE_INTERESTS, "interests", updates, runs))
    more = [(few, m), (10 * few, m)]
    report.table(growth(more, MORE_OBJECTS, "objects", updates, runs))
    report.table(two_attributes(quick, runs))
    report.table(upper_bound(quick, runs))
    report.table(shapes(quick, runs))
    _draw(picture, rates, f"{m:,} interests, k = {K}")


def _draw(path: Path, rates: dict[str, float], title: str) -> None:
    with figure(path, size=(7.5, 3.2)) as axes:
        one = axes[0, 0]
        bars = one.barh(list(rates), list(rates.values()))
        one.bar_label(bars, [f"{rate:,.0f}" for rate in rates.values()], padding=3)
        one.set(xscale="log", xlabel="updates a second", title=title)
        one.set_xlim(right=20 * max(rates.values()))
        one.invert_yaxis()
