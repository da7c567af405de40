"""The short way of plain requests says what the usual way says, and takes nothing else."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rangecast.server.http.fast_path import FastPathProtocol
from rangecast.server.http.middleware import Middleware
from rangecast.server.http.routes.events import FEW
from rangecast.server.pipeline.pipeline import CommitPipeline
from rangecast.server.process import Server, Settings, serve
from tests.support.server.serving import SPACE

EVENTS, ONE = "/v1/spaces/s/events", '{"price": 5}'
SUBSCRIPTION = "/v1/spaces/s/subscriptions/"
FORCED = {"Content-Encoding": "identity"}
"""A header that changes nothing, and isn't of the plain form."""


class Told:
    """A server in a thread of this process, spoken to by bytes."""

    def __init__(self) -> None:
        self.usual = 0
        """Requests that reached the application."""
        ready = threading.Event()

        def begin(url: str, server: Server) -> None:
            self.port, self.server = int(url.rpartition(":")[2]), server
            self.loop = asyncio.get_running_loop()
            ready.set()

        settings = Settings(None, port=0, spaces={"s": SPACE})
        self.thread = threading.Thread(target=serve, args=(settings, begin), daemon=True)
        self.thread.start()
        assert ready.wait(60)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.server.stop)
        self.thread.join(60)
        assert not self.thread.is_alive()

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def ask(self, method: str, path: str, body: str | bytes, **headers: str) -> Answer:
        with self.connected() as connection:
            connection.sendall(written(method, path, body, headers))
            return read(connection)


Answer = tuple[int, dict[str, str], Any]


def written(method: str, path: str, body: str | bytes, headers: dict[str, str]) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    given = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Content-Length": str(len(data)),
    }
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in (given | headers).items()]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode() + data


def read(connection: socket.socket) -> Answer:
    with connection.makefile("rb", buffering=0) as file:
        status = int(file.readline().split()[1])
        headers = {}
        while line := file.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        body = b""
        while len(body) < int(headers["content-length"]):
            body += file.read(int(headers["content-length"]) - len(body))
        return status, headers, json.loads(body)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    asked = Middleware.__call__

    async def counted(self: Middleware, scope: Any, *channels: Any) -> None:
        if scope["type"] == "http":
            one.usual += 1
        await asked(self, scope, *channels)

    monkeypatch.setattr(Middleware, "__call__", counted)
    interval = sys.getswitchinterval()
    one = Told()
    yield one
    one.stop()
    sys.setswitchinterval(interval)


def masked(answer: Answer) -> Answer:
    """Return an answer without what differs from one to the next: positions, and what is new."""
    status, headers, body = answer
    places = {"first", "last", "position", "created"} & body.keys()
    kept = {name: value for name, value in headers.items() if name not in ("date", "etag")}
    if places:
        kept.pop("content-length")
    return status, kept, body | dict.fromkeys(places, "...")


PLAIN = [
    ("POST", EVENTS, ONE, 200),
    ("POST", EVENTS, '{"price": "high"}', 422),
    ("POST", EVENTS, '{"prize": 5}', 422),
    ("POST", EVENTS, "{", 422),
    ("POST", EVENTS, b'{"price": "\xff"}', 422),
    ("POST", "/v1/spaces/other/events", ONE, 404),
    ("PUT", SUBSCRIPTION + "a", '{"filter": "price < 5", "score": 2}', 200),
    ("PUT", SUBSCRIPTION + "a/b", '{"filter": "price < 5", "weights": {"price": 2}}', 200),
    ("PUT", SUBSCRIPTION + "a", '{"filter": "price <"}', 422),
    ("PUT", SUBSCRIPTION + "a", '{"filter": "prize < 5"}', 422),
    ("PUT", SUBSCRIPTION + "a", '{"filter": "price < 5", "consumer": "nobody"}', 404),
    ("PUT", SUBSCRIPTION + "a", '{"filter": "price < 5", "weights": {"prize": 2}}', 422),
    ("PUT", SUBSCRIPTION, '{"filter": "price < 5"}', 422),
    ("PUT", "/v1/spaces/other/subscriptions/a", '{"filter": "price < 5"}', 404),
]
OTHER = [
    ("POST", EVENTS, f"[{ONE}]", 200),
    ("POST", EVENTS, f"{ONE}\n{ONE}", 200),
    ("POST", EVENTS, "5", 422),
    ("POST", EVENTS, "", 422),
    ("POST", EVENTS, '{"price": 5, "x": "' + 70_000 * "x" + '"}', 422),
    ("POST", EVENTS + "?wait=matches", ONE, 200),
    ("POST", "/v1/spaces/%73/events", ONE, 200),
    ("PUT", SUBSCRIPTION + "a", '{"filter": "price < 5", "ttl": 60}', 200),
    ("PUT", SUBSCRIPTION + "a", '{"filter": 5}', 422),
    ("PUT", SUBSCRIPTION + "a", '{"filters": "price < 5"}', 422),
    ("PUT", SUBSCRIPTION + "a%20b", '{"filter": "price < 5"}', 200),
    ("PUT", SUBSCRIPTION + "a", "{", 422),
]


