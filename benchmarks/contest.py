"""A contest: everything that can match, on one set of boxes and the same events, turn by turn.

Seconds are those of a core (`clock`), not of the wall: other work on the machine disturbs them
less. Each contestant gets as many events as it can do in about `seconds`, all of them if it is
fast; the rounds alternate between contestants; the least counts, and the spread is shown. The
answers of the first round are compared with the oracle: a contestant that disagrees is an error.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.measure import console
from benchmarks.peers import (
    Duckdb,
    Geoindex,
    NumpyScan,
    Peer,
    Polars,
    Rtree,
    Shapely,
    Sqlite,
    finite,
)
from benchmarks.postgres import Postgres, Unavailable, server
from rangecast.engine import Engine
from rangecast.kernels.arrays import F64, AnyArray
from rangecast.match.choose import INDEXES, Index, build
from rangecast.match.result import MatchRows, Work
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space

PEERS: tuple[type[Peer], ...] = (
    NumpyScan,
    Shapely,
    Geoindex,
    Rtree,
    Sqlite,
    Duckdb,
    Polars,
    Postgres,
)
THREADS = os.cpu_count() or 1
PEER_BUILD_SECONDS, BUILD_SECONDS = 15.0, 25.0
"""What would take longer to build, judged by a tenth of the boxes, is left out."""
BUILD_BYTES = 4 << 30
EDITED = 100
"""Subscriptions that leave a live set and come back before it is timed."""


@dataclass
class Seconds:
    """Seconds an event, of several runs."""

    runs: list[float] = field(default_factory=list)

    @property
    def least(self) -> float:
        """The fastest run; infinite if there was none."""
        return min(self.runs, default=float("inf"))

    @property
    def spread(self) -> float:
        """How many times the fastest the slowest took."""
        return max(self.runs) / self.least if self.runs else 1.0


@dataclass
class Contestant:
    """One way to match, and what was measured of it."""

    name: str
    kind: str
    """peer, structure or engine."""
    match: Callable[[F64], Any]
    match_one: Callable[[F64], Any]
    ids: Callable[[Any, Sequence[int]], list[AnyArray]]
    """(what `match` gave, some events) -> the ids of each of these."""
    ids_of_one: Callable[[Any], AnyArray]
    match_threads: Callable[[F64, int], object] | None = None
    clock: Callable[[], float] = time.process_time
    close: Callable[[], None] = lambda: None
    build: float = 0.0
    memory: int = 0
    chosen: bool = False
    """Whether `auto` took this structure."""
    work: Work | None = None
    events: int = 0
    batch: Seconds = field(default_factory=Seconds)
    single: Seconds = field(default_factory=Seconds)
    threads: Seconds = field(default_factory=Seconds)

    @property
    def least(self) -> float:
        """Seconds an event of a batch; a peer may be faster event by event, which counts then."""
        if self.kind == "peer":
            return min(self.batch.least, self.single.least)
        return self.batch.least


class DisagreementError(AssertionError):
    """A contestant's ids aren't the oracle's."""


# ---- who takes part


def contestants(boxes: Boxes, space: Space) -> Iterator[Contestant]:
    """Yield peers, structures and a live set, built; say who is left out and why."""
    tenth = boxes.take(np.arange(0, boxes.rows, 10))
    for kind in INDEXES.values():  # so that no build is timed with the compiler's work in it
        kind(boxes.take(np.arange(min(200, boxes.rows))))
    for peer in PEERS:
        if boxes.dimensions in peer.dimensions:
            yield from _peer(peer, boxes, tenth, space)
    chosen, seconds = _timed(lambda: build(boxes))
    yield _structure(chosen, seconds, chosen=True)
    for name, kind in INDEXES.items():
        if name != chosen.name:
            yield from _other(name, kind, boxes, tenth)
    yield _engine("Engine, untouched", boxes, space, edited=0)
    yield _engine("Engine, edited", boxes, space, edited=EDITED)


