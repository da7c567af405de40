"""The server over HTTP and WebSocket: paths, answers, rejections, who may do what."""

from __future__ import annotations

import gzip
import json
import re
import time
from typing import Any

import httpx
import pyarrow as pa
import pytest

from rangecast import Engine
from rangecast.client import Client
from rangecast.errors import DuplicateIdError, UnknownIdError
from tests.support.server.served import EVENTS, MADE, SUBSCRIPTIONS


@pytest.fixture(scope="module")
def judge() -> Engine:
    engine = Engine(MADE.space)
    for row in SUBSCRIPTIONS:
        engine.subscribe(row["id"], row["filter"], score=row["score"])
    return engine


def test_client_and_engine_give_the_same(market: Client, judge: Engine) -> None:
    expected = [judge.match(one) for one in EVENTS]
    assert list(market.match_many(EVENTS)) == expected
    assert market.match(EVENTS[0]) == expected[0]
    for event in EVENTS[:20]:
        assert market.rank(event, 5) == judge.rank(event, 5)
    assert len(market) >= len(judge)
    name = SUBSCRIPTIONS[0]["id"]
    assert name in market
    assert "none" not in market
    assert market[name].filter == SUBSCRIPTIONS[0]["filter"]
    assert {*market} >= {*judge}
    published = market.publish(EVENTS, matches=True)
    assert published.matches == expected
    page = market.messages("all", limit=5000)
    assert [one.event for one in page.items] == [
        event for event, found in zip(EVENTS, expected, strict=True) if found
    ]
    assert [one.subscriptions for one in page.items] == [one for one in expected if one]
    assert market.acknowledge("all", page.position) == page.position
    assert not market.messages("all").items


