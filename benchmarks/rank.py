"""Ranking, side by side with the peers: one attribute and several, exact and relaxed, edits.

What is run is in `cases`: the generator of paper 003, Table 1. A full run also writes
docs/benchmarks/rank.md and rank.png.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contest import DisagreementError, Seconds
from benchmarks.measure import Table, console, show
from benchmarks.peers import finite
from benchmarks.postgres import Unavailable, server
from benchmarks.rank_peers import PEERS, PostgresRanked, RankPeer
from rangecast.engine import Engine
from rangecast.kernels.arrays import F64, AnyArray
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.rank.choose import INDEXES, choose
from rangecast.rank.result import Work
from rangecast.rank.scan import Scan
from rangecast.report.plots import figure
from rangecast.workloads import generate

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
K = 20
CLOCK_SECONDS = 0.02
"""The least that is timed."""
MANY = 1_000_000
"""Boxes times attributes beyond which only slabs take part, to keep the suite short."""
BUILD_BYTES = 3 << 30
"""What would need more, judged by a tenth of the set, is left out."""


@dataclass
class Contestant:
    """One way to rank, and what was measured of it."""

    name: str
    kind: str
    """peer, structure or engine."""
    best: Callable[[F64], Any]
    rows: Callable[[Any, int], AnyArray]
    """(what `best` gave, event) -> the rows of that event, best first."""
    clock: Callable[[], float] = time.process_time
    close: Callable[[], None] = lambda: None
    build: float = 0.0
    memory: int = 0
    work: Work | None = None
    events: int = 0
    batch: Seconds = field(default_factory=Seconds)
    single: Seconds = field(default_factory=Seconds)


@dataclass
class Case:
    """A workload at one size, what we expect of it, and what came of it."""

    name: str
    about: str
    n: int
    attributes: int
    expected: float | None = None
    """The ratio to the best peer, of slabs, in batches."""
    relaxed: bool = False
    everyone: list[Contestant] = field(default_factory=list)

    def made(self, events: int) -> tuple[Boxes, Space, F64]:
        """Return the boxes, the space and the points."""
        made = generate(
            "ranked", seed=11, subscriptions=self.n, events=events, attributes=self.attributes
        )
        return made.boxes, made.space, made.points

    def least(self, one: Contestant) -> float:
        """Return the seconds an event; a peer may be faster event by event, which counts then."""
        return min(one.batch.least, one.single.least) if one.kind == "peer" else one.batch.least

    @property
    def best_peer(self) -> Contestant:
        """The fastest peer."""
        return min((one for one in self.everyone if one.kind == "peer"), key=self.least)

    @property
    def event_by_event(self) -> Contestant:
        """The fastest peer that takes one event at a time."""
        return min(
            (one for one in self.everyone if one.kind == "peer"), key=lambda one: one.single.least
        )

    def ratio(self, one: Contestant) -> float:
        """Return how many times as long the best peer takes, in batches."""
        return self.least(self.best_peer) / self.least(one)

    def single_ratio(self, one: Contestant) -> float:
        """Return the same for single events."""
        return self.event_by_event.single.least / one.single.least


def cases(*, quick: bool) -> list[Case]:
    """Return what is to be run."""
    small, large = (2_000, 10_000) if quick else (100_000, 1_000_000)
    return [
        Case("1-d, 1M", "one attribute, Table 1's defaults", large, 1, 100),
        Case("4-d, 100k", "four attributes, all must hold", small, 4, 60),
        Case("4-d, 1M", "ten times the set", large, 4),
        Case("4-d, relaxed", "four attributes, by the weights that hold", small, 4, relaxed=True),
    ]


def run(*, quick: bool) -> None:
    """Print all tables of this suite; save them if this is the full run."""
    began = time.perf_counter()
    everything = cases(quick=quick)
    tables = []
    for case in everything:
        boxes, space, points = case.made(200 if quick else 10_000)
        case.everyone = contestants(case, boxes, space)
        race(case, boxes, points, rounds=2 if quick else 3, seconds=0.02 if quick else 0.25)
        tables.append(_case_table(case))
        show(*tables[-1])
    rest = [_expectations(everything), _edits(quick=quick)]
    for table in rest:
        show(*table)
    if not quick:
        FOLDER.mkdir(parents=True, exist_ok=True)
        _write_page(FOLDER / "rank.md", [rest[0], *tables, *rest[1:]])
        _write_plot(FOLDER / "rank.png", everything)
        console.print(f"Saved in {FOLDER}")
    console.print(f"The suite took {time.perf_counter() - began:.0f} s")


# ---- who takes part


def missing(peer: type[RankPeer]) -> str | None:
    """Return why a peer can't take part here, `None` if it can."""
    if peer.package is not None and find_spec(peer.package) is None:
        return f"{peer.package} isn't installed"
    if peer is PostgresRanked:
        try:
            server()
        except Unavailable as error:
            return str(error)
    return None


