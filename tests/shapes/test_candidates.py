"""Verification of candidates: what is decided without branches is what rational numbers say."""

from __future__ import annotations

import math
import random

import pytest

from rangecast import Engine, FilterError, Location, Point, Space
from tests.shapes.oracle import Ring, polygon_holds, wkt


def _star(r: random.Random, corners: int, scale: float) -> Ring:
    """A ring whose coordinates have all their digits, with corners on one level here and there."""
    cx, cy = r.uniform(-scale, scale), r.uniform(-scale, scale)
    ring = []
    for corner in range(corners):
        angle = 2 * math.pi * (corner + 0.8 * r.random()) / corners
        size = scale * r.uniform(0.4, 1.0)
        ring.append((cx + size * math.cos(angle), cy + size * math.sin(angle)))
    return [*ring, ring[0]]


def _near_border(r: random.Random, ring: Ring, count: int) -> list[tuple[float, float]]:
    """Corners, points on edges as doubles have them, and their neighbours."""
    points = []
    for _ in range(count):
        at = r.randrange(len(ring) - 1)
        (x1, y1), (x2, y2) = ring[at], ring[at + 1]
        share = r.choice([0.0, 0.5, r.random()])
        x, y = x1 + share * (x2 - x1), y1 + share * (y2 - y1)
        for _ in range(r.randrange(3)):
            x = math.nextafter(x, r.choice([-math.inf, math.inf]))
            y = math.nextafter(y, r.choice([-math.inf, math.inf]))
        if r.random() < 0.2:  # on a level with a corner, anywhere
            x, y = r.uniform(min(x1, x2), max(x1, x2)), ring[r.randrange(len(ring))][1]
        points.append((x, y))
    return points


def _holders(rings: dict[int, Ring], x: float, y: float, border: str) -> list[int]:
    """The rings that hold a point; rational numbers decide within the bounds of each."""
    found = []
    for number, ring in rings.items():
        xs, ys = [corner[0] for corner in ring], [corner[1] for corner in ring]
        near = min(xs) <= x <= max(xs) and min(ys) <= y <= max(ys)
        if near and polygon_holds([ring], x, y, border):
            found.append(number)
    return found


@pytest.mark.parametrize("border", ["closed", "open", "once"])
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e12])
def test_points_a_hair_beside_the_border(border, scale):
    r = random.Random(f"{border} {scale}")
    sizes = [3, 4, 7, 8, 9, 20, 63]
    rings = {number: _star(r, r.choice(sizes), scale) for number in range(20)}
    engine = Engine(Space([Point("place", border=border)]))
    for number, ring in rings.items():
        engine.subscribe(number, f"within(place, '{wkt([ring])}')")
    points = [point for ring in rings.values() for point in _near_border(r, ring, 20)]
    found = engine.match_many([{"x": x, "y": y} for x, y in points])
    for event, (x, y) in enumerate(points):
        assert list(found[event]) == _holders(rings, x, y, border)


@pytest.mark.parametrize("border", ["closed", "open", "once"])
def test_levels_and_columns_of_a_grid(border):
    """Whole numbers: every point is on a level with corners, and most are on a border."""
    r = random.Random(5)
    steps = [(0, 0), (6, 0), (6, 2), (4, 2), (4, 4), (6, 4), (6, 6), (0, 6), (0, 4), (2, 3), (0, 2)]
    rings = {}
    for number in range(20):
        dx, dy, flip = r.randrange(8), r.randrange(8), r.random() < 0.5
        ring = [(float(dx + (y if flip else x)), float(dy + (x if flip else y))) for x, y in steps]
        rings[number] = [*ring, ring[0]]
    engine = Engine(Space([Point("place", border=border)]))
    for number, ring in rings.items():
        engine.subscribe(number, f"within(place, '{wkt([ring])}')")
    points = [(x / 2, y / 2) for x in range(30) for y in range(30)]
    found = engine.match_many([{"x": x, "y": y} for x, y in points])
    for event, (x, y) in enumerate(points):
        assert list(found[event]) == _holders(rings, x, y, border)