def _timed(work: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> Any:
    began = clock()
    made = work()
    return made, clock() - began


def _left_out(name: str, why: str) -> None:
    console.print(f"{name}: left out, {why}", style="dim")


def missing(peer: type[Peer]) -> str | None:
    """Return why a peer can't take part here, `None` if it can."""
    if peer.package is not None and find_spec(peer.package) is None:
        return f"{peer.package} isn't installed"
    if peer is Postgres:
        try:
            server()
        except Unavailable as error:
            return str(error)
    return None


def _peer(peer: type[Peer], boxes: Boxes, tenth: Boxes, space: Space) -> Iterator[Contestant]:
    why = missing(peer)
    if why is not None:
        _left_out(peer.name, why)
        return
    few, seconds = _timed(lambda: peer(*finite(tenth, space)), time.perf_counter)
    few.close()
    if seconds * 10 > PEER_BUILD_SECONDS:
        _left_out(peer.name, f"it would take about {seconds * 10:.0f} s to build")
        return
    made, seconds = _timed(lambda: peer(*finite(boxes, space)), time.perf_counter)

    def ids(found: Any, places: Sequence[int]) -> list[AnyArray]:
        events, rows = made.pairs(found)
        return [rows[events == place] for place in places]

    more = made.match_threads if made.splits or peer is Duckdb else None
    yield Contestant(
        peer.name,
        "peer",
        made.match,
        made.match_one,
        ids,
        made.rows,
        more,
        made.clock,
        made.close,
        seconds,
    )


def _other(
    name: str, kind: Callable[[Boxes], Index], boxes: Boxes, tenth: Boxes
) -> Iterator[Contestant]:
    few, seconds = _timed(lambda: kind(tenth))
    size = few.memory * 10
    del few
    if seconds * 10 > BUILD_SECONDS or size > BUILD_BYTES:
        _left_out(name, f"about {seconds * 10:.0f} s to build and {size >> 20:,} MB")
        return
    made, seconds = _timed(lambda: kind(boxes))
    yield _structure(made, seconds)


def _structure(made: Index, seconds: float, *, chosen: bool = False) -> Contestant:
    return Contestant(
        made.name,
        "structure",
        made.match,
        made.match_one,
        lambda found, places: [found.of(place) for place in places],
        np.asarray,
        build=seconds,
        memory=made.memory,
        chosen=chosen,
    )


def live_set(boxes: Boxes, space: Space, *, edited: int = EDITED) -> Engine:
    """Return a live set of these boxes from which some have left and come back.

    An edited set renumbers rows and looks for dead ones; an untouched one needn't.
    """
    engine = Engine(space)
    engine.subscribe_many(boxes)
    if edited:
        some = boxes.take(np.arange(min(edited, boxes.rows)))
        engine.unsubscribe_many(some.ids.to_pylist())
        engine.subscribe_many(some)
    return engine


def _engine(name: str, boxes: Boxes, space: Space, *, edited: int) -> Contestant:
    engine, seconds = _timed(lambda: live_set(boxes, space, edited=edited))
    return Contestant(
        name,
        "engine",
        engine.match_points,
        lambda point: engine.match_points(point[None, :]),
        lambda found, places: [np.array(found[place], np.int64) for place in places],
        lambda found: np.array(found[0], np.int64),
        lambda points, threads: engine.match_points(points, threads=threads),
        build=seconds,
        memory=engine.memory,
    )


# ---- the contest


def contest(
    boxes: Boxes, space: Space, points: F64, *, rounds: int, seconds: float
) -> list[Contestant]:
    """Let everything that can match do so, and return what was measured."""
    places = np.unique(np.linspace(0, len(points) - 1, 24).astype(int)[8:])
    places = np.union1d(places, np.arange(min(8, len(points))))
    truth = dict(zip(places.tolist(), _truth(boxes, points[places]), strict=True))
    everyone: list[Contestant] = []
    with ExitStack() as closing:
        for one in contestants(boxes, space):
            closing.callback(one.close)
            everyone.append(one)
        _race(everyone, points, truth, rounds, seconds)
    return everyone


def _race(
    everyone: list[Contestant],
    points: F64,
    truth: dict[int, AnyArray],
    rounds: int,
    seconds: float,
) -> None:
    for one in everyone:
        one.events = _events_in(one, points, seconds)
    for turn in range(rounds):
        gc.collect()
        for one in everyone:
            answer = _batch(one, points)
            if turn == 0:
                _check(one, answer, truth)
            del answer
    calls = [_calls_in(one, points, seconds / 4) for one in everyone]
    for _ in range(rounds):
        for one, count in zip(everyone, calls, strict=True):
            _single(one, points, count)
    for one in everyone:
        for place in list(truth)[:4]:
            found = one.ids_of_one(one.match_one(points[place]))
            _compare(one, place, found, truth[place])
    _all_threads(everyone, points, rounds)


def _truth(boxes: Boxes, points: F64) -> list[AnyArray]:
    found = Scan(boxes).match(points)
    return [found.of(place) for place in range(len(points))]


def _check(one: Contestant, answer: Any, truth: dict[int, AnyArray]) -> None:
    places = [place for place in truth if place < one.events]
    for place, found in zip(places, one.ids(answer, places), strict=True):
        _compare(one, place, found, truth[place])
    if isinstance(answer, MatchRows):
        one.work = answer.work
    elif one.kind == "engine":
        one.work = answer.matches.work


def _compare(one: Contestant, place: int, found: AnyArray, right: AnyArray) -> None:
    if not np.array_equal(np.sort(found), np.sort(right)):
        raise DisagreementError(
            f"{one.name} gives {len(found)} ids for event {place}, the oracle {len(right)}: "
            f"too many {sorted(set(found.tolist()) - set(right.tolist()))[:5]}, "
            f"missing {sorted(set(right.tolist()) - set(found.tolist()))[:5]}"
        )


def _events_in(one: Contestant, points: F64, seconds: float) -> int:
    """Return how many events it can do in this time; what it does meanwhile warms it up."""
    events = min(8, len(points))
    one.match(points[:events])
    while True:
        took = _least(lambda count=events: one.match(points[:count]), one.clock, seconds / 3)
        if events == len(points) or took > seconds / 3:
            break
        events = min(len(points), int(events * min(16.0, max(2.0, seconds / 2 / max(took, 1e-9)))))
    return max(4, min(events, int(events * seconds / max(took, 1e-9))))


def _calls_in(one: Contestant, points: F64, seconds: float) -> int:
    one.match_one(points[0])
    calls = min(4, len(points))
    while True:
        took = _least(lambda count=calls: _each(one, points[:count]), one.clock, seconds / 3)
        if calls == len(points) or took > seconds / 3:
            return calls
        calls = min(len(points), 2 * calls)


def _least(work: Callable[[], Any], clock: Callable[[], float], most: float) -> float:
    """Return the seconds of some work; of two runs if one took long: it may have compiled."""
    _, took = _timed(work, clock)
    return took if took < most else min(took, _timed(work, clock)[1])


def _each(one: Contestant, points: F64) -> None:
    for point in points:
        one.match_one(point)


def _batch(one: Contestant, points: F64) -> Any:
    answer, took = _timed(lambda: one.match(points[: one.events]), one.clock)
    one.batch.runs.append(took / one.events)
    return answer


def _single(one: Contestant, points: F64, calls: int) -> None:
    _, took = _timed(lambda: _each(one, points[:calls]), one.clock)
    one.single.runs.append(took / calls)


def _all_threads(everyone: list[Contestant], points: F64, rounds: int) -> None:
    """Time all cores at once, by the wall: the live set and the three best peers that can."""
    able = [one for one in everyone if one.match_threads is not None and one.kind == "peer"]
    able = sorted(able, key=lambda one: one.batch.least)[:3]
    able += [one for one in everyone if one.kind == "engine"]
    for _ in range(rounds):
        for one in able:
            assert one.match_threads is not None
            some = points[: max(one.events, min(len(points), 8 * THREADS))]
            began = time.perf_counter()
            one.match_threads(some, THREADS)
            one.threads.runs.append((time.perf_counter() - began) / len(some))


def best(everyone: Sequence[Contestant], key: Callable[[Contestant], float]) -> Contestant:
    """Return the best peer by a key."""
    return min((one for one in everyone if one.kind == "peer"), key=key)
