"""Paper 001, appendix C: figure 20, how far questions walk along many servers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import log, nextafter
from typing import Any

import numpy as np
import pyarrow as pa

from experiments.experiment import Claim, Experiment, Line, Panel, Point, Results
from rangecast.notify.servers.servers import Servers
from rangecast.report.markdown import Table
from rangecast.workloads import generate

OBJECTS = {"tiny": 200, "quick": 5_000, "full": 100_000}
SERVERS = {"tiny": 10, "quick": 50, "full": 100}
KS = {
    "tiny": (1, 10, 100),
    "quick": (1, 10, 100, 1_000),
    "full": (1, 10, 100, 300, 1_000, 3_000, 10_000, 30_000, 65_536),
}
CHANGES = {"tiny": 20, "quick": 100, "full": 1_000}


def points(size: str) -> Iterator[Point]:
    """Changes of any object, and of those in the middle: half of all are better."""
    sizes = {"objects": OBJECTS[size], "servers": SERVERS[size]}
    for k in KS[size]:
        changes = CHANGES[size] if k < 10_000 else max(10, 300_000 // k)
        for which in ("any", "middle"):
            yield {**sizes, "changes": changes, "k": k, "which": which}


@lru_cache(1)
def _objects(seed: int, objects: int) -> pa.Table:
    return generate("topk", seed=seed, objects=objects, interests=0, updates=0).tables["objects"]


def measure(
    seed: int, objects: int, servers: int, changes: int, k: int, which: str
) -> dict[str, Any]:
    """Make objects worse by next to nothing: two first_k, and one min_y over the same places."""
    table = _objects(seed, objects)
    row = Servers(k, servers, objects=table, algorithm="dense")
    ys = table["value"].to_numpy()
    rng = np.random.default_rng(seed)
    some = rng.integers(0, objects, changes)
    if which == "middle":
        ranked = np.argsort(ys)[objects // 2 - objects // 100 : objects // 2 + objects // 100]
        some = rng.choice(ranked, changes)
    for one in dict.fromkeys(some.tolist()):
        row.set_value(one, nextafter(float(ys[one]), 2.0))
    walks = row.walks
    return {"first_k": walks.first_k_hops / walks.first_k, "min_y": walks.min_y_hops / walks.min_y}


def _coin_flips(k: int, objects: int, servers: int) -> float:
    return 2 * k * servers / objects


def _any_rank(k: int, objects: int, servers: int) -> float:
    """Return what is expected for ranks that are uniform: k / u objects further, u the rank.

    A side has `s` objects, s uniform up to n: the mean over u and s of min(s, k / u).
    """
    n, whole = objects, 0.0
    parts = 200
    for part in range(parts):
        side = (part + 0.5) * n / parts
        whole += side if side <= k else k + k * log(side / k)
    return whole / parts * servers / n


def claims(results: Results) -> Iterator[Claim]:
    """Yield the claims of appendix C."""
    sizes = results[0]["objects"], results[0]["servers"]
    middle = [row for row in results.where(which="middle") if 2 * row["k"] < sizes[0] / 10]
    ratios = [
        row["first_k"] / _coin_flips(row["k"], *sizes) for row in middle if row["first_k"] > 0.1
    ]
    yield Claim(
        "Appendix C",
        "2kS/n servers per first_k if half of all objects are better (taken as: within 25%)",
        bool(ratios) and min(ratios) > 0.75 and max(ratios) < 1.25,
        ", ".join(f"{ratio:.2f}" for ratio in ratios) + " times 2kS/n",
    )
    lengths = results.where(which="any").column("first_k")
    logs = [max(log(row["k"]), 1.0) for row in results.where(which="any")]
    grown = lengths[-1] / max(lengths[0], 1e-9)
    yield Claim(
        "Figure 20",
        "O(log(k) S/n) servers for objects that are i.i.d. (taken as: at most 10 times log(k))",
        grown < 10 * logs[-1] / logs[0],
        f"{grown:,.0f} times as many from the least k to the largest, whose logarithm is "
        f"{logs[-1] / logs[0]:.0f} times as large",
    )
    expected = [_any_rank(row["k"], *sizes) for row in results.where(which="any")]
    over = [a / b for a, b in zip(lengths, expected, strict=True) if b > 0.1]
    yield Claim(
        "Figure 20",
        "k log(n/k) S/n servers",
        bool(over) and min(over) > 0.8 and max(over) < 1.25,
        f"{min(over):.2f} to {max(over):.2f} times the mean of min(s, k/u) S/n" if over else "-",
        is_ours=True,
    )


def tables(results: Results) -> Iterator[Table]:
    """Lengths by k."""
    sizes = results[0]["objects"], results[0]["servers"]
    rows = []
    for k in results.distinct("k"):
        whole = results.where(k=k, which="any")[0]
        half = results.where(k=k, which="middle")[0]
        expected = _any_rank(k, *sizes), _coin_flips(k, *sizes)
        rows.append([k, whole["first_k"], expected[0], whole["min_y"]])
        rows[-1] += [half["first_k"], expected[1], half["min_y"]]
    heads = ["k", "first_k", "expected", "min_y"]
    heads += ["first_k, middle", "2kS/n", "min_y, middle"]
    yield Table(
        f"Further servers per question, {sizes[1]} servers, {sizes[0]:,} objects", heads, rows
    )


def panels(results: Results) -> list[Panel]:
    """Figure 20."""
    sizes = results[0]["objects"], results[0]["servers"]
    ks = results.distinct("k")
    lines = [
        results.line("first_k, any object", "k", "first_k", which="any"),
        results.line("min_y, both sides", "k", "min_y", which="any"),
        Line("mean of min(s, k/u) S/n", ks, [_any_rank(k, *sizes) for k in ks], 0, "--"),
    ]
    middle = [
        results.line("first_k, an object in the middle", "k", "first_k", which="middle"),
        Line("2kS/n", ks, [_coin_flips(k, *sizes) for k in ks], 0, "--"),
    ]
    return [
        Panel("20: any object", "k", "further servers", lines, "x"),
        Panel("half of all are better", "k", "further servers", middle, "xy"),
    ]


EXPERIMENT = Experiment(
    name="notify-servers",
    title="Many servers (figure 20)",
    parts=("Appendix C", "Figure 20"),
    about="""Objects uniform in x and y, spread evenly. Each change makes an object worse by next to
    nothing: its server asks first_k on each side and then min_y once, over all that lies between.
    The length of a walk is the number of servers beyond the first. The figure's lines are lost, and
    what its axis from 10 to 100,000 stands for; we take it as k, of which lists have at most
    65,536 here.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    seed=1,
    verdicts={
        "Appendix C": "Agrees.",
        "Figure 20": """Differs: the printed O(log(k) S/n) doesn't hold, and can't: k objects
        take at least k S/n servers. Few servers are asked while k is small. An object with a
        share u of better ones walks past k/u objects, so that the mean is about k log(n/k)
        S/n, which is ours and fits.""",
    },
)
