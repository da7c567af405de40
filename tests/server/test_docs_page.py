"""The API page, in a real browser: whole, offline, and what it sends is answered."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from rangecast.client import Client
from rangecast.server.http.openapi.operation import TAGS
from rangecast.server.http.openapi.operations import OPERATIONS
from tests.server.test_page import browser as browser
from tests.server.test_page import loaded
from tests.support.server.served import Served

pytestmark = [
    pytest.mark.process,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(not shutil.which("chromium"), reason="there is no chromium here"),
]
HOSTILE = "<img src=x onerror=\"document.title='run'\">"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    served = Served()
    yield served.url
    served.stop()


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    page, wrong = loaded(browser, f"{url}/docs")
    yield page
    assert (wrong, page.title()) == ([], "rangecast API")
    page.close()


def test_it_is_linked_and_lets_nothing_else_in(url: str) -> None:
    answer = httpx.get(f"{url}/docs")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"(src|href)=\"(?!/|#)", answer.text)
    assert 'href="/docs"' in httpx.get(url).text
    assert httpx.get(f"{url}/v1").json()["docs"] == "/docs"
    for method in ("GET", "DELETE"):
        for path in ("/v1/nothing", "/nothing"):
            assert "/docs lists all" in httpx.request(method, url + path).json()["detail"]


def test_all_operations_are_listed_and_open(browser: Browser, url: str) -> None:
    page, wrong = loaded(browser, "about:blank")
    hosts: set[str] = set()
    page.on("request", lambda asked: hosts.add(urlsplit(asked.url).netloc))
    page.goto(f"{url}/docs")
    expect(page.locator(".operation")).to_have_count(len(OPERATIONS))
    expect(page.locator("#main h2")).to_have_count(len(TAGS))
    assert hosts == {urlsplit(url).netloc}
    page.evaluate("document.querySelectorAll('.operation').forEach((one) => { one.open = true; })")
    expect(page.locator(".try")).to_have_count(len(OPERATIONS))
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.fill("#find", "seek")
    expect(page.locator(".operation")).to_have_count(1)
    page.fill("#find", "nothing like this")
    expect(page.locator("#main")).to_contain_text("No operation")
    assert wrong == []
    page.close()


def test_a_request_is_sent_as_the_form_says(page: Page, url: str) -> None:
    with Client(url, space="market") as client:
        client.upsert(HOSTILE, "price < 20")
    page.goto(f"{url}/docs#publish")
    form = page.locator("#publish .try")
    form.get_by_label("wait").select_option("matches")
    form.locator("textarea").fill('{"price": 12.5}')
    form.get_by_role("button", name="Send").click()
    expect(form.locator(".line")).to_contain_text("200 OK")
    expect(form.locator(".answer > pre")).to_contain_text(HOSTILE.replace('"', '\\"'))
    form.get_by_text("As a command").click()
    expect(form.locator(".answer pre").nth(1)).to_contain_text(
        "/v1/spaces/market/events?wait=matches"
    )
    form.get_by_label("Content-Type").select_option("application/x-ndjson")
    expect(form.locator("textarea")).to_have_value(re.compile("^{.*}\n{"))
    form.locator("textarea").fill('{"price": "x"}')
    form.get_by_role("button", name="Send").click()
    expect(form.locator(".line")).to_contain_text("422")
    expect(form.locator(".answer > pre")).to_contain_text("is not a number")


@pytest.fixture
def guarded() -> Iterator[tuple[str, str]]:
    """A server that asks for a token, and the token."""
    served = Served()
    with Client(served.url) as client:
        yield served.url, client.make_token("page", ["admin"])
    served.stop()


def test_a_token_is_sent_and_never_shown(browser: Browser, guarded: tuple[str, str]) -> None:
    url, token = guarded
    page, wrong = loaded(browser, f"{url}/docs#listTokens")
    form = page.locator("#listTokens .try")
    form.get_by_role("button", name="Send").click()
    expect(form.locator(".line")).to_contain_text("401")
    page.click("#token-state")
    page.fill("#token", token)
    page.click("#token-form button")
    expect(page.locator("#token-state")).to_have_text("Token: in use")
    form.get_by_role("button", name="Send").click()
    expect(form.locator(".line")).to_contain_text("200 OK")
    expect(form.locator(".answer > pre")).to_contain_text('"label": "page"')
    assert token not in page.content()
    assert "$RANGECAST_TOKEN" in page.content()
    assert wrong == []
    page.close()
