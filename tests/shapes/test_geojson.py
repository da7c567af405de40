"""Shapes of the live set as GeoJSON: those that were subscribed, and none of the tails'."""

from __future__ import annotations

import httpx
import pytest
import shapely
import shapely.geometry
from shapely.geometry import Point as ShapelyPoint

from rangecast import Client, Engine, Location, Number, Point, Space
from rangecast.errors import UsageError
from rangecast.server.http.page import tile_origin
from tests.support.server.served import Served

SPACE = Space(
    [
        Location("position", longitude="lon", latitude="lat"),
        Point("yard", x="east", y="north"),
        Number("speed"),
    ]
)
HOLED = "POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0), (2 2, 4 2, 4 4, 2 2))"
FILTERS = {
    "circle": "within(position, circle(13.4, 52.5, 5 km)) and speed > 3",
    "holed": f"within(position, '{HOLED}')",
    "two": "within(position, 'MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))')",
    "across": "within(position, 'POLYGON ((170 0, -170 0, -170 9, 170 9, 170 0))')",
    "road": "within(position, buffer('LINESTRING (13 52, 14 53)', 200 m))",
    "outside": "not within(position, circle(1, 2, 3 m)) and within(position, circle(1, 2, 1 km))",
    "either": "within(position, circle(1, 2, 3 m)) or within(position, circle(4, 5, 6 m))",
    "far": "distance(position, point(1, 2)) > 10 km",
    "plain": "speed > 3 and lon between 3 and 4",
    "yard": "within(yard, circle(3, 4, 5))",
}


@pytest.fixture(scope="module")
def url():
    served = Served(spaces={"fleet": SPACE, "plain": Space([Number("speed")])})
    with Client(served.url, space="fleet") as client:
        for name, text in FILTERS.items():
            client.subscribe(name, text)
    yield served.url
    served.stop()


def ask(url, query="", space="fleet"):
    answer = httpx.get(f"{url}/v1/spaces/{space}/shapes{query}").raise_for_status()
    assert answer.headers["content-type"] == "application/geo+json"
    return answer.json()


def by_subscription(answer):
    found: dict = {}
    for one in answer["features"]:
        found.setdefault(one["properties"]["subscription"], []).append(one)
    return found


def test_every_shape_is_there_as_it_was_given(url):
    answer = ask(url)
    found = by_subscription(answer)
    assert list(found) == [name for name in FILTERS if name not in ("plain", "yard")]
    assert answer["place"]["name"] == "position"
    assert (answer["place"]["x"], answer["place"]["y"]) == ("lon", "lat")
    assert (answer["next"], answer["tiles"]) == (None, None)
    (circle,) = found["circle"]
    assert circle["geometry"] == {"type": "Point", "coordinates": [13.4, 52.5]}
    assert circle["properties"] == {"subscription": "circle", "negated": False, "radius": 5000.0}
    (road,) = found["road"]
    assert road["geometry"]["coordinates"] == [[13.0, 52.0], [14.0, 53.0]]
    assert road["properties"]["radius"] == 200.0
    shape = shapely.geometry.shape(found["holed"][0]["geometry"])
    assert shape.equals(shapely.from_wkt(HOLED))
    assert shapely.geometry.shape(found["two"][0]["geometry"]).geom_type == "MultiPolygon"
    across = shapely.geometry.shape(found["across"][0]["geometry"])
    assert across.bounds == (170, 0, 190, 9)
    signs = [
        (one["properties"]["negated"], one["properties"]["radius"]) for one in found["outside"]
    ]
    assert sorted(signs) == [(False, 1000.0), (True, 3.0)]
    assert len(found["either"]) == 2
    assert found["far"][0]["properties"]["negated"]


def test_other_places_and_pages(url):
    yard = ask(url, "?place=yard")
    assert list(by_subscription(yard)) == ["yard"]
    assert (yard["place"]["type"], yard["place"]["x"]) == ("point", "east")
    names, after = [], ""
    for _ in range(20):
        page = ask(url, f"?limit=3&after={after}")
        assert len(by_subscription(page)) <= 3
        names += by_subscription(page)
        after = page["next"]
        if after is None:
            break
    assert names == list(by_subscription(ask(url)))
    assert ask(url, space="plain")["place"] is None
    rejected = httpx.get(f"{url}/v1/spaces/fleet/shapes?place=positon")
    assert rejected.status_code == 422
    assert "did you mean 'position'" in rejected.json()["detail"]


def test_what_is_drawn_is_what_matches(url):
    """A point is in the polygons of the answer where the engine says that it is."""
    engine = Engine(SPACE)
    for name in ("holed", "two", "across"):
        engine.subscribe(name, FILTERS[name])
    drawn = {
        name: shapely.geometry.shape(some[0]["geometry"])
        for name, some in by_subscription(ask(url)).items()
        if name in engine
    }
    for x in (-175.0, 0.5, 2.9, 3.1, 5.5, 5.9, 8.0, 175.0):
        for y in (0.25, 2.5, 3.0, 5.25, 8.5):
            places = [ShapelyPoint(x + turn, y) for turn in (0, 360)]
            inside = {name for name, one in drawn.items() if any(map(one.covers, places))}
            assert set(engine.match({"lon": x, "lat": y})) == inside


@pytest.mark.parametrize(
    "url_of_tiles",
    [
        "tiles/{z}/{x}/{y}",
        "https://a.example/{z}/{x}.png",
        "https://a.example; script-src *//{z}/{x}/{y}",
        "https://user@a.example/{z}/{x}/{y}",
        "javascript://a/{z}/{x}/{y}",
        "https://a.example/{z}/{x}/{y}\nX: y",
    ],
)
def test_bad_addresses_of_tiles_are_rejected(url_of_tiles):
    with pytest.raises(UsageError, match="--map-tiles must be a URL"):
        tile_origin(url_of_tiles)


def test_the_origin_of_tiles():
    assert tile_origin("https://a.example:8443/t/{z}/{x}/{y}.png?k=1") == "https://a.example:8443"