def contestants(case: Case, boxes: Boxes, space: Space) -> list[Contestant]:
    """Return all that can rank this, built; say who is left out and why."""
    made = []
    order = np.argsort(-boxes.scores, kind="stable")
    lo, hi = finite(boxes, space)
    for peer in PEERS:
        why = missing(peer)
        if case.attributes not in peer.dimensions or case.relaxed:
            continue
        if boxes.rows > peer.most:
            why = f"it takes too long to build with more than {peer.most:,}"
        if why is not None:
            console.print(f"{peer.name}: left out, {why}", style="dim")
            continue
        made.append(_peer(peer, lo[order], hi[order], order))
    if case.relaxed:
        made.append(_numpy_relaxed(boxes))
    tenth = boxes.take(np.arange(0, boxes.rows, 10))
    for name, kind in INDEXES.items():
        if name != "slabs" and boxes.rows * boxes.dimensions > MANY:
            continue
        kind(tenth.take(np.arange(100)), relaxed=case.relaxed).best(boxes.lo[:2], K)  # compiles
        if 10 * kind(tenth, relaxed=case.relaxed).memory > BUILD_BYTES:
            console.print(f"{name}: left out, more than {BUILD_BYTES >> 20:,} MB", style="dim")
            continue
        began = time.process_time()
        index = kind(boxes, relaxed=case.relaxed)
        seconds = time.process_time() - began
        made.append(
            Contestant(
                name,
                "structure",
                lambda points, index=index: index.best(points, K),
                lambda found, event: found.of(event)[0],
                build=seconds,
                memory=index.memory,
            )
        )
    engine = Engine(space)
    engine.subscribe_many(boxes)
    engine.unsubscribe(0)
    engine.subscribe_many(boxes.take([0]))
    made.append(
        Contestant(
            "Engine, edited",
            "engine",
            lambda points: engine.best_points(points, K, relaxed=case.relaxed),
            lambda found, event: engine_rows(found, event),
            memory=engine.memory,
        )
    )
    return made


def engine_rows(found: Any, event: int) -> AnyArray:
    """Return the ids, which are rows here."""
    return np.array([one for one, _ in found[event]], np.int64)


def _peer(peer: type[RankPeer], lo: F64, hi: F64, order: AnyArray) -> Contestant:
    began = time.perf_counter()
    made = peer(lo, hi)
    return Contestant(
        peer.name,
        "peer",
        lambda points: made.best(points, K),
        lambda found, event: order[found[event]],
        made.clock,
        made.close,
        time.perf_counter() - began,
    )


