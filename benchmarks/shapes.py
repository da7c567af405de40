"""Shapes beside shapely and tg: batches, single events, subscribing, memory, and growth."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from benchmarks.frame import Report
from benchmarks.harness import expected
from benchmarks.shapes_postgis import PostGIS
from benchmarks.started import Unavailable
from experiments.timing import DisagreementError
from rangecast import Engine, Number, Point, Space
from rangecast.kernels.arrays import F64
from rangecast.match.live import _match_boxes, match_live
from rangecast.model.shapes.verification.candidates import CandidateCounts
from rangecast.report.markdown import Table

SIDE = 1000.0
ROUNDS = 5
CANDIDATES = 2.0
"""Bounds of polygons that hold an event, about."""
ABOUT = f"""
Star-shaped polygons at random places of a square, sized so that about {CANDIDATES:g} of their
bounds hold an event. *shapely* is its best form for batches: a tree of the batch's points, which
prepared polygons ask (`covers`). One by one, shapely asks a tree of the polygons for the bounds
that hold the point, and prepared polygons whether they cover it. tg has no index: it answers by
`togo` with shapely's tree for candidates; *tests alone* is without finding these. Ours one by one
is `Engine.match` of a dict. PostGIS has a GiST index and `ST_Covers`; its points are in a table
already. Processor time, the least of {ROUNDS}, turn by turn, as ratios; answers are compared.
*Verified* are the candidates of an event that are compared with their shape, *edges* those of
polygons that an event is compared with.
"""


def stars(count: int, corners: int, seed: int = 1) -> F64:
    """Return the closed rings of random stars, (count, corners + 1, 2)."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(0, SIDE, (count, 1, 2))
    angle = (np.arange(corners) + 0.9 * rng.random((count, corners))) / corners * 2 * np.pi
    radius = np.sqrt(CANDIDATES / count) * SIDE / 1.9 * rng.uniform(0.5, 1.5, (count, 1))
    radius = radius * rng.uniform(0.7, 1.0, (count, corners))
    ring = centre + radius[..., None] * np.stack([np.cos(angle), np.sin(angle)], axis=2)
    return np.concatenate([ring, ring[:, :1]], axis=1)


def coasts(count: int, corners: int, seed: int = 1) -> F64:
    """Return closed rings as smooth as the outlines of maps are, (count, corners + 1, 2)."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(0, SIDE, (count, 1, 2))
    angle = np.arange(corners) / corners * 2 * np.pi
    radius = np.ones((count, corners))
    for wave in range(2, 30):
        radius += 0.3 / wave * np.sin(wave * angle + rng.uniform(0, 6, (count, 1)))
    radius *= np.sqrt(CANDIDATES / count) * SIDE / 2.2
    ring = centre + radius[..., None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.concatenate([ring, ring[:, :1]], axis=1)


def polygon_filters(rings: F64) -> list[str]:
    """Return the filters of rings, with all digits."""
    return [
        f"within(place, 'POLYGON (({', '.join(f'{x!r} {y!r}' for x, y in ring)}))')"
        for ring in rings.tolist()
    ]


def _least(works: Sequence[Callable[[], object]], rounds: int = ROUNDS) -> list[float]:
    """Return the least processor seconds of each, turn by turn."""
    took = [np.inf] * len(works)
    for _ in range(rounds):
        for place, work in enumerate(works):
            began = time.process_time()
            work()
            took[place] = min(took[place], time.process_time() - began)
    return took


def _engine(filters: list[str], space: Space | None = None) -> tuple[Engine, float]:
    """Return a set, and the processor seconds that subscribing took."""
    engine = Engine(space or Space([Point("place")]))
    began = time.process_time()
    engine.subscribe_many({"id": list(range(len(filters))), "filter": filters})
    engine.match_points(np.full((1, len(engine.space)), np.inf))
    return engine, time.process_time() - began


def _work(engine: Engine) -> CandidateCounts:
    """Return how many candidates were verified, and edges visited, so far."""
    verifier = engine._view.verifier
    assert verifier is not None
    return verifier.counts


class _Shapely:
    """Prepared polygons, and trees."""

    def __init__(self, rings: F64):
        import shapely

        self.module: Any = shapely
        self.polygons = shapely.polygons(rings)
        shapely.prepare(self.polygons)
        self.tree = shapely.STRtree(self.polygons)

    def batch(self, points: F64) -> Any:
        tree = self.module.STRtree(self.module.points(points))
        return tree.query(self.polygons, predicate="covers")

    def one(self, x: float, y: float) -> Any:
        return self.tree.query(self.module.Point(x, y), predicate="covered_by")


class _Tg:
    """Polygons of tg, which is asked about candidates that are known."""

    def __init__(self, rings: F64, given: F64, peer: _Shapely):
        self.module: Any = import_module("togo")
        candidates = peer.tree.query(peer.module.points(given))
        made: dict[int, Any] = {}
        for polygon in candidates[1].tolist():
            if polygon not in made:
                corners = [tuple(corner) for corner in rings[polygon].tolist()]
                made[polygon] = self.module.Poly(self.module.Ring(corners)).as_geometry()
        self.asked: list[tuple[float, float, list[Any]]] = [(x, y, []) for x, y in given.tolist()]
        for event, polygon in candidates.T.tolist():
            self.asked[event][2].append(made[polygon])

        self.peer, self.made = peer, made

    def tests(self) -> None:
        """Compare each point with the polygons whose bounds hold it, which are known."""
        for x, y, polygons in self.asked:
            point = self.module.Point(x, y).as_geometry()
            for polygon in polygons:
                polygon.covers(point)

    def all(self) -> None:
        """Answer each point: its candidates are those of shapely's tree."""
        shapely, tree, made = self.peer.module, self.peer.tree, self.made
        for x, y, _ in self.asked:
            point = self.module.Point(x, y).as_geometry()
            for polygon in tree.query(shapely.Point(x, y)).tolist():
                made[polygon].covers(point)


