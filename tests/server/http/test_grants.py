"""Connections end with the token that opened them: WebSockets, streams, long polls, links."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from rangecast.server.http.auth import Grant, Grants, digest_of
from rangecast.server.http.routes import websocket
from rangecast.server.links.connection import HEADER
from rangecast.server.pipeline.futures import result_of
from rangecast.server.security.hosts import Peer
from rangecast.server.state.edits import DeleteToken, PutToken
from rangecast.server.state.registry import RequestError
from tests.support.server.served import Served
from tests.support.server.serving import run, serving
from tests.support.server.silent_peers import dial, request

LONG = 90.0


class Token(NamedTuple):
    secret: str
    id: str

    @property
    def header(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}


class Tokens:
    """A server, and its administrator's token."""

    def __init__(self, served: Served):
        self.served = served
        self.http = httpx.Client(base_url=served.url, trust_env=False, timeout=LONG)
        self.admin = self.made(["admin"], {})
        self.http.headers.update(self.admin.header)
        self.ask("PUT", "/v1/consumers/c", {"space": "market"})
        given = {"filter": "price >= 0", "consumer": "c"}
        self.ask("PUT", "/v1/spaces/market/subscriptions/all", given)

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        return self.http.request(method, path, json=body, **more).raise_for_status().json()

    def made(self, scopes: list[str], headers: dict[str, str] | None = None, **more: Any) -> Token:
        given = {"label": "one", "scopes": scopes, **more}
        found = self.ask("POST", "/v1/tokens", given, headers=headers)
        return Token(found["token"], found["id"])

    def end(self, token: Token) -> None:
        self.ask("DELETE", f"/v1/tokens/{token.id}")

    def socket(self, headers: dict[str, str], query: str = "") -> ClientConnection:
        url = self.served.url.replace("http", "ws") + f"/v1/stream{query}"
        return connect(url, proxy=None, additional_headers=headers)


@pytest.fixture(scope="module")
def tokens() -> Iterator[Tokens]:
    served = Served()
    try:
        made = Tokens(served)
        yield made
        made.http.close()
    finally:
        served.stop()


def received(socket: ClientConnection) -> list[str | bytes]:
    """Return all frames until the server closes the connection."""
    frames: list[str | bytes] = []
    while True:
        try:
            frames.append(socket.recv(timeout=LONG))
        except ConnectionClosed:
            return frames


def check_ended(socket: ClientConnection) -> None:
    last = json.loads(received(socket)[-1])
    assert (last["type"], last["status"]) == ("error", 401)
    assert socket.close_code == websocket.UNAUTHORIZED


def test_a_websocket_ends_with_its_token(tokens: Tokens) -> None:
    """It sends nothing, and gets nothing more; by a header, by a frame and by a ticket."""
    for way in ("header", "frame", "ticket"):
        token = tokens.made(["read", "subscribe", "publish"])
        query = ""
        if way == "ticket":
            ticket = tokens.ask("POST", "/v1/tickets", headers=token.header)["ticket"]
            query = f"?ticket={ticket}"
        with tokens.socket(token.header if way == "header" else {}, query) as socket:
            if way == "frame":
                socket.send(json.dumps({"type": "auth", "token": token.secret}))
                assert json.loads(socket.recv(timeout=LONG))["tenant"] == "default"
            socket.send('{"type": "attach", "consumer": "c"}')
            assert json.loads(socket.recv(timeout=LONG))["type"] == "attached"
            tokens.end(token)
            check_ended(socket)  # by itself: no messages come