def test_both_ways_say_the_same(told: Told) -> None:
    for count, given in enumerate((PLAIN, OTHER)):
        for *request, status in given:
            before = told.usual
            short = told.ask(*request)
            assert told.usual - before == count, request
            usual = told.ask(*request, **FORCED)
            assert told.usual - before == count + 1
            assert masked(short) == masked(usual), request
            assert short[0] == status, request
    # and what was said is so
    found = told.ask("GET", SUBSCRIPTION + "a/b", "")
    assert found[2]["weights"] == {"price": 2}
    *_, made = told.ask("PUT", SUBSCRIPTION + "a", '{"filter": "price < 7"}')
    _, headers, found = told.ask("GET", SUBSCRIPTION + "a", "")
    assert (found["position"], found["filter"]) == (made["position"], "price < 7")
    _, short, _ = told.ask("PUT", SUBSCRIPTION + "a", '{"filter": "price < 7"}')
    assert short["etag"] == f'"{int(headers["etag"].strip(chr(34))) + 1}"'


def test_callers_are_known_and_limited(told: Told) -> None:
    said = told.ask("POST", "/v1/tokens", '{"label": "a", "tenant": "t", "scopes": ["admin"]}')
    admin = {"Authorization": f"Bearer {said[2]['token']}"}
    told.ask("PUT", "/v1/spaces/s", json.dumps(SPACE.definition()), **admin)
    said = told.ask(
        "POST", "/v1/tokens", '{"label": "b", "tenant": "t", "scopes": ["subscribe"]}', **admin
    )
    subscriber = {"Authorization": f"Bearer {said[2]['token']}"}
    limited = told.ask("PUT", "/v1/tenants/t", '{"events_per_second": 0}', **admin)
    assert limited[0] == 200
    put = "PUT", SUBSCRIPTION + "a", '{"filter": "price < 5"}'
    for headers, request, status in [
        ({}, ("POST", EVENTS, ONE), 401),
        ({"Authorization": "Basic x"}, ("POST", EVENTS, ONE), 401),
        ({"Authorization": "Bearer x"}, ("POST", EVENTS, ONE), 401),
        (subscriber, ("POST", EVENTS, ONE), 403),
        (admin, ("POST", EVENTS, ONE), 429),
        (subscriber, put, 200),
        ({}, put, 401),
    ]:
        before = told.usual
        short = told.ask(*request, **headers)
        assert told.usual == before
        usual = told.ask(*request, **headers, **FORCED)
        assert told.usual == before + 1
        assert masked(short) == masked(usual)
        assert short[0] == status


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "10.1.1.1"},
        {"If-Match": '"5"'},
        {"Content-Encoding": "identity"},
        {"Expect": "nothing"},
        {"ce-specversion": "1.0"},
        {"Connection": "close"},
        {"Content-Type": "text/plain"},
    ],
)
def test_a_header_with_a_meaning_takes_the_usual_way(told: Told, headers: dict[str, str]) -> None:
    told.ask("POST", EVENTS, ONE, **headers)
    assert told.usual == 1


