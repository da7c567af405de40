"""Streams, sockets, batches of messages, tokens and health over HTTP."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from rangecast.client import Client, ServerError
from rangecast.errors import DuplicateIdError, RejectedRowError, UnknownIdError
from rangecast.server.delivery.log_reader import Reader
from rangecast.server.log.base import LogError
from tests.soak.server_fuzz import Fuzz
from tests.support.server.served import MADE, Served


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
            ('{"type": "attach"}', "requires 'consumer'"),
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
            with pytest.raises(ServerError, match="a token is required"):
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
            with pytest.raises(ServerError, match="this operation requires 'admin'"):
                other.make_token("more", ["admin"])
        with Client(served.url, token=reader, space="market") as looker:
            assert looker.match({"price": 1}) == ["secret"]
            with pytest.raises(ServerError, match="this operation requires 'publish'"):
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


@pytest.mark.parametrize("batch", [False, True])
def test_a_socket_follows_its_consumer_to_where_it_is_moved(
    server: str, market: Client, batch: bool
) -> None:
    name = f"moved-{batch}"
    market.put_consumer(name)
    market.subscribe(name, f"symbol = '{name}'", consumer=name)
    heard: list[dict[str, Any]] = []
    with connect(server.replace("http", "ws") + "/v1/stream", proxy=None) as socket:

        def attach() -> None:
            socket.send(json.dumps({"type": "attach", "consumer": name, "batch": batch}))

        def hear() -> dict[str, Any]:
            while not heard:
                frame = json.loads(socket.recv(timeout=90))
                if frame["type"] != "heartbeat":
                    heard.extend(frame.get("messages", [frame]))
            return heard.pop(0)

        attach()
        begun = hear()
        assert begun["type"] == "attached"
        market.publish([{"symbol": name, "price": 1}, {"symbol": name, "price": 2}])
        assert [hear()["event"]["price"] for _ in range(2)] == [1, 2]
        market.seek(name, begun["position"])
        again = hear()
        assert (again["type"], again["position"]) == ("attached", begun["position"])
        assert [hear()["event"]["price"] for _ in range(2)] == [1, 2]
        market.delete_consumer(name)
        gone = hear()
        assert (gone["type"], gone["status"]) == ("error", 404)
        market.put_consumer(name)
        attach()
        assert hear()["type"] == "attached"


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
