"""The server over HTTP and WebSocket: paths, answers, rejections, who may do what."""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from rangecast import Engine
from rangecast.client import Client, ServerError
from rangecast.errors import DuplicateIdError, RejectedRowError, UnknownIdError
from rangecast.server.delivery.log_reader import Reader
from rangecast.server.log.base import LogError
from rangecast.server.process import Server, Settings, serve
from rangecast.workloads import generate
from tests.soak.server_fuzz import Fuzz

MADE = generate("market", seed=7, subscriptions=200, events=200)
SUBSCRIPTIONS = MADE.tables["subscriptions"].select(["id", "filter", "score"]).to_pylist()
EVENTS = [
    {key: value if key != "time" else value.isoformat() for key, value in row.items()}
    for row in MADE.tables["events"].to_pylist()
]
EVENTS = [{key: one for key, one in row.items() if one is not None} for row in EVENTS]


class Served:
    """A server in a thread."""

    def __init__(self, **options: Any):
        self.url = ""
        self.server: Server | None = None
        is_ready = threading.Event()

        def ready(url: str, server: Server) -> None:
            self.url, self.server = url, server
            is_ready.set()

        settings = Settings(**{"data": None, "port": 0, "spaces": {"market": MADE.space}} | options)
        self._thread = threading.Thread(target=serve, args=(settings, ready), daemon=True)
        self._thread.start()
        assert is_ready.wait(120)

    def stop(self) -> None:
        assert self.server is not None
        self.server.stop()
        self._thread.join(120)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    served = Served()
    yield served.url
    served.stop()


