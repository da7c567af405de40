"""Matching, side by side with the peers: static and live sets, batches and single events, updates.

What is run is in `cases`. Peers get the domain's bounds where a subscription mentions nothing.
A full run also writes docs/benchmarks/match.md and match.png.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import match_live
from benchmarks.contest import THREADS, Contestant, best, contest
from benchmarks.match_report import write_page, write_plot
from benchmarks.measure import Table, console, show
from rangecast.kernels.arrays import F64
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.workloads import generate

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
SINGLE = 8.0
"""What we expect of single-event calls, as a ratio to the best peer."""
GROWTH = 6.0
"""At most so many times the time for ten times the set."""


@dataclass
class Case:
    """A workload at one size, what we expect of it, and what came of it."""

    name: str
    about: str
    workload: str
    n: int
    expected: float | None = None
    """The ratio to the best peer: one thread, batches, live set."""
    settings: dict[str, Any] = field(default_factory=dict)
    events: int = 10_000
    mentioned: int | None = None
    """Leave all but so many attributes of each subscription unmentioned, at random."""
    matches: float = 0.0
    dimensions: int = 0
    everyone: list[Contestant] = field(default_factory=list)

    def made(self, seed: int = 11) -> tuple[Boxes, Space, F64]:
        """Return the boxes, the space and the points."""
        sizes = {"subscriptions": self.n, "events": self.events}
        made = generate(self.workload, seed=seed, **sizes, **self.settings)
        boxes = made.boxes
        if self.mentioned is not None:
            order = np.random.default_rng(seed).random(boxes.lo.shape).argsort(axis=1)
            free = order.argsort(axis=1) >= self.mentioned
            lo, hi = np.where(free, -np.inf, boxes.lo), np.where(free, np.inf, boxes.hi)
            boxes = Boxes.of(lo, hi, ids=boxes.ids)
        return boxes, made.space, made.points

    @property
    def engine(self) -> Contestant:
        """The live set that has been edited."""
        return self.everyone[-1]

    @property
    def untouched(self) -> Contestant:
        """The live set as it was filled."""
        return self.everyone[-2]

    @property
    def chosen(self) -> Contestant:
        """The structure that `auto` takes, by itself."""
        return next(one for one in self.everyone if one.chosen)

    @property
    def structures(self) -> list[Contestant]:
        """Our structures, as they are without a live set around them."""
        return [one for one in self.everyone if one.kind == "structure"]

    def batch_ratio(self, one: Contestant) -> float:
        """Return how many times as long the best peer takes: one thread, batches."""
        return best(self.everyone, lambda peer: peer.least).least / one.least

    def single_ratio(self, one: Contestant) -> float:
        """Return the same for single events."""
        return best(self.everyone, lambda peer: peer.single.least).single.least / one.single.least

    def threads_ratio(self, one: Contestant) -> float:
        """Return the same for batches with all threads; a peer that can't use them has one."""

        def seconds(peer: Contestant) -> float:
            return min(peer.threads.least, peer.least)

        return seconds(best(self.everyone, seconds)) / one.threads.least


def cases(*, quick: bool) -> list[Case]:
    """Return what is to be run."""
    small, large = (1_000, 10_000) if quick else (100_000, 1_000_000)
    few, many = (1_000, 8_000) if quick else (32_000, 256_000)
    half = "half of the attributes unmentioned"
    two = {"mentioned": 2}
    crowded = "crowded-rectangles"
    made = [
        Case("W1-32k", "VCR 90-10 on 300 x 200", crowded, few),
        Case("W1-256k", "the same, eight times the set", crowded, many, 30, events=2_000),
        Case("W2-100k", "4-d, 100 matches an event", "selective", small, 50),
        Case("W2-1M", "the same, ten times the set", "selective", large, 20),
        Case("W2h-100k", f"W2, {half}", "selective", small, 50, two),
        Case("W2h-1M", f"W2, {half}, ten times the set", "selective", large, 20, two),
        Case("W3-100k", "8-d, both ends of every interval uniform", "wide", small, 70),
        Case("W3h-100k", f"W3, {half}", "wide", small, 70, mentioned=4),
        Case("W6-100k", "20-d, 4 mentioned, 10-30% of the domain wide", "sparse", small, 150),
        Case("W6-1M", "the same, ten times the set", "sparse", large, 220),
    ]
    for case in made:
        case.events = 300 if quick else case.events
    return made


def run(*, quick: bool) -> None:
    """Print all tables of this suite; save them if this is the full run."""
    began = time.perf_counter()
    everything = cases(quick=quick)
    for case in everything:
        boxes, space, points = case.made()
        case.dimensions = len(space)
        rounds, seconds = (2, 0.02) if quick else (3, 0.4)
        case.everyone = contest(boxes, space, points, rounds=rounds, seconds=seconds)
        case.matches = _matches(case, points)
        _show_case(case)
    named = {case.name: case for case in everything}
    tables = [_expectations(everything), _growth(named), _choice(everything)]
    tables.append(_replaced(named))
    tables += _updates(named["W2h-1M"])
    tables += [match_live.first_match(quick=quick), _possible(named["W1-256k"])]
    for table in tables:
        show(*table)
    if not quick:
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_page(FOLDER / "match.md", everything, tables)
        write_plot(FOLDER / "match.png", everything)
        console.print(f"Saved in {FOLDER}")
    console.print(f"The suite took {time.perf_counter() - began:.0f} s")


