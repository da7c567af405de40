"""Shapes on the earth: distances, the antimeridian, poles, and edges of both kinds."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from geographiclib.geodesic import Geodesic

from rangecast import Engine, FilterError, Location, Number, Space
from rangecast.model.filters.filter import Filter
from rangecast.model.shapes.exact.geodesic import side_of_great_circle, vector_of
from rangecast.model.shapes.exact.sphere import RADIUS, ellipsoid_distance, sphere_distance
from rangecast.model.shapes.verification.places import places_of, words_hold
from tests.support.seeds import seeds

WGS84 = Geodesic.WGS84


def located(**options: str) -> Space:
    return Space([Location("position", longitude="lon", latitude="lat", **options)])


def anywhere(r: random.Random) -> tuple[float, float]:
    """A place; often near the antimeridian, or a pole."""
    lon = r.choice([r.uniform(-180, 180), 180 - r.uniform(0, 1), -180 + r.uniform(0, 1), 180.0])
    lat = r.choice([r.uniform(-90, 90), 90 - r.uniform(0, 1), -90 + r.uniform(0, 1), 0.0])
    return lon, lat


def moved(lon: float, lat: float, azimuth: float, metres: float) -> tuple[float, float]:
    found = WGS84.Direct(lat, lon, azimuth, metres)
    return found["lon2"], found["lat2"]


def test_distances_are_those_of_the_ellipsoid():
    r = random.Random(1)
    for _ in range(2000):
        lon, lat = anywhere(r)
        metres = 10 ** r.uniform(0, 7.1)
        other = moved(lon, lat, r.uniform(0, 360), metres)
        assert ellipsoid_distance(lon, lat, *other) == pytest.approx(metres, abs=0.002)
        assert sphere_distance(lon, lat, *other) == pytest.approx(metres, rel=0.0057, abs=1e-6)


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_circles_are_those_of_the_ellipsoid_and_their_boxes_lose_nothing(seed):
    r = random.Random(seed)
    engine = Engine(located())
    circles = {}
    for number in range(60):
        (lon, lat), radius = anywhere(r), 10 ** r.uniform(1, 6.5)
        circles[number] = lon, lat, radius
        engine.subscribe(number, f"within(position, circle({lon!r}, {lat!r}, {radius!r} m))")
    for number, (lon, lat, radius) in circles.items():
        for share in (0.3, 0.99, 0.9999, 1.0001, 1.01, 2.0):
            x, y = moved(lon, lat, r.uniform(0, 360), radius * share)
            found = engine.match({"lon": x, "lat": y})
            if abs(radius * (share - 1)) > 0.01:
                assert (number in found) == (share < 1), (lon, lat, radius, share)
            for other in r.sample(list(circles), 5):
                cx, cy, size = circles[other]
                apart = WGS84.Inverse(cy, cx, y, x)["s12"]
                if apart < 1.9e7 and abs(apart - size) > 0.01:
                    assert (other in found) == (apart < size)


@pytest.mark.parametrize("edges", ["straight", "geodesic"])
def test_shapes_turned_by_any_longitude_give_the_same_answers(edges):
    """The antimeridian is a meridian as any other, and -180 is 180."""
    r = random.Random(7)
    corners = [(0.0, 10.0), (8.0, 12.0), (12.0, 30.0), (3.0, 24.0), (0.0, 10.0)]
    points = [(r.uniform(-2, 14), r.uniform(8, 32)) for _ in range(200)]
    points += [(0.0, 10.0), (8.0, 12.0)]

    def turned(lon: float, by: float) -> float:
        return (lon + by + 180.0) % 360.0 - 180.0

    def answers(by: float) -> list[bool]:
        engine = Engine(located(edges=edges))
        ring = ", ".join(f"{turned(x, by)!r} {y!r}" for x, y in corners)
        engine.subscribe("shape", f"within(position, 'POLYGON (({ring}))')")
        cx = turned(6.0, by)
        engine.subscribe("circle", f"within(position, circle({cx!r}, 20, 500 km))")
        line = f"LINESTRING ({turned(0.0, by)!r} 10, {turned(12.0, by)!r} 30)"
        engine.subscribe("corridor", f"within(position, buffer('{line}', 100 km))")
        return [engine.match({"lon": turned(x, by), "lat": y}) for x, y in points]

    plain = answers(0.0)
    assert {name for one in plain for name in one} == {"shape", "circle", "corridor"}
    for by in (90.0, 172.0, 176.0, 180.0, -172.0, -180.0):
        assert answers(by) == plain


def test_the_antimeridian_is_one_meridian():
    engine = Engine(located())
    engine.subscribe("west", "within(position, 'POLYGON ((179 0, 180 0, 180 1, 179 1, 179 0))')")
    engine.subscribe(
        "east", "within(position, 'POLYGON ((-180 0, -179 0, -179 1, -180 1, -180 0))')"
    )
    engine.subscribe("both", "within(position, 'POLYGON ((179 0, -179 0, -179 1, 179 1, 179 0))')")
    for lon in (180.0, -180.0):
        assert engine.match({"lon": lon, "lat": 0.5}) == ["west", "east", "both"]
    assert engine.match({"lon": 179.5, "lat": 0.5}) == ["west", "both"]
    assert engine.match({"lon": 0.0, "lat": 0.5}) == []


def test_poles():
    engine = Engine(located(edges="geodesic"))
    cap = ", ".join(f"{lon} 70" for lon in (0, 90, 180, -90, 0))
    engine.subscribe("north", f"within(position, 'POLYGON (({cap}))')")
    engine.subscribe("circle", "within(position, circle(0, 90, 1000 km))")
    assert engine.match({"lon": 45, "lat": 90}) == ["north", "circle"]
    assert engine.match({"lon": 45, "lat": 85}) == ["north", "circle"]
    assert engine.match({"lon": 45, "lat": 79}) == ["north"]  # the edge bulges to 79.1 degrees
    assert engine.match({"lon": 45, "lat": 71}) == []
    assert engine.match({"lon": 0, "lat": -89}) == []
    with pytest.raises(FilterError, match="goes round a pole"):
        Filter.parse(f"within(position, 'POLYGON (({cap}))')", located())


def test_geodesic_edges_are_great_circles():
    straight, geodesic = located(), located(edges="geodesic")
    text = "within(position, 'POLYGON ((0 50, 40 50, 40 60, 0 60, 0 50))')"
    answers = []
    for space in (straight, geodesic):
        engine = Engine(space)
        engine.subscribe(1, text)
        answers.append([bool(engine.match({"lon": 20, "lat": lat})) for lat in (50.5, 60.5)])
    assert answers == [[True, False], [False, True]]  # the great circle lies further north


@pytest.mark.parametrize("seed", range(3))
def test_no_place_in_a_shape_is_outside_of_its_boxes(seed):
    """What an index finds by boxes and verifies is what is verified everywhere."""
    r = random.Random(seed)
    for edges in ("straight", "geodesic"):
        space = located(edges=edges)
        engine = Engine(space)
        for number in range(30):
            lon, lat = r.uniform(-180, 180), r.uniform(-75, 75)
            size = r.choice([0.5, 5.0, 12.0])
            angles = sorted(r.uniform(0, 2 * math.pi) for _ in range(r.randint(4, 9)))
            ring = [(lon + size * math.cos(a), lat + size * math.sin(a)) for a in angles]
            text = ", ".join(f"{x!r} {y!r}" for x, y in [*ring, ring[0]])
            kind = r.choice(["polygon", "corridor", "circle"])
            if kind == "polygon":
                shape = f"'POLYGON (({text}))'"
            elif kind == "corridor":
                shape = f"buffer('LINESTRING ({text})', {r.choice([1, 100, 600])} km)"
            else:
                shape = f"circle({lon!r}, {lat!r}, {r.choice([1, 100, 3000])} km)"
            engine.subscribe(number, f"within(position, {shape})")
        places = places_of(space)
        words = np.arange(len(space["position"].vocabulary), dtype=np.float64)
        for _ in range(1500):
            lon, lat = anywhere(r)
            point = np.array([lon, lat, np.inf])
            held = set(np.flatnonzero(words_hold(places, 2, words, point)).tolist())
            assert set(engine.match({"lon": lon, "lat": lat})) == held


def test_corridors_are_by_distance():
    engine = Engine(located())
    engine.subscribe("road", "within(position, buffer('LINESTRING (13 52, 13 53, 14 53)', 200 m))")
    degree = math.degrees(150 / RADIUS) / math.cos(math.radians(52.5))
    assert engine.match({"lon": 13 + degree, "lat": 52.5}) == ["road"]
    assert engine.match({"lon": 13 + 2 * degree, "lat": 52.5}) == []
    assert engine.match({"lon": 13.5, "lat": 53.0003}) != engine.match({"lon": 13.5, "lat": 53.01})
    assert engine.match({"lon": 13, "lat": 51.999}) == ["road"]  # round ends
    assert engine.match({"lon": 13, "lat": 51.99}) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("within(position, circle(13, 52, 5))", "needs a unit"),
        ("within(position, circle(13, 95, 5 km))", "longitude comes first"),
        ("within(position, circle(13, 52, 5 parsec))", "units: m, km"),
        ("within(position, circle(13, 52, 20000 km))", "at most 15,000 km"),
        (
            "within(position, 'POLYGON ((52 113, 53 113, 53 114, 52 113))')",
            "are the coordinates swapped",
        ),
        ("within(position, 'POLYGON ((0 0, 180 0, 360 0, 0 0))')", ""),
    ],
)
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(FilterError) as error:
        Filter.parse(text, located())
    assert message in str(error.value)


def test_a_space_with_a_location_is_saved_and_read(tmp_path):
    space = Space([Location("position", longitude="$.at.lon", latitude="$.at.lat"), Number("v")])
    again = Space.from_toml(space.to_toml())
    assert again == space
    assert again.names == ("position_longitude", "position_latitude", "position", "v")
    engine = Engine(again)
    engine.subscribe("here", "within(position, circle(13.4, 52.5, 5 km)) and v > 1")
    event = {"at": {"lon": 13.41, "lat": 52.5}, "v": 2}
    assert engine.match(event) == ["here"]
    engine.save(tmp_path / "set")
    assert Engine.open(tmp_path / "set").match(event) == ["here"]
    assert engine["here"].filter == "within(position, circle(13.4, 52.5, 5000 m)) and v > 1"


def test_why_says_how_far_away():
    engine = Engine(located())
    engine.subscribe("berlin", "within(position, circle(13.4, 52.5, 5 km))")
    engine.subscribe("paris", "within(position, circle(2.35, 48.86, 5 km))")
    event = {"lon": 13.48, "lat": 52.5}
    why = engine.why(event, "berlin")
    assert not why.matches
    (line,) = [line for line in why.boxes[0] if line.mentioned]
    assert line.attribute == "position"
    assert line.distance.endswith("m from the border")
    assert [one.subscription for one in engine.why_not(event)] == ["berlin", "paris"]


def test_the_side_of_a_great_circle_is_exact():
    r = random.Random(12)
    for _ in range(1500):
        a, b, c = ((r.uniform(-180, 180), r.uniform(-90, 90)) for _ in range(3))
        if r.random() < 0.7:  # a hair beside an end, or beside the arc between the ends
            c = r.choice([a, b, ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2)])
            for _ in range(r.randrange(4)):
                c = tuple(math.nextafter(value, r.choice([-400.0, 400.0])) for value in c)
        if r.random() < 0.3:
            b = (a[0], b[1])
        vectors = [vector_of(*place) for place in (a, b, c)]
        (ax, ay, az), (bx, by, bz), (x, y, z) = ([Fraction(v) for v in one] for one in vectors)
        exact = (ay * bz - az * by) * x + (az * bx - ax * bz) * y + (ax * by - ay * bx) * z
        found = side_of_great_circle(*(value for one in vectors for value in one))
        assert found == (exact > 0) - (exact < 0)


def test_a_ring_round_a_pole_at_the_longitudes_of_its_corners():
    engine = Engine(Space([Location("at", longitude="x", latitude="y", edges="geodesic")]))
    engine.subscribe("cap", "within(at, 'POLYGON ((0 60, 90 60, 180 60, -90 60, 0 60))')")
    for x in (-180.0, -90.0, 0.0, 90.0, 180.0, 45.0):
        assert engine.match({"x": x, "y": 10.0}) == []
        assert engine.match({"x": x, "y": 89.0}) == ["cap"]
    for x in (-180.0, -90.0, 0.0, 90.0, 180.0):
        assert engine.match({"x": x, "y": 60.0}) == ["cap"]
        assert engine.match({"x": x, "y": 59.999999}) == []