class _Measured(NamedTuple):
    """Polygons of one kind; ratios are times as fast as the other."""

    polygons: str
    matches: float
    verified: float
    edges: float
    batches: float
    """Times as fast as shapely."""
    postgis: float | None
    singles: float
    tg: float | None
    tg_tests: float | None
    subscribe: float
    """Seconds."""
    residual: float
    """Nanoseconds per candidate."""

    def row(self) -> list[Any]:
        """Return it as a row of the table, ratios only."""
        return ["" if value is None else value for value in self[:9]]


def _against_shapely(count: int, corners: int, events: int, postgis_events: int) -> _Measured:
    rings = stars(count, corners)
    filters = polygon_filters(rings)
    _engine(filters[: max(2000, count // 3)])  # compiles
    engine, build = _engine(filters)
    peer = _Shapely(rings)
    rng = np.random.default_rng(5)
    given = rng.uniform(0, SIDE, (events, 2))
    points = np.column_stack([given, np.full(events, np.inf)])
    polygon, point = peer.batch(given)
    found = engine.match_points(points)
    work = _work(engine)
    pairs = {(event, int(one)) for event in range(len(given)) for one in found[event]}
    if pairs != set(zip(point.tolist(), polygon.tolist(), strict=True)):
        raise DisagreementError("shapely covers other points")
    ours, theirs = _least([lambda: engine.match_points(points), lambda: peer.batch(given)])
    few = given[: min(events, 2000)].tolist()

    def alone() -> None:
        for x, y in few:
            engine.match({"x": x, "y": y})

    def alone_shapely() -> None:
        for x, y in few:
            peer.one(x, y)

    singles = [alone, alone_shapely]
    if find_spec("togo") is not None:
        tg = _Tg(rings, given[: len(few)], peer)
        singles += [tg.all, tg.tests]
    our_one, their_one, *others = _least(singles, 3)
    view = engine._view
    boxes, whole = _least([lambda: _match_boxes(view, points), lambda: match_live(view, points)])
    verified = len(_match_boxes(view, points).rows)
    postgis = _postgis(rings, given[:postgis_events], pairs)
    return _Measured(
        f"{count:,} of {corners:,} corners",
        len(pairs) / events,
        verified / events,
        work.edges / work.events,
        theirs / ours,
        None if postgis is None else postgis / (ours / events),
        their_one / our_one,
        others[0] / our_one if others else None,
        others[1] / our_one if others else None,
        build,
        (whole - boxes) / verified * 1e9,
    )


def _postgis(rings: F64, points: F64, pairs: set[tuple[int, int]]) -> float | None:
    """Return the processor seconds of PostGIS per event; `None`: it isn't installed."""
    texts = [f"POLYGON (({', '.join(f'{x!r} {y!r}' for x, y in ring)}))" for ring in rings.tolist()]
    try:
        peer = PostGIS(texts, points)
    except Unavailable:
        return None
    if peer.pairs() != {pair for pair in pairs if pair[0] < len(points)}:
        raise DisagreementError("PostGIS covers other points")
    took = peer.seconds(3) / len(points)
    peer.close()
    return took


def _kinds(count: int, events: int) -> list[list[Any]]:
    """Other shapes beside small polygons, in one run: times per candidate."""
    rng = np.random.default_rng(3)
    x, y = rng.uniform(0, SIDE, (2, count)).tolist()
    size = float(np.sqrt(CANDIDATES / count) * SIDE / 2)
    circles = [f"within(place, circle({a!r}, {b!r}, {size!r}))" for a, b in zip(x, y, strict=True)]
    corridors = [
        f"within(place, buffer('LINESTRING ({a!r} {b!r}, {a + size!r} {b + size!r}, "
        f"{a + 2 * size!r} {b!r})', {size / 4!r}))"
        for a, b in zip(x, y, strict=True)
    ]
    sets = {
        "polygons of 10 corners": polygon_filters(stars(count, 10)),
        "polygons of 20 corners": polygon_filters(stars(count, 20)),
        "polygons of 100 corners": polygon_filters(stars(count, 100)),
        "circles": circles,
        "corridors of two segments": corridors,
    }
    given = rng.uniform(0, SIDE, (events, 2))
    points = np.column_stack([given, np.full(events, np.inf)])
    rows: list[list[Any]] = []
    base = 0.0
    for name, filters in sets.items():
        engine, _ = _engine(filters)
        took = _least([partial(engine.match_points, points)])[0]
        base = base or took
        found = engine.match_points(points)
        rows.append([name, len(found.ids) / events, took / base])
    return rows


def _growth(events: int, *, quick: bool) -> list[list[Any]]:
    """Corners of polygons in sets of the same size: a large one has cells.

    Spiky stars have edges that are long, so that many meet a cell.
    """
    rows: list[list[Any]] = []
    given = np.random.default_rng(7).uniform(0, SIDE, (events, 2))
    points = np.column_stack([given, np.full(events, np.inf)])
    first: list[float] = []
    for corners in (20, 100, 1000, *(() if quick else (10_000,))):
        took, edges = [], []
        for rings in (coasts(100, corners), stars(100, corners)):
            engine, build = _engine(polygon_filters(rings))
            took += [_least([partial(engine.match_points, points)])[0], build / corners]
            work = _work(engine)
            edges.append(work.edges / work.events)
        first = first or took
        smooth, subscribe, spiky, _ = (new / old for new, old in zip(took, first, strict=True))
        rows.append([f"{corners:,}", smooth, edges[0], subscribe, spiky, edges[1]])
    return rows


def _without_shapes(count: int, events: int) -> list[list[Any]]:
    """Boxes in a space with a place that no subscription uses, beside the space without it."""
    rng = np.random.default_rng(9)
    low = rng.uniform(0, SIDE, (count, 3))
    high = low + rng.uniform(0, SIDE / 20, (count, 3))
    filters = [
        f"a between {lo[0]!r} and {hi[0]!r} and x between {lo[1]!r} and {hi[1]!r} "
        f"and y between {lo[2]!r} and {hi[2]!r}"
        for lo, hi in zip(low.tolist(), high.tolist(), strict=True)
    ]
    spaces = Space([Number("a"), Number("x"), Number("y")]), Space([Number("a"), Point("place")])
    plain, placed = (_engine(filters, space)[0] for space in spaces)
    points = rng.uniform(0, SIDE, (events, 3))
    with_place = np.column_stack([points, np.full(events, np.inf)])
    works = [lambda: plain.match_points(points), lambda: placed.match_points(with_place)]
    match = _least(works, 3 * ROUNDS)
    builds = _least([partial(_engine, filters, space) for space in spaces])
    return [
        ["match a batch", match[1] / match[0]],
        ["subscribe", builds[1] / builds[0]],
        ["memory", placed.memory / plain.memory],
    ]


def _aim(name: str, value: float, *, least: float | None = None, most: float | None = None) -> Any:
    aim = expected(value, least=least, most=most)
    return [name, value, f"{'at least' if most is None else 'at most'} {aim}"]


def run(report: Report, *, quick: bool) -> None:
    """Show batches and single events beside shapely, other shapes, growth, and sets without."""
    report.begin("Shapes", ABOUT, "shapely")
    count, events = (500, 500) if quick else (100_000, 40_000)
    asked = min(events, 4000)
    measured = [_against_shapely(count, 20, events, asked)]
    measured.append(_against_shapely(max(count // 10, 100), 100, events, asked))
    if not quick:
        measured.append(_against_shapely(100, 10_000, events, asked))
    headings = ["polygons", "matches", "verified", "edges", "batches, shapely / ours"]
    headings += ["batches, PostGIS / ours", "one by one, shapely / ours"]
    headings += ["one by one, tg / ours", "tg's tests alone / ours"]
    report.table(Table("Beside shapely", headings, [one.row() for one in measured]))
    kinds = _kinds(max(count // 10, 100), events)
    headings = ["shapes", "matches", "time / the first"]
    report.table(Table("Kinds of shapes", headings, kinds))
    growth = _growth(events, quick=quick)
    headings = ["corners", "time / 20 corners", "edges", "time to subscribe a corner / 20 corners"]
    headings += ["spiky stars: time / 20 corners", "edges"]
    report.table(Table("100 polygons by their corners", headings, growth))
    plain = _without_shapes(count, events)
    headings = ["", "space with a place that is not used / without"]
    report.table(Table("Sets without shapes", headings, plain))
    small = measured[0]
    aims = [
        _aim("batches: times shapely", small.batches, least=12),
        *([] if small.postgis is None else [_aim("times PostGIS", small.postgis, least=50)]),
        _aim("one by one: times shapely", small.singles, least=10),
        *([] if small.tg is None else [_aim("one by one: times tg", small.tg, least=1)]),
        _aim("10,000 corners: times 20 corners", growth[-1][1], most=2),
        _aim("seconds to subscribe 100,000", small.subscribe, most=2),
        _aim("nanoseconds to verify a candidate", small.residual, most=50),
        *[_aim(f"without shapes: {name}", ratio, most=1.02) for name, ratio in plain],
    ]
    headings = [f"aim, {small.polygons}", "measured", "expected"]
    report.table(Table("Aims", headings, aims))
