"""Section V of paper 001 with one range attribute: tables I to VI, figures 11-13, 15 and 16.

The paper's numbers stand beside ours. All that is shown are counts: messages, bytes, calls. They
don't depend on the machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.frame import Report
from benchmarks.notify import board_over
from benchmarks.notify_peers import BYTES as LETTER_BYTES
from benchmarks.notify_peers import coalesced, relaxed, unicast
from rangecast.notify.interests import Interests
from rangecast.notify.messages import BYTES
from rangecast.report.markdown import Table
from rangecast.report.plots import figure
from rangecast.workloads import generate

KS = (1, 2, 5, 10, 15, 20)
EPSILONS = (0.125, 0.25, 0.5, 1.0)
UNICAST_UPDATES = 100
"""Unicast asks about thousands of interests for each update: fewer updates say enough."""

PAPER = {
    "received": (444.14, 939.76, 2211.14, 4190.21, 6082.94, 7904.26),
    0.125: (0, 0, 0, 0.015, 0.0234, 0.034),
    0.25: (0, 0, 0.027, 0.061, 0.070, 0.080),
    0.5: (0, 0, 0.11, 0.14, 0.16, 0.17),
    1.0: (0, 0.16, 0.29, 0.30, 0.32, 0.34),
    "relax": (1440.2, 680.14, 288.49, 151.76, 104.23, 79.98),
    "dense min_y": (1.12, 1.73, 3.57, 6.60, 9.63, 12.63),
    "sparse min_y": (0.72744, 1.08988, 2.59596, 5.5568, 8.57692, 11.58048),
    "sparse snap": (1.2284, 2.95254, 12.06538, 40.69192, 84.65234, 143.20416),
    "unicast": (444.141, 1086.44, 2846.1, 5453.64, 8032.39, 10587.4),
    "stocks 1.0": (0, 0.19, 0.25, 0.35, 0.39, 0.38),
    "stocks relax": (706.51, 361.22, 147.13, 72.67, 48.38, 36.11),
    "stocks min_y": (0.5, 0.5, 0.51, 0.54, 0.57, 0.61),
    "stocks snap": (1, 2, 5.05, 10.35, 16.02, 22.18),
    "stocks unicast": (176.01, 409.44, 1050.48, 2278.27, 3510.16, 4614.24),
}
TABLE_IV = {200_000: (3.52, 29.87), 800_000: (4.784, 37.34), 4_000_000: (5.94188, 42.0509)}
TABLE_IV |= {10_000_000: (6.26988, 42.86982)}


class Size(NamedTuple):
    """How much to run."""

    objects: int
    interests: int
    updates: int
    """Where values have to reach their lasting distribution first: Tables I to III."""
    fewer_updates: int
    """Everywhere else."""
    by_interests: tuple[int, ...]
    """Of Table IV and of figure 11."""
    seeds: int
    """Of Tables I and II, which are heavy-tailed: the mean of several runs is shown."""


_M = 2_000_000
SIZES = {
    "quick": Size(200, 500, 100, 50, (200, 500), 2),
    "usual": Size(10_000, _M, 50_000, 10_000, (200_000, 800_000, _M), 3),
    "full": Size(10_000, _M, 50_000, 50_000, (200_000, 800_000, _M, 4_000_000, 10_000_000), 6),
}
SEED = 1

ABOUT = """
Everything is a count, and doesn't depend on the machine. What is received is counted as the paper
does: each affected interest once, exposed objects not. Tables I and II are heavy-tailed, so they
are means of several seeds, from the one above on.

The values of lambda and c of figure 15 are in no text; ours are a guess. What else differs from
the paper is in [README.md](README.md).
"""


def run(report: Report, size: Size, seed: int) -> None:
    """Run all tables and figures."""
    report.begin("Section V of paper 001: range top-k subscriptions", ABOUT)
    made = Workloads(size, seed)
    for part in (uniform_tables, by_interests, shapes, stock_trace, batches):
        part(report, made)


class Painted(NamedTuple):
    """What an algorithm did, per update."""

    sent: float
    most: int
    """Messages of the update that needed the most."""
    received: float
    """By interests in the changed object, as the paper counts."""
    most_received: int
    min_y: float
    snap: float


class Workloads:
    """The workloads of a run: what several tables need is made once."""

    def __init__(self, size: Size, seed: int):
        self.size, self.seed = size, seed
        self.latest = lru_cache(2)(self._made)

    def _made(self, name: str, **settings: object) -> dict[str, pa.Table]:
        return generate(name, seed=self.seed, **settings).tables

    def tables(
        self, m: int | None = None, *, evolved: bool = False, **settings: Any
    ) -> dict[str, pa.Table]:
        """Return the paper's workload; `evolved` with all updates."""
        m = self.size.interests if m is None else m
        updates = self.size.updates if evolved else self.size.fewer_updates
        return self.latest(
            "topk", objects=self.size.objects, interests=m, updates=updates, **settings
        )


