"""Fences of Tile38 and of Azure Maps: the same positions are inside there and here."""

from __future__ import annotations

import json
import math
import random
from fractions import Fraction
from itertools import pairwise

import pytest

from rangecast import Engine, Location, Space
from rangecast.errors import RangecastError, UsageError
from rangecast.interop import geojson, tile38

RADIUS = 6_371_000.0
"""Of the sphere that Tile38 measures on."""


def haversine(lat1: float, lon1: float, lat2: float, lon2: float) -> float:
    """Metres, as Tile38 computes them."""
    a, b, c, d = map(math.radians, (lat1, lon1, lat2, lon2))
    half = math.sin((c - a) / 2) ** 2 + math.cos(a) * math.cos(c) * math.sin((d - b) / 2) ** 2
    return RADIUS * 2 * math.asin(math.sqrt(half))


def imported(commands, space=None):
    done = tile38.read(commands, space)
    engine = Engine(done.space)
    engine.subscribe_many(done.subscriptions)
    return done, engine


def test_fences_of_tile38_hold_the_same_positions():
    polygon = [[13.0, 52.0], [13.4, 52.1], [13.2, 52.5], [13.0, 52.0]]
    done, engine = imported(
        [
            "SETHOOK near http://127.0.0.1:1/x NEARBY fleet FENCE POINT 52.2 13.2 9000",
            "setchan box within fleet fence detect enter,exit bounds 52.1 13.1 52.3 13.3",
            'SETCHAN "a park" INTERSECTS fleet WHERE speed (10 +inf MATCH * FENCE OBJECT '
            + json.dumps({"type": "Polygon", "coordinates": [polygon]}),
            "SETCHAN circle WITHIN ships FENCE CIRCLE 52.2 13.2 9000",
            "# a comment",
        ]
    )
    assert not done.rejected
    assert done.notes == ["DETECT is left out: a subscription matches every position inside"]
    assert [one["id"] for one in done.subscriptions] == ["near", "box", "a park", "circle"]
    r = random.Random(4)
    seen = set()
    for _ in range(500):
        lon, lat, speed = r.uniform(12.9, 13.5), r.uniform(51.9, 52.6), r.choice([5, 10, 20])
        event = {"longitude": lon, "latitude": lat, "speed": speed, "key": "fleet"}
        expected = set()
        apart = haversine(52.2, 13.2, lat, lon)
        if abs(apart - 9000) < 0.1:  # the radii of the two spheres differ by a millionth
            continue
        if apart < 9000:
            expected.add("near")
        if 52.1 <= lat <= 52.3 and 13.1 <= lon <= 13.3:
            expected.add("box")
        sides = [
            (bx - ax) * (lat - ay) - (by - ay) * (lon - ax)
            for (ax, ay), (bx, by) in pairwise(polygon)
        ]
        if min(sides) > 0 and speed > 10:
            expected.add("a park")
        assert set(engine.match(event)) == expected
        seen |= expected
    assert seen == {"near", "box", "a park"}


