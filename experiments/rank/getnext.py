"""Paper 003, experiment 2: time by the number of getnext calls, one attribute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.experiment import Claim, Experiment, Panel, Point, Results
from experiments.rank.workload import (
    EVENTS,
    PAPERS_OWN,
    SKEW,
    STRUCTURES,
    SUBSCRIPTIONS,
    WARM_UP,
    built,
    check_answers,
    made,
    ranked,
    spread,
)
from rangecast.report.markdown import Table

MARGIN = 1.2
"""Factor by which times must differ to count: below it, other work on the machine decides."""
CALLS = {"tiny": (1, 20), "quick": (1, 5, 20, 100, 500), "full": (1, 5, 20, 100, 500, 2_000)}


def points(size: str) -> Iterator[Point]:
    """Each number of calls with each structure, which is built once."""
    for structure in STRUCTURES:
        for k in CALLS[size]:
            sizes = {"n": SUBSCRIPTIONS[size], "events": EVENTS[size], "warm_up": WARM_UP[size]}
            yield {**sizes, "structure": structure, "k": k}


def measure(seed: int, n: int, events: int, warm_up: int, structure: str, k: int) -> dict[str, Any]:
    """Ask one structure for the k best: k calls of getnext."""
    data = (seed, n, events + warm_up, 1, SKEW)
    index = built(structure, *data, relaxed=False)
    return ranked(index, made(*data)[1], warm_up, k, 3)


def claims(results: Results) -> Iterator[Claim]:
    """Yield the paper's claims about the figure."""
    check_answers(results, ["k"])
    part = "Figure 6"
    ks = results.distinct("k")
    us = {name: results.column("us", structure=name) for name in PAPERS_OWN}
    slowest = [max(PAPERS_OWN, key=lambda name: us[name][at]) for at in range(len(ks))]
    first = [k for k, name in zip(ks, slowest, strict=True) if name == "interval"]
    yield Claim(
        part,
        "the interval tree is the least efficient",
        len(first) == len(ks),
        f"at k = {', '.join(f'{k:,}' for k in first) or 'none'} of {ks}",
    )
    behind = [a / b for a, b in zip(us["rtree"], us["sopt"], strict=True)]
    yield Claim(
        part,
        f"the R-tree degrades as the calls increase (taken as: {MARGIN} times as far behind)",
        behind[-1] > MARGIN * behind[0],
        "R-tree / SOPT-R: " + ", ".join(f"{ratio:.2f}" for ratio in behind),
    )
    close = [a / b for a, b in zip(us["segment"], us["ir"], strict=True)]
    yield Claim(
        part,
        "the segment tree and the IR-tree are about the same (taken as: within 1.5 times)",
        all(1 / 1.5 <= ratio <= 1.5 for ratio in close),
        "segment / IR: " + ", ".join(f"{ratio:.2f}" for ratio in close),
    )
    best = [
        min(us[name][at] for name in PAPERS_OWN if name != "sopt") / us["sopt"][at]
        for at in range(len(ks))
    ]
    yield Claim(
        part,
        "SOPT-R is always the most efficient, up to twice as fast",
        min(best) >= 1 and max(best) > MARGIN,
        "next best / SOPT-R: " + ", ".join(f"{ratio:.2f}" for ratio in best),
    )
    begins, ends = (spread([us[name][at] for name in PAPERS_OWN]) for at in (0, -1))
    yield Claim(
        part,
        "the difference between the structures falls with the number of calls",
        begins > MARGIN * ends,
        f"slowest / fastest: {begins:.1f} at k = {ks[0]}, {ends:.2f} at {ks[-1]:,}",
    )


def facts(results: Results) -> dict[str, str]:
    """Return how far the R-tree falls behind."""
    both = (results.column("us", structure=name) for name in ("rtree", "sopt"))
    return {"worst": f"{max(a / b for a, b in zip(*both, strict=True)):.1f}"}


def tables(results: Results) -> Iterator[Table]:
    """Time and work."""
    heads = ["us", "examined", "pages", "holes"]
    first = results[0]
    rows = [
        [f"k = {k:,}, {name}", *(results.one(head, k=k, structure=name) for head in heads)]
        for k in results.distinct("k")
        for name in STRUCTURES
    ]
    title = f"Per event: {first['n']:,} intervals, {first['events']:,} events"
    yield Table(title, ["", *heads], rows)


def panels(results: Results) -> list[Panel]:
    """Time and work by calls."""
    time = [results.line(name, "k", "us", structure=name) for name in STRUCTURES]
    work = [results.line(name, "k", "examined", structure=name) for name in PAPERS_OWN]
    return [
        Panel("Time (figure 6)", "getnext calls (k)", "µs per event", time, "xy"),
        Panel("Work", "getnext calls (k)", "intervals examined", work, "xy"),
    ]


EXPERIMENT = Experiment(
    name="rank-getnext",
    title="Experiment 2: the number of getnext calls",
    parts=("Figure 6",),
    about="""One attribute, exact ranking: k calls of getnext per event. *Examined* counts intervals
    looked at, *pages* nodes opened, *holes* leaves opened in vain. All give the same answers. The
    least of three runs, after a warm-up. `slabs` is ours, and not one of the paper's.""",
    points=points,
    measure=measure,
    claims=claims,
    tables=tables,
    panels=panels,
    facts=facts,
    seed=3,
    is_timed=True,
    verdicts={
        "Figure 6": """Agrees in part: the interval tree is the slowest, and the structures
        draw closer. The R-tree falls behind in between, to {worst} times SOPT-R, and not at
        the most calls; SOPT-R leads at some k and not at all; the segment tree and the
        IR-tree are not the same. Times of a busy machine may have decided.""",
    },
)