def _numpy_relaxed(boxes: Boxes) -> Contestant:
    """All totals of an event, then the k largest: what one would write in NumPy."""
    low, high = np.ascontiguousarray(boxes.lo.T), np.ascontiguousarray(boxes.hi.T)
    weights = np.ones((boxes.rows, boxes.dimensions)) if boxes.weights is None else boxes.weights
    by_axis = np.ascontiguousarray(weights.T)

    def one(point: F64) -> AnyArray:
        total = np.zeros(low.shape[1])
        some = np.zeros(low.shape[1], np.bool_)
        for axis, value in enumerate(point):
            held = (low[axis] <= value) & (high[axis] >= value)
            some |= held
            total += np.where(held, by_axis[axis], 0.0)
        total[~some] = -1.0
        least = np.partition(total, -K)[-K]
        rows = np.flatnonzero(total >= max(least, 0.0))
        return rows[np.lexsort((rows, -total[rows]))][:K]

    return Contestant(
        "NumPy, all totals",
        "peer",
        lambda points: [one(point) for point in points],
        lambda found, event: found[event],
    )


# ---- the race


def race(case: Case, boxes: Boxes, points: F64, *, rounds: int, seconds: float) -> None:
    """Time everybody on the same events, turn by turn; compare some answers with the oracle."""
    truth = [one.rows for one in Scan(boxes).rank(points[:6], K, relaxed=case.relaxed)]
    for one in case.everyone:
        one.events = _events_in(one, points, seconds)
    for turn in range(rounds):
        gc.collect()
        for one in case.everyone:
            some = points[: one.events]
            answer = one.best(some)
            one.batch.runs.append(_seconds(one, partial(one.best, some)) / len(some))
            calls = max(4, min(len(some), int(one.events**0.5)))
            each = [point[None] for point in some[:calls]]
            one.single.runs.append(_seconds(one, partial(_one_by_one, one, each)) / calls)
            if turn == 0:
                _check(one, answer, truth)
    for one in case.everyone:
        one.close()


def _one_by_one(one: Contestant, events: list[F64]) -> None:
    for event in events:
        one.best(event)


def _seconds(one: Contestant, call: Callable[[], object]) -> float:
    """Return what a call takes, the mean of as many as fill a time that clocks can tell."""
    calls = 0
    began = one.clock()
    while calls == 0 or (one.clock() - began < CLOCK_SECONDS):
        call()
        calls += 1
    return (one.clock() - began) / calls


def _events_in(one: Contestant, points: F64, seconds: float) -> int:
    """Return how many events it can do in this time; what it does meanwhile warms it up."""
    events = 6
    one.best(points[:events])
    while events < len(points):
        began = one.clock()
        one.best(points[:events])
        took = one.clock() - began
        if took > seconds / 3:
            return max(6, min(events, int(events * seconds / took)))
        events = min(len(points), 3 * events)
    return events


def _check(one: Contestant, answer: Any, truth: list[AnyArray]) -> None:
    for event, right in enumerate(truth):
        found = one.rows(answer, event)
        # An edited set has the first row at its end: of equal scores it comes last there.
        if one.kind != "engine" and found.tolist() != right.tolist():
            raise DisagreementError(f"{one.name}, event {event}: {found}, the oracle: {right}")
    if one.kind == "structure":
        one.work = answer.work


# ---- what is shown


def _case_table(case: Case) -> Table:
    rows = []
    for one in sorted(case.everyone, key=lambda one: (one.kind != "peer", case.least(one))):
        mark = " (best peer)" if one is case.best_peer else ""
        work = one.work
        rows.append(
            [
                one.name + mark,
                f"{one.build:,.1f}" if one.build else "",
                f"{one.memory / case.n:,.0f}" if one.memory else "",
                f"{one.events:,}",
                f"{one.batch.least * 1e6:,.2f}",
                f"{one.batch.spread:.1f}",
                f"{case.ratio(one):,.2f}",
                f"{one.single.least * 1e6:,.1f}",
                f"{case.single_ratio(one):,.2f}",
                f"{work.examined / one.events:,.0f}" if work else "",
                f"{work.holes / one.events:,.1f}" if work else "",
                f"{sum(work.opened) / one.events:,.1f}" if work else "",
                f"{work.words / one.events:,.0f}" if work else "",
                f"{work.tested / one.events:,.0f}" if work else "",
            ]
        )
    headings = ["", "build s", "bytes/sub", "events", "us/event", "spread", "x best", "single us"]
    headings += ["x best", "examined", "holes", "pages", "words", "tested"]
    return Table(f"{case.name}: {case.about}; n = {case.n:,}, k = {K}", headings, rows)


