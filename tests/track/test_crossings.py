"""Paths that cross: against shapely and fractions on a plane, geographiclib on the earth."""

import random
from fractions import Fraction

import numpy as np
import pytest
import shapely
from geographiclib.geodesic import Geodesic

from rangecast import (
    Arithmetic,
    Engine,
    Location,
    Number,
    Point,
    Rule,
    Space,
    String,
    Timestamp,
    Tracker,
    UsageError,
)

PLANE = Space(
    [Timestamp("at", epoch="s"), Point("place"), Number("speed"), String("kind"), Arithmetic()]
)
EARTH = Space([Timestamp("at", epoch="s"), Location("position")])
RULE = Rule(cross="10 min")
POLYGONS = [
    "POLYGON ((2 2, 8 2, 8 8, 5 4, 2 8, 2 2))",
    "POLYGON ((1 1, 9 1, 9 9, 1 9, 1 1), (3 3, 7 3, 7 7, 3 7, 3 3))",
    "MULTIPOLYGON (((1 1, 3 1, 3 3, 1 1)), ((6 6, 9 6, 9 9, 6 6)))",
]


def tracker(space: Space, filters, rule: Rule = RULE, **settings) -> Tracker:
    engine = Engine(space)
    for name, text in filters.items():
        engine.subscribe(name, text)
    return Tracker(engine, key="key", time="at", rule=rule, **settings)


def crossed(tracks: Tracker, start: dict, end: dict, gap: int = 60) -> set | None:
    """Return what a path crosses; `None` of a filter that matches one of its ends."""
    key = random.random().hex()
    first = {one.subscription for one in tracks.update({"key": key, "at": 0, **start})}
    found = tracks.update({"key": key, "at": gap, **end})
    ends = {one.subscription for one in found if one.transition != "cross"}
    both = {one.subscription for one in found if one.transition == "cross"}
    assert not both & (first | ends)
    return both, first | ends


def test_paths_on_a_plane_cross_polygons_as_shapely_says():
    shapes = dict(enumerate(map(shapely.from_wkt, POLYGONS)))
    tracks = tracker(PLANE, {n: f"within(place, '{one}')" for n, one in enumerate(POLYGONS)})
    chance = random.Random(1)
    seen = set()
    for _ in range(600):  # small integers: many paths only touch a corner, or run along an edge
        x0, y0, x1, y1 = (chance.randrange(11) for _ in range(4))
        both, ends = crossed(tracks, {"x": x0, "y": y0}, {"x": x1, "y": y1})
        line = shapely.LineString([(x0, y0), (x1, y1)])
        for number, shape in shapes.items():
            points = [shapely.Point(x0, y0), shapely.Point(x1, y1)]
            assert (number in ends) == any(shapely.intersects(shape, one) for one in points)
            if number not in ends:
                expected = bool(shapely.intersects(shape, line)) and (x0, y0) != (x1, y1)
                seen.add(expected)
                assert (number in both) == expected, (x0, y0, x1, y1, number)
    assert seen == {True, False}


def test_paths_cross_circles_and_corridors_on_a_plane():
    filters = {
        "circle": "within(place, circle(5, 5, 2))",
        "line": "within(place, buffer('LINESTRING (2 2, 8 2, 8 8)', 1))",
        "ring": "distance(place, point(5, 5)) < 4 and distance(place, point(5, 5)) > 3",
    }
    tracks = tracker(PLANE, filters)
    line = shapely.from_wkt("LINESTRING (2 2, 8 2, 8 8)")
    chance = random.Random(2)
    for _ in range(300):
        x0, y0, x1, y1 = (chance.randrange(41) / 4 for _ in range(4))
        both, ends = crossed(tracks, {"x": x0, "y": y0}, {"x": x1, "y": y1})
        apart = distance_to_path((5, 5), (x0, y0), (x1, y1))
        if "circle" not in ends and apart != 4:
            assert ("circle" in both) == (apart < 4)
        away = shapely.distance(line, shapely.LineString([(x0, y0), (x1, y1)]))
        if "line" not in ends and abs(away - 1) > 1e-9:
            assert ("line" in both) == (away < 1)
        far = max((x0 - 5) ** 2 + (y0 - 5) ** 2, (x1 - 5) ** 2 + (y1 - 5) ** 2)
        if "ring" not in ends and abs(apart - 16) > 1e-6 and abs(far - 9) > 1e-6:
            assert ("ring" in both) == (apart < 16 and far > 9), (x0, y0, x1, y1)


