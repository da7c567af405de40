"""The map of the page, in a real browser: the fleet demo, and shapes that are hard to draw."""

from __future__ import annotations

import math
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import numpy as np
import pytest
import shapely
from geographiclib.geodesic import Geodesic
from playwright.sync_api import Browser, Page, expect

from rangecast import Client, Location, Point, Space, String
from rangecast.server.demo.city import City
from tests.server.test_page import HOSTILE, LONG, loaded, started
from tests.server.test_page import browser as browser
from tests.support.server.served import Served

pytestmark = [
    pytest.mark.process,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(not shutil.which("chromium"), reason="there is no chromium here"),
]
SPHERE = Geodesic(6371008.8, 0.0)
PICTURE = "() => document.getElementById('map').toDataURL()"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the fleet demo."""
    with started(tmp_path_factory.mktemp("map"), "--demo", "fleet") as found:
        yield found


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """The page; at the end of a test nothing may have gone wrong in it."""
    page, wrong = loaded(browser, url)
    expect(page.locator("#map-note")).to_contain_text("24 subscriptions")
    yield page
    assert (wrong, page.title()) == ([], "rangecast")
    page.close()


def middle(page: Page) -> tuple[float, float]:
    """Return the coordinates in the middle of the map."""
    for _ in range(LONG // 200):
        page.press("#map", "Escape")
        page.press("#map", "Enter")
        text = page.locator("#map-here").inner_text()
        found = re.match(r"(-?[\d.e-]+), (-?[\d.e-]+):", text)
        if found:
            return float(found[1]), float(found[2])
        page.wait_for_timeout(200)  # a vehicle is there
    pytest.fail("the middle has no coordinates")


def test_transitions_are_listed_as_they_happen(page: Page) -> None:
    rows = page.locator("#tracks tbody tr")
    expect(rows.first).to_be_visible(timeout=60_000)
    expect(page.locator("#tracks tbody tr.exit").first).to_be_visible(timeout=60_000)
    first = rows.first.locator("td").all_inner_texts()
    assert first[2] in ("enter", "exit")
    assert first[3] in City().fences()
    expect(rows.first).not_to_have_text("".join(first), timeout=60_000)


def test_vehicles_move_and_are_listed_where_they_are(page: Page) -> None:
    expect(page.locator("#map-note")).to_contain_text("40 objects")
    expect(page.locator("#map-changes li").nth(20)).to_be_visible()
    before = page.evaluate(PICTURE)
    page.wait_for_function(f"(before) => ({PICTURE})() !== before", arg=before)
    page.click("#map-tables summary")
    expect(page.locator("#map-objects tbody tr")).to_have_count(40)
    districts = {
        name: shapely.from_wkt(text.removeprefix("within(position, '").removesuffix("')"))
        for name, text in City().fences().items()
        if text.startswith("within(position, 'POLYGON") and text.endswith("')")
    }
    assert len(districts) == 10
    rows = page.locator("#map-objects tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    inside = 0
    for _, where, subscriptions in rows:
        place = shapely.Point(*map(float, where.split(", ")))
        for name, shape in districts.items():
            assert shape.covers(place) == (name in subscriptions.split(", ")), (name, where)
            inside += bool(shape.covers(place))
    assert inside > 5
    shapes = page.locator("#map-shapes tbody")
    expect(shapes).to_contain_text("polygon, 25 corners, 1 hole")
    expect(shapes).to_contain_text("circle, radius 350 m")
    expect(shapes).to_contain_text("corridor, 120 m to each side of 10 corners")
    expect(shapes).to_contain_text("outside of: circle, radius 5.4 km")


def test_it_is_moved_by_mouse_wheel_keys_and_fingers(page: Page) -> None:
    canvas = page.locator("#map")
    canvas.scroll_into_view_if_needed()
    lon, lat = middle(page)
    assert abs(lon - 13.4) < 0.01
    assert abs(lat - 52.5) < 0.01
    for key, dx, dy in (("ArrowRight", 1, 0), ("ArrowUp", 0, 1), ("ArrowLeft", -1, 0)):
        canvas.press(key)
        now = middle(page)
        assert [round(now[0] - lon, 4) * dx > 0.001, round(now[1] - lat, 4) * dy > 0.001] == [
            bool(dx),
            bool(dy),
        ]
        lon, lat = now
    canvas.press("0")
    lon, lat = middle(page)
    box = canvas.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 100, y, steps=4)
    page.mouse.up()
    dragged = middle(page)[0] - lon
    assert dragged > 0.005
    canvas.press("0")
    canvas.focus()
    page.mouse.move(x, y)
    page.mouse.wheel(0, -600)  # nearer: the same drag is a shorter way
    page.mouse.down()
    page.mouse.move(x - 100, y, steps=4)
    page.mouse.up()
    assert 0 < middle(page)[0] - lon < 0.6 * dragged
    for button, nearer in (("#map-in", True), ("#map-out", False)):
        page.click("#map-fit")
        page.click(button)
        start = middle(page)[0]
        canvas.press("ArrowRight")
        moved = (middle(page)[0] - start) * 100 / 80
        assert (moved < dragged) == nearer
    page.click("#map-fit")
    session = page.context.new_cdp_session(page)
    for kind, apart in (("touchStart", 40), ("touchMove", 80), ("touchMove", 120)):
        points = [{"x": x - apart, "y": y, "id": 1}, {"x": x + apart, "y": y, "id": 2}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    start = middle(page)[0]
    canvas.press("ArrowRight")
    assert (middle(page)[0] - start) * 100 / 80 < 0.5 * dragged


def test_a_click_names_what_is_there_and_a_name_shows_it(page: Page) -> None:
    page.click("#map-tables summary")
    page.locator("#map-shapes").get_by_role("button", name="Depot West").click()
    lon, lat = middle(page)
    text = City().fences()["Depot West"]
    expected = [float(part) for part in re.findall(r"[\d.]+", text)[:2]]
    assert math.dist((lon, lat), expected) < 1e-4
    expect(page.locator("#map-here")).to_contain_text("Depot West")
    expect(page.locator("#map")).to_have_attribute("aria-label", re.compile("Map. 24 subscr"))


def test_wide_and_narrow_light_and_dark(page: Page) -> None:
    pictures = set()
    for width in (1280, 360):
        for scheme in ("light", "dark"):
            page.set_viewport_size({"width": width, "height": 740})
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            page.wait_for_timeout(300)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            pictures.add(page.evaluate(PICTURE))
    assert len(pictures) == 4


def rings(page: Page, kind: str, coordinates: Any, radius: float | None, edges: str = "straight"):
    """Return the rings of a shape in degrees, as the map draws them."""
    given = {
        "feature": {
            "geometry": {"type": kind, "coordinates": coordinates},
            "properties": {"radius": radius},
        },
        "place": {"type": "location", "edges": edges},
    }
    return page.evaluate(
        """async ({ feature, place }) => {
          const { earth, ringsOf } = await import("/page/map/projection.js");
          const { rings } = ringsOf(feature, place);
          return rings.map((ring) => Array.from({ length: ring.length / 2 },
            (_, at) => earth.unproject([ring[2 * at], ring[2 * at + 1]])));
        }""",
        given,
    )


@pytest.mark.parametrize(
    ("centre", "radius"),
    [((13.4, 52.5), 5_000), ((179.99, 10), 50_000), ((0, 0), 3_000_000), ((20, -70), 900_000)],
)
def test_circles_are_true_on_the_sphere(page: Page, centre, radius) -> None:
    (ring,) = rings(page, "Point", list(centre), radius)
    for lon, lat in ring:
        found = SPHERE.Inverse(centre[1], centre[0], lat, lon)["s12"]
        assert found == pytest.approx(radius, rel=1e-6)
    assert max(lon for lon, _ in ring) - min(lon for lon, _ in ring) < 180


def test_circles_around_poles(page: Page) -> None:
    (ring,) = rings(page, "Point", [30, 84], 2_000_000)
    drawn = shapely.Polygon(ring)
    for lon, lat in ((30, 80), (-140, 84), (30, 67), (210, 80)):
        near = SPHERE.Inverse(84, 30, lat, lon)["s12"] < 2_000_000
        assert any(drawn.covers(shapely.Point(lon + turn, lat)) for turn in (-360, 0, 360)) == near
    world, *holes = rings(page, "Point", [0, 0], 14_000_000)
    drawn = shapely.Polygon(world).difference(shapely.union_all([*map(shapely.Polygon, holes)]))
    for lon, lat in ((0, 0), (0, 84), (0, -84), (170, 10), (-178, -5), (120, 0)):
        near = SPHERE.Inverse(0, 0, lat, lon)["s12"] < 14_000_000
        assert any(drawn.covers(shapely.Point(lon + turn, lat)) for turn in (-360, 0, 360)) == near


def haversine(lon: float, lat: float, places: np.ndarray) -> np.ndarray:
    """Return the distances of a place from others, in metres on the sphere."""
    x, y = np.radians(lon), np.radians(lat)
    xs, ys = np.radians(places.T)
    square = np.sin((ys - y) / 2) ** 2 + np.cos(y) * np.cos(ys) * np.sin((xs - x) / 2) ** 2
    return 2 * SPHERE.a * np.arcsin(np.sqrt(square))


@pytest.mark.parametrize(
    "line",
    [
        [[13.3, 52.4], [13.4, 52.5], [13.5, 52.45]],
        [[170, 60], [190, 62], [185, 50]],
        [[0, 0], [0.2, 0]],
    ],
)
def test_corridors_are_what_lies_near_the_line(page: Page, line) -> None:
    radius = 4_000.0
    drawn = shapely.union_all(
        [shapely.Polygon(ring).buffer(0) for ring in rings(page, "LineString", line, radius)]
    )
    along = [
        (leg.Position(share * leg.s13)["lon2"], leg.Position(share * leg.s13)["lat2"])
        for (x0, y0), (x1, y1) in pairwise(line)
        for leg in [SPHERE.InverseLine(y0, x0, y1, x1)]
        for share in [at / 400 for at in range(401)]
    ]
    x0, y0, x1, y1 = drawn.bounds
    wrong = tried = 0
    for column in range(25):
        for row in range(25):
            x, y = x0 + (x1 - x0) * column / 24, y0 + (y1 - y0) * row / 24
            apart = haversine(x, y, np.array(along)).min()
            if abs(apart - radius) < 2_500:  # the line is a row of places here
                continue
            tried += 1
            wrong += drawn.covers(shapely.Point(x, y)) != (apart < radius)
    assert tried > 100
    assert wrong == 0


def test_a_ring_around_a_pole_is_closed_along_the_edge(page: Page) -> None:
    corners = [[0, 60], [90, 65], [180, 60], [-90, 65], [0, 60]]
    unwrapped = [[0, 60], [90, 65], [180, 60], [270, 65], [360, 60]]
    (ring,) = rings(page, "Polygon", [unwrapped], None, "geodesic")
    drawn = shapely.Polygon(ring)
    assert drawn.covers(shapely.Point(200, 84))
    assert not drawn.covers(shapely.Point(200, 40))
    assert len(ring) > len(corners) + 20


@pytest.fixture(scope="module")
def other() -> Iterator[str]:
    """Spaces that are hard to draw."""
    yard = Space([Point("spot", x="east", y="north"), String("robot")])
    wide = Space([Location("position")])
    nested = Space([Location("position", longitude="$.at.lon", latitude="$.at.lat")])
    served = Served(spaces={"nested": nested, "wide": wide, "yard": yard})
    with Client(served.url, space="yard") as client:
        client.subscribe("square", "within(spot, 'POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0))')")
        client.subscribe(HOSTILE, "within(spot, circle(20, 5, 4))")
        client.publish([{"east": 5, "north": 5, "robot": HOSTILE}])
    with Client(served.url, space="wide") as client:
        client.subscribe("a", "within(position, 'POLYGON ((179 1, -179 1, -179 2, 179 1))')")
        client.subscribe("b", "within(position, circle(-178, 1.5, 40 km))")
    yield served.url
    served.stop()


def test_a_plane_and_hostile_names(browser: Browser, other: str) -> None:
    page, wrong = loaded(browser, other)
    page.select_option("#space", "yard")
    expect(page.locator("#map-note")).to_contain_text("2 subscriptions with 2 shapes; 1 object, 1")
    expect(page.locator("#map-changes")).to_contain_text(f"{HOSTILE} in square")
    page.click("#map-tables summary")
    expect(page.locator("#map-shapes")).to_contain_text(HOSTILE)
    page.locator("#map-shapes").get_by_role("button", name="<img").click()
    assert math.dist(middle(page), (20, 5)) < 0.1
    expect(page.locator("#map-here")).to_contain_text(HOSTILE)
    assert page.locator("main img").count() == 0
    assert (wrong, page.title()) == ([], "rangecast")
    page.close()


def test_shapes_on_both_sides_of_the_antimeridian_are_shown_together(
    browser: Browser, other: str
) -> None:
    page, wrong = loaded(browser, other)
    page.select_option("#space", "wide")
    expect(page.locator("#map-note")).to_contain_text("2 subscriptions")
    lon, lat = middle(page)
    assert abs(abs(lon) - 179.3) < 1
    assert abs(lat - 1.5) < 0.5
    page.select_option("#space", "nested")
    expect(page.locator("#map-note")).to_contain_text("0 subscriptions")
    event = {"at": {"lon": -70.5, "lat": 12.25}}
    httpx.post(f"{other}/v1/spaces/nested/events", json=event).raise_for_status()
    expect(page.locator("#map-note")).to_contain_text("1 object")
    page.click("#map-fit")
    page.press("#map", "Enter")  # what is in the middle
    here = "event 1 at -70.5, 12.25: in no subscription"
    expect(page.locator("#map-here")).to_have_text(here)
    assert wrong == []
    page.close()


@pytest.mark.soak
def test_thousands_of_shapes(browser: Browser, other: str) -> None:
    with Client(other, space="wide") as client:
        client.subscribe_many(
            {
                "id": [f"{at}" for at in range(5_000)],
                "filter": [
                    f"within(position, circle({at % 100}, {at // 100}, {5 + at % 40} km))"
                    for at in range(5_000)
                ],
            }
        )
    page, wrong = loaded(browser, other)
    page.select_option("#space", "wide")
    expect(page.locator("#map-note")).to_contain_text("5,002 subscriptions with 5,002 shapes")
    page.click("#map-tables summary")
    expect(page.locator("#map-shapes tbody tr")).to_have_count(200)
    expect(page.locator("#map-shapes-note")).to_contain_text("The first 200 of 5,002 shapes")
    page.press("#map", "+")
    page.press("#map", "ArrowLeft")
    assert wrong == []
    page.close()


class _Tiles(BaseHTTPRequestHandler):
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "image/svg+xml")
        self.end_headers()
        self.wfile.write(
            b'<svg xmlns="http://www.w3.org/2000/svg" width="256" height="256">'
            b'<rect width="256" height="256" fill="red"/></svg>'
        )

    def log_message(self, *_: Any) -> None:
        pass


def policy(url: str) -> list[str]:
    found: str = httpx.get(url).headers["content-security-policy"]
    return found.split("; ")


def test_tiles_come_from_one_address_and_only_if_it_is_given(
    browser: Browser, tmp_path, url: str
) -> None:
    assert "img-src 'self'" in policy(url)
    with _served_tiles() as origin:
        _tiles_are_drawn(browser, tmp_path, origin)


@contextmanager
def _served_tiles() -> Iterator[str]:
    """Serve tiles; yield their origin."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Tiles) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