def painted(
    data: dict[str, pa.Table], k: int, algorithm: str, epsilon: float | None = None
) -> Painted:
    """Paint all updates one by one and count."""
    how = {"algorithm": algorithm, "epsilon": epsilon}
    board = board_over(k, data["objects"], interests(data), **how)
    ids, ys = data["updates"]["id"].to_numpy(), data["updates"]["y"].to_numpy()
    sent = np.zeros(len(ids), np.int64)
    received = np.zeros(len(ids), np.int64)
    for first in range(0, len(ids), 2_000):
        some = slice(first, first + 2_000)
        messages = board.update_many(zip(ids[some].tolist(), ys[some].tolist(), strict=True))
        sent += np.bincount(messages.seq, minlength=len(ids))
        own = messages.slot == ids[messages.seq]
        reached = board.tree.reached(messages.tile[own])
        received += np.bincount(messages.seq[own], reached, len(ids)).astype(np.int64)
    n = len(ids)
    return Painted(
        sent.sum() / n,
        int(sent.max()),
        received.sum() / n,
        int(received.max()),
        board.work.min_y / n,
        board.work.snap / n,
    )


_built: list[tuple[pa.Table, Interests]] = []


def interests(data: dict[str, pa.Table]) -> Interests:
    """Return the index of a workload's interests; the latest one is kept, for many boards."""
    table = data["interests"]
    if not _built or _built[0][0] is not table:
        _built[:] = [(table, Interests(table["x_lo"].to_numpy(), table["x_hi"].to_numpy()))]
    return _built[0][1]


def received(made: Workloads, k: int, epsilon: float | None) -> float:
    """Return how many interests an update reaches on average, over several seeds.

    Counted with Paint-Dense: Paint-Sparse reaches the same ones, in fewer messages. The interests
    are those of the first seed; objects and updates differ.
    """
    if epsilon is not None and epsilon * k <= 1:
        epsilon = None  # a group for each tile: exact
    total = 0.0
    shared = made.tables(evolved=True)["interests"]
    for seed in range(made.seed, made.seed + made.size.seeds):
        sizes = {"objects": made.size.objects, "interests": 0, "updates": made.size.updates}
        tables = generate("topk", seed=seed, **sizes).tables | {"interests": shared}
        total += painted(tables, k, "dense", epsilon).received
    return total / made.size.seeds


def relax(data: dict[str, pa.Table]) -> float:
    """Return how many interests CN-Relax reaches per update."""
    board = board_over(1, data["objects"], interests(data))
    slots = data["updates"]["id"].to_numpy().astype(np.int32)
    return relaxed(board.line, board.tree, slots).received / len(slots)


def asked(data: dict[str, pa.Table], k: int) -> float:
    """Return how often Unicast calls min_y per update."""
    board = board_over(k, data["objects"], interests(data))
    some = data["updates"].slice(0, UNICAST_UPDATES)
    slots, ys = some["id"].to_numpy().astype(np.int32), some["y"].to_numpy()
    told, _ = unicast(board.line, board.tree, slots, ys, k)
    return told.min_y / len(slots)


def pair(
    name: str, paper: Iterable[object], ours: Iterable[object], label: str = "ours"
) -> list[list[object]]:
    """Return the paper's row and ours below it."""
    return [[f"{name}, paper" if name else "paper", *paper], [label, *ours]]