@pytest.mark.parametrize(
    ("command", "place", "reason"),
    [
        ("SETCHAN x NEARBY fleet FENCE ROAM people * 100", "ROAM", "a roaming fence"),
        ("SETCHAN x WITHIN fleet WHEREIN a 1 2 FENCE BOUNDS 1 1 2 2", "WHEREIN", "use WHERE"),
        ("SETCHAN x WITHIN fleet MATCH a* FENCE BOUNDS 1 1 2 2", "MATCH", "pattern for ids"),
        ("SETCHAN x WITHIN fleet FENCE TILE 1 2 3", "TILE", "as an OBJECT"),
        ("SETCHAN x WITHIN fleet BOUNDS 1 1 2 2", "WITHIN", "the word FENCE is missing"),
        ("SETCHAN x WITHIN fleet FENCE", "WITHIN", "the area is missing"),
        ("SETCHAN x WITHIN fleet FENCE BOUNDS 1 170 2 -170", "BOUNDS", "antimeridian"),
        ("SETCHAN x WITHIN fleet FENCE CIRCLE 1 2 nan", "CIRCLE", "not a number"),
        ("SETCHAN x WITHIN fleet FENCE CIRCLE 1 2", "CIRCLE", "takes 3 numbers; given: 2"),
        ("SETCHAN x WITHIN fleet FENCE CIRCLE 95 2 10", "", "longitude"),
        ("SETCHAN x SCAN fleet", "SCAN", "expected NEARBY"),
        ("SET fleet truck POINT 1 2", "", "is not SETHOOK or SETCHAN"),
    ],
)
def test_what_tile38_has_beyond_is_rejected(command, place, reason):
    done = tile38.read([command, "SETCHAN good WITHIN fleet FENCE BOUNDS 1 1 2 2"])
    assert [one["id"] for one in done.subscriptions] == ["good"]
    (rejected,) = done.rejected
    assert rejected.place == place
    assert reason in rejected.reason


def test_a_space_without_a_key_leaves_collections_out(tmp_path):
    (tmp_path / "hooks.txt").write_text("SETCHAN a WITHIN fleet FENCE CIRCLE 52 13 100\n")
    done, engine = imported(
        tmp_path / "hooks.txt", Space([Location("at", longitude="x", latitude="y")])
    )
    assert done.notes == ["collections are left out: the space has no attribute 'key'"]
    assert engine.match({"x": 13, "y": 52}) == ["a"]
    for given in ([], [5], {"a": 1}, ["PING"]):
        with pytest.raises(RangecastError):
            tile38.read(given)


def feature(coordinates, kind="Point", **properties):
    geometry = {"type": kind, "coordinates": coordinates}
    return {"type": "Feature", "properties": properties, "geometry": geometry}


def test_fences_of_azure_maps():
    square = [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]
    time = {"expiredTime": "2030-01-01T00:00:00Z", "validityPeriod": []}
    features = [
        feature([13.4, 52.5], geometryId="a", subType="Circle", radius=500),
        feature(square, "Polygon", geometryId="b"),
        feature(square, "Polygon", geometryId="c", validityTime=time),
        feature([13.4, 52.5], geometryId="d", subType="Circle", radius=-5),
        feature([13.4, 52.5], geometryId="e", subType="Rectangle", radius=5),
    ]
    done = geojson.read({"type": "FeatureCollection", "features": features})
    assert done.subscriptions == [
        {"id": "a", "filter": "within(position, circle(13.4, 52.5, 500 m))"},
        {"id": "b", "filter": "within(position, 'POLYGON ((0 0, 1 0, 1 1, 0 1, 0 0))')"},
    ]
    assert [(one.id, one.place) for one in done.rejected] == [
        ("c", "validityTime"),
        ("d", "radius"),
        ("e", "subType"),
    ]


def test_what_is_dropped_or_taken_otherwise_is_told():
    """Heights, rings that wind the other way, and edges that are no great circles."""
    square = [[0, 50], [2, 50], [2, 51], [0, 51], [0, 50]]
    far = [[0, 50, 7], [0, 51, 7], [2, 51, 7], [2, 50, 7], [0, 50, 7]]
    shapes = [
        {"type": "Polygon", "coordinates": [square]},
        {"type": "MultiPolygon", "coordinates": [[far]]},
    ]
    features = [{"type": "Feature", "geometry": shape, "properties": {}} for shape in shapes]
    done = geojson.read({"type": "FeatureCollection", "features": features})
    assert len(done.subscriptions) == 2
    heights, winding, edges = done.notes[-3:]
    assert heights == "1 feature with heights or measures, which are dropped"
    assert winding.startswith("1 feature with rings wound opposite")
    # The middle of the northern side of a degree either way, on the sphere.
    lon, lat = math.radians(1), math.radians(50)
    off = math.degrees(math.atan2(math.tan(lat), math.cos(lon))) - 50
    metres = math.radians(off) * 6_371_008.8
    assert f"would be off by up to {metres:,.0f} m along an edge of 143 km" in edges
    small = [[x / 1000, 50 + y / 1000] for x, y in ((0, 0), (1, 0), (1, 1), (0, 0))]
    one = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [small]}}
    assert geojson.read({"type": "FeatureCollection", "features": [one]}).notes == []


