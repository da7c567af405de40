"""The page of `rangecast serve`, in a real browser."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from rangecast.server.http.page import FILES, FOLDER
from tests.server.links.test_manager import serving
from tests.support.server.servers import ROOT, server

pytestmark = [
    pytest.mark.process,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(not shutil.which("chromium"), reason="there is no chromium here"),
]
HOSTILE = "<img src=x onerror=\"document.title='run'\">"
LONG = 180_000
"""Milliseconds, for a busy machine and kernels that aren't compiled yet."""
expect.set_options(timeout=LONG)
EVENT = {"symbol": HOSTILE, "sector": "tech", "price": 1.5, "volume": 7, "risk": 0.25}


@contextmanager
def started(folder: Path, *options: str) -> Iterator[str]:
    """A server of the shell with these options; its address."""
    log = folder / "log.txt"
    command = [sys.executable, "-m", "rangecast", "serve", *options, "--port", "0"]
    with server(
        command,
        log,
        lambda: "Serving on" in log.read_text(),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ):
        found = re.search(r"http://\S+:\d+", log.read_text())
        assert found is not None
        yield found.group()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the demo, for all tests of this file."""
    with started(tmp_path_factory.mktemp("page"), "--demo") as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        found = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        yield found
        found.close()


def loaded(browser: Browser, url: str) -> tuple[Page, list[str]]:
    """Load a page; return it, and a list of what goes wrong in it."""
    wrong: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(LONG)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if _is_wrong(said) else None)
    page.goto(url)
    return page, wrong


@pytest.fixture(scope="module")
def opened(browser: Browser, url: str) -> tuple[Page, list[str]]:
    """The page, loaded, for all tests of this file."""
    page, wrong = loaded(browser, url)
    expect(page.locator("#attributes")).to_contain_text("Attributes")
    expect(page.locator("#tail tbody tr").first).to_be_visible()  # there are events to try on
    return page, wrong


@pytest.fixture
def page(opened: tuple[Page, list[str]]) -> Iterator[Page]:
    """The page; at the end of a test nothing may have gone wrong in it."""
    yield opened[0]
    assert (opened[1], opened[0].title()) == ([], "rangecast")


def _is_wrong(said: Any) -> bool:
    """Return whether the console says more than that the server rejected something."""
    return said.type in ("error", "warning") and "the server responded with" not in said.text


def put(url: str, name: str, wanted: str) -> None:
    path = f"{url}/v1/spaces/market/subscriptions/{quote(name, safe='')}"
    httpx.put(path, json={"filter": wanted}).raise_for_status()


def test_something_moves(page: Page) -> None:
    expect(page.locator("#tail tbody tr").nth(20)).to_be_visible()
    expect(page.locator("#health")).to_contain_text("subscriptions")
    rate = page.locator('#status [data-key="events"] dd')
    expect(rate).to_have_text(re.compile("[1-9]"))
    before = page.locator("#plane").screenshot()
    for _ in range(LONG // 100):
        page.wait_for_timeout(100)
        if page.locator("#plane").screenshot() != before:
            break
    else:
        pytest.fail("nothing moves")
    expect(page.locator("#plane-note")).to_contain_text("boxes that bound one of the two")
    for x, y in (("symbol", "sector"), ("halted", "time")):
        page.select_option("#plane-x", x)
        page.select_option("#plane-y", y)
    expect(page.locator("#plane-note")).to_contain_text("the latest events")


def test_the_tail_is_bounded_and_rests(page: Page) -> None:
    rows = page.locator("#tail tbody tr")
    expect(rows).to_have_count(100)
    page.click("#tail-pause")
    expect(page.locator("#tail-note")).to_contain_text("came meanwhile")
    expect(page.locator("#tail tbody td", has_text="…")).to_have_count(0)
    resting = page.locator("#tail tbody").inner_text()  # who matches them is known by now
    page.wait_for_timeout(700)
    assert page.locator("#tail tbody").inner_text() == resting
    page.click("#tail-pause")
    expect(page.locator("#tail tbody")).not_to_have_text(resting)
    expect(rows).to_have_count(100)


def test_a_fault_is_marked_at_its_place(page: Page) -> None:
    for text, marked, says in (
        ("price < 20 and sectr = 3", "sectr", "no attribute 'sectr'"),
        ("symbol = '𝔸' and pric > 1", "pric", "no attribute 'pric'"),
        ("price < 20 and", "\u00a0", "found the end of the text"),
    ):
        page.fill("#filter", text)
        page.press("#filter", "Enter")
        expect(page.locator("#try-answer")).to_contain_text(says)
        expect(page.locator("#try-answer mark")).to_have_text(marked)
        expect(page.locator("#try-answer pre")).to_have_text(re.compile(re.escape(text)))
        expect(page.locator("#save-form")).to_be_hidden()


def test_a_filter_is_tried_and_saved_and_deleted(page: Page, url: str) -> None:
    page.fill("#filter", "price < 200 and (risk <= 0.9 or halted = true)")
    page.click("#try-form button")
    expect(page.locator("#try-answer li")).to_have_count(2)
    expect(page.locator("#try-answer")).to_contain_text(
        re.compile(r"would have matched [\d,]+ of the last [\d,]+ events")
    )
    expect(page.locator("#try-answer .bars rect").first).to_be_visible()
    page.fill("#save-id", "a search/1")
    page.click("#save-form button")
    expect(page.locator("#save-answer")).to_contain_text("Saved as a search/1")
    cell = page.get_by_role("cell", name="a search/1", exact=True)
    row = page.locator("#subscriptions tbody tr", has=cell)
    expect(row).to_contain_text("price < 200")
    row.get_by_text("Check").click()
    expect(row).to_contain_text("missing: required")
    put(url, "a search/12", "price < 1")  # the list is loaded again
    expect(page.locator("#subscriptions tbody tr")).to_have_count(2)
    expect(row).to_contain_text("missing: required")
    page.click("#save-form button")
    expect(page.locator("#save-answer")).to_contain_text("already exists")
    page.get_by_text("Replace it").click()
    expect(page.locator("#save-answer")).to_contain_text("Saved as")
    row.get_by_text("Delete").click()
    row.get_by_text("Yes, delete it").click()
    expect(row).to_have_count(0)


def test_who_gets_an_event_and_why_others_do_not(page: Page, url: str) -> None:
    put(url, "narrow", "symbol = 'ONE' and price < 2 and risk < 0.3")
    put(url, "nearly", "symbol = 'ONE' and price < 1.45")
    page.fill("#event", '{"symbol": "ONE", "price": 1.5, "risk": 0.25}')
    page.click("#event-form button.main")
    answer = page.locator("#event-answer")
    answer.get_by_role("button", name="narrow").click()
    expect(page.locator("#why-answer")).to_contain_text("narrow matches")
    nearest = answer.locator("tbody tr").first
    expect(nearest).to_contain_text("nearly")
    expect(nearest).to_contain_text("price < 1.45")
    expect(nearest).to_contain_text("0.05 too high")
    page.fill("#why-id", "nearly")
    page.click("#why-form button")
    expect(page.locator("#why-answer")).to_contain_text("nearly does not match")
    page.fill("#event", '{"price": ')
    page.click("#event-form button.main")
    expect(answer).to_contain_text("This isn't JSON")


def test_hostile_text_is_shown_as_text(page: Page, url: str) -> None:
    put(url, HOSTILE, f"symbol = '{HOSTILE.replace(chr(39), chr(39) * 2)}'")
    page.fill("#tail-filter", "price = 1.5 and volume = 7")
    page.click("#tail-form button.main")
    expect(page.locator("#tail-note")).to_contain_text("Waiting")
    httpx.post(f"{url}/v1/spaces/market/events", json=EVENT).raise_for_status()
    expect(page.locator("#tail tbody td").nth(1)).to_have_text(HOSTILE)
    page.fill("#search", "<img")
    expect(page.locator("#subscriptions tbody td").first).to_have_text(HOSTILE)
    page.fill("#event", httpx.Response(200, json=EVENT).text)
    page.click("#event-form button.main")
    page.locator("#event-answer").get_by_role("button", name="<img").click()
    expect(page.locator("#why-answer")).to_contain_text(HOSTILE)
    page.select_option("#plane-x", "symbol")
    page.wait_for_timeout(300)
    assert page.locator("main img").count() == 0


def test_it_opens_on_what_filters_bound_and_shows_boards(page: Page, url: str) -> None:
    numbers = [{"name": name, "type": "number"} for name in ("speed", "latitude", "longitude")]
    attributes = [{"name": "road", "type": "category", "values": ["A1", "it's"]}, *numbers]
    httpx.put(f"{url}/v1/spaces/fleet", json={"attribute": attributes}).raise_for_status()
    for name, wanted in {
        "north": "latitude between 50 and 60 and longitude between 1 and 2",
        "south": "latitude < 50 and longitude between 1 and 2",
        "fast": "speed > 100",
    }.items():
        path = f"{url}/v1/spaces/fleet/subscriptions/{name}"
        httpx.put(path, json={"filter": wanted}).raise_for_status()
    # the first board compiles its kernels
    httpx.put(f"{url}/v1/boards/fares", json={"k": 2}, timeout=300).raise_for_status()
    httpx.put(f"{url}/v1/boards/fares/interests/near", json={"position_lo": 0, "position_hi": 5})
    objects = [
        {"id": name, "position": x, "value": y} for name, x, y in ((HOSTILE, 1, 3), ("b", 2, 1))
    ]
    httpx.post(f"{url}/v1/boards/fares/updates", json=objects).raise_for_status()
    expect(page.locator("#space")).to_contain_text("fleet")
    page.select_option("#space", "fleet")
    expect(page.locator("#plane-x")).to_have_value("longitude")
    expect(page.locator("#plane-y")).to_have_value("latitude")
    expect(page.locator("#filter")).to_have_attribute("placeholder", "road = 'A1' and speed <= 20")
    expect(page.locator("#subscriptions-count")).to_have_text("3")
    expect(page.locator("#interests tbody tr")).to_contain_text(f"1. b value 12. {HOSTILE} value 3")
    expect(page.locator("#board-note")).to_contain_text("the 2 of the lowest value")
    page.fill("#board-search", "far")
    expect(page.locator("#interests")).to_contain_text("No interest has this id")
    page.fill("#board-search", "")
    # its own live tail is a subscription of the server, and none of the person's
    expect(page.locator("#tail-note")).to_contain_text("Waiting")
    page.fill("#event", '{"latitude": 55, "longitude": 1.5, "speed": 120}')
    page.click("#event-form button.main")
    expect(page.locator("#event-answer")).to_contain_text("2 subscriptions get it")
    page.click("#event-publish")
    expect(page.locator("#event-answer")).to_contain_text("2 subscriptions matched it")
    row = page.locator("#tail tbody tr").first
    expect(row).to_contain_text("north, fast")
    market = httpx.get(f"{url}/v1/spaces/market/subscriptions?limit=1").json()["count"]
    assert httpx.get(f"{url}/v1/status").json()["subscriptions"] == market + 3
    page.select_option("#space", "market")


def test_headers_and_files(url: str) -> None:
    for name in ("", *(f"page/{one}" for one in FILES)):
        answer = httpx.get(f"{url}/{name}")
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert httpx.get(f"{url}/page/..%2Fdemo.py").status_code == 404
    text = (FOLDER / "index.html").read_text()
    assert not re.search(r"\son\w+=|\sstyle=|<style|<script(?! type=\"module\" src)", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", _scripts())


def _scripts() -> str:
    return "".join(one.read_text() for one in FOLDER.rglob("*.js"))


def test_a_narrow_screen_needs_no_scrolling_sideways(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_token_is_asked_for_and_used(page: Page, url: str) -> None:
    """The last one: from here on the server wants a token."""
    page.fill("#tail-filter", "true")
    given = {"label": "page", "scopes": ["admin"]}
    token = httpx.post(f"{url}/v1/tokens", json=given).raise_for_status().json()["token"]
    expect(page.locator("#health")).to_contain_text("requires a token")
    page.fill("#token", token)
    page.press("#token", "Enter")
    expect(page.locator("#health")).to_contain_text("subscriptions")
    expect(page.locator("#tail tbody tr").nth(5)).to_be_visible()
    # the live tail was opened by a ticket; what belongs to others is seen by an administrator
    bearer = {"Authorization": f"Bearer {token}"}
    expect(page.locator("#tenants-section")).to_be_hidden()
    limits = {"events_per_second": 500, "retained_bytes": 1_000_000}
    httpx.put(f"{url}/v1/tenants/other", json=limits, headers=bearer).raise_for_status()
    row = page.locator("#tenants tbody tr", has_text="other")
    expect(row).to_contain_text("events per second 500, retained bytes 1,000,000")
    given = {"label": "looker", "scopes": ["read", "subscribe"]}
    made = httpx.post(f"{url}/v1/tokens", json=given, headers=bearer)
    page.evaluate("document.getElementById('access').open = true")
    page.fill("#token", made.json()["token"])
    page.press("#token", "Enter")
    expect(page.locator("#tenants-section")).to_be_hidden()
    expect(page.locator("#tail tbody tr").nth(5)).to_be_visible()


def test_links(browser: Browser, tmp_path: Path) -> None:
    """A neighbour that is there, one that isn't, and none at all."""
    nobody = "ws://127.0.0.1:9/v1/link"
    with serving(tmp_path, "berlin") as first:
        page, wrong = loaded(browser, first)
        address = f"{first.replace('http', 'ws')}/v1/link"
        expect(page.locator("#links")).to_contain_text(f"--link {address}")
        with serving(tmp_path, "paris", first, nobody.removesuffix("/v1/link")) as second:
            row = page.locator("#links tbody tr")
            expect(row.locator("td").nth(0)).to_have_text("paris")
            expect(row.locator("td").nth(1)).to_have_text("up")
            page.goto(second)
            expect(page.locator("#links-name")).to_have_text("paris")
            expect(row).to_have_count(2)
            expect(row.nth(0)).to_contain_text("berlin")
            for at, text in ((0, nobody), (1, "not connected"), (6, "Connection refused")):
                expect(row.nth(1).locator("td").nth(at)).to_have_text(text)
            page.set_viewport_size({"width": 420, "height": 800})
            widths = "table => [table.offsetWidth, table.parentElement.clientWidth]"
            table, room = page.locator("#links").evaluate(widths)
            assert table > 1.5 * room  # words aren't broken: the table is scrolled instead
            page.close()
    assert wrong == []