def uniform_tables(report: Report, made: Workloads) -> None:
    """Tables I to III, figures 12 and 13."""
    data = made.tables(
        evolved=True
    )  # the values reach their lasting distribution only after many updates
    exact = {k: received(made, k, None) for k in KS}
    heads = ["", *(f"k = {k}" for k in KS)]
    rows = pair("", PAPER["received"], exact.values())
    report.table(Table("Table I: messages received by subscriptions per update", heads, rows))
    around = {k: received(made, k, 1.0) for k in KS}
    rows = []
    for e in EPSILONS:
        found = {k: around[k] if e == 1.0 else received(made, k, e) for k in KS}
        more = [found[k] / max(exact[k], 1e-9) - 1 for k in KS]
        rows += pair(f"Paint-Sparse({e:g})", PAPER[e], more)
    reached = relax(data)
    rows += pair("CN-Relax", PAPER["relax"], [reached / max(exact[k], 1e-9) - 1 for k in KS])
    report.table(Table("Table II: redundancy in messages received", heads, rows))
    dense = {k: painted(data, k, "dense") for k in KS}
    sparse = {k: painted(data, k, "sparse") for k in KS}
    less = made.tables()
    loose = {(k, e): painted(less, k, "sparse", e) for k in KS for e in EPSILONS if k > 2 or e == 1}
    dense_loose = {k: painted(less, k, "dense", 1.0) for k in KS}
    rows = [
        *pair("Paint-Dense min_y", PAPER["dense min_y"], (dense[k].min_y for k in KS)),
        *pair("Paint-Sparse min_y", PAPER["sparse min_y"], (sparse[k].min_y for k in KS)),
        *pair("Paint-Sparse snap", PAPER["sparse snap"], (sparse[k].snap for k in KS)),
        *pair("Unicast min_y", PAPER["unicast"], around.values(), "ours: interests looked at"),
        ["ours: min_y", *(asked(data, k) for k in KS)],
    ]
    report.table(Table("Table III: calls per update, by k", heads, rows))
    report.text(
        "first_k is called twice per update by all. Unicast's numbers in the paper are those of "
        "interests in the rectangle around the staircase, one call each. One call, as printed, "
        "finds the next object, not the one that enters the list, and doesn't tell whether the "
        "list is affected: ours asks for the objects of an interest one by one, the best first. "
        f"Its calls are counted over the first {UNICAST_UPDATES:,} updates only, and heavy-tailed."
    )
    report.text("## Figures 12 and 13: bytes from the server, and calls")
    path = report.picture("notify-figure12-13.png", "Bytes per update by k and by epsilon")
    with figure(path, columns=2, rows=2, size=(5.5, 3.8)) as axes:
        by_k, by_epsilon, most, calls = axes.ravel()
        lines = {
            "Unicast": [LETTER_BYTES * sparse[k].received for k in KS],
            "Paint-Dense": [BYTES * dense[k].sent for k in KS],
            "Paint-Sparse": [BYTES * sparse[k].sent for k in KS],
            "Paint-Dense(1)": [BYTES * dense_loose[k].sent for k in KS],
            "Paint-Sparse(1)": [BYTES * loose[k, 1.0].sent for k in KS],
        }
        for label, values in lines.items():
            by_k.plot(KS, values, "o-", label=label)
        by_k.set(title="12(a) average", xlabel="k", ylabel="bytes per update", yscale="log")
        for k in (5, 10, 20):
            values = [BYTES * loose[k, e].sent for e in EPSILONS]
            by_epsilon.plot(EPSILONS, values, "o-", label=f"Paint-Sparse, k = {k}")
        by_epsilon.set(title="12(b) by epsilon", xlabel="epsilon", ylabel="bytes per update")
        most.plot(KS, [LETTER_BYTES * sparse[k].most_received for k in KS], "o-", label="Unicast")
        most.plot(KS, [BYTES * dense[k].most for k in KS], "o-", label="Paint-Dense")
        most.plot(KS, [BYTES * sparse[k].most for k in KS], "o-", label="Paint-Sparse")
        most.set(title="13(a) the largest update", xlabel="k", ylabel="bytes", yscale="log")
        calls.plot(KS, [*around.values()], "o-", label="Unicast: interests looked at")
        total = [sparse[k].min_y + sparse[k].snap + 2 for k in KS]
        calls.plot(KS, total, "o-", label="Paint-Sparse: all calls")
        calls.set(title="13(b) calls", xlabel="k", ylabel="per update", yscale="log")
        by_k.set_ylim(top=1e8)
        for one in axes.ravel():
            one.legend(ncols=2 if one is by_k else 1)
            if one is not by_epsilon:
                one.set_xticks(KS)
    letters = LETTER_BYTES * sparse[20].received, LETTER_BYTES * sparse[20].most_received
    rows = [
        ["Unicast", *letters],
        ["Paint-Dense (paper: 3,501)", BYTES * dense[20].sent, BYTES * dense[20].most],
        ["Paint-Sparse", BYTES * sparse[20].sent, BYTES * sparse[20].most],
        ["Paint-Sparse(1)", BYTES * loose[20, 1.0].sent, BYTES * loose[20, 1.0].most],
    ]
    report.table(Table("", ["bytes per update, k = 20", "average", "largest"], rows))