def test_a_frame_after_the_end_of_a_token_does_nothing(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at once, before anything looks for tokens that have ended."""
    monkeypatch.setattr(Grants, "check", lambda _self: None)
    token = tokens.made(["publish"])
    with tokens.socket(token.header) as socket:
        frame = {"type": "publish", "ref": 1, "space": "market", "events": [{"price": 1}]}
        socket.send(json.dumps(frame))
        assert json.loads(socket.recv(timeout=LONG))["accepted"] == 1
        before = tokens.ask("GET", "/v1/status")["durable_seq"]
        tokens.end(token)
        socket.send(json.dumps(frame | {"ref": 2}))
        check_ended(socket)
    assert tokens.ask("GET", "/v1/status")["durable_seq"] == before + 1  # the end of the token


def test_a_stream_and_a_long_poll_end_with_their_token(tokens: Tokens) -> None:
    token = tokens.made(["read"])
    tokens.ask("PUT", "/v1/consumers/quiet", {"space": "market"})
    by_ticket = tokens.ask("POST", "/v1/tickets", headers=token.header)["ticket"]
    path = "/v1/consumers/quiet/stream"

    def follow(address: str, headers: dict[str, str]) -> str:
        with httpx.stream(
            "GET", tokens.served.url + address, headers=headers, timeout=LONG, trust_env=False
        ) as answer:
            return b"".join(answer.iter_raw()).decode()

    def pull() -> httpx.Response:
        address = tokens.served.url + "/v1/consumers/quiet/messages?wait=60"
        return httpx.get(address, headers=token.header, timeout=LONG, trust_env=False)

    with ThreadPoolExecutor(3) as threads:
        streams = [
            threads.submit(follow, path, token.header),
            threads.submit(follow, f"{path}?ticket={by_ticket}", {}),
        ]
        polled = threads.submit(pull)
        deadline = time.monotonic() + LONG
        while tokens.ask("GET", "/v1/consumers/quiet")["listeners"] < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        tokens.end(token)
        for one in streams:
            text = one.result(LONG)
            assert text.rstrip().splitlines()[-2] == "event: error"
            assert (
                json.loads(text.rstrip().splitlines()[-1].removeprefix("data: "))["status"] == 401
            )
        assert polled.result(LONG).status_code == 401
    assert tokens.ask("GET", "/v1/consumers/quiet")["listeners"] == 0


def test_the_log_for_a_follower_ends_with_its_token(tokens: Tokens) -> None:
    token = tokens.made(["admin"])
    last = tokens.ask("GET", "/v1/status")["durable_seq"] + 1  # the end of the token is one more
    with ThreadPoolExecutor(1) as threads:
        address = f"{tokens.served.url}/v1/log?after={last + 5}&wait=60"
        polled = threads.submit(
            httpx.get, address, headers=token.header, timeout=LONG, trust_env=False
        )
        time.sleep(0.1)  # or it hasn't begun: rejected as well
        tokens.end(token)
        assert polled.result(LONG).status_code == 401


def test_a_copy_of_the_log_ends_with_its_token(tokens: Tokens) -> None:
    """What was asked for is long, and is read slowly."""
    token, count = tokens.made(["read"]), 0
    for _ in range(8):
        events = [{"symbol": "x" * 40_000, "price": 1}] * 50
        count += tokens.ask("POST", "/v1/spaces/market/events", events)["accepted"]
    path = "/v1/spaces/market/events?limit=1000000"
    with dial(tokens.served.url) as one:
        one.sendall(request("GET", path, **token.header, Connection="close"))
        text = one.recv(1000)
        tokens.end(token)
        while part := one.recv(1 << 20):
            text += part
    lines = [one for one in text.split(b"\n") if one.startswith(b"{")]
    assert len(lines) < count
    assert json.loads(lines[-1])["error"]["status"] == 401


def test_an_expired_token_ends_what_is_open(tokens: Tokens) -> None:
    token = tokens.made(["read", "publish"], ttl=1.5)
    with tokens.socket(token.header) as socket:
        socket.send('{"type": "attach", "consumer": "c"}')
        check_ended(socket)


def test_the_first_token_ends_what_was_opened_without_one() -> None:
    served = Served()
    url = served.url.replace("http", "ws") + "/v1/stream"
    try:
        with connect(url, proxy=None) as socket:
            socket.send('{"type": "heartbeat"}')
            assert json.loads(socket.recv(timeout=LONG))["type"] == "ok"
            Tokens(served).http.close()
            check_ended(socket)
    finally:
        served.stop()


def test_a_connection_without_a_token_is_closed_after_a_while(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "MAX_SILENCE", 0.3)
    with tokens.socket({}) as socket:
        check_ended(socket)
    token = tokens.made(["read"])
    monkeypatch.setattr(websocket, "MAX_SILENCE", 2.0)  # enough for a busy machine to send one
    with tokens.socket({}) as socket:
        socket.send(json.dumps({"type": "auth", "token": token.secret}))
        time.sleep(2.1)  # past the limit: it is known by now
        socket.send('{"type": "heartbeat", "ref": 1}')
        frames = [json.loads(socket.recv(timeout=LONG)) for _ in range(2)]
        assert [one["type"] for one in frames] == ["ok", "ok"]


def test_a_beat_tells_a_stranger_nothing(tokens: Tokens) -> None:
    with tokens.socket({}) as socket:
        socket.send('{"type": "heartbeat", "ref": 1}')
        assert json.loads(socket.recv(timeout=LONG)) == {"type": "ok", "ref": 1}


def test_another_token_does_not_take_over_what_is_open(tokens: Tokens) -> None:
    """Messages go on only by the token that opened them."""
    first, second = tokens.made(["read"]), tokens.made(["read"])
    with tokens.socket(first.header) as socket:
        socket.send('{"type": "attach", "consumer": "c"}')
        assert json.loads(socket.recv(timeout=LONG))["type"] == "attached"
        socket.send(json.dumps({"type": "auth", "token": second.secret, "ref": 7}))
        while (answer := json.loads(socket.recv(timeout=LONG))).get("ref") != 7:
            pass
        assert answer["status"] == 409
        tokens.end(first)
        check_ended(socket)


def test_a_link_ends_with_its_token(tmp_path: Any) -> None:
    served = Served(data=tmp_path, broker="here")
    try:
        made = Tokens(served)
        token = made.made(["link"])
        url = served.url.replace("http", "ws") + "/v1/link"
        with connect(
            url, proxy=None, additional_headers={HEADER: "there", **token.header}
        ) as socket:
            made.end(token)
            texts = [one for one in received(socket) if isinstance(one, str)]
            assert "this token is unknown" in json.loads(texts[-1])["detail"]
            assert socket.close_code == 1008
        made.http.close()
    finally:
        served.stop()


def test_a_grant_is_looked_up_when_tokens_change() -> None:
    """Not for each frame; what waits is ended by a look that costs nothing if nothing changed."""

    async def work() -> None:
        async with serving() as service:
            ended: list[str] = []
            for name in ("a", "b"):
                edit = PutToken("t", digest_of(name), name, ["read"], 0)
                await result_of(service.core.edit(edit))
            grants, peer = Grants(service.core), Peer(None, ())
            a, b = (Grant(service.core, digest_of(one), peer) for one in ("a", "b"))
            with (
                grants.watched(a, lambda _: ended.append("a")),
                grants.watched(b, lambda _: ended.append("b")),
            ):
                grants.check()
                same = a.caller()
                assert a.caller() is same
                await result_of(service.core.edit(DeleteToken("", digest_of("a"))))
                with pytest.raises(RequestError):
                    a.caller()
                with pytest.raises(RequestError):  # and it stays so
                    a.caller()
                assert b.caller().tenant == "t"
                assert not ended
                grants.check()
                assert ended == ["a"]
                grants.check()
                assert ended == ["a"]

    run(work)