def _tiles_are_drawn(browser: Browser, tmp_path: Path, origin: str) -> None:
    address = f"{origin}/tiles/{{z}}/{{x}}/{{y}}.svg"
    with started(tmp_path, "--demo", "fleet", "--map-tiles", address) as found:
        assert f"img-src 'self' {origin}" in policy(found)
        page, wrong = loaded(browser, "about:blank")
        hosts: set[str] = set()
        page.on("request", lambda asked: hosts.add(urlsplit(asked.url).netloc))
        page.goto(found)
        expect(page.locator("#map-note")).to_contain_text("40 objects")
        page.wait_for_function(
            "() => { const pen = document.getElementById('map'); return pen.width > 300; }"
        )
        for _ in range(LONG // 100):
            if _Tiles.asked:
                break
            page.wait_for_timeout(100)
        assert hosts == {urlsplit(found).netloc, urlsplit(origin).netloc}
        zoom, x, y = map(int, re.findall(r"\d+", _Tiles.asked[0]))
        west, north = x / 2**zoom * 360 - 180, y / 2**zoom
        assert abs(west - 13.4) < 4 * 360 / 2**zoom  # a tile of those on the screen
        sine = math.sin(math.radians(52.5))
        assert abs(north - (0.5 - math.log((1 + sine) / (1 - sine)) / 4 / math.pi)) < 2 / 2**zoom
        assert wrong == []
        page.close()


def test_the_subscription_of_a_page_is_not_drawn(browser: Browser, other: str) -> None:
    path = f"{other}/v1/spaces/yard/subscriptions/{quote('gone', safe='')}"
    httpx.put(path, json={"filter": "within(spot, circle(1, 1, 1))"}).raise_for_status()
    page, wrong = loaded(browser, other)
    page.select_option("#space", "yard")
    expect(page.locator("#map-note")).to_contain_text("3 subscriptions")
    page.fill("#tail-filter", "within(spot, circle(2, 2, 2))")
    page.click("#tail-form button.main")
    expect(page.locator("#tail-note")).to_contain_text("Waiting")
    httpx.delete(path).raise_for_status()
    expect(page.locator("#map-note")).to_contain_text("2 subscriptions with 2 shapes")
    assert wrong == []
    page.close()