def _expectations(everything: list[Case]) -> Table:
    rows = []
    for case in everything:
        named = {one.name: one for one in case.everyone}
        ours = named["slabs"]
        boxes = case.made(1)[0].take([0])
        rows.append(
            [
                case.name,
                case.best_peer.name,
                f"{case.ratio(ours):,.0f}",
                case.event_by_event.name,
                f"{case.event_by_event.single.least / ours.batch.least:,.0f}",
                f"{case.single_ratio(ours):,.1f}",
                f"{case.ratio(named['Engine, edited']):,.0f}",
                f"{case.expected:,.0f}" if case.expected else "",
                choose(boxes, relaxed=case.relaxed).name,
            ]
        )
    headings = ["workload", "best peer", "slabs, batches", "best peer, event by event"]
    headings += ["slabs in batches to it", "single events", "Engine, batches", "expected", "auto"]
    return Table("How many times as long the best peer takes", headings, rows)


def _edits(*, quick: bool) -> Table:
    """Score updates of a live set, and what they cost."""
    n, edits = (2_000, 100) if quick else (100_000, 2_000)
    boxes, space, points = Case("", "", n, 1).made(300)
    rng = np.random.default_rng(3)
    rows, scores = rng.integers(0, n, edits).tolist(), rng.random(edits).tolist()
    engine = Engine(space)
    engine.subscribe_many(boxes)
    engine.best_points(points[:2], K)
    engine.rescore(rows[0], scores[0])
    engine.best_points(points, K)
    began = time.process_time()
    for row, score in zip(rows, scores, strict=True):
        engine.rescore(row, score)
    edit = (time.process_time() - began) / edits
    engine.best_points(points, K)
    began = time.process_time()
    engine.best_points(points, K)
    ranked = (time.process_time() - began) / len(points)
    made = [["Engine", f"{edit * 1e6:,.1f}", f"{ranked * 1e6:,.2f}"]]
    title = f"Score updates: n = {n:,}, {edits:,} new scores, then events"
    return Table(title, ["", "us an update", "us an event after"], made)


def _write_page(path: Path, tables: list[Table]) -> None:
    lines = [
        "# Ranking beside the peers",
        "",
        "Made by `python -m benchmarks rank`. The data is that of paper 003, Table 1. Ratios are",
        "how many times as long the best peer takes as the row does, in the same run. Seconds are",
        "of a core, the least of several alternating runs; *spread* is the slowest run over the",
        "fastest. Peers are given the boxes in the order of their scores, so that they can stop at",
        "k, and are timed in bulk or event by event, whichever is faster. *Examined* (intervals),",
        "*holes* (leaves opened in vain), *pages*, *words* (64 comparisons) and *tested* (boxes)",
        "count work an event and are the same on every machine.",
        "",
        "![Ratios to the best peer](rank.png)",
        "",
    ]
    for table in tables:
        lines += [f"## {table.title}", "", "| " + " | ".join(table.headings) + " |"]
        lines.append("|" + " --- |" * len(table.headings))
        lines += ["| " + " | ".join(row) + " |" for row in table.rows]
        lines.append("")
    path.write_text("\n".join(lines))


def _write_plot(path: Path, everything: list[Case]) -> None:
    with figure(path, columns=len(everything), size=(3.4, 4.2)) as axes:
        for case, plot in zip(everything, axes[0], strict=True):
            some = sorted(case.everyone, key=case.least)
            colours = {"peer": "#5c6b73", "structure": "#1f6f8b", "engine": "#e07a3f"}
            plot.barh(
                [one.name for one in some],
                [case.least(one) * 1e6 for one in some],
                color=[colours[one.kind] for one in some],
            )
            plot.set(title=case.name, xlabel="µs an event (log)", xscale="log")
            plot.invert_yaxis()
            plot.tick_params(axis="y", labelsize=7)
