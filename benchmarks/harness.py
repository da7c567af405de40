"""A contest: everything that can answer events, on the same data, turn by turn.

Time is taken as `experiments.timing` does. The rounds alternate between contestants; the
least counts, and the spread is shown. Events come alone or in batches, and an answer is anything:
each contestant gets as many events as it can do in about `seconds`, all of them if it is fast. The
answers of the first round are compared with the oracle's: a contestant that disagrees is an error.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from benchmarks.frame import console
from benchmarks.peers import Peer, finite
from experiments.timing import Clock, DisagreementError, Seconds, timed
from rangecast.kernels.arrays import F64, AnyArray
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.report.markdown import Table
from rangecast.workloads import Workload, generate

Answer = TypeVar("Answer")
Made = TypeVar("Made")

THREADS = os.cpu_count() or 1
CLOCK_SECONDS = 0.02
"""The least that is timed: shorter work is repeated."""
PEER_SECONDS, OUR_SECONDS, OUR_BYTES = 15.0, 25.0, 4 << 30
"""Limits of building, estimated from a tenth of the boxes; what exceeds them is left out."""


def expected(value: float, *, least: float | None = None, most: float | None = None) -> str:
    """Return what was expected of a measured value, and whether it was missed."""
    if least is None and most is None:
        return ""
    missed = (least is not None and value < least) or (most is not None and value > most)
    return f"{least if most is None else most:,g}" + (" (missed)" if missed else "")


# ---- what answers events


@dataclass
class Contestant(Generic[Answer]):
    """One way to answer events, and what was measured of it."""

    name: str
    kind: str
    """peer, structure or engine."""
    answer: Callable[[F64], Answer]
    """Of all events at once."""
    ids: Callable[[Answer, Sequence[int]], list[AnyArray]]
    """(what `answer` gave, some events) -> the ids of each, to be compared with the oracle's."""
    answer_one: Callable[[F64], Any] | None = None
    """Of one event, if that isn't a batch of one."""
    ids_of_one: Callable[[Any], AnyArray] | None = None
    on_threads: Callable[[F64, int], object] | None = None
    work_of: Callable[[Answer], Any] | None = None
    """The counted work of an answer."""
    clock: Clock = time.process_time
    close: Callable[[], None] = lambda: None
    build: float = 0.0
    memory: int = 0
    work: Any = None
    events: int = 0
    batch: Seconds = field(default_factory=Seconds)
    single: Seconds = field(default_factory=Seconds)
    threads: Seconds = field(default_factory=Seconds)

    @property
    def least(self) -> float:
        """Seconds per event of a batch; a peer may be faster event by event, which counts then."""
        return min(self.batch.least, self.single.least if self.kind == "peer" else np.inf)

    def each(self, point: F64) -> Any:
        """Answer one event."""
        return self.answer_one(point) if self.answer_one else self.answer(point[None])

    def ids_of_each(self, found: Any) -> AnyArray:
        """Return what `each` gave as ids."""
        return self.ids_of_one(found) if self.ids_of_one else self.ids(found, [0])[0]


