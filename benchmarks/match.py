"""Matching, side by side with the peers: static and live sets, batches and single events, updates.

What is run is in `cases`. Peers get the domain's bounds where a subscription mentions nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import match_live
from benchmarks.frame import Report
from benchmarks.harness import (
    OUR_BYTES,
    OUR_SECONDS,
    PEER_SECONDS,
    THREADS,
    Case,
    Contestant,
    built,
    contest,
    expected,
    taking_part,
)
from benchmarks.match_peers import PEERS, Duckdb
from experiments.timing import timed
from rangecast.engine import Engine
from rangecast.kernels.arrays import F64, AnyArray
from rangecast.match.choose import INDEXES, choose
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.report.markdown import Table
from rangecast.report.plots import figure

SINGLE = 8.0
"""Expected of single-event calls, as a ratio to the best peer."""
GROWTH = 6.0
"""At most this many times the time for ten times the set."""
UNTOUCHED, EDITED = "Engine, untouched", "Engine, edited"

ABOUT = f"""
Ratios are how many times as long the best peer takes as the row does, on the same data in the
same run: above 1 is faster than every peer. Peers are called through their bulk interface, or
event by event where that is faster. Seconds are of a core, the least of several alternating
runs; those of all threads are of the wall. *Spread* is the slowest run over the fastest.
*Visited* and *tested* count work per event and are the same on every machine.