def test_rings_are_written_as_rfc_7946_winds_them():
    r = random.Random(3)
    features, hair = [], math.nextafter(1.0, 2.0)
    for number in range(40):
        corners = [(r.uniform(-9, 9), r.uniform(-9, 9)) for _ in range(3)]
        middle = [sum(one) / 3 for one in zip(*corners, strict=True)]
        hole = [(a + (x - a) / 4, b + (y - b) / 4) for x, y in corners for a, b in [middle]]
        rings = [ring[:: r.choice([1, -1])] for ring in (corners, hole)]
        features.append(feature([[*map(list, [*ring, ring[0]])] for ring in rings], "Polygon"))
        features[-1]["id"] = f"p{number}"
    features.append(feature([[[0, 0], [1, hair], [1, 1], [0, 0]]], "Polygon", id="thin"))
    features.append(
        feature([[[170, 0], [170, 9], [-170, 9], [-170, 0], [170, 0]]], "Polygon", id="across")
    )
    done = geojson.read({"type": "FeatureCollection", "features": features})
    assert not done.rejected
    written = json.loads(geojson.write(done.subscriptions, done.space).text)
    assert len(written["features"]) == len(features)
    for one in written["features"]:
        parts = one["geometry"]["coordinates"]
        for rings in parts if one["id"] == "across" else [parts]:
            for place, ring in enumerate(rings):
                exact = [(Fraction(x), Fraction(y)) for x, y in ring]
                area = sum(a * d - c * b for (a, b), (c, d) in pairwise(exact))
                assert (area > 0) == (place == 0), one
    engines = []
    for subscriptions in (done.subscriptions, geojson.read(written, done.space).subscriptions):
        engines.append(Engine(done.space))
        engines[-1].subscribe_many(subscriptions)
    for _ in range(300):
        event = {"longitude": r.uniform(-9, 9), "latitude": r.uniform(-9, 9)}
        assert engines[0].match(event) == engines[1].match(event)


def test_a_ring_round_a_pole_keeps_its_side():
    space = Space([Location("position", edges="geodesic")])
    ring = [[0, 60], [-90, 60], [180, 60], [90, 60], [0, 60]]
    done = geojson.read({"features": [feature([ring], "Polygon", id="all but the cap")]}, space)
    again = geojson.read(json.loads(geojson.write(done.subscriptions, space).text), space)
    engine = Engine(space)
    engine.subscribe_many(again.subscriptions)
    assert engine.match({"longitude": 5, "latitude": 10}) == ["all but the cap"]
    assert engine.match({"longitude": 5, "latitude": 80}) == []


def test_the_id_is_a_property_of_choice_and_a_swap_is_told(tmp_path, cli):
    features = [
        feature([13, 52], code="x", name="n"),
        feature([52, 113], code="y"),
        feature([1, 2]),
    ]
    path = tmp_path / "places.json"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    done = geojson.read(path, id_property="code")
    assert [one["id"] for one in done.subscriptions] == ["x"]
    assert {one.id for one in done.rejected} == {"y", "features[2]"}
    assert "longitude and latitude may be swapped" in done.notes[-1]
    shell = ("import", "geojson", path, "--id-property", "code", "--rejected", "no.csv")
    shown = cli(*shell, "-o", "-", cwd=tmp_path)
    assert "x,longitude = 13 and latitude = 52" in shown.stdout
    assert "swapped" in shown.stderr
    cli("import", "sns", path, "--id-property", "code", cwd=tmp_path, code=2)
    with pytest.raises(UsageError, match="no rules were found"):
        geojson.read({"features": [1]}, id_property="code")
