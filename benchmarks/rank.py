"""Ranking, side by side with the peers: one attribute and several, exact and relaxed, edits.

What is run is in `cases`: the generator of paper 003, Table 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frame import Report
from benchmarks.harness import (
    OUR_SECONDS,
    Case,
    Contestant,
    built,
    contest,
    expected,
    taking_part,
)
from benchmarks.rank_peers import PEERS
from experiments.timing import timed
from rangecast.engine import Engine
from rangecast.kernels.arrays import F64, AnyArray
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.rank.choose import INDEXES, Index, choose
from rangecast.rank.scan import Scan
from rangecast.report.markdown import Table
from rangecast.report.plots import COLOURS, figure
from rangecast.workloads import Workload

K = 20
MANY = 1_000_000
"""Boxes times attributes beyond which only slabs take part, to keep the suite short."""
EDITED = "Engine, edited"
WORK: dict[str, Callable[[Any], float]] = {
    "examined": lambda work: work.examined,
    "holes": lambda work: work.holes,
    "pages": lambda work: sum(work.opened),
    "words": lambda work: work.words,
    "tested": lambda work: work.tested,
}

ABOUT = """
The data is that of paper 003, Table 1; *wide* has a million cells instead of a hundred, so that
ends and events are spread over the domain and scores hardly tie. Ratios are how many times as long
the best peer takes as the row does, in the same run. Seconds are of a core, the least of several
alternating runs; *spread* is the slowest run over the fastest. Peers are given the boxes in the
order of their scores, so that they can stop at k, and are timed in bulk or event by event,
whichever is faster. *Examined* (intervals), *holes* (leaves opened in vain), *pages*, *words* (64
comparisons) and *tested* (boxes) count work per event and are the same on every machine.
"""


@dataclass
class Ranking(Case):
    """A case that ranks."""

    workload: str = "ranked"
    n: int = 0
    relaxed: bool = False


def cases(*, quick: bool) -> list[Ranking]:
    """Return what is to be run."""
    small, large = (1_000, 2_000) if quick else (100_000, 1_000_000)
    events = 100 if quick else 10_000
    four = {"attributes": 4}
    wide = {"cells": 1_000_000}
    made = [
        Ranking("1-d, 1M", "one attribute, Table 1's defaults", n=large, expected=100),
        Ranking("1-d, wide, 100k", "a million cells: few ends are equal", n=small, settings=wide),
        Ranking("1-d, wide, 1M", "ten times the set", n=large, expected=100, settings=wide),
        Ranking("4-d, 100k", "four attributes, all must hold", n=small, expected=60, settings=four),
        Ranking("4-d, 1M", "ten times the set", n=large, settings=four),
        Ranking(
            "4-d, relaxed",
            "by the weights of matching attributes",
            n=small,
            settings=four,
            relaxed=True,
        ),
    ]
    for case in made:
        case.events = events
    return made


def run(report: Report, *, quick: bool) -> None:
    """Run all cases, then score updates."""
    report.begin("Ranking beside the peers", ABOUT, "ncls", "intervaltree", "duckdb")
    picture = report.picture("rank.png", "Time per event of everybody")
    top = len(report.blocks)
    everything = cases(quick=quick)
    for case in everything:
        made = case.made()
        case.auto = choose(made.boxes, relaxed=case.relaxed).name
        case.everyone = contest(
            contestants(made, relaxed=case.relaxed),
            made.points,
            partial(oracle, made.boxes, case.relaxed),
            rounds=2 if quick else 3,
            seconds=0.005 if quick else 0.25,
        )
        report.table(case.table(f"k = {K}", WORK))
    report.table(_expectations(everything), at=top)
    report.table(_edits(*((1_000, 50) if quick else (100_000, 2_000))))
    _draw(picture, everything)


# ---- who takes part


def contestants(made: Workload, *, relaxed: bool) -> Iterator[Contestant[Any]]:
    """Yield all that can rank this, built; say who is left out and why."""
    boxes, space = made.boxes, made.space
    if relaxed:
        yield Contestant("NumPy, all totals", "peer", AllTotals(boxes).best, _of_list)
    else:
        order = np.argsort(-boxes.scores, kind="stable")
        for peer, seconds in taking_part(PEERS, boxes.take(order), space):
            yield Contestant(
                peer.name,
                "peer",
                partial(peer.best, k=K),
                lambda found, places: [order[found[place]] for place in places],
                clock=peer.clock,
                close=peer.close,
                build=seconds,
            )
    for name, kind in INDEXES.items():
        if name != "slabs" and boxes.rows * boxes.dimensions > MANY:
            continue
        make: Callable[[Boxes], Index] = partial(kind, relaxed=relaxed)
        make(boxes.take(np.arange(100))).best(boxes.lo[:2], K)  # compiles
        found = built(name, make, boxes, OUR_SECONDS, time.process_time)
        if found is not None:
            index, seconds = found
            yield Contestant(
                name,
                "structure",
                partial(index.best, k=K),
                lambda found, places: [found.of(place)[0] for place in places],
                work_of=lambda found: found.work,
                build=seconds,
                memory=index.memory,
            )
    engine, seconds = timed(lambda: live_set(boxes, space))
    yield Contestant(
        EDITED,
        "engine",
        partial(engine.rank_points, k=K, relaxed=relaxed),
        lambda found, places: [np.array([one for one, _ in found[place]]) for place in places],
        build=seconds,
        memory=engine.memory,
    )


def live_set(boxes: Boxes, space: Space) -> Engine:
    """Return a live set in which one subscription was put in the place of its equal."""
    engine = Engine(space)
    engine.subscribe_many(boxes)
    engine.rescore(0, float(boxes.scores[0]))  # it keeps its place among equal scores
    return engine


def _of_list(found: list[AnyArray], places: Sequence[int]) -> list[AnyArray]:
    return [found[place] for place in places]


class AllTotals:
    """All totals of an event, then the k largest: relaxed ranking as one would write it."""

    def __init__(self, boxes: Boxes):
        self.low, self.high = np.ascontiguousarray(boxes.lo.T), np.ascontiguousarray(boxes.hi.T)
        weights = np.ones_like(boxes.lo) if boxes.weights is None else boxes.weights
        self.weights = np.ascontiguousarray(weights.T)

    def best(self, points: F64) -> list[AnyArray]:
        """Return the rows of the k best of each event."""
        return [self._one(point) for point in points]

    def _one(self, point: F64) -> AnyArray:
        total = np.zeros(self.low.shape[1])
        some = np.zeros(self.low.shape[1], np.bool_)
        for axis, value in enumerate(point):
            held = (self.low[axis] <= value) & (self.high[axis] >= value)
            some |= held
            total += np.where(held, self.weights[axis], 0.0)
        total[~some] = -1.0
        least = np.partition(total, -K)[-K]
        rows = np.flatnonzero(total >= max(least, 0.0))
        return rows[np.lexsort((rows, -total[rows]))][:K]


def oracle(boxes: Boxes, relaxed: bool, points: F64) -> list[AnyArray]:
    """Return the rows of each event, best first."""
    return [one.rows for one in Scan(boxes).rank(points, K, relaxed=relaxed)]


# ---- what is shown


def _expectations(everything: list[Ranking]) -> Table:
    rows = []
    for case in everything:
        ours, engine = case.named("slabs"), case.named(EDITED)
        rows.append(
            [
                case.name,
                case.best_peer.name,
                case.ratio(ours),
                expected(case.ratio(ours), least=case.expected),
                case.ratio(engine),
                case.best_single.name,
                case.best_single.single.least / ours.batch.least,
                case.single_ratio(ours),
                case.auto,
            ]
        )
    headings = ["workload", "best peer", "slabs, batches", "expected", "Engine, batches"]
    headings += ["best peer, event by event", "slabs in batches to it", "single events", "auto"]
    return Table("How many times as long the best peer takes", headings, rows)


def _edits(n: int, edits: int) -> Table:
    """Score updates of a live set, and what they cost."""
    made = Ranking("", "", n=n, events=300).made()
    rng = np.random.default_rng(3)
    changes = list(zip(rng.integers(0, n, edits).tolist(), rng.random(edits).tolist(), strict=True))
    engine = live_set(made.boxes, made.space)
    best = partial(engine.rank_points, made.points, K)
    best()

    def rescore() -> None:
        for subscription, score in changes:
            engine.rescore(subscription, score)

    edit = timed(rescore)[1] / edits
    best()
    rows = [["Engine", edit * 1e6, timed(best)[1] / len(made.points) * 1e6]]
    title = f"Score updates: {n:,} subscriptions, {edits:,} new scores, then events"
    return Table(title, ["", "us per update", "us per event after"], rows)


def _draw(path: Path, everything: list[Ranking]) -> None:
    colours = {"peer": COLOURS[5], "structure": COLOURS[0], "engine": COLOURS[1]}
    with figure(path, columns=len(everything), size=(3.4, 4.2)) as axes:
        for case, one in zip(everything, axes[0], strict=True):
            some = sorted(case.everyone, key=lambda one: one.least)
            times = [one.least * 1e6 for one in some]
            one.barh([s.name for s in some], times, color=[colours[s.kind] for s in some])
            one.set(title=case.name, xlabel="µs per event (log)", xscale="log")
            one.invert_yaxis()
            one.tick_params(axis="y", labelsize=7)
