"""Live sets: replacing between batches, updates, matching during a rebuild, the first match."""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from benchmarks.harness import Case, expected
from benchmarks.peers import MatchPeer, finite
from experiments.timing import DisagreementError, best_of, race, timed
from rangecast.engine import Engine
from rangecast.kernels.arrays import F64, I64
from rangecast.match.choose import INDEXES
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space
from rangecast.report.markdown import Table
from rangecast.workloads import Workload

BATCH = 256
MANY_ROWS = 1_000
"""Rows of one call: half leave, half come."""
REBUILDS = 3
EDITED = 100
"""Subscriptions that leave a live set and come back before it is timed."""


def live_set(boxes: Boxes, space: Space, *, edited: int = EDITED) -> Engine:
    """Return a live set of these boxes from which some have left and come back.

    An edited set renumbers rows and looks for dead ones; an untouched one needn't.
    """
    engine = Engine(space)
    engine.subscribe_many(boxes)
    if edited:
        some = boxes.take(np.arange(0, boxes.rows, -(-boxes.rows // edited)))
        engine.unsubscribe_many(some.ids.to_pylist())
        engine.subscribe_many(some)
    return engine


def check(engine: Engine, truth: Boxes, points: F64, what: str) -> None:
    """Compare a live set with the oracle on the boxes that it should hold."""
    right, found = Scan(truth).match(points), engine.match_points(points)
    ids = truth.ids.to_numpy()
    for event in range(len(points)):
        if sorted(found[event]) != sorted(ids[right.of(event)].tolist()):
            raise DisagreementError(f"{what}: the live set is wrong for event {event}")


# ---- edited sets beside untouched ones

_SINGLES = 500


def edited(cases: list[Case], *, rounds: int) -> Table:
    """Return how many times as long as an untouched set some edited ones take."""
    rows: list[list[object]] = []
    for case in cases:
        made = case.made()
        points = made.points
        engines = {
            count: live_set(made.boxes, made.space, edited=count)
            for count in (0, EDITED, made.boxes.rows // 100)
        }
        batches = race(
            {count: partial(partial, one.match_points, points) for count, one in engines.items()},
            rounds=rounds,
            clock=time.thread_time,
        )
        singles = race(
            {
                count: partial(partial, _one_by_one_matched, one, points[:_SINGLES])
                for count, one in engines.items()
            },
            rounds=rounds,
            clock=time.thread_time,
        )
        for count, engine in list(engines.items())[1:]:
            check(engine, made.boxes, points[:8], "edited")
            together = batches[count].least / batches[0].least
            alone = singles[count].least / singles[0].least
            rows.append(
                [
                    f"{case.name}: {count:,} edits",
                    together,
                    expected(together, most=1.3),
                    alone,
                    expected(alone, most=1.5),
                ]
            )
    headings = ["workload", "batches", "at most", "single events", "at most"]
    return Table("Edited sets: times as long as untouched", headings, rows)


def _one_by_one_matched(engine: Engine, points: F64) -> None:
    for place in range(len(points)):
        engine.match_points(points[place : place + 1])


# ---- a set that is replaced bit by bit

Edits = list[tuple[I64, Boxes]]


def replaced(made: Workload, other: Boxes, peers: list[type[MatchPeer]]) -> list[list[object]]:
    """Replace 1% of the set between batches; return a row for the live set and each peer."""
    rng = np.random.default_rng(5)
    edits: Edits = []
    for turn in range(10):
        rows = rng.choice(made.boxes.rows, made.boxes.rows // 100, replace=False)
        edits.append((rows, other.take((rows + turn) % other.rows)))
    figures = {peer.name: _replaced_peer(peer, made, edits[:3]) for peer in peers}
    least = min(map(sum, figures.values()))
    figures["Engine"] = _replaced_live(made, edits)
    return [[who, m * 1e6, e * 1e6, least / (m + e)] for who, (m, e) in figures.items()]


def _replaced_live(made: Workload, edits: Edits) -> tuple[float, float]:
    """Return seconds per event of matching, and of everything else, rebuilds included."""
    boxes, points = made.boxes, made.points
    engine = live_set(boxes, made.space)
    engine.match_points(points)
    lo, hi = boxes.lo.copy(), boxes.hi.copy()
    began, matching = time.process_time(), 0.0
    for rows, new in edits:
        engine.unsubscribe_many(rows.tolist())
        engine.subscribe_many(Boxes.of(new.lo, new.hi, ids=pa.array(rows)))
        matching += timed(lambda: engine.match_points(points), time.thread_time)[1]
    engine.wait_for_rebuild()
    every = time.process_time() - began
    for rows, new in edits:
        lo[rows], hi[rows] = new.lo, new.hi
    check(engine, Boxes.of(lo, hi, ids=boxes.ids), points[:8], "replaced")
    events = len(edits) * len(points)
    return matching / events, (every - matching) / events


def _replaced_peer(kind: type[MatchPeer], made: Workload, edits: Edits) -> tuple[float, float]:
    peer, points = kind(*finite(made.boxes, made.space)), made.points
    took = timed(lambda: peer.match(points[:20]), peer.clock)[1]
    some = points[: 20 * max(1, int(0.3 / took))]
    matching = editing = 0.0
    for rows, new in edits:
        bounds = finite(new, made.space)
        editing += timed(lambda: peer.replace(rows, *bounds), peer.clock)[1]  # noqa: B023
        matching += timed(lambda: peer.match(some), peer.clock)[1]
    peer.close()
    return matching / len(edits) / len(some), editing / len(edits) / len(points)


# ---- updates


class _Updates:
    """Prepared calls: the oldest leave, new ones come; knows what must be left."""

    def __init__(self, boxes: Boxes, fresh: Boxes, calls: int):
        half = MANY_ROWS // 2
        self.rows = np.arange(calls * half) % fresh.rows
        self.boxes, self.fresh, self.half, self.done = boxes, fresh, half, 0
        self.pieces = [
            Boxes.of(
                fresh.lo[self.rows[start : start + half]],
                fresh.hi[self.rows[start : start + half]],
                ids=pa.array(np.arange(boxes.rows + start, boxes.rows + start + half)),
            )
            for start in range(0, calls * half, half)
        ]

    def one(self, engine: Engine) -> None:
        """Do the next call of each kind; `MANY_ROWS` updates."""
        start = self.done * self.half
        engine.unsubscribe_many(range(start, start + self.half))
        engine.subscribe_many(self.pieces[self.done])
        self.done += 1

    def truth(self) -> Boxes:
        """Return what the live set must hold."""
        count = self.done * self.half
        rows = self.rows[:count]
        lo = np.concatenate([self.boxes.lo, self.fresh.lo[rows]])[count:]
        hi = np.concatenate([self.boxes.hi, self.fresh.hi[rows]])[count:]
        return Boxes.of(lo, hi, ids=pa.array(np.arange(count, count + len(lo))))


def updates(
    boxes: Boxes, fresh: Boxes, space: Space, points: F64, seconds: float
) -> Iterator[Table]:
    """Yield tables of updates a second and of matching during a rebuild, `seconds` per state."""
    engine = Engine(space)
    engine.subscribe_many(boxes)
    prepared = _Updates(boxes, fresh, 8 * max(1, boxes.rows // MANY_ROWS))
    many = _many(engine, prepared)
    check(engine, prepared.truth(), points[:4], "updates by many")
    latencies = _latencies(engine, prepared, points, seconds)
    check(engine, prepared.truth(), points[:4], "updates beside matching")
    single = _one_by_one(engine, fresh, space)
    rows = [
        ["subscribe_many, unsubscribe_many", *many, expected(many[2], least=100_000)],
        ["subscribe, unsubscribe", *single, expected(single[2], least=20_000)],
    ]
    headings = ["calls", "updates", "rebuilds inside", "a second of the wall"]
    headings += ["of the writing thread", "expected"]
    yield Table(f"Updates on a set of {boxes.rows:,}", headings, rows)
    yield latencies


def _many(engine: Engine, prepared: _Updates) -> tuple[int, int, float, float]:
    began, busy = time.perf_counter(), time.thread_time()
    first = engine.rebuild_count
    while engine.rebuild_count < first + REBUILDS and prepared.done < len(prepared.pieces) * 3 // 4:
        prepared.one(engine)
    took, busy = time.perf_counter() - began, time.thread_time() - busy
    count = prepared.done * MANY_ROWS
    rebuilds = engine.rebuild_count - first
    engine.wait_for_rebuild()
    return count, rebuilds, count / took, count / busy


def _one_by_one(engine: Engine, fresh: Boxes, space: Space) -> tuple[int, int, float, float]:
    count = min(5_000, fresh.rows)
    filters = [Filter.from_boxes(space, fresh.lo[row], fresh.hi[row]) for row in range(count)]
    first = engine.rebuild_count
    start = 10 * fresh.rows + 10**9
    began, busy = time.perf_counter(), time.thread_time()
    for place, one in enumerate(filters):
        engine.subscribe(start + place, one)
    for place in range(count):
        engine.unsubscribe(start + place)
    took, busy = time.perf_counter() - began, time.thread_time() - busy
    rebuilds = engine.rebuild_count - first
    engine.wait_for_rebuild()
    count *= 2
    return count, rebuilds, count / took, count / busy


def _latencies(engine: Engine, prepared: _Updates, points: F64, seconds: float) -> Table:
    """Time batches by the wall: on a set just rebuilt, on a loose one, and during a rebuild."""
    batches = [points[i : i + BATCH] for i in range(0, len(points) - BATCH + 1, BATCH)]
    batches = batches or [points]
    turn = itertools.cycle(batches)

    def timings(until: Callable[[], bool]) -> Iterator[float]:
        while not until():
            batch = next(turn)
            began = time.perf_counter()
            engine.match_points(batch)
            yield time.perf_counter() - began

    def over() -> Callable[[], bool]:
        end = time.perf_counter() + seconds
        return lambda: time.perf_counter() > end

    fresh: list[float] = []
    loose: list[float] = []
    during: list[float] = []
    for _ in range(REBUILDS):
        engine.wait_for_rebuild()
        fresh += timings(over())
        for _ in range(len(engine) // 5 // MANY_ROWS):
            prepared.one(engine)
        if not _rebuilding():
            loose += timings(over())
        while not _rebuilding() and prepared.done < len(prepared.pieces):
            prepared.one(engine)
        during += timings(lambda: not _rebuilding())
    engine.wait_for_rebuild()
    usual = _p99(fresh)
    rows = []
    for what, some, most in (
        ("just rebuilt", fresh, None),
        ("a fifth of the set new or gone", loose, None),
        ("during a rebuild", during, 3.0),
    ):
        times = _p99(some) / usual
        rows.append([what, len(some), _p99(some) * 1e3, times, expected(times, most=most)])
    headings = ["state", "batches", "p99, ms", "times that of the first", "at most"]
    return Table(f"Batches of {BATCH} events, by the wall", headings, rows)


def _rebuilding() -> bool:
    return any(thread.name == "rangecast-rebuild" for thread in threading.enumerate())


def _p99(seconds: list[float]) -> float:
    return float(np.quantile(seconds, 0.99)) if seconds else float("nan")


# ---- the first match of a process

_FIRST = """
import sys
import numpy as np
from rangecast import Engine, Number, Space
from rangecast.model.boxes import Boxes
space = Space(Number(f"a{j}", min=0, max=1) for j in range(4))
lo = np.random.default_rng(1).random((5000, 4)) * 0.8
engine = Engine(space, index=sys.argv[1])
engine.subscribe_many(Boxes.of(lo, lo + 0.2))
engine.match({f"a{j}": 0.5 for j in range(4)})
engine.match_points(np.full((4, 4), 0.5))
"""


def first_match(*, quick: bool) -> Table:
    """Return seconds from the start of a process to its first match, python itself included."""

    def run(index: str, folder: str | None = None) -> tuple[float, float]:
        settings = os.environ | ({"XDG_CACHE_HOME": folder} if folder else {})
        used = _children()
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", _FIRST, index], check=True, env=settings)
        return time.perf_counter() - began, _children() - used

    rows = []
    for index in ("auto",) if quick else ("auto", *INDEXES):
        run(index)
        warm = [run(index) for _ in range(1 if quick else 3)]
        wall, core = (min(figures) for figures in zip(*warm, strict=True))
        rows.append([index, wall, expected(wall, most=1.5), core, None])
    if not quick:
        with tempfile.TemporaryDirectory() as folder:
            rows[0][-1] = run("auto", folder)[0]
    headings = ["index", "warm kernel cache", "at most", "of a core", "cold"]
    return Table("Seconds from the start of a process to its first match", headings, rows)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# ---- what is physically possible


def ids_written(ids: int) -> dict[str, float]:
    """Return how many int32 ids a core writes a second, by the way that they are written."""
    source = np.arange(1 << 14, dtype=np.int32)
    target = np.zeros(max(ids, len(source)) // len(source) * len(source), np.int32)
    rows = target.reshape(-1, len(source))

    def seconds(work: Callable[[], object]) -> float:
        return best_of(work, 5).least

    return {
        "copied from cache into memory used before": target.size
        / seconds(lambda: np.copyto(rows, source)),
        "copied from memory into memory used before": target.size
        // 2
        / seconds(lambda: np.copyto(target[: target.size // 2], target[-(target.size // 2) :])),
        "copied from cache into new memory": target.size
        / seconds(lambda: np.copyto(np.empty_like(rows), source)),
    }