@dataclass
class Case:
    """A workload at one size, what is expected of it, and what came of it."""

    name: str
    about: str
    workload: str
    n: int
    expected: float | None = None
    """The ratio to the best peer: one thread, batches."""
    settings: dict[str, Any] = field(default_factory=dict)
    events: int = 10_000
    auto: str = ""
    """The structure that `auto` takes."""
    matches: float = 0.0
    """Per event."""
    everyone: list[Contestant[Any]] = field(default_factory=list)

    def made(self, seed: int = 11) -> Workload:
        """Return the data."""
        sizes = {"subscriptions": self.n, "events": self.events}
        return generate(self.workload, seed=seed, **sizes, **self.settings)

    def named(self, name: str) -> Contestant[Any]:
        """Return a contestant."""
        return next(one for one in self.everyone if one.name == name)

    def of(self, kind: str) -> list[Contestant[Any]]:
        """Return the contestants of a kind."""
        return [one for one in self.everyone if one.kind == kind]

    @property
    def best_peer(self) -> Contestant[Any]:
        """The fastest peer."""
        return min(self.of("peer"), key=lambda peer: peer.least)

    @property
    def best_single(self) -> Contestant[Any]:
        """The fastest peer that takes one event at a time."""
        return min(self.of("peer"), key=lambda peer: peer.single.least)

    def ratio(self, one: Contestant[Any]) -> float:
        """Return how many times as long the best peer takes: one thread, batches."""
        return self.best_peer.least / one.least

    def single_ratio(self, one: Contestant[Any]) -> float:
        """Return how many times as long the best peer takes for single events."""
        return self.best_single.single.least / one.single.least

    def threads_ratio(self, one: Contestant[Any]) -> float:
        """Return the same for batches on all threads; a peer that can't use them has one."""
        theirs = min(min(peer.threads.least, peer.least) for peer in self.of("peer"))
        return theirs / one.threads.least

    def table(self, about: str, work: Mapping[str, Callable[[Any], float]]) -> Table:
        """Return everything that was measured; `work` are counters by their headings."""
        threads = any(one.threads.runs for one in self.everyone)
        headings = ["", "build s", "bytes each", "events", "us", "spread", "x best peer"]
        headings += ["single us", "x best peer"]
        headings += [f"{THREADS} threads us", "x best peer"] if threads else []
        marks = {self.auto: " (auto)", self.best_single.name: " (best single)"}
        marks[self.best_peer.name] = " (best peer)"
        rows = []
        for one in self.everyone:
            row: list[object] = [one.name + marks.get(one.name, ""), one.build]
            row += [one.memory / self.n if one.memory else None, one.events]
            row += [one.batch.least * 1e6, one.batch.spread, self.ratio(one)]
            row += [one.single.least * 1e6, self.single_ratio(one)]
            if threads:
                some = one.threads.runs
                row += [one.threads.least * 1e6, self.threads_ratio(one)] if some else [None, None]
            row += [count(one.work) / one.events if one.work else None for count in work.values()]
            rows.append(row)
        title = f"{self.name}: {self.about}; {self.n:,} subscriptions, {about}"
        return Table(title, [*headings, *work], rows)


# ---- who takes part


def left_out(name: str, why: str) -> None:
    """Say that somebody doesn't take part."""
    console.print(f"{name}: left out, {why}", style="dim", markup=False)


def built(
    name: str, make: Callable[[Boxes], Made], boxes: Boxes, most: float, clock: Clock
) -> tuple[Made, float] | None:
    """Build something and time it; not if a tenth of the boxes says that it takes too much."""
    few, took = timed(lambda: make(boxes.take(np.arange(0, boxes.rows, 10))), clock)
    memory = 10 * getattr(few, "memory", 0)
    getattr(few, "close", lambda: None)()
    del few
    if 10 * took > most or memory > OUR_BYTES:
        left_out(name, f"it would take about {10 * took:.0f} s to build and {memory >> 20:,} MB")
        return None
    return timed(lambda: make(boxes), clock)


def taking_part(
    peers: Iterable[type[Peer]], boxes: Boxes, space: Space
) -> Iterable[tuple[Any, float]]:
    """Yield the peers that can take part here, built, and the seconds of that."""
    for peer in peers:
        if boxes.dimensions not in peer.dimensions:
            continue
        if why := peer.missing():
            left_out(peer.name, why)
            continue
        made = built(
            peer.name,
            lambda some, peer=peer: peer(*finite(some, space)),  # type: ignore[misc]
            boxes,
            PEER_SECONDS,
            time.perf_counter,
        )
        if made is not None:
            yield made


# ---- the contest