def test_headers_of_others_take_nobody_another_way(told: Told) -> None:
    said = told.ask("POST", "/v1/tokens", '{"label": "a", "scopes": ["admin"]}')
    before = told.usual
    secret = {"Authorization": f"Bearer {said[2]['token']}"}
    for headers in (
        {"X-Forwarded-For": "10.1.1.1", "X-Forwarded-Proto": "https", "X-Real-IP": "10.1.1.1"},
        {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Cookie": "a=b"},
    ):
        assert told.ask("POST", EVENTS, ONE, **secret, **headers)[0] == 200
    assert told.usual == before


def test_a_request_is_known_again_by_its_key(told: Told) -> None:
    for key, body, status in [
        ("a", ONE, 200),
        ("a", ONE, 200),
        ("a", '{"price": 6}', 422),
        (201 * "a", ONE, 422),
    ]:
        before = told.usual
        headers = {"Idempotency-Key": key}
        short = told.ask("POST", EVENTS, body, **headers)
        assert told.usual == before
        usual = told.ask("POST", EVENTS, body, **headers, **FORCED)
        assert short[0] == usual[0] == status, key
        assert short[2].get("first") == usual[2].get("first")
        assert usual[2].get("repeated") == (True if status == 200 else None)


def test_lines_of_events_take_the_short_way_if_they_are_few(told: Told) -> None:
    lines = {"Content-Type": "application/x-ndjson"}
    for body, is_short, status in [
        (ONE, True, 200),
        (f"{ONE}\n\n{ONE}\r\n", True, 200),
        (f'{ONE}\n{{"prize": 1}}\n{{', True, 200),
        ("5\n{", True, 422),
        ("\n", False, 200),
        ("\n".join([ONE] * FEW), True, 200),
        ("\n".join([ONE] * (FEW + 1)), False, 200),
    ]:
        before = told.usual
        short = told.ask("POST", EVENTS, body, **lines)
        assert told.usual == before + (not is_short), body
        usual = told.ask("POST", EVENTS, body, **lines, **FORCED)
        assert masked(short) == masked(usual), body
        assert short[0] == status, body


def test_requests_in_a_row_are_answered_in_order(told: Told) -> None:
    def rows(count: int) -> str:
        return "[" + ", ".join([ONE] * count) + "]"

    first = written("POST", EVENTS, ONE, {})
    bodies = [rows(2), ONE, rows(3), ONE, ONE]
    with told.connected() as connection:
        connection.sendall(first + b"".join(written("POST", EVENTS, one, {}) for one in bodies))
        found = [read(connection)[2]["accepted"] for _ in range(6)]
    assert found == [1, 2, 1, 3, 1, 1]


def test_a_request_may_come_byte_by_byte(told: Told) -> None:
    with told.connected() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):
            for byte in written("POST", EVENTS, ONE, {}):
                connection.sendall(bytes([byte]))
            assert read(connection)[2]["accepted"] == 1
    assert told.usual == 0


def test_a_client_that_leaves_has_published(told: Told) -> None:
    with told.connected() as connection:
        connection.sendall(written("POST", EVENTS, ONE, {}))
    found = told.ask("POST", EVENTS, ONE)
    assert found[0] == 200  # and the server goes on
    assert told.server.service.core.log.last >= 2


def test_answers_that_nobody_reads_hold_up_their_connection(told: Told) -> None:
    """What waits to be sent is bounded: the usual way waits, and with it the next request."""
    request = written("POST", EVENTS, ONE, {})
    with told.connected() as connection:
        connection.sendall(request)
        read(connection)
        (protocol,) = told.server.server_state.connections
        told.loop.call_soon_threadsafe(protocol.pause_writing)  # as when much waits
        deadline = time.monotonic() + 600
        while not protocol.flow.write_paused:
            assert time.monotonic() < deadline
        connection.sendall(request)
        while not told.usual:
            assert time.monotonic() < deadline
        assert told.server.server_state.total_requests == 1
        told.loop.call_soon_threadsafe(protocol.resume_writing)
        assert read(connection)[2]["accepted"] == 1
        before = told.usual
        connection.sendall(request)
        assert read(connection)[0] == 200
        assert told.usual == before


def test_a_stop_waits_for_what_is_under_way(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    going, go_on = threading.Event(), threading.Event()
    write = CommitPipeline._write

    def slow(self: CommitPipeline, *given: Any) -> None:
        going.set()
        assert go_on.wait(60)
        write(self, *given)

    monkeypatch.setattr(CommitPipeline, "_write", slow)
    with told.connected() as connection:
        connection.sendall(written("POST", EVENTS, ONE, {}))
        assert going.wait(60)
        told.loop.call_soon_threadsafe(told.server.stop)
        while told.server.servers:  # until it has told its connections
            assert told.thread.is_alive()
        go_on.set()
        status, headers, body = read(connection)
        assert (status, headers["connection"], body["accepted"]) == (200, "close", 1)
        assert connection.recv(1) == b""


def test_an_error_of_ours_is_answered(
    told: Told, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(*_given: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(FastPathProtocol, "_caller", wrong)
        status, headers, body = told.ask("POST", EVENTS, ONE)
    assert (status, body["detail"]) == (500, "internal error; see the server's log")
    assert headers["content-type"] == "application/problem+json"
    assert any(one.exc_info for one in caplog.records)
    assert told.ask("POST", EVENTS, ONE)[0] == 200
