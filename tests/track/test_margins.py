"""Margins of shapes against distances by shapely on a plane and by geographiclib on the earth."""

import random

import pytest
import shapely
from geographiclib.geodesic import Geodesic

from rangecast import Engine, Filter, Location, Number, Point, Rule, Space, Timestamp, Tracker
from rangecast.track.geometry.margins import widened

PLANE = Space([Timestamp("at", epoch="s"), Point("place"), Number("speed")])
EARTH = Space([Timestamp("at", epoch="s"), Location("position"), Number("speed")])
POLYGON = "POLYGON ((0 0, 40 0, 40 30, 20 10, 0 30, 0 0), (5 2, 10 2, 10 6, 5 6, 5 2))"
LINE = "LINESTRING (0 0, 30 10, 30 40)"


def kept(tracker: Tracker, inside: dict, then: dict) -> bool:
    """Return whether an object that is inside stays inside with another event."""
    key = random.random().hex()
    first = tracker.update({"key": key, "at": 0, **inside})
    assert [one.transition for one in first] == ["enter"]
    return not tracker.update({"key": key, "at": 1, **then})


def distances(shape: shapely.Geometry, negated: bool, point: shapely.Point) -> float:
    if negated:
        inside = shapely.contains_properly(shape, point)
        return shapely.distance(shape.boundary, point) if inside else 0.0
    return shapely.distance(shape, point)


@pytest.mark.parametrize(
    ("text", "shape", "negated", "inside"),
    [
        (f"within(place, '{POLYGON}')", shapely.from_wkt(POLYGON), False, (2, 1)),
        (f"not within(place, '{POLYGON}')", shapely.from_wkt(POLYGON), True, (90, 90)),
        (
            f"within(place, buffer('{LINE}', 6))",
            shapely.from_wkt(LINE).buffer(6, 256),
            False,
            (0, 0),
        ),
        ("within(place, circle(20, 15, 9))", shapely.Point(20, 15).buffer(9, 256), False, (20, 15)),
        (
            "not within(place, circle(20, 15, 9))",
            shapely.Point(20, 15).buffer(9, 256),
            True,
            (90, 0),
        ),
        (
            "distance(place, point(20, 15)) < 9",
            shapely.Point(20, 15).buffer(9, 256),
            False,
            (20, 15),
        ),
        (
            "distance(place, point(20, 15)) >= 9",
            shapely.Point(20, 15).buffer(9, 256),
            True,
            (90, 0),
        ),
    ],
)
def test_an_object_stays_inside_up_to_the_margin_on_a_plane(text, shape, negated, inside):
    engine = Engine(PLANE)
    engine.subscribe("s", f"{text} and speed >= 0")
    tracker = Tracker(engine, key="key", time="at", rules={"s": Rule(margin={"place": 4})})
    start = {"x": inside[0], "y": inside[1], "speed": 1}
    chance = random.Random(3)
    seen = set()
    for _ in range(400):
        x, y = chance.uniform(-15, 55), chance.uniform(-15, 55)
        apart = distances(shape, negated, shapely.Point(x, y))
        if abs(apart - 4) < 0.01:
            continue
        seen.add(apart <= 4)
        assert kept(tracker, start, {"x": x, "y": y, "speed": 1}) == (apart <= 4), (x, y, apart)
    assert seen == {True, False}
    assert not kept(tracker, start, {**start, "speed": -1})


def test_a_margin_on_the_earth_is_in_metres():
    engine = Engine(EARTH)
    engine.subscribe("s", "within(position, circle(13.4, 52.5, 500 m))")
    engine.subscribe("beside", "speed > 100")
    rule = Rule(margin={"position": "20 m"})
    tracker = Tracker(engine, key="key", time="at", rules={"s": rule})
    for bearing in range(0, 360, 30):
        for metres in (505, 519.99, 520.01, 560):
            place = Geodesic.WGS84.Direct(52.5, 13.4, bearing, metres)
            then = {"longitude": place["lon2"], "latitude": place["lat2"]}
            assert kept(tracker, {"longitude": 13.4, "latitude": 52.5}, then) == (metres < 520)


@pytest.mark.parametrize("edges", ["straight", "geodesic"])
def test_a_polygon_on_the_earth_is_wider_by_its_margin(edges: str):
    space = Space([Timestamp("at", epoch="s"), Location("position", edges=edges, earth="sphere")])
    engine = Engine(space)
    engine.subscribe(
        "s", "within(position, 'POLYGON ((179.9 60, -179.9 60, -179.9 60.1, 179.9 60))')"
    )
    tracker = Tracker(engine, key="key", time="at", rule=Rule(margin={"position": "0.2 km"}))
    sphere = Geodesic(6_371_008.8, 0)
    inside = {"longitude": -179.92, "latitude": 60.02}
    for corner in ((179.9, 60.0), (-179.9, 60.1)):
        away = 225 if corner[0] > 0 else 30
        for metres in (150, 199.9, 200.1, 260):
            place = sphere.Direct(corner[1], corner[0], away, metres)
            then = {"longitude": place["lon2"], "latitude": place["lat2"]}
            assert kept(tracker, inside, then) == (metres < 200), (corner, metres)
    edge = sphere.Direct(60.05, -179.9, 90, 199)
    far = sphere.Direct(60.05, -179.9, 90, 201)
    for place, stays in ((edge, True), (far, False)):
        then = {"longitude": place["lon2"], "latitude": place["lat2"]}
        assert kept(tracker, inside, then) == stays


def test_conditions_on_coordinates_are_wider_with_their_place():
    text = "within(position, buffer('LINESTRING (0 0, 1 0)', 100 m)) and longitude > 0.5"
    made = widened(EARTH, Filter.parse(text, EARTH).boxes, {"position": "20 m"})
    engine = Engine(EARTH)
    engine.subscribe("wider", made)
    for longitude, latitude, inside in ((0.49985, 0, True), (0.499, 0, False), (1.001, 0, True)):
        place = {"longitude": longitude, "latitude": latitude}
        assert bool(engine.match(place)) == inside
    assert engine.match({"longitude": 1 + 110 / 111_195, "latitude": 0})


def test_margins_of_all_subscriptions_follow_edits():
    engine = Engine(EARTH)
    tracker = Tracker(engine, key="key", time="at", rule=Rule(margin={"speed": 2}))
    for number in range(300):
        engine.subscribe(number, f"speed > {100 * number} and speed < {100 * number + 50}")
    inside = {"longitude": 0, "latitude": 0, "speed": 730}
    assert kept(tracker, inside, {**inside, "speed": 751})
    assert not kept(tracker, inside, {**inside, "speed": 753})
    engine.replace(7, "speed > 700 and speed < 740")
    assert not kept(tracker, inside, {**inside, "speed": 743})
    assert kept(tracker, inside, {**inside, "speed": 741})
    engine.unsubscribe_many(range(100, 300))
    engine.wait_for_rebuild()
    assert kept(tracker, inside, {**inside, "speed": 741})
    tracker.set_rule(7, Rule())
    assert not kept(tracker, inside, {**inside, "speed": 741})
    tracker.set_rule(7, None)
    assert kept(tracker, inside, {**inside, "speed": 741})
    assert len(tracker._set._second) == 100