def distance_to_path(point, start, end) -> Fraction:
    """Return the squared distance of a point from a segment, exactly."""
    px, py, ax, ay, bx, by = map(Fraction, (*point, *start, *end))
    dx, dy = bx - ax, by - ay
    length = dx * dx + dy * dy
    t = (
        max(Fraction(0), min(Fraction(1), ((px - ax) * dx + (py - ay) * dy) / length))
        if length
        else 0
    )
    return (px - ax - t * dx) ** 2 + (py - ay - t * dy) ** 2


def test_all_conditions_are_met_at_one_place_of_the_path():
    square = "within(place, 'POLYGON ((4 0, 6 0, 6 2, 4 2, 4 0))')"
    filters = {
        "slow": f"{square} and speed < 3",
        "fast": f"{square} and speed > 8",
        "middle": f"{square} and speed between 4.9 and 5.1",
        "bus": f"{square} and kind = 'bus'",
        "either": f"speed > 100 or {square} or x between 4.9 and 5",
        "ratio": "x / y > 2 and x / y < 3",
    }
    tracks = tracker(PLANE, filters)
    start = {"x": 0, "y": 1, "speed": 0, "kind": "bus"}
    end = {"x": 10, "y": 1, "speed": 10, "kind": "car"}
    assert crossed(tracks, start, end)[0] == {"middle", "bus", "either"}
    assert crossed(tracks, end, start)[0] == {"middle", "either"}


def test_a_price_jumps_over_a_range():
    space = Space([Timestamp("at", epoch="s"), Number("price")])
    tracks = tracker(space, {"band": "price between 99 and 101", "above": "price > 100"})
    assert crossed(tracks, {"price": 98}, {"price": 102}) == ({"band"}, {"above"})
    assert crossed(tracks, {"price": 98}, {"price": 98.5})[0] == set()
    assert crossed(tracks, {"price": 98}, {})[0] == set()


def test_long_and_fast_paths_cross_nothing():
    filters = {"gate": "within(position, circle(0, 0, 100 m))"}
    rule = Rule(cross="10 min", max_speed="100 km/h")
    tracks = tracker(EARTH, filters, rule, after="5 min")
    west, east = {"longitude": -0.01, "latitude": 0}, {"longitude": 0.01, "latitude": 0}
    metres = Geodesic.WGS84.Inverse(0, -0.01, 0, 0.01)["s12"]
    least = int(metres / (100 / 3.6)) + 1
    assert crossed(tracks, west, east, least + 1)[0] == {"gate"}
    assert crossed(tracks, west, east, least - 2)[0] == set()
    assert crossed(tracks, west, east, 300)[0] == {"gate"}
    assert crossed(tracks, west, east, 301)[0] == set()  # silent meanwhile
    tracks = tracker(EARTH, filters)
    assert crossed(tracks, west, east, 600)[0] == {"gate"}
    assert crossed(tracks, west, east, 601)[0] == set()


@pytest.mark.parametrize("longitude", [0.0, 13.4, 180.0, -179.999])
def test_paths_on_the_earth_cross_what_lies_within_reach(longitude: float):
    """Sampled densely by geographiclib; paths that pass within a metre of the border are left."""

    def at(step: float) -> float:
        return (longitude + step + 180) % 360 - 180

    west, east = at(-0.01), at(0.01)
    square = f"POLYGON (({west} 52.49, {east} 52.49, {east} 52.51, {west} 52.51, {west} 52.49))"
    filters = {
        "circle": f"within(position, circle({at(0)}, 52.5, 500 m))",
        "square": f"within(position, '{square}')",
        "road": f"within(position, buffer('LINESTRING ({west} 52.5, {east} 52.5)', 50 m))",
    }
    tracks = tracker(EARTH, filters)
    chance = random.Random(int(longitude))
    seen = set()
    for _ in range(60):
        ends = [(chance.uniform(-0.04, 0.04), chance.uniform(52.46, 52.54)) for _ in range(2)]
        places = [{"longitude": at(x), "latitude": y} for x, y in ends]
        both, inside = crossed(tracks, *places)
        t = np.linspace(0, 1, 100)  # 106 m apart at most: at 500 m that is 3 m
        path = [
            (ends[0][0] + s * (ends[1][0] - ends[0][0]), ends[0][1] + s * (ends[1][1] - ends[0][1]))
            for s in t
        ]
        apart = min(Geodesic.WGS84.Inverse(52.5, 0, y, x)["s12"] for x, y in path)
        if "circle" not in inside and abs(apart - 500) > 15:
            seen.add(apart < 500)
            assert ("circle" in both) == (apart < 500)
        line = shapely.LineString(ends)
        box = shapely.box(-0.01, 52.49, 0.01, 52.51)
        if "square" not in inside:
            assert ("square" in both) == bool(shapely.intersects(box, line))
    assert seen == {True, False}