def by_interests(report: Report, made: Workloads) -> None:
    """Table IV and figure 11."""
    ms, some = made.size.by_interests, (2, 10, 20)
    rows = []
    for m in ms:
        found, (min_y, snap) = painted(made.tables(m), 10, "sparse"), TABLE_IV.get(m, ("", ""))
        rows.append([f"{m:,}", min_y, found.min_y, snap, found.snap, found.sent])
    dense = painted(made.tables(0), 10, "dense")
    rows.append(["Dense", 6.60, dense.min_y, 43.36, dense.sent, ""])
    heads = ["interests", "min_y, paper", "ours", "snap, paper", "ours", "messages"]
    title = "Table IV: calls per update, by the number of interests, k = 10"
    report.table(Table(title, heads, rows))
    report.text("A tile of Paint-Dense is a message: the paper gives their number as snaps.")
    report.text("## Figure 11: bytes from the server by the number of interests")
    path = report.picture("notify-figure11.png", "Bytes per update by number of interests")
    runs = {
        (m, k, e): painted(made.tables(m), k, "sparse", e)
        for m in ms
        for k in some
        for e in (None, 1.0)
    }
    with figure(path, columns=3, size=(4.8, 4.3)) as axes:
        for k, colour in zip(some, ("C0", "C1", "C2"), strict=True):
            flat = BYTES * painted(made.tables(0), k, "dense").sent
            letters = [LETTER_BYTES * runs[m, k, None].received for m in ms]
            exact = [BYTES * runs[m, k, None].sent for m in ms]
            loose = [BYTES * runs[m, k, 1.0].sent for m in ms]
            for one in axes[0, :2]:
                one.plot(ms, [flat] * len(ms), "--", color=colour, label=f"Dense, k = {k}")
            axes[0, 0].plot(ms, letters, "o-", color=colour, label=f"Unicast, k = {k}")
            for one in axes[0, 1:]:
                one.plot(ms, exact, "o-", color=colour, label=f"Sparse, k = {k}")
            axes[0, 2].plot(ms, loose, ":", color=colour, label=f"Sparse(1), k = {k}")
        titles = (
            "11(a) Unicast and Dense",
            "11(b) Sparse and Dense",
            "11(c) exact and approximate",
        )
        for one, title in zip(axes[0], titles, strict=True):
            one.set(title=title, xlabel="interests", ylabel="bytes per update")
            one.set(xscale="log", yscale="log")
            one.set_xticks(ms, [f"{m / 1e6:g}M" for m in ms])
            one.minorticks_off()
            one.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)


def shapes(report: Report, made: Workloads) -> None:
    """Figure 15: other distributions of objects, interests and changes."""
    m = made.size.interests // 5
    kinds: dict[str, dict[str, Any]] = {
        "uniform": {},
        "clustered, lambda 0.5": {"interest_distribution": "clustered", "spread": 0.5},
        "clustered, lambda 0.25": {"interest_distribution": "clustered", "spread": 0.25},
        "clustered, lambda 0.1": {"interest_distribution": "clustered", "spread": 0.1},
        "correlated": {"object_distribution": "clustered", "interest_distribution": "correlated"},
        "anti-correlated": {
            "object_distribution": "clustered",
            "interest_distribution": "anti-correlated",
        },
    }
    rows = []
    for name, settings in kinds.items():
        data = made.tables(m, **settings)
        dense, sparse = painted(data, 10, "dense"), painted(data, 10, "sparse")
        rows.append([name, dense.sent, sparse.sent, sparse.sent / dense.sent, sparse.min_y])
    title = f"Figure 15(a): messages of Paint-Sparse and Paint-Dense, k = 10, {m:,} interests"
    report.table(Table(title, ["workload", "Dense", "Sparse", "ratio", "Sparse min_y"], rows))
    path = report.picture("notify-figure15.png", "Sparse over Dense, and volatility")
    volatile = (0.125, 1.0)
    with figure(path, columns=2, size=(6.0, 3.8)) as axes:
        axes[0, 0].barh([row[0] for row in rows], [row[3] for row in rows])
        axes[0, 0].invert_yaxis()
        axes[0, 0].set(title="15(a) messages, Sparse / Dense", xlim=(0, 1))
        table = []
        for c in volatile:
            data = made.tables(m, change="gaussian", volatility=c)
            sent = [painted(data, k, "dense").sent for k in KS]
            table.append([f"c = {c:g}", *sent])
            axes[0, 1].plot(KS, [BYTES * s for s in sent], "o-", label=f"Paint-Dense, c = {c:g}")
        axes[0, 1].set(title="15(b) Gaussian changes", xlabel="k", ylabel="bytes per update")
        axes[0, 1].legend()
    report.text("Messages of Paint-Dense per update when values change a little (Gaussian):")
    report.table(Table("", ["volatility", *(f"k = {k}" for k in KS)], table))


