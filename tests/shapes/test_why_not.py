"""`why_not` orders subscriptions by the distance from the borders of their shapes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import shapely
from geographiclib.geodesic import Geodesic

from rangecast import Engine, Location, Number, Point, Space
from tests.shapes.oracle import wkt


def star(r, x, y, size, corners, hole=False):
    """A star-shaped ring around a point, and a hole in its middle."""
    rings = []
    for scale in (1.0, 0.2) if hole else (1.0,):
        turns = np.sort(r.uniform(0, 2 * math.pi, corners))
        radii = scale * size * r.uniform(0.4, 1, corners)
        ring = [*zip(x + radii * np.cos(turns), y + radii * np.sin(turns), strict=True)]
        rings.append([*ring, ring[0]])
    return rings


@pytest.mark.parametrize("seed", range(3))
def test_the_order_is_that_of_distances_on_a_plane(seed):
    r = np.random.default_rng(seed)
    engine = Engine(Space([Point("place")]))
    shapes = {}
    for number in range(80):
        x, y, size = r.uniform(-50, 50), r.uniform(-50, 50), r.uniform(0.1, 20)
        kind = number % 5
        if kind == 0:
            shape = shapely.Point(x, y)
            text = f"circle({x}, {y}, {size})"
        elif kind == 1:
            ends = r.uniform(-60, 60, (3, 2))
            shape, size = shapely.LineString(ends), size / 10
            line = ", ".join(f"{a} {b}" for a, b in ends.tolist())
            text = f"buffer('LINESTRING ({line})', {size})"
        else:
            rings = star(r, x, y, size, (12, 100, 30)[kind - 2], hole=kind == 4)
            if not shapely.is_valid(shapely.Polygon(rings[0], rings[1:])):
                continue
            shape, size = shapely.Polygon(rings[0], rings[1:]), 0.0
            text = f"'{wkt(rings)}'"
        engine.subscribe(number, f"within(place, {text})")
        shapes[number] = shape, size
    for _ in range(20):
        x, y = r.uniform(-60, 60, 2).tolist()
        apart = {
            number: shapely.distance(shapely.Point(x, y), shape) - size
            for number, (shape, size) in shapes.items()
        }
        inside = {number for number, distance in apart.items() if distance <= 0}
        assert set(engine.match({"x": x, "y": y})) == inside
        expected = sorted(set(shapes) - inside, key=apart.__getitem__)[:10]
        assert [one.subscription for one in engine.why_not({"x": x, "y": y}, 10)] == expected


def test_the_distance_is_that_of_the_border_not_of_the_boxes():
    """A point within the bounds of a triangle, far from its edge, and close to a small circle."""
    engine = Engine(Space([Point("place"), Number("v")]))
    engine.subscribe("triangle", "within(place, 'POLYGON ((0 0, 10 0, 0 10, 0 0))')")
    engine.subscribe("circle", "within(place, circle(9, 12, 2))")
    engine.subscribe("hole", "not within(place, circle(9, 9, 5))")
    engine.subscribe("two", "within(place, circle(9, 12, 2)) and v > 3")
    near = engine.why_not({"x": 9, "y": 9, "v": 1})
    assert [one.subscription for one in near] == ["circle", "hole", "triangle", "two"]
    lines = [line for one in near for line in one.boxes[one.nearest] if line.attribute == "place"]
    assert [line.distance for line in lines] == [
        f"{apart:.6g} from the border" for apart in (1, 5, 4 * math.sqrt(2), 1)
    ]


@pytest.mark.parametrize("earth", ["wgs84", "sphere"])
def test_circles_and_polygons_on_the_earth(earth):
    place = Location("position", longitude="lon", latitude="lat", earth=earth)
    engine = Engine(Space([place]))
    r = np.random.default_rng(7)
    centres = [(r.uniform(170, 190), r.uniform(50, 60), r.uniform(1, 20)) for _ in range(40)]
    for number, (x, y, size) in enumerate(centres):
        x -= 360 * (x > 180)
        engine.subscribe(number, f"within(position, circle({x}, {y}, {size} km))")
    event = {"lon": -179.9, "lat": 55.0}
    apart = [
        Geodesic.WGS84.Inverse(y, x, event["lat"], event["lon"])["s12"] - 1000 * size
        for x, y, size in centres
    ]
    expected = sorted((at for at in range(40) if apart[at] > 0), key=apart.__getitem__)[:8]
    assert [one.subscription for one in engine.why_not(event, 8)] == expected
    engine = Engine(Space([place]))
    # One degree of a meridian is farther than one of the parallel at 60 degrees.
    engine.subscribe("east", "within(position, 'POLYGON ((1 59, 2 59, 2 61, 1 61, 1 59))')")
    engine.subscribe("north", "within(position, 'POLYGON ((-1 60.8, 1 60.8, 0 62, -1 60.8))')")
    engine.subscribe("both", "within(position, 'POLYGON ((0.7 60.1, 2 60.1, 1 61, 0.7 60.1))')")
    near = engine.why_not({"lon": 0, "lat": 60})
    assert [one.subscription for one in near] == ["both", "east", "north"]