@pytest.fixture
def http(server: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def market(server: str) -> Iterator[Client]:
    with Client(server, space="market") as client:
        client.put_consumer("all")
        client.upsert_many([{**row, "consumer": "all"} for row in SUBSCRIPTIONS])
        yield client


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
        ("PUT", "/v1/consumers/c", {"space": "market", "start_at": "then"}, 409, "a position is"),
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
        ("POST", "/v1/spaces/market/events?wait=long", {}, 422, "wait is"),
        ("POST", "/v1/spaces/market/events:rank?k=0", {}, 422, "k is a whole number"),
        ("POST", "/v1/tokens", {"label": "x", "scopes": ["root"]}, 422, "unknown scope 'root'"),
        ("POST", "/v1/tokens", {"label": "x", "scopes": ["read"]}, 409, "needs the scope 'admin'"),
        ("PUT", "/v1/tenants/x", {"nothing": 1}, 422, "a limit is one of"),
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


def test_a_stream_goes_on_where_it_was(http: httpx.Client, market: Client) -> None:
    market.put_consumer("sse")
    market.subscribe("sse", "symbol = 'SSE'", consumer="sse")
    market.publish([{"symbol": "SSE", "price": n} for n in range(3)])

    def read(last: str | None, count: int) -> list[tuple[str, Any]]:
        headers = {} if last is None else {"Last-Event-ID": last}
        found: list[tuple[str, Any]] = []
        name = ""
        with http.stream("GET", "/v1/consumers/sse/stream", headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    name = line[4:]
                elif line.startswith("data: "):
                    found.append((name, json.loads(line[6:])))
                    if len(found) == count:
                        return found
        raise AssertionError("the stream ended")

    first = read(None, 2)
    assert [one["event"]["price"] for _, one in first] == [0, 1]
    market.publish([{"symbol": "SSE", "price": 3}])
    assert [one["event"]["price"] for _, one in read(first[0][0], 3)] == [1, 2, 3]


def test_one_socket_for_everything(server: str, market: Client) -> None:
    market.put_consumer("ws")
    with connect(server.replace("http", "ws") + "/v1/stream", proxy=None) as socket:

        def say(**frame: Any) -> None:
            socket.send(json.dumps(frame))

        def hear() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(socket.recv(timeout=90))
            return found

        say(type="subscribe", ref=1, space="market", id="ws", filter="symbol = 'W'", consumer="ws")
        assert (hear()["type"], "ref") == ("ok", "ref")
        say(type="attach", consumer="ws")
        assert hear()["type"] == "attached"
        say(type="credit", messages=2)
        say(type="publish", ref="p", space="market", events=[{"symbol": "W", "price": 1}] * 3)
        heard = [hear() for _ in range(3)]
        assert sorted(one["type"] for one in heard) == ["match", "match", "ok"]
        say(type="credit", messages=5)
        third = hear()
        assert (third["type"], third["subscriptions"]) == ("match", ["ws"])
        say(type="ack", position=third["position"])
        say(type="follow", space="market", filter="symbol = 'V'")
        name = hear()["consumer"]
        say(type="publish", ref="q", space="market", events=[{"symbol": "V"}], wait="matches")
        heard = [hear(), hear()]
        assert {one["type"] for one in heard} == {"match", "ok"}
        for text, words in (
            ("{", "JSON"),
            ("[]", "object"),
            ('{"type": "dance"}', "unknown type"),
            ('{"type": "attach"}', "needs 'consumer'"),
            ('{"type": "publish", "space": "market", "events": 3}', "list"),
            ('{"type": "credit", "messages": true}', "whole number"),
        ):
            socket.send(text)
            assert words in hear()["detail"]
    assert not market.messages("ws").items
    deadline = time.monotonic() + 600
    with Client(server, space="market") as client:
        while name in client:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_many_that_must_be_new_or_must_not(market: Client, http: httpx.Client) -> None:
    rows = [{"id": f"many{n}", "filter": f"price = {n}"} for n in range(3)]
    with pytest.raises(UnknownIdError, match="no subscription 'many0'"):
        market.replace_many(rows)
    assert market.subscribe_many(rows[:2]) == 2
    with pytest.raises(DuplicateIdError, match="'many1' already exists"):
        market.subscribe_many(rows[1:])
    with pytest.raises(RejectedRowError, match=r"row 1 .*duplicate id"):
        market.subscribe_many([rows[2], rows[2]])
    assert "many2" not in market
    assert market.replace_many([{**rows[0], "filter": "price = 9"}]) == 1
    assert market["many0"].filter == "price = 9"
    assert market.upsert_many(rows) == (1, 2)
    assert market["many0"].filter == "price = 0"
    assert market.subscribe_many([]) == 0
    path, etag = "/v1/spaces/market/subscriptions:bulk", {"If-Match": '"5"'}
    assert http.post(path, json=rows, headers=etag).status_code == 422
    for row in rows:
        market.unsubscribe(row["id"])


def test_messages_in_batches(server: str, market: Client) -> None:
    market.put_consumer("batches")
    market.subscribe("batches", "symbol = 'B'", consumer="batches")
    events = [{"symbol": "B", "price": n, "more": "x" * 1_000} for n in range(600)]
    assert market.publish(events, ignore_unknown=True).accepted == 600
    frames = []
    with connect(server.replace("http", "ws") + "/v1/stream", proxy=None) as socket:
        socket.send('{"type": "credit", "messages": 10}')
        socket.send('{"type": "attach", "consumer": "batches", "batch": true}')
        prices: list[float] = []
        while len(prices) < 600:
            frame = json.loads(socket.recv(timeout=90))
            if frame["type"] == "batch":
                assert (frame["item_type"], frame["consumer"]) == ("match", "batches")
                prices += [one["event"]["price"] for one in frame["messages"]]
                frames.append(len(frame["messages"]))
                if len(prices) == 10:
                    socket.send('{"type": "credit", "messages": 1000}')
    assert prices == list(range(600))
    assert sum(frames[: frames.index(max(frames))]) == 10  # no more than was allowed
    assert 2 < len(frames) < 20  # a frame has some 256 KiB


def test_a_socket_says_why_no_more_messages_come(
    server: str, market: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    market.put_consumer("unread")

    def broken(*_given: Any) -> None:
        raise LogError("the log can't be read: no such disk")

    monkeypatch.setattr(Reader, "read", broken)
    with connect(server.replace("http", "ws") + "/v1/stream", proxy=None) as socket:
        socket.send('{"type": "attach", "consumer": "unread"}')
        assert json.loads(socket.recv(timeout=90))["type"] == "attached"
        assert "no such disk" in json.loads(socket.recv(timeout=90))["detail"]
        with pytest.raises(ConnectionClosedError) as ended:
            socket.recv(timeout=90)
    assert ended.value.rcvd is not None
    assert ended.value.rcvd.code == 1011


def test_a_filter_is_tried_on_history(http: httpx.Client, market: Client) -> None:
    market.publish([{"symbol": "TRY", "price": n} for n in range(10)])
    answer = http.post(
        "/v1/spaces/market/filters:preview", json={"filter": "symbol = 'TRY' and price < 3"}
    ).json()
    assert answer["matched"] == 3
    assert answer["looked_at"] >= 10
    assert sum(count for _, count in answer["by_minute"]) == 3
    assert [one["event"]["price"] for one in answer["examples"]] == [2, 1, 0]


def test_numbers_and_health(http: httpx.Client, market: Client) -> None:
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ok"}
    text = http.get("/metrics").text
    assert "rangecast_events_matched_total" in text
    assert 'rangecast_consumer_lag{consumer="all",tenant="default"}' in text
    paths = http.get("/v1/openapi.json").json()["paths"]
    assert "/v1/spaces/{space}/events" in paths


def test_tokens_and_tenants(tmp_path: Path) -> None:
    served = Served(data=tmp_path)
    try:
        with Client(served.url) as first:
            admin = first.make_token("admin", ["admin"])
            with pytest.raises(ServerError, match="a token is needed"):
                first.status()
        with Client(served.url, token=admin) as owner:
            red = owner.make_token("red", ["read", "subscribe", "publish", "admin"], tenant="red")
            blue = owner.make_token("blue", ["read", "subscribe", "publish"], tenant="blue")
            reader = owner.make_token("reader", ["read"], tenant="red")
        with Client(served.url, token=red, space="market") as one:
            one.put_space("market", MADE.space)
            one.put_consumer("mine")
            one.subscribe("secret", "price < 5", consumer="mine")
            found = one.publish([{"price": 1}], matches=True)
            assert found.matches == [["secret"]]
            assert [item.subscriptions for item in one.messages("mine").items] == [["secret"]]
        # another tenant sees nothing of it, whatever he asks for
        with Client(served.url, token=blue, space="market") as other:
            for ask in (
                lambda: other["secret"],
                lambda: other.match({"price": 1}),
                lambda: other.messages("mine"),
                lambda: other.publish([{"price": 1}]),
                lambda: other.delete_consumer("mine"),
            ):
                with pytest.raises(ServerError) as rejected:
                    ask()
                assert rejected.value.status == 404
                assert "secret" not in str(rejected.value)
            assert other.spaces() == []
            with pytest.raises(ServerError, match="this needs 'admin'"):
                other.make_token("more", ["admin"])
        with Client(served.url, token=reader, space="market") as looker:
            assert looker.match({"price": 1}) == ["secret"]
            with pytest.raises(ServerError, match="this needs 'publish'"):
                looker.publish([{"price": 1}])
        with Client(served.url, token="rc_wrong") as stranger, pytest.raises(ServerError) as said:
            stranger.status()
        assert said.value.status == 401
        address = served.url.replace("http", "ws") + "/v1/stream"
        with connect(address, proxy=None) as socket:
            socket.send('{"type": "attach", "consumer": "mine"}')
            assert json.loads(socket.recv(timeout=90))["status"] == 401
            socket.send(json.dumps({"type": "auth", "token": red}))
            assert json.loads(socket.recv(timeout=90))["tenant"] == "red"
            socket.send('{"type": "attach", "consumer": "mine"}')
            assert json.loads(socket.recv(timeout=90))["type"] == "attached"
    finally:
        served.stop()


def test_odd_requests_get_clear_rejections(server: str) -> None:
    fuzz = Fuzz(server, seed=3)
    fuzz.run(400)
    assert fuzz.statuses.keys() >= {200, 404, 422}
    fuzz.http.close()


def test_pages_of_another_origin_get_no_socket(server: str) -> None:
    from websockets.exceptions import InvalidStatus

    address = server.replace("http", "ws") + "/v1/stream"
    with pytest.raises(InvalidStatus):
        connect(address, proxy=None, additional_headers={"Origin": "http://evil.example"})