def contest(
    contestants: Iterable[Contestant[Any]],
    points: F64,
    oracle: Callable[[F64], list[AnyArray]],
    *,
    rounds: int,
    seconds: float,
) -> list[Contestant[Any]]:
    """Let everybody answer the same events; return what was measured."""
    places = np.linspace(0, len(points) - 1, 24).astype(int)[8:]
    places = np.union1d(places, np.arange(min(8, len(points))))
    truth = dict(zip(places.tolist(), oracle(points[places]), strict=True))
    everyone: list[Contestant[Any]] = []
    with ExitStack() as closing:
        for one in contestants:
            closing.callback(one.close)
            everyone.append(one)
        for one in everyone:
            one.events = _events_in(one, points, seconds)
        for turn in range(rounds):
            gc.collect(1)
            for one in everyone:
                some = points[: one.events]
                answer, took = _repeated(partial(one.answer, some), one.clock, seconds / 4)
                one.batch.runs.append(took / len(some))
                if turn == 0:
                    _check(one, answer, truth)
                del answer
        calls = [_calls_in(one, points, seconds / 4) for one in everyone]
        for _ in range(rounds):
            for one, count in zip(everyone, calls, strict=True):
                took = timed(partial(_each, one, points[:count]), one.clock)[1]
                one.single.runs.append(took / count)
        for one in everyone:
            for place in list(truth)[:4]:
                _compare(one, place, one.ids_of_each(one.each(points[place])), truth[place])
        _all_threads(everyone, points, rounds)
    return everyone


def _repeated(work: Callable[[], Answer], clock: Clock, seconds: float) -> tuple[Answer, float]:
    """Return an answer and its seconds, the mean of as many runs as a clock can tell apart."""
    calls, began = 0, clock()
    while calls == 0 or clock() - began < min(CLOCK_SECONDS, seconds):
        answer = work()
        calls += 1
    return answer, (clock() - began) / calls


def _check(one: Contestant[Any], answer: Any, truth: Mapping[int, AnyArray]) -> None:
    places = [place for place in truth if place < one.events]
    for place, found in zip(places, one.ids(answer, places), strict=True):
        _compare(one, place, found, truth[place])
    one.work = one.work_of(answer) if one.work_of else None


def _compare(one: Contestant[Any], place: int, found: AnyArray, right: AnyArray) -> None:
    if not np.array_equal(found, right):
        raise DisagreementError(
            f"{one.name} gives {len(found)} ids for event {place}, the oracle {len(right)}: "
            f"too many {sorted(set(found.tolist()) - set(right.tolist()))[:5]}, "
            f"missing {sorted(set(right.tolist()) - set(found.tolist()))[:5]}"
        )


def _events_in(one: Contestant[Any], points: F64, seconds: float) -> int:
    """Return how many events it can do in this time; what it does meanwhile warms it up."""
    events = min(8, len(points))
    one.answer(points[:events])
    while True:
        took = _least(partial(one.answer, points[:events]), one.clock, seconds / 3)
        if events == len(points) or took > seconds / 3:
            break
        events = min(len(points), int(events * min(16.0, max(2.0, seconds / 2 / max(took, 1e-9)))))
    return max(4, min(events, int(events * seconds / max(took, 1e-9))))


def _calls_in(one: Contestant[Any], points: F64, seconds: float) -> int:
    one.each(points[0])
    calls = min(4, len(points))
    while True:
        took = _least(partial(_each, one, points[:calls]), one.clock, seconds / 3)
        if calls == len(points) or took > seconds / 3:
            return calls
        calls = min(len(points), 2 * calls)


def _least(work: Callable[[], Any], clock: Clock, most: float) -> float:
    """Return the seconds of some work; of two runs if one took long: it may have compiled."""
    took = timed(work, clock)[1]
    return took if took < most else min(took, timed(work, clock)[1])


def _each(one: Contestant[Any], points: F64) -> None:
    for point in points:
        one.each(point)


def _all_threads(everyone: list[Contestant[Any]], points: F64, rounds: int) -> None:
    """Time all cores at once, by the wall: the live sets and the three best peers that can."""
    able = [one for one in everyone if one.on_threads is not None]
    peers = sorted((one for one in able if one.kind == "peer"), key=lambda one: one.batch.least)
    for _ in range(rounds):
        for one in [*peers[:3], *(one for one in able if one.kind != "peer")]:
            some = points[: max(one.events, min(len(points), 8 * THREADS))]
            took = timed(lambda: one.on_threads(some, THREADS), time.perf_counter)[1]  # type: ignore[misc] # noqa: B023
            one.threads.runs.append(took / len(some))