Slow rows were timed on fewer events, some on as few as 4. Of each row the ids of up to 24 events
in a batch and of 4 single ones were compared with the oracle's. What would take longer to build
than {PEER_SECONDS:.0f} s (a peer) or {OUR_SECONDS:.0f} s (ours), judged by a tenth of the set, was
left out and has no row, as has one of ours that would need {OUR_BYTES >> 30} GB: the best peer is
the best of those that have one.
"""


def cases(*, quick: bool) -> list[Case]:
    """Return what is to be run."""
    small, large = (1_000, 4_000) if quick else (100_000, 1_000_000)
    few, many = (1_000, 4_000) if quick else (32_000, 256_000)
    half, crowded = "half of the attributes unmentioned", "crowded-rectangles"
    two = {"mentioned": 2}
    made = [
        Case("W1-32k", "90-10 on 300 x 200", crowded, few),
        Case("W1-256k", "the same, eight times the set", crowded, many, 30, events=2_000),
        Case("W2-100k", "4-d, 100 matches per event", "selective", small, 50),
        Case("W2-1M", "the same, ten times the set", "selective", large, 20),
        Case("W2h-100k", f"W2, {half}", "selective", small, 50, two),
        Case("W2h-1M", f"W2, {half}, ten times the set", "selective", large, 20, two),
        Case("W3-100k", "8-d, both ends of every interval uniform", "wide", small, 70),
        Case("W3h-100k", f"W3, {half}", "wide", small, 70, {"mentioned": 4}),
        Case("W6-100k", "20-d, 4 mentioned, 10-30% of the domain wide", "sparse", small, 150),
        Case("W6-1M", "the same, ten times the set", "sparse", large, 220),
    ]
    for case in made:
        case.events = 200 if quick else case.events
    return made


# ---- who takes part


def contestants(boxes: Boxes, space: Space) -> Iterator[Contestant[Any]]:
    """Yield peers, structures and live sets, built; say who is left out and why."""
    for kind in INDEXES.values():  # so that no build is timed with the compiler's work in it
        kind(boxes.take(np.arange(min(200, boxes.rows))))
    for made, seconds in taking_part(PEERS, boxes, space):
        yield Contestant(
            made.name,
            "peer",
            made.match,
            partial(_ids_of_pairs, made),
            made.match_one,
            lambda found, made=made: np.sort(made.rows(found)),  # type: ignore[misc]
            made.match_threads if made.splits or isinstance(made, Duckdb) else None,
            clock=made.clock,
            close=made.close,
            build=seconds,
        )
    for name, kind in INDEXES.items():
        found = built(name, kind, boxes, OUR_SECONDS, time.process_time)
        if found is not None:
            index, seconds = found
            yield Contestant(
                name,
                "structure",
                index.match,
                lambda found, places: [np.sort(found.of(place)) for place in places],
                index.match_one,
                np.sort,
                work_of=lambda found: found.work,
                build=seconds,
                memory=index.memory,
            )
    for name, edited in ((UNTOUCHED, 0), (EDITED, match_live.EDITED)):
        engine, seconds = timed(partial(match_live.live_set, boxes, space, edited=edited))
        yield Contestant(
            name,
            "engine",
            engine.match_points,
            lambda found, places: [np.array(sorted(found[place])) for place in places],
            on_threads=partial(_on_threads, engine),
            work_of=lambda found: found.matches.work,
            build=seconds,
            memory=engine.memory,
        )


def _ids_of_pairs(peer: Any, found: Any, places: Sequence[int]) -> list[AnyArray]:
    events, rows = peer.pairs(found)
    return [np.sort(rows[events == place]) for place in places]


def _on_threads(engine: Engine, points: F64, threads: int) -> object:
    return engine.match_points(points, threads=threads)


def oracle(boxes: Boxes, points: F64) -> list[AnyArray]:
    """Return the sorted ids of each event."""
    found = Scan(boxes).match(points)
    return [np.sort(found.of(place)) for place in range(len(points))]


# ---- the run


def run(report: Report, *, quick: bool) -> None:
    """Run all cases, then what becomes of some of them when the set changes."""
    packages = ("shapely", "geoindex-rs", "rtree", "duckdb", "polars")
    report.begin("Matching beside the peers", ABOUT, *packages)
    picture = report.picture("match.png", "Ratios to the best peer")
    top = len(report.blocks)
    everything = cases(quick=quick)
    for case in everything:
        made = case.made()
        case.auto = choose(made.boxes).name
        case.everyone = contest(
            contestants(made.boxes, made.space),
            made.points,
            partial(oracle, made.boxes),
            rounds=2 if quick else 3,
            seconds=0.005 if quick else 0.4,
        )
        case.matches = len(case.named(case.auto).answer(made.points).rows) / case.events
        work = {"visited": lambda work: work.visited, "tested": lambda work: work.tested}
        report.table(case.table(f"{case.matches:,.0f} matches per event", work))
    report.table(_expectations(everything), at=top)
    report.table(_growth(everything))
    report.table(_choice(everything))
    named = {case.name: case for case in everything}
    some = [named[name] for name in ("W1-32k", "W1-256k", "W2-100k", "W6-100k")]
    report.table(match_live.edited(some, rounds=2 if quick else 9))
    report.table(_replaced([named["W2-100k"], named["W2h-100k"]]))
    large = named["W2h-1M"]
    made, fresh = large.made(), large.made(seed=13)
    seconds = 0.05 if quick else 1.0
    for table in match_live.updates(made.boxes, fresh.boxes, made.space, made.points, seconds):
        report.table(table)
    report.table(match_live.first_match(quick=quick))
    report.table(_possible(named["W1-256k"]))
    _draw(picture, everything)


def _expectations(everything: list[Case]) -> Table:
    rows = []
    for case in everything:
        ours = [case.named(name) for name in (EDITED, UNTOUCHED, case.auto)]
        ratios, singles = map(case.ratio, ours), map(case.single_ratio, ours)
        rows.append(
            [
                case.name,
                case.best_peer.name,
                *ratios,
                expected(case.ratio(ours[0]), least=case.expected),
                case.best_single.name,
                *singles,
                expected(case.single_ratio(ours[0]), least=SINGLE),
                case.threads_ratio(ours[0]),
            ]
        )
    three = ["Engine, edited", "untouched", "structure alone", "expected"]
    headings = ["workload", "best peer, batches", *three, "best peer, single", *three]
    headings.append(f"{THREADS} threads, edited")
    return Table("How many times as long the best peer takes", headings, rows)


def _growth(everything: list[Case]) -> Table:
    named = {case.name: case for case in everything}
    rows = []
    for small, large in (("W2-100k", "W2-1M"), ("W2h-100k", "W2h-1M"), ("W6-100k", "W6-1M")):
        before = {one.name: one for one in named[small].everyone}
        for one in named[large].everyone:
            if one.name in before:
                times = one.batch.least / before[one.name].batch.least
                most = GROWTH if one.kind == "engine" and small != "W6-100k" else None
                more = named[large].matches / named[small].matches
                rows.append([f"{large}: {one.name}", times, expected(times, most=most), more])
    return Table("Ten times the set", ["", "times the time", "at most", "times the matches"], rows)


def _choice(everything: list[Case]) -> Table:
    rows = []
    for case in everything:
        auto, engine = case.named(case.auto), case.named(EDITED)
        fastest = min(case.of("structure"), key=lambda one: one.batch.least)
        slower = auto.batch.least / fastest.batch.least
        sizes = (auto.memory / case.n, engine.memory / case.n)
        rows.append(
            [case.name, auto.name, fastest.name, slower, expected(slower, most=1.5), *sizes]
        )
    headings = ["workload", "auto took", "fastest", "times slower", "at most"]
    headings += ["bytes per subscription", "of the live set"]
    return Table("What auto took", headings, rows)


def _replaced(some: list[Case]) -> Table:
    rows = []
    for case in some:
        made, other = case.made(), case.made(seed=13)
        peers = [peer.name for peer in sorted(case.of("peer"), key=lambda peer: peer.least)[:3]]
        kinds = [peer for peer in PEERS if peer.name in peers]
        for row in match_live.replaced(made, other.boxes, kinds):
            rows.append([f"{case.name}: {row[0]}", *row[1:]])
    headings = ["workload", "matching us", "editing us per event", "x best peer"]
    return Table("1% replaced between batches (editing: rebuilds too)", headings, rows)


def _possible(case: Case) -> Table:
    """Say how near W1, which is mostly output, comes to what a core can write."""
    written = match_live.ids_written(int(case.matches * case.events))
    figures = {f"a core: {how}": rate for how, rate in written.items()}
    for one in [*case.of("structure"), *case.of("engine")]:
        figures[f"{case.name}: {one.name}"] = case.matches / one.batch.least
    most = max(written.values())
    rows = [
        [what, rate / 1e6, f"{rate / most:.1%}"]
        for what, rate in sorted(figures.items(), key=lambda item: -item[1])
    ]
    headings = ["what", "million ids a second", "of the fastest"]
    return Table("What is physically possible", headings, rows)


def _draw(path: Path, everything: list[Case]) -> None:
    """Draw the ratios of every workload on a log scale, with what is expected."""
    places = np.arange(len(everything))
    with figure(path, columns=2, size=(7.0, 5.0)) as axes:
        for one, title, ratio in (
            (axes[0, 0], "Batches, one thread", Case.ratio),
            (axes[0, 1], "Single events", Case.single_ratio),
        ):
            edited = [ratio(case, case.named(EDITED)) for case in everything]
            one.bar(places, edited, 0.55, color="#1f6f8b", alpha=0.5, label="live set, edited")
            for name in (UNTOUCHED, *INDEXES):
                some = [case for case in everything if any(c.name == name for c in case.everyone)]
                at = [everything.index(case) for case in some]
                values = [ratio(case, case.named(name)) for case in some]
                one.plot(at, values, "D" if name == UNTOUCHED else "o", label=name)
            wanted = [case.expected if ratio is Case.ratio else SINGLE for case in everything]
            known = [place for place in places if wanted[place]]
            ends = [wanted[place] for place in known], [p - 0.4 for p in known]
            one.hlines(*ends, [p + 0.4 for p in known], colors="black", lw=2, label="expected")
            one.axhline(1, color="black", lw=1, ls="--", label="best peer")
            one.set(title=title, yscale="log", ylabel="times as fast as the best peer")
            one.set_xticks(places, [case.name for case in everything], rotation=40, ha="right")
        low, high = axes[0, 0].get_ylim()
        axes[0, 0].set_ylim(low, high * 8)  # room for the legend
        axes[0, 0].legend(fontsize=8, ncols=3, loc="upper left")
