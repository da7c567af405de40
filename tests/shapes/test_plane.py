"""Shapes on a plane, exact to the border: every answer is that of rational numbers."""

from __future__ import annotations

import pickle
import random
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import shapely

from rangecast import Engine, FilterError, Number, Point, Space
from rangecast.model.filters.filter import Filter
from rangecast.model.shapes.exact.predicates import orientation, side_of_circle
from tests.shapes.oracle import Draw, polygon_holds, wkt
from tests.support.seeds import seeds


def sign(value: Fraction) -> int:
    return (value > 0) - (value < 0)


def odd_number(r: random.Random) -> float:
    kind = r.random()
    if kind < 0.4:
        return float(r.randint(-3, 3))
    if kind < 0.7:
        return r.choice([0.1, 0.2, 0.3, 0.7]) * r.randint(-3, 3)
    return r.uniform(-1, 1) * 10.0 ** r.randint(-60, 60)


@pytest.mark.parametrize("seed", range(3))
def test_orientation_is_exact(seed):
    r = random.Random(seed)
    for _ in range(3000):
        ax, ay, bx, by = (odd_number(r) for _ in range(4))
        share = r.choice([0.0, 0.25, 0.5, 1.0, r.random()])
        on_line = ax + share * (bx - ax), ay + share * (by - ay)
        cx, cy = on_line if r.random() < 0.6 else (odd_number(r), odd_number(r))
        a, b, c = ((Fraction(x), Fraction(y)) for x, y in ((ax, ay), (bx, by), (cx, cy)))
        exact = (a[0] - c[0]) * (b[1] - c[1]) - (a[1] - c[1]) * (b[0] - c[0])
        assert orientation(ax, ay, bx, by, cx, cy) == sign(exact)


def test_circles_are_exact():
    r = random.Random(1)
    for _ in range(5000):
        x, y, cx, cy = (r.choice([float(r.randint(-5, 5)), r.uniform(-5, 5)]) for _ in range(4))
        radius = r.choice([5.0, 13.0, abs(x - cx), float(np.hypot(x - cx, y - cy))])
        exact = (Fraction(x) - Fraction(cx)) ** 2 + (Fraction(y) - Fraction(cy)) ** 2
        assert side_of_circle(x, y, cx, cy, radius) == sign(exact - Fraction(radius) ** 2)


@pytest.mark.parametrize("border", ["closed", "open", "once"])
@pytest.mark.parametrize("seed", seeds(3, 8))
def test_answers_are_those_of_rational_numbers(border, seed):
    """Match, one by one and in batches, rank, and a copy, through edits."""
    draw = Draw(seed)
    r = draw.random
    engine = Engine(Space([Point("place", border=border), Number("v")]))
    wanted = {}
    for number in range(r.randint(5, 60)):
        shape, holds = draw.shape(border)
        negated, least = r.random() < 0.3, r.choice([None, 1.0, 3.0])

        def test(event, holds=holds, negated=negated, least=least):
            if "x" not in event or "y" not in event:
                return False
            return holds(event) != negated and (least is None or event.get("v", -1.0) >= least)

        text = f"{'not ' if negated else ''}{shape}"
        text += "" if least is None else f" and v >= {least}"
        try:
            engine.subscribe(number, text, score=float(r.randint(0, 3)))
        except FilterError:  # a star that crosses itself
            continue
        wanted[number] = test
        if r.random() < 0.1:
            gone = r.choice(list(wanted))
            engine.unsubscribe(gone)
            del wanted[gone]
    events = [draw.event() for _ in range(120)]
    many, ranked = engine.match_many(events), engine.rank_many(events, 3)
    copy = pickle.loads(pickle.dumps(engine))
    for place, event in enumerate(events):
        expected = [name for name, test in wanted.items() if test(event)]
        assert engine.match(event) == expected
        assert list(many[place]) == expected
        assert copy.match(event) == expected
        best = sorted(expected, key=lambda name: -engine[name].score)[:3]
        assert [name for name, _ in ranked[place]] == best
        for name in expected[:2]:
            assert engine.why(event, name).matches
        for name in list(wanted)[:3]:
            assert engine.why(event, name).matches == (name in expected)