def test_subscriptions_one_by_one(market: Client) -> None:
    market.subscribe("mine/1 ü", "price < 5", score=2.0, weights={"price": 2.0})
    with pytest.raises(DuplicateIdError, match="already exists"):
        market.subscribe("mine/1 ü", "price < 6")
    found = market["mine/1 ü"]
    assert (found.filter, found.score, found.weights) == ("price < 5", 2.0, {"price": 2.0})
    market.replace("mine/1 ü", "price < 7")
    assert market["mine/1 ü"].filter == "price < 7"
    market.unsubscribe("mine/1 ü")
    with pytest.raises(UnknownIdError, match="no subscription"):
        market.unsubscribe("mine/1 ü")
    with pytest.raises(UnknownIdError, match="no subscription"):
        market.replace("mine/1 ü", "price < 7")
    market.subscribe("brief", "price < 5", ttl=0.05)
    deadline = time.monotonic() + 600
    while "brief" in market:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "market/events", b'{"price": 5}'),
        ("POST", "market/events", b'{"price": "no"}'),
        ("POST", "market/events", b'{"colour": 5}'),
        ("POST", "market/events", b"{"),
        ("POST", "nowhere/events", b"{}"),
        ("PUT", "market/subscriptions/a/b", b'{"filter": "price < 5", "score": 2}'),
        ("PUT", "market/subscriptions/a", b'{"filter": "price <"}'),
        ("PUT", "market/subscriptions/a", b'{"filter": "price < 5", "score": "many"}'),
        ("PUT", "market/subscriptions/a", b'{"filter": "price < 5", "score": 1e999}'),
        ("PUT", "market/subscriptions/a", b'{"filter": "price < 5", "weights": {"no": 1}}'),
        ("PUT", "market/subscriptions/a", b'{"filter": "price < 5", "consumer": "nobody"}'),
        ("PUT", "market/subscriptions/a", b'{"filter": "price < 5", "ttl": 1000}'),
        ("PUT", "market/subscriptions/a", b'{"filter": "price < 5", "ttl": -1}'),
        ("PUT", "market/subscriptions/a", b'{"filter": "price < 5", "colour": 1}'),
        ("PUT", "market/subscriptions/a", b'{"filter": 5}'),
        ("PUT", "market/subscriptions/a", b"\xff"),
        ("PUT", "market/subscriptions/", b'{"filter": "price < 5"}'),
        ("PUT", "nowhere/subscriptions/a", b'{"filter": "price < 5"}'),
        ("PUT", "market/subscriptions/a", b" " * (9 << 20)),
        ("POST", "market/events", b" " * (9 << 20)),
    ],
    ids=lambda given: given if isinstance(given, str) else given[:40].decode("latin-1"),
)
def test_the_short_way_answers_as_the_router(
    http: httpx.Client, method: str, path: str, body: bytes
) -> None:
    found = []
    for query in ("", "?routed=1"):  # with a query, even an unknown one, the router takes it
        url = f"/v1/spaces/{path}{query}"
        answer = http.request(
            method, url, content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code != 500
        plain = re.sub(r"[0-9a-f]{8}:\d+", "position", answer.text)
        if answer.is_success and method == "PUT":
            http.delete(url)  # so that both are new
        found.append((answer.status_code, plain, answer.headers["content-type"]))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("PUT", "/v1/spaces/market/subscriptions/a", {"filter": "prise < 3"}, 422, "did you mean"),
        ("PUT", "/v1/spaces/market/subscriptions/a", {"filter": 3}, 422, "filter"),
        ("PUT", "/v1/spaces/market/subscriptions/a", {"filter": "price<3", "x": 1}, 422, "x"),
        ("PUT", "/v1/spaces/market/subscriptions/a", {"filter": "price<3", "ttl": -1}, 422, "ttl"),
        (
            *("PUT", "/v1/spaces/market/subscriptions/a"),
            *({"filter": "price<3", "consumer": "no"}, 404, "no consumer 'no'"),
        ),
        (
            *("PUT", "/v1/spaces/market/subscriptions/a"),
            *({"filter": "price<3", "weights": {"no": 1}}, 422, "no"),
        ),
        ("PUT", "/v1/spaces/markt/subscriptions/a", {"filter": "price<3"}, 404, "did you mean"),
        ("GET", "/v1/spaces/market/subscriptions/none", None, 404, "no subscription"),
        ("PUT", "/v1/consumers/b%20c", {"space": "market"}, 422, "name of a consumer"),
        ("PUT", "/v1/consumers/c", {"space": "none"}, 404, "no space"),
        (
            "PUT",
            "/v1/consumers/c",
            {"space": "market", "start_at": "then"},
            409,
            "a position must be",
        ),
        ("PUT", "/v1/consumers/c", {"space": "market", "start_at": "0:1"}, 409, "another history"),
        ("PUT", "/v1/spaces/other", {"attribute": 3}, 422, "list of"),
        (
            "PUT",
            "/v1/spaces/market",
            {"attribute": [{"name": "a", "type": "number"}]},
            409,
            "first",
        ),
        ("POST", "/v1/spaces/market/events", "[1", 400, "JSON list"),
        ("POST", "/v1/spaces/market/events?wait=long", {}, 422, "wait must be"),
        ("POST", "/v1/spaces/market/events:rank?k=0", {}, 422, "k must be a whole number"),
        ("POST", "/v1/tokens", {"label": "x", "scopes": ["root"]}, 422, "unknown scope 'root'"),
        (
            "POST",
            "/v1/tokens",
            {"label": "x", "scopes": ["read"]},
            409,
            "must have the scope 'admin'",
        ),
        ("PUT", "/v1/tenants/x", {"nothing": 1}, 422, "a limit must be one of"),
        ("DELETE", "/v1/consumers/none", None, 404, "no consumer"),
        ("GET", "/v1/nothing", None, 404, "Not Found"),
    ],
)
def test_what_is_wrong_is_said(
    http: httpx.Client, method: str, path: str, body: Any, status: int, words: str
) -> None:
    content = body if isinstance(body, str) else None if body is None else json.dumps(body)
    headers = {"Content-Type": "application/json"}
    answer = http.request(method, path, content=content, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert said["status"] == status
    assert words in said["detail"]


def test_bodies_of_every_kind_are_one_event(http: httpx.Client, market: Client) -> None:
    market.put_consumer("kinds")
    name = {"filter": "symbol = 'KINDS' and price between 1 and 2", "consumer": "kinds"}
    http.put("/v1/spaces/market/subscriptions/kinds", json=name).raise_for_status()
    event = {"symbol": "KINDS", "price": 1.5}
    text = json.dumps(event)
    cloud = {"specversion": "1.0", "id": "c1", "source": "/s", "type": "t", "data": event}
    sink = pa.BufferOutputStream()
    table = pa.table({"symbol": ["KINDS"], "price": [1.5]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    bodies: list[tuple[str, str | bytes, dict[str, str]]] = [
        ("application/json", text, {}),
        ("application/json", f"[{text}]", {}),
        ("application/json", json.dumps(event, indent=2), {}),
        ("application/x-ndjson", text + "\n\n", {}),
        ("application/x-www-form-urlencoded", text, {}),
        ("application/cloudevents+json", json.dumps(cloud), {}),
        ("application/cloudevents-batch+json", json.dumps([cloud]), {}),
        ("application/json", text, {"ce-specversion": "1.0", "ce-id": "x", "ce-type": "t"}),
        ("application/vnd.apache.arrow.stream", sink.getvalue().to_pybytes(), {}),
        ("application/json", gzip.compress(text.encode()), {"Content-Encoding": "gzip"}),
    ]
    for kind, body, more in bodies:
        answer = http.post(
            "/v1/spaces/market/events", content=body, headers={"Content-Type": kind} | more
        )
        assert answer.status_code == 200, (kind, answer.text)
        assert answer.json()["accepted"] == 1
    items = market.messages("kinds").items
    assert [one.subscriptions for one in items] == [["kinds"]] * len(bodies)
    assert items[5].event == cloud  # the envelope stays
    log = http.get("/v1/spaces/market/events", params={"limit": 10**6}).text.splitlines()
    assert [json.loads(line)["event"] for line in log[-len(bodies) :]] == [
        one.event for one in items
    ]


@pytest.mark.parametrize(
    ("kind", "body", "more", "status"),
    [
        ("text/csv", b"a,b", {}, 415),
        ("application/json", b"x", {"Content-Encoding": "br"}, 415),
        ("application/json", b"x", {"Content-Encoding": "gzip"}, 400),
        ("application/json", gzip.compress(b"{}", mtime=0)[:-9], {"Content-Encoding": "gzip"}, 400),
        (
            "application/json",
            gzip.compress(b" " * (9 << 20), mtime=0),
            {"Content-Encoding": "gzip"},
            413,
        ),
        ("application/json", b" " * (9 << 20), {}, 413),
        ("application/x-ndjson", b"{}\n" * 10_001, {}, 413),
        ("application/vnd.apache.arrow.stream", b"\xff" * 50, {}, 400),
        ("application/json", b"\xff\xfe", {}, 422),
        ("application/cloudevents+json", b'{"id": 1}', {}, 422),
    ],
    ids=range(10),
)
def test_bodies_that_cannot_be_taken(
    http: httpx.Client, kind: str, body: bytes, more: dict[str, str], status: int
) -> None:
    before = http.get("/v1/status").json()["durable_seq"]
    answer = http.post(
        "/v1/spaces/market/events", content=body, headers={"Content-Type": kind} | more
    )
    assert answer.status_code == status, answer.text
    assert http.get("/v1/status").json()["durable_seq"] == before
