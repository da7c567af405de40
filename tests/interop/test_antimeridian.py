"""Polygons across the antimeridian are written in parts, which match the same positions."""

from __future__ import annotations

import json
import math
import random

import pytest
import shapely

from rangecast import Engine, Location, Space
from rangecast.interop import geojson

SHAPES = {
    "plain": "POLYGON ((170 0, -170 0, -170 9, 170 9, 170 0))",
    "inside": "POLYGON ((100 0, 110 0, 110 9, 100 0))",
    "holes": "POLYGON ((170 -20, -165 -20, -165 20, 170 20, 170 -20),"
    " (175 -9, -175 -9, -175 -3, 175 -3, 175 -9), (172 5, 174 5, 174 8, 172 5),"
    " (-172 5, -170 5, -170 8, -172 5))",
    "comb": "POLYGON ((175 0, -175 1, 175 2, 175 4, -175 5, 175 6, 174 7, 174 -1, 175 0))",
    "touching": "POLYGON ((170 30, 180 35, -170 30, -170 40, 180 38, 170 40, 170 30))",
    "edge on it": "POLYGON ((170 50, 180 50, 180 55, -175 55, -175 60, 180 60, 170 60, 170 50))",
    "hole on it": "POLYGON ((170 -36, -170 -36, -170 -26, 170 -26, 170 -36),"
    " (175 -35, 180 -34, 175 -33, 175 -35), (-175 -31, 180 -30, 180 -29, -175 -31))",
    "two": "MULTIPOLYGON (((178 -40, -178 -40, -178 -38, 178 -38, 178 -40)),"
    " ((0 -40, 1 -40, 1 -39, 0 -40)))",
}


def space_of(edges: str, border: str = "closed") -> Space:
    return Space([Location("position", edges=edges, border=border)])


def jagged(chance: random.Random) -> str:
    """Return a polygon with many corners on both sides."""
    angles = sorted(chance.uniform(0, 2 * math.pi) for _ in range(60))
    ring = [(chance.uniform(2, 9), angle) for angle in angles]
    lon = chance.uniform(175, 185)
    corners = [(lon + r * math.cos(a), -60 + r * math.sin(a)) for r, a in ring]
    turned = [((x + 180) % 360 - 180, y) for x, y in [*corners, corners[0]]]
    return f"POLYGON (({', '.join(f'{x!r} {y!r}' for x, y in turned)}))"


@pytest.mark.parametrize("border", ["closed", "once", "open"])
@pytest.mark.parametrize("edges", ["straight", "geodesic"])
def test_what_is_written_matches_the_same_positions(edges: str, border: str):
    chance = random.Random(6)
    shapes = SHAPES | {f"jagged {number}": jagged(chance) for number in range(8)}
    engine = Engine(space_of(edges, border))
    for name, text in shapes.items():
        engine.subscribe(name, f"within(position, '{text}')")
    written = geojson.write(engine.boxes(), engine.space)
    assert not written.unsupported
    document = json.loads(written.text)
    if border != "open":
        for feature in document["features"]:
            shape = shapely.from_geojson(json.dumps(feature["geometry"]))
            west, _, east, _ = shape.bounds
            assert shape.is_valid
            assert west >= -180
            assert east <= 180
    again = Engine(space_of(edges, border))
    again.subscribe_many(geojson.read(document, again.space).subscriptions)
    assert len(again) == len(engine)
    places = [(chance.uniform(160, 200), chance.uniform(-70, 65)) for _ in range(3000)]
    places += [(180.0, chance.uniform(-70, 65)) for _ in range(300)]
    places += [(lon, lat) for text in SHAPES.values() for lon, lat in corners_of(text)]
    found = 0
    for lon, lat in places:
        event = {"longitude": lon - 360 if lon > 180 else lon, "latitude": lat}
        wanted = engine.match(event)
        assert sorted(again.match(event)) == sorted(wanted), event
        found += len(wanted)
    assert found > 500


def corners_of(text: str) -> list[tuple[float, float]]:
    return [(x, y) for x, y in shapely.get_coordinates(shapely.from_wkt(text)).tolist()]
