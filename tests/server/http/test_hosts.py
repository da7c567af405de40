"""Without tokens: requests that a page of another site can make a browser send are rejected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from socket import create_connection
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from rangecast.server.security.hosts import Hosts, Peer
from tests.server.http.test_auth import ANYBODY, ROUTES, filled, names_of
from tests.support.server.served import Served

EVENT = {"price": 1}
PAGE = "http://evil.example"
LONG = 90.0


def test_names_of_loopback_alone_are_accepted() -> None:
    hosts = Hosts(["Intern.example", "::1", "0.0.0.0"])
    for good in (
        *("127.0.0.1", "127.0.0.1:8080", "127.9.8.7:1", "[::1]:8080", "[::1]", "localhost"),
        *("LOCALHOST:80", "localhost.:8080", "intern.example:443", "0.0.0.0:8080"),
    ):
        assert hosts.accepts(good), good
        assert hosts.accepts(good)
    for bad in (
        *("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example"),
        *("evil.example:127.0.0.1", "127.0.0.1@evil.example", "127.0.0.1:8080:9", "127.0.0.1:x"),
        *("", " ", "[::1", "::1", "[::2]", "10.0.0.1", "localhost/", "0x7f.1", "2130706433"),
    ):
        assert not hosts.accepts(bad), bad
    for _ in range(2):
        for number in range(2000):  # what is kept is bounded
            assert hosts.accepts(f"127.0.0.1:{number}")
    assert len(hosts._known) == 1000


def test_addresses_are_accepted_where_others_may_connect() -> None:
    """A name can be made to lead anywhere; an address can't."""
    hosts = Hosts(["proxy.example"], is_open=True)
    for good in ("10.0.0.1:8080", "[fe80::1]:80", "proxy.example", "localhost"):
        assert hosts.accepts(good)
    assert not hosts.accepts("evil.example")
    own, page = ["10.0.0.1:8080"], "https://proxy.example"
    assert not hosts.wrong(Peer(None, own, page, "cross-site"))
    assert not hosts.wrong(Peer(None, own, "http://10.0.0.1:8080"))
    assert hosts.wrong(Peer(None, own, "http://10.0.0.2:8080"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    served = Served(allowed_hosts=("intern.example",))
    yield served.url
    served.stop()


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, trust_env=False, timeout=LONG) as client:
        yield client


STRANGE: list[dict[str, str]] = [
    {"Host": "evil.example"},
    {"Host": "evil.example:8080", "Origin": "http://evil.example:8080"},
    {"Origin": PAGE},
    {"Origin": "null"},
    {"Origin": PAGE, "Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "cross-site"},
]
OURS: list[dict[str, str]] = [
    {},
    {"Host": "localhost:1"},
    {"Host": "intern.example"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "same-origin"},
    {"Host": "localhost:8080", "Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"},
]
PATHS = [
    ("POST", "/v1/spaces/market/events", EVENT),  # the short way
    ("POST", "/v1/spaces/market/events?strict=true", EVENT),
    ("PUT", "/v1/spaces/market/subscriptions/one", {"filter": "price < 5"}),  # the short way
    ("POST", "/v1/spaces/market/subscriptions:bulk", [{"id": "two", "filter": "price < 5"}]),
    ("DELETE", "/v1/consumers/none", None),
    ("POST", "/v1/tickets", None),
    ("GET", "/v1/status", None),
    ("GET", "/metrics", None),
]


def test_pages_of_other_sites_are_rejected(http: httpx.Client) -> None:
    before = http.get("/v1/status").json()["durable_seq"]
    for headers in STRANGE:
        for method, path, body in PATHS:
            answer = http.request(method, path, json=body, headers=headers)
            assert answer.status_code == 403, (headers, path, answer.text)
            assert "without tokens" in answer.json()["detail"]
    assert http.get("/v1/status").json()["durable_seq"] == before
    for headers in OURS:
        for method, path, body in PATHS:
            answer = http.request(method, path, json=body, headers=headers)
            assert answer.status_code in (200, 404), (headers, path, answer.text)
    for path in ("/healthz", "/readyz", "/"):  # they tell nothing
        assert http.get(path, headers=STRANGE[0]).status_code == 200


def test_websockets_of_other_sites_are_rejected(url: str) -> None:
    address = url.replace("http", "ws") + "/v1/stream"
    port = url.rpartition(":")[2]

    def opened(headers: dict[str, str]) -> int:
        host = headers.get("Host", f"127.0.0.1:{port}")
        more = {name: value for name, value in headers.items() if name != "Host"}
        # the library takes `Host` from the address alone
        target = address.replace(f"127.0.0.1:{port}", host if ":" in host else f"{host}:80")
        try:
            with connect(
                target,
                sock=create_connection(("127.0.0.1", int(port))),
                proxy=None,
                additional_headers=more,
            ) as socket:
                socket.send('{"type": "heartbeat", "ref": 1}')
                assert json.loads(socket.recv(timeout=LONG))["type"] == "ok"
                return 101
        except InvalidStatus as rejected:
            return rejected.response.status_code

    for headers in STRANGE:
        assert opened(headers) == 403, headers
    for headers in OURS[:-1]:
        assert opened(headers) == 101, headers
    assert opened(OURS[-1]) == 403  # of another port: a WebSocket is for pages of this server


def test_forms_publish_nothing(http: httpx.Client) -> None:
    """What a page of any site can send without being asked; `curl -d` says form as well."""
    form = "application/x-www-form-urlencoded"

    def publish(kind: str, path: str = "events", body: Any = EVENT, **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = http.post(
            f"/v1/spaces/market/{path}",
            content=json.dumps(body),
            headers={"Content-Type": kind, **named},
        )
        return answer.status_code

    many = [{"id": "three", "filter": "price < 5"}]
    own = {"Origin": str(http.base_url).rstrip("/")}
    for path, body in (("events", EVENT), ("subscriptions:bulk", many)):
        for kind in ("text/plain", "text/plain; charset=utf-8", "multipart/form-data; boundary=x"):
            assert publish(kind, path, body) == 415
        assert publish(form, path, body) == 200  # curl -d
        assert publish(f"{form}; charset=utf-8", path, body) == 200
        assert publish(form, path, body, **own) == 415
        assert publish(form, path, body, Sec_Fetch_Site="same-origin") == 415
        assert publish(form, path, body, Sec_Fetch_Site="none") == 415
        assert publish("application/json", path, body, **own) == 200
        assert publish("application/x-ndjson", path, body, **own) == 200


def test_with_a_token_any_name_will_do(url: str) -> None:
    """A page of another site doesn't know it, and a browser doesn't send it by itself."""
    served = Served()
    try:
        with httpx.Client(base_url=served.url, trust_env=False, timeout=LONG) as client:
            given = {"label": "x", "scopes": ["admin"]}
            secret = client.post("/v1/tokens", json=given).json()["token"]
            bearer = {"Authorization": f"Bearer {secret}"}
            for headers in STRANGE:
                for method, path, body in PATHS:
                    answer = client.request(method, path, json=body, headers=headers | bearer)
                    assert answer.status_code in (200, 404), (headers, path, answer.text)
                    assert (
                        client.request(method, path, json=body, headers=headers).status_code == 401
                    )
    finally:
        served.stop()


def test_every_route_rejects_pages_of_other_sites(http: httpx.Client) -> None:
    """But those that need no permission: they tell nothing."""
    before = http.get("/v1/status").json()["durable_seq"]
    for route, asked in ROUTES.items():
        if asked.scope == ANYBODY:
            continue
        method, path = route.split(" ")
        names = names_of(route, "red")
        path, body = f"{filled(path, names)}?{asked.query}", filled(asked.body, names)
        for headers in STRANGE:
            answer = http.request(method, path, json=body, headers=headers)
            assert answer.status_code == 403, (route, headers, answer.text)
        if method in ("POST", "PUT", "DELETE"):
            for kind in ("text/plain", "multipart/form-data; boundary=x"):
                headers = {"Content-Type": kind}
                content = b"" if body is None else json.dumps(body).encode()
                answer = http.request(method, path, content=content, headers=headers)
                assert answer.status_code in (415, 422), (route, answer.text)
    assert http.get("/v1/status").json()["durable_seq"] == before