def test_boxes_that_cut_a_shape_and_words_of_several_literals():
    """Rows whose boxes differ in words, or are smaller than the cover of their shape."""
    r = random.Random(9)
    rings = [_star(r, 40, 1.0) for _ in range(15)]
    engine = Engine(Space([Point("place")]))
    wanted = {}
    for number, ring in enumerate(rings):
        other, cut = rings[r.randrange(len(rings))], r.uniform(-1, 1)
        shape, beside = (f"within(place, '{wkt([one])}')" for one in (ring, other))

        def inside(one: Ring, x: float, y: float) -> bool:
            return bool(_holders({0: one}, x, y, "closed"))

        form = number % 5
        text = (
            f"{shape} and x < {cut!r}",
            f"{shape} and not {beside}",
            f"{shape} or {beside}",
            f"{shape} or x < {cut!r}",
            f"not {shape} and (x < {cut!r} or y < {cut!r})",
        )[form]
        engine.subscribe(number, text)

        def test(x, y, ring=ring, other=other, cut=cut, form=form):
            first = inside(ring, x, y)
            return (
                first and x < cut,
                first and not inside(other, x, y),
                first or inside(other, x, y),
                first or x < cut,
                not first and (x < cut or y < cut),
            )[form]

        wanted[number] = test
    points = [(r.uniform(-2, 2), r.uniform(-2, 2)) for _ in range(150)]
    found = engine.match_many([{"x": x, "y": y} for x, y in points])
    for event, (x, y) in enumerate(points):
        expected = [number for number, test in wanted.items() if test(x, y)]
        assert list(found[event]) == expected
        assert engine.match({"x": x, "y": y}) == expected


def test_edits_between_answers():
    """Rows that come, go and are renumbered by a rebuild keep their shapes."""
    r = random.Random(2)
    engine = Engine(Space([Point("place")]))
    rings: dict[int, Ring] = {}
    point = [(r.uniform(-2, 2), r.uniform(-2, 2)) for _ in range(4)]
    for step in range(3000):
        if rings and r.random() < 0.3:
            gone = r.choice(list(rings))
            engine.unsubscribe(gone)
            del rings[gone]
        else:
            rings[step] = _star(r, 5, 1.0)
            engine.subscribe(step, f"within(place, '{wkt([rings[step]])}')")
        if step % 500 == 0:
            for x, y in point:
                expected = _holders(rings, x, y, "closed")
                assert engine.match({"x": x, "y": y}) == expected
                assert list(engine.match_many([{"x": x, "y": y}])[0]) == expected


@pytest.mark.parametrize("turn", [0, 33.25, 90, 137.5, 170, 179.75, -120.5])
def test_shapes_turned_by_any_longitude(turn):
    """The same shapes and places, turned: the same answers, over the antimeridian, too."""
    r = random.Random(4)
    lattice = 64  # turns of multiples of 1/4 degree are exact
    rings = []
    for _ in range(60):
        ring = _star(r, r.choice([4, 9, 20]), 4.0)
        rings.append(
            [(round(x * lattice) / lattice, round(y * lattice) / lattice) for x, y in ring]
        )
    places = [(r.randint(-512, 512) / lattice, r.randint(-512, 512) / lattice) for _ in range(800)]
    places += [corner for ring in rings for corner in ring[:3]]

    def turned(x: float) -> float:
        return (x + turn + 180.0) % 360.0 - 180.0

    space = Space([Location("at", longitude="x", latitude="y")])
    engine, plain = Engine(space), Engine(Space([Point("at")]))
    known = []
    for number, ring in enumerate(rings):
        try:
            plain.subscribe(number, f"within(at, '{wkt([ring])}')")
        except FilterError:  # rounding made edges cross
            continue
        known.append(number)
        engine.subscribe(number, f"within(at, '{wkt([[(turned(x), y) for x, y in ring]])}')")
    assert len(known) > 30
    expected = plain.match_many([{"x": x, "y": y} for x, y in places])
    found = engine.match_many([{"x": turned(x), "y": y} for x, y in places])
    for event in range(len(places)):
        assert list(found[event]) == list(expected[event])


def test_a_space_whose_places_no_filter_uses_verifies_nothing():
    engine = Engine(Space([Point("place")]))
    engine.subscribe_many([{"id": n, "filter": f"x < {n}"} for n in range(2000)])
    events = [{"x": float(n), "y": 0.0} for n in range(0, 2000, 50)]
    expected = [list(range(n + 1, 2000)) for n in range(0, 2000, 50)]
    assert [sorted(found) for found in engine.match_many(events)] == expected
    assert engine.match(events[3]) == expected[3]
    assert engine._view.verifier.counts.selected == 0
    engine.subscribe(-1, "within(place, circle(100, 0, 60))")
    assert [sorted(found) for found in engine.match_many(events)] == [
        [*([-1] if 40 <= at * 50 <= 160 else []), *rows] for at, rows in enumerate(expected)
    ]
    assert -1 in engine.match(events[2])
    assert engine._view.verifier.counts.verified > 0