def test_a_partition_has_every_point_once():
    """Polygons with shared corners: no point is lost, and with `once` none counts twice."""
    r = random.Random(3)
    size = 12
    corner = {
        (i, j): (i + r.uniform(-0.3, 0.3), j + r.uniform(-0.3, 0.3))
        for i in range(size + 1)
        for j in range(size + 1)
    }
    engines = {
        border: Engine(Space([Point("place", border=border)])) for border in ("closed", "once")
    }
    for i in range(size):
        for j in range(size):
            ring = [corner[i, j], corner[i + 1, j], corner[i + 1, j + 1], corner[i, j + 1]]
            text = f"within(place, '{wkt([[*ring, ring[0]]])}')"
            for engine in engines.values():
                engine.subscribe(f"{i}-{j}", text)
    inner = [corner[i, j] for i in range(1, size) for j in range(1, size)]
    middles = [((a[0] + b[0]) / 2, (a[1] + b[1]) / 2) for a, b in pairwise(inner)]
    anywhere = [(r.uniform(1, size - 1), r.uniform(1, size - 1)) for _ in range(500)]
    for x, y in [*inner, *middles, *anywhere]:
        event = {"x": x, "y": y}
        assert len(engines["once"].match(event)) == 1
        assert len(engines["closed"].match(event)) >= 1


def test_holes_multipolygons_and_many_corners():
    space = Space([Point("place")])
    engine = Engine(space)
    square = [(0.0, 0.0), (10.0, 0.0), (10.0, 10.0), (0.0, 10.0), (0.0, 0.0)]
    hole = [(4.0, 4.0), (6.0, 4.0), (6.0, 6.0), (4.0, 6.0), (4.0, 4.0)]
    engine.subscribe("ring", f"within(place, '{wkt([square, hole])}')")
    engine.subscribe(
        "two",
        "within(place, 'MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((20 20, 21 20, 21 21, 20 20)))')",
    )
    angles = np.linspace(0, 2 * np.pi, 5000, endpoint=False)
    radius = 5 + 0.3 * np.sin(40 * angles)
    x, y = 30 + radius * np.cos(angles), 5 + radius * np.sin(angles)
    flower = [*zip(x.tolist(), y.tolist(), strict=True)]
    flower.append(flower[0])
    engine.subscribe("flower", f"within(place, '{wkt([flower])}')")
    assert len(Filter.parse(f"within(place, '{wkt([flower])}')", space).boxes) == 1
    r = random.Random(5)
    for _ in range(2000):
        px, py = r.uniform(-1, 36), r.uniform(-1, 21)
        if r.random() < 0.3:
            px, py = float(round(px)), float(round(py))
        expected = {
            "ring": polygon_holds([square, hole], px, py, "closed"),
            "two": polygon_holds([[(0, 0), (1, 0), (1, 1), (0, 0)]], px, py, "closed")
            or polygon_holds([[(20, 20), (21, 20), (21, 21), (20, 20)]], px, py, "closed"),
        }
        found = engine.match({"x": px, "y": py})
        assert {name for name in expected if expected[name]} == {*found} - {"flower"}
        if abs(np.hypot(px - 30, py - 5) - 5) < 0.4:
            assert ("flower" in found) == polygon_holds([flower], px, py, "closed")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("within(place, circle(1, 2, 3 km))", "a length on a plane has no unit"),
        ("within(places, circle(1, 2, 3))", "did you mean 'place'"),
        ("within(x, circle(1, 2, 3))", "'x' is a number, not a location or a point"),
        ("within(place, 'POLYGON ((0 0, 1 0, 1 1, 0 1))')", "must end where it begins"),
        ("within(place, 'POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))')", "cross or overlap"),
        ("within(place, 'POLYGON ((0 0, 1 0, 0 0, 1 0, 0 0))')", "cross or overlap"),
        ("within(place, 'POLYGON EMPTY')", "empty"),
        ("within(place, 'POLYGON ((0 0, 1 nan, 1 1, 0 0))')", "has no meaning here"),
        ("within(place, 'POLYGON ((0 0, 1e200 0, 1 1, 0 0))')", "magnitude"),
        ("within(place, 'POLYGON ((0 0, 1-2 0, 1 1, 0 0))')", "the same number of coordinates"),
        ("within(place, 'POLYGON ((0 0, 1e 0, 1 1, 0 0))')", "has no meaning here"),
        ("within(place, 'POINT (1 2)')", "is not a shape"),
        ("within(place, 'LINESTRING (0 0, 1 1)')", "a line has no inside"),
        ('within(place, \'{"type": "Point"}\')', "GeoJSON must be"),
        ("within(place, '{\"type\": ')", "not GeoJSON"),
        ("within(place, hexagon(1, 2, 3))", "unknown shape 'hexagon'"),
        ("distance(place, point(1, 2))", "compared with a length"),
        ("within(place, circle(1, 2, 3)) > 5", "can't be compared"),
        ("distance(place, point(1, 2)) < -1", "must not be negative"),
        ("place = 'here'", "use within(place, ...)"),
    ],
)
def test_what_is_wrong_is_named(text, message):
    space = Space([Point("place")])
    with pytest.raises(FilterError) as error:
        Filter.parse(text, space)
    assert message in str(error.value)
    assert not space["place"].vocabulary


