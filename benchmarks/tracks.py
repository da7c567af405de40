"""Tracks beside a state table in PostgreSQL; the costs of rules, of one event, and of memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.frame import Report
from benchmarks.postgres import OnPostgres, server
from benchmarks.tracks_server import ABOUT as ABOUT_SERVER
from benchmarks.tracks_server import Size
from benchmarks.tracks_server import table as through_the_server
from experiments.timing import DisagreementError
from rangecast import Engine, Number, Rule, Space, Timestamp, Tracker
from rangecast.kernels.arrays import F64, I64
from rangecast.model.boxes import Boxes
from rangecast.report.markdown import Table
from rangecast.track.moments import moment_of

SPACE = Space([Number("x"), Number("y"), Timestamp("at")])
SIDE = 1000.0
START = 1_769_850_000_000_000
SECOND = 1_000_000
ABOUT = """
Square fences at random places of a plane, sized so that an object is inside of one, about; objects
move by a twentieth of a fence's side with each position. Positions come in batches. PostgreSQL
keeps a table of which object is inside of which fence: one statement per batch finds the fences of
its positions by a GiST index, compares, changes the table and returns what changed; it is set not
to write to the disk. It has the fences as boxes of its own, and as polygons of PostGIS. Esper and
Flink CEP are not measured. For rules, every object moves in every batch. Processor
time, as ratios or rates; what both report is compared.
"""


class _World(NamedTuple):
    """Fences, and batches of positions: objects, and where they are."""

    lo: F64
    hi: F64
    batches: list[tuple[I64, F64]]


def _world(fences: int, objects: int, size: int, batches: int) -> _World:
    rng = np.random.default_rng(1)
    half = SIDE / np.sqrt(fences) / 2
    centre = rng.uniform(0, SIDE, (fences, 2))
    places = rng.uniform(0, SIDE, (objects, 2))
    found = []
    for _ in range(batches):
        moved = rng.choice(objects, min(size, objects), replace=False)
        places[moved] += rng.normal(0, half / 10, (len(moved), 2))
        found.append((np.sort(moved), places[np.sort(moved)].copy()))
    return _World(centre - half, centre + half, found)


def _engine(world: _World) -> Engine:
    engine = Engine(SPACE)
    free = np.full((len(world.lo), 1), np.inf)
    engine.subscribe_many(
        Boxes.of(np.hstack([world.lo, -free]), np.hstack([world.hi, free]), space=SPACE)
    )
    engine.wait_for_rebuild()
    return engine


def _given(world: _World) -> list[tuple[pa.Array, F64, pa.Array]]:
    """Return batches as a tracker takes them, a second apart."""
    given = []
    for number, (keys, places) in enumerate(world.batches):
        at = np.full((len(keys), 1), float(START + number * SECOND))
        given.append((pa.array(keys), np.hstack([places, at]), pa.nulls(len(keys), pa.int64())))
    return given


def _seconds(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    began = clock()
    work()
    return clock() - began


class _StateTable(OnPostgres):
    """Table of the objects inside each fence."""

    def __init__(self, world: _World, *, by_postgis: bool):
        super().__init__(world.lo, world.hi)
        corners = "lo0, lo1, hi0, hi1"
        area = "box(point(lo0, lo1), point(hi0, hi1))"
        self._covers = "area @> box(point(x, y), point(x, y))"
        if by_postgis:
            self.session.run("create extension if not exists postgis")
            area, self._covers = f"ST_MakeEnvelope({corners})", "ST_Covers(area, ST_Point(x, y))"
        self.session.run(
            "drop table if exists read, fences, inside, batch",
            f"create unlogged table read (id int, {self.columns})",
            f"copy read from '{self.file}' (format binary)",
            f"create unlogged table fences as select id, {area} area from read",
            "create index on fences using gist (area)",
            "create unlogged table inside (key int, fence int, primary key (key, fence))",
            "create unlogged table batch (key int, x float8, y float8)",
            "vacuum analyze fences",
        )

    def take(self, keys: I64, places: F64) -> set[tuple[str, int, int]]:
        """Return what a batch of positions changes."""
        self._write(places, keys)
        lines = self.session.run(
            "truncate batch",
            f"copy batch from '{self.file}' (format binary)",
            f"""
            with now as materialized (select key, id as fence from batch join fences
                on {self._covers}),
            was as materialized (select key, fence from inside join batch using (key)),
            gone as (delete from inside i using (select * from was except select * from now) d
                where (i.key, i.fence) = (d.key, d.fence) returning i.key, i.fence),
            came as (insert into inside select * from now except select * from was
                returning key, fence)
            select 'exit', key, fence from gone union all select 'enter', key, fence from came
            """.replace("\n", " "),
        )
        rows = (line.split("|") for line in lines)
        return {(kind, int(key), int(fence)) for kind, key, fence in rows}


def _beside(fences: int, objects: int, size: int) -> list[Any]:
    world = _world(fences, objects, size, 4)
    tracker = Tracker(_engine(world), key="key", time="at")
    found, ours = [], []
    for batch in _given(world):
        began = time.process_time()
        rows = tracker.update_points(*batch).rows()
        found.append({(kind, int(key), int(fence)) for key, fence, kind, *_ in rows})
        ours.append(time.process_time() - began)
    ratios = []
    for by_postgis in (False, True):
        table, theirs = _StateTable(world, by_postgis=by_postgis), []
        for (keys, places), expected in zip(world.batches, found, strict=True):
            began = table.clock()
            changed = table.take(keys, places)
            theirs.append(table.clock() - began)
            if changed != expected:
                raise DisagreementError(f"{len(changed ^ expected)} transitions differ")
        ratios.append(float(np.median(theirs[1:])) / float(np.median(ours[1:])))
    events = sum(len(keys) for keys, _ in world.batches)
    rate = len(world.batches[0][0]) / float(np.median(ours[1:]))
    name = f"{fences:,} fences, {objects:,} objects"
    return [name, sum(map(len, found)) / events, round(rate), *ratios]


def _rules(fences: int, size: int) -> list[list[Any]]:
    """Return how long positions take with rules, beside those without."""
    world = _world(fences, size, size, 8)  # all objects move, so that there are paths
    given, engine = _given(world), _engine(world)
    length = timedelta(seconds=3)
    options: dict[str, dict[str, Any]] = {
        "without a rule": {},
        "lateness": {"lateness": length},
        "for": {"rule": Rule(for_=length)},
        "dwell, after": {"rule": Rule(dwell=length), "after": length},
        "margin": {"rule": Rule(margin={"x": 0.01, "y": 0.01})},
        "cross": {"rule": Rule(cross=length)},
    }
    rows, first = list[list[Any]](), 0.0
    for name, chosen in options.items():
        take = Tracker(engine, key="key", time="at", **chosen).update_points
        times = [_seconds(partial(take, *batch)) for batch in given]
        needed = float(np.median(times[2:])) / size
        first = first or needed
        rows.append([name, needed * 1e6, needed / first])
    matched = [_seconds(partial(engine.match_points, points)) for _, points, _ in given]
    needed = float(np.median(matched[2:])) / size
    rows.append(["matched, not tracked", needed * 1e6, needed / first])
    events = [
        {"key": int(key), "x": x, "y": y, "at": moment_of(START + number * SECOND)}
        for number, (keys, places) in enumerate(world.batches[:2])
        for key, (x, y) in zip(keys[:200].tolist(), places[:200].tolist(), strict=True)
    ]
    for name, lateness in (("one by one", None), ("one by one, lateness", length)):
        update = Tracker(engine, key="key", time="at", lateness=lateness).update
        for event in events[:20]:
            update(event)
        times = [_seconds(partial(update, event)) for event in events[20:]]
        needed = sum(times) / len(times)
        rows.append([name, needed * 1e6, needed / first])
    return rows


def _memory(objects: int) -> list[list[Any]]:
    engine = Engine(SPACE)
    engine.subscribe("all", "x >= 0")
    tracker = Tracker(engine, key="key", time="at", lateness="1 s")
    keys = pa.array([f"key{number:05}" for number in range(objects)])
    points = np.column_stack([np.ones(objects), np.ones(objects), np.full(objects, float(START))])
    tracker.update_points(keys, points, pa.nulls(objects, pa.int64()))
    tracker.advance(moment_of(START + 1))
    inside = tracker.memory / objects
    points[:, 0], points[:, 2] = -1, START + SECOND
    tracker.update_points(keys, points, pa.nulls(objects, pa.int64()))
    tracker.advance(moment_of(START + 10 * SECOND))
    return [
        ["bytes of an object inside of one subscription", inside],
        ["objects left, all of which are outside and silent", len(tracker)],
        ["bytes left of each", tracker.memory / objects],
    ]


def run(report: Report, *, quick: bool) -> None:
    """Show positions beside a state table, the costs of rules, and memory."""
    report.begin("Tracks", ABOUT)
    sizes = (
        [(300, 500, 200)] if quick else [(10_000, 100_000, 10_000), (100_000, 1_000_000, 20_000)]
    )
    missing = _StateTable.missing()
    headings = ["", "transitions per position", "positions per second", "boxes / ours"]
    headings += ["PostGIS / ours"]
    if missing is None:
        server()
        report.table(Table("Beside a state table", headings, [_beside(*size) for size in sizes]))
    else:
        report.text(f"PostgreSQL: {missing}.")
    headings = ["", "µs per position", "/ without a rule"]
    report.table(
        Table(f"Rules, with {sizes[0][0]:,} fences", headings, _rules(sizes[0][0], sizes[0][2]))
    )
    objects = 2_000 if quick else 100_000
    report.table(Table("Memory", ["", "measured"], _memory(objects)))
    report.text(ABOUT_SERVER)
    few, many = Size(300, 500), [Size(10_000, 100_000), Size(100_000, 1_000_000)]
    report.table(through_the_server([few] if quick else many, 0.1 if quick else 8))