def test_geodesic_edges_are_crossed_where_they_bulge():
    space = Space([Timestamp("at", epoch="s"), Location("position", edges="geodesic")])
    # The northern edge bulges to 50.5 degrees of latitude; straight, it would end at 50.
    tracks = tracker(space, {"s": "within(position, 'POLYGON ((0 49, 20 49, 20 50, 0 50, 0 49))')"})
    for latitude, meets in ((50.3, True), (50.7, False)):
        ends = [{"longitude": x, "latitude": latitude} for x in (-1, 21)]
        assert (crossed(tracks, *ends)[0] == {"s"}) == meets


def test_a_path_goes_on_from_a_saved_state(tmp_path):
    tracks = tracker(EARTH, {"gate": "within(position, circle(0, 0, 100 m))"}, lateness="1 min")
    west, east = {"longitude": -0.01, "latitude": 0}, {"longitude": 0.01, "latitude": 0}
    tracks.update({"key": "a", "at": 0, **west})
    tracks.update({"key": "a", "at": 100, "longitude": -0.02, "latitude": 0})
    tracks.save(tmp_path / "saved")
    tracks = Tracker.open(tmp_path / "saved", tracks.engine)
    tracks.update({"key": "a", "at": 130, **east})
    (found,) = tracks.flush()
    assert (found.transition, found.subscription) == ("cross", "gate")
    assert (found.at - found.since).total_seconds() == 30


def test_objects_outside_of_everything_are_remembered_for_the_longest_gap():
    tracks = tracker(EARTH, {"gate": "within(position, circle(0, 0, 100 m))"})
    tracks.update({"key": "a", "at": 0, "longitude": 1, "latitude": 1})
    tracks.advance("1970-01-01T00:10Z")
    assert len(tracks) == 1
    tracks.advance("1970-01-01T00:20:01Z")
    assert len(tracks) == 0


def test_an_event_that_may_be_on_either_side_changes_nothing():
    filters = {"yard": "within(position, 'POLYGON ((0 0, 0.01 0, 0.01 0.01, 0 0.01, 0 0))')"}
    tracks = tracker(EARTH, filters, Rule(), accuracy="error")
    inside = {"longitude": 0.009, "latitude": 0.005}  # 111 m from the border
    beside = {"longitude": 0.011, "latitude": 0.005}
    said = []
    for at, (place, error) in enumerate(
        [(inside, 200), (inside, 100), (beside, 200), (beside, None), (beside, 0), (inside, 112)]
    ):
        found = tracks.update({"key": "a", "at": at, "error": error, **place})
        said.append([one.transition for one in found])
    assert said == [[], ["enter"], [], ["exit"], [], []]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rule(max_speed="5 m/s"), "max_speed requires cross"),
        (
            lambda: tracker(EARTH, {}, Rule(cross="1 min", max_speed=5)),
            "max_speed must be given for",
        ),
        (
            lambda: tracker(PLANE, {}, Rule(cross="1 min", max_speed="5 m/s")),
            "max_speed must be given",
        ),
        (lambda: Rule(cross="far"), "cross must be a length of time"),
        (
            lambda: tracker(EARTH, {}, accuracy={"at": "e"}),
            "accuracy is only for numbers and places",
        ),
        (lambda: tracker(EARTH, {}, accuracy=[]), "accuracy must be a column"),
    ],
)
def test_mistakes_are_named(make, message: str):
    with pytest.raises(UsageError, match=message):
        make()