def stock_trace(report: Report, made: Workloads) -> None:
    """Tables V and VI on a trace that is made up."""
    m = made.size.interests // 5
    data = made.latest("topk-stocks", interests=m, objects=min(2_031, made.size.objects))
    data = data | {"updates": data["updates"].slice(0, 4 * made.size.updates // 5)}
    sparse = {k: painted(data, k, "sparse") for k in KS}
    loose = {k: painted(data, k, "sparse", 1.0) for k in KS}
    reached = relax(data)
    exact = {k: max(sparse[k].received, 1e-9) for k in KS}
    looked_at = [painted(data, k, "dense", 1.0).received for k in KS]
    rows = [
        *pair(
            "redundancy Paint-Sparse(1)",
            PAPER["stocks 1.0"],
            (loose[k].received / exact[k] - 1 for k in KS),
        ),
        *pair("CN-Relax", PAPER["stocks relax"], (reached / exact[k] - 1 for k in KS)),
        *pair("Paint-Sparse min_y", PAPER["stocks min_y"], (sparse[k].min_y for k in KS)),
        *pair("Paint-Sparse snap", PAPER["stocks snap"], (sparse[k].snap for k in KS)),
        *pair("Unicast min_y", PAPER["stocks unicast"], looked_at, "ours: interests looked at"),
    ]
    report.table(Table("Tables V and VI: stocks", ["", *(f"k = {k}" for k in KS)], rows))
    report.text(
        """The paper's trace is not published; ours is made up in its likeness (`topk-stocks`), with
        recommendations rounded to one decimal, so that many stocks share each place. Most of them
        have k better ones at their own place: nobody's list holds them, and no tile is asked about.
        The paper has a snap for each of k tiles, so its places hardly tie."""
    )


def batches(report: Report, made: Workloads) -> None:
    """Figure 16: one batch of all updates."""
    data = made.tables(made.size.interests // 5)
    ids, ys = data["updates"]["id"].to_numpy(), data["updates"]["y"].to_numpy()
    few_ids, few_ys = coalesced(ids, ys)
    results: dict[str, list[tuple[int, int, int]]] = {}
    for k in KS:
        for name, who, what in (
            ("Online", ids, ys),
            ("Coalesce", few_ids, few_ys),
            ("Paint-Batch", ids, ys),
        ):
            board = board_over(k, data["objects"], interests(data))
            sent = received = 0
            for first in range(0, len(who), len(who) if name == "Paint-Batch" else 2_000):
                end = len(who) if name == "Paint-Batch" else first + 2_000
                some = zip(who[first:end].tolist(), what[first:end].tolist(), strict=True)
                is_batch = name == "Paint-Batch"
                messages = board.update_batch(some) if is_batch else board.update_many(some)
                sent += len(messages)
                received += int(board.tree.reached(messages.tile).sum())
            results.setdefault(name, []).append((sent, received, board.work.min_y))
    report.text(f"## Figure 16: {len(ids):,} updates as one batch, over Paint-Sparse")
    titles = ("16(a) messages sent", "16(b) messages received", "16(c) calls of min_y")
    path = report.picture("notify-figure16.png", "Batches: messages sent, received, calls")
    with figure(path, columns=3, size=(4.6, 3.8)) as axes:
        for which, (one, title) in enumerate(zip(axes[0], titles, strict=True)):
            for name, counts in results.items():
                one.plot(KS, [row[which] for row in counts], "o-", label=name)
            one.set(title=title, xlabel="k", yscale="log")
            one.legend()
    rows = [[name, *counts[KS.index(10)]] for name, counts in results.items()]
    report.table(Table("", ["k = 10", "sent", "received", "min_y"], rows))