def test_a_filter_prints_as_it_was_meant():
    space = Space([Point("place"), Number("v")])
    for text in (
        "within(place, circle(1, 2, 3))",
        "not within(place, circle(1, 2, 3)) and v > 5",
        "within(place, 'POLYGON ((0 0, 10 0, 10 10, 0 0))') and not within(place, circle(1, 2, 3))",
        "distance(place, point(1, 2)) >= 5",
        "within(place, 'POLYGON ((0 0, 90 89, 100 100, 0 1, 0 0))')",
        "within(place, 'POLYGON ((0 0, 90 89, 100 100, 0 1, 0 0))') and v > 5",
        "within(place, buffer('LINESTRING (0 0, 10 10)', 2))",
    ):
        made = Filter.parse(text, space)
        assert sorted(str(made).split(" and ")) == sorted(text.split(" and "))
        assert Filter.parse(str(made), space) == made
    assert str(Filter.parse("within(place, circle(1, 2, 3))", space)) == (
        "within(place, circle(1, 2, 3))"
    )


def test_geojson_is_read_as_wkt_is():
    space = Space([Point("place")])
    engine = Engine(space)
    engine.subscribe(
        1,
        """within(place, '{"type": "Polygon", "coordinates": [[[0,0],[4,0],[4,4],[0,0]]]}')""",
    )
    engine.subscribe(2, "within(place, 'POLYGON Z ((0 0 7, 4 0 7, 4 4 7, 0 0 7))')")
    assert engine.match({"x": 3, "y": 1}) == [1, 2]
    assert engine.match({"x": 1, "y": 3}) == []


def test_shapely_says_the_same_of_many_polygons():
    r = np.random.default_rng(4)
    count, corners = 400, 20
    angle = (np.arange(corners) + 0.9 * r.random((count, corners))) / corners * 2 * np.pi
    radius = 0.05 * (0.5 + 0.5 * r.random((count, corners)))
    x = r.random((count, 1)) + radius * np.cos(angle)
    y = r.random((count, 1)) + radius * np.sin(angle)
    rings = np.stack([np.column_stack([x, x[:, 0]]), np.column_stack([y, y[:, 0]])], axis=2)
    polygons = shapely.polygons(rings)
    engine = Engine(Space([Point("place")]))
    engine.subscribe_many(
        {
            "id": list(range(count)),
            "filter": [f"within(place, '{one}')" for one in shapely.to_wkt(polygons, 17)],
        }
    )
    given = r.random((3000, 2))
    given[:500] = rings[:, :-1].reshape(-1, 2)[:500]  # corners lie on the border
    points = np.column_stack([given, np.full(len(given), np.inf)])
    tree = shapely.STRtree(shapely.points(given))
    polygon, point = tree.query(shapely.from_wkt(shapely.to_wkt(polygons, 17)), predicate="covers")
    found = engine.match_points(points)
    pairs = {(event, one) for event in range(len(given)) for one in found[event]}
    assert pairs == set(zip(point.tolist(), polygon.tolist(), strict=True))