def _show_case(case: Case) -> None:
    per_batch = best(case.everyone, lambda peer: peer.least)
    per_event = best(case.everyone, lambda peer: peer.single.least)
    rows = []
    for one in case.everyone:
        work = one.work
        marks = " (best peer)" if one is per_batch else " (auto)" if one.chosen else ""
        each = "*" if one is per_event and one is not per_batch else ""
        rows.append(
            [
                one.name + marks,
                f"{one.build:,.1f}",
                f"{one.memory / case.n:,.0f}" if one.memory else "",
                f"{one.events:,}",
                f"{one.batch.least * 1e6:,.1f}",
                f"{one.batch.spread:.1f}",
                f"{case.batch_ratio(one):,.2f}",
                f"{one.single.least * 1e6:,.1f}{each}",
                f"{case.single_ratio(one):,.2f}",
                f"{one.threads.least * 1e6:,.1f}" if one.threads.runs else "",
                f"{case.threads_ratio(one):,.2f}" if one.threads.runs else "",
                f"{work.visited / one.events:,.0f}" if work else "",
                f"{work.tested / one.events:,.0f}" if work else "",
            ]
        )
    headings = ["", "build s", "bytes/sub", "events", "us/event", "spread", "x best"]
    headings += ["single us", "x best", f"{THREADS} threads us", "x best", "visited", "tested"]
    title = f"{case.name}: {case.about}; n = {case.n:,}, {case.matches:,.0f} matches an event"
    show(title, headings, rows)


def _matches(case: Case, points: F64) -> float:
    found = case.chosen.match(points[: case.chosen.events])
    return len(found.rows) / case.chosen.events


def _expectations(everything: list[Case]) -> Table:
    rows = []
    for case in everything:
        ours = (case.engine, case.untouched, case.chosen)
        rows.append(
            [
                case.name,
                best(case.everyone, lambda peer: peer.least).name,
                *(f"{case.batch_ratio(one):,.1f}" for one in ours),
                f"{case.expected:,.0f}" if case.expected else "",
                best(case.everyone, lambda peer: peer.single.least).name,
                *(f"{case.single_ratio(one):,.1f}" for one in ours),
                f"{SINGLE:,.0f}",
                f"{case.threads_ratio(case.engine):,.1f}",
            ]
        )
    three = ["Engine, edited", "untouched", "structure alone", "expected"]
    headings = ["workload", "best peer, batches", *three, "best peer, single", *three]
    headings.append(f"{THREADS} threads, edited")
    return Table("How many times as long the best peer takes", headings, rows)


def _growth(named: dict[str, Case]) -> Table:
    rows = []
    for small, large in (("W2-100k", "W2-1M"), ("W2h-100k", "W2h-1M"), ("W6-100k", "W6-1M")):
        before = {(one.kind, one.name): one for one in named[small].everyone}
        for one in named[large].everyone:
            if (one.kind, one.name) in before:
                times = one.batch.least / before[one.kind, one.name].batch.least
                most = f"{GROWTH:.0f}" if one.kind == "engine" and small != "W6-100k" else ""
                matches = named[large].matches / named[small].matches
                rows.append([f"{large}: {one.name}", f"{times:.1f}", most, f"{matches:.1f}"])
    headings = ["workload", "times the time", "at most", "times the matches"]
    return Table("Ten times the set", headings, rows)


def _choice(everything: list[Case]) -> Table:
    rows = []
    for case in everything:
        chosen = case.chosen
        fastest = min(case.structures, key=lambda one: one.batch.least)
        slower = chosen.batch.least / fastest.batch.least
        per_row = chosen.memory / case.n
        engine = case.engine.memory / case.n
        rows.append(
            [
                case.name,
                chosen.name,
                fastest.name,
                f"{slower:.2f}",
                f"{per_row:,.0f}",
                f"{per_row / case.dimensions:,.1f}",
                f"{engine:,.0f}",
            ]
        )
    headings = ["workload", "auto took", "fastest", "times slower (at most 1.5)"]
    headings += ["bytes a subscription", "and attribute", "live set's bytes"]
    return Table("What auto took", headings, rows)


def _replaced(named: dict[str, Case]) -> Table:
    rows = []
    for name, case in (("W5", named["W2-100k"]), ("W5h", named["W2h-100k"])):
        boxes, space, points = case.made()
        other, _, _ = case.made(seed=13)
        peers = sorted((o for o in case.everyone if o.kind == "peer"), key=lambda o: o.least)
        names = [peer.name for peer in peers[:3]]
        rows += match_live.replaced(name, boxes, other, space, points, names)
    headings = ["workload", "matching us/event", "editing us/event", "x best peer"]
    return Table("W2 with 1% replaced between batches (editing: rebuilds too)", headings, rows)


def _updates(case: Case) -> list[Table]:
    boxes, space, points = case.made()
    fresh, _, _ = case.made(seed=13)
    return list(match_live.updates(boxes, fresh, space, points))


def _possible(case: Case) -> Table:
    """Say how near W1, which is mostly output, comes to what a core can write."""
    written = match_live.ids_written(int(case.matches * case.events))
    limit = max(written.values())
    figures = {f"a core: {how}": rate for how, rate in written.items()}
    for one in case.everyone:
        if one.kind != "peer":
            figures[f"{case.name}: {one.name}"] = case.matches / one.batch.least
    rows = [
        [what, f"{rate / 1e6:,.0f}", f"{rate / limit:.1%}"]
        for what, rate in sorted(figures.items(), key=lambda item: -item[1])
    ]
    headings = ["what", "million ids a second", "of the fastest"]
    return Table("What is physically possible", headings, rows)
