"""Limits of connections: heads, the time that requests take to come, and how many are open."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from rangecast.server.http.connections import MAX_HEAD, ConnectionLimits
from tests.support.server.served import Served
from tests.support.server.serving import SPACE, run, serving
from tests.support.spoken import Spoken

EVENTS = "/v1/spaces/s/events"
SHORT = ConnectionLimits(header_seconds=0.5, body_seconds=0.5)


@contextlib.contextmanager
def served(**options: Any) -> Iterator[int]:
    """Run a server; give its port."""
    one = Served(**{"spaces": {"s": SPACE}} | options)
    try:
        yield int(one.url.rpartition(":")[2])
    finally:
        one.stop()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Return one answer: status, headers, body; status 0 if there is none."""
    file = connection.makefile("rb", buffering=0)
    line = file.readline()
    if not line:
        return 0, {}, b""
    headers = {}
    while head := file.readline().strip():
        name, _, value = head.decode().partition(": ")
        headers[name.lower()] = value
    body = b""
    size = int(headers.get("content-length", "0"))
    while len(body) < size:
        body += file.read(size - len(body)) or b""
    return int(line.split()[1]), headers, body


def is_ended(connection: socket.socket) -> bool:
    """Wait for the other side to end the connection."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def post(body: bytes, *headers: str) -> bytes:
    lines = [f"POST {EVENTS} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    lines += ["Content-Type: application/json", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
LONG = {
    "headers": (GET, b"x-a: b\r\n"),
    "a value": (GET + b"x-a: ", b"b" * 1000),
    "a path": (b"GET /", b"a" * 1000),
    "a method": (b"", b"\r\n" * 500),
}


@pytest.mark.parametrize("what", LONG)
def test_a_head_has_a_bound(what: str) -> None:
    begin, more = LONG[what]
    with served() as port:
        with connected(port) as connection:
            sent = 0
            with contextlib.suppress(ConnectionError):  # it may have answered and gone
                connection.sendall(begin)
                while sent < 1 << 20:
                    connection.sendall(more * 16)
                    sent += 16 * len(more)
            status, headers, body = answer(connection)
            assert (status, headers["connection"]) == (431, "close"), what
            assert "65,536" in json.loads(body)["detail"]
            assert is_ended(connection)
        with connected(port) as connection:  # one that is whole, in a single piece
            connection.sendall(GET + b"x-a: " + b"b" * (MAX_HEAD + 1) + b"\r\n\r\n")
            assert answer(connection)[0] == 431
        with connected(port) as connection:
            for _ in range(2):
                connection.sendall(GET + b"x-a: " + b"b" * (MAX_HEAD - 100) + b"\r\n\r\n")
                assert answer(connection)[0] == 200
            # Many requests in one piece are longer together, and none of them is too long.
            some = 300
            connection.sendall((GET + b"x-a: " + b"b" * 1000 + b"\r\n\r\n") * some + GET)
            for _ in range(some):
                assert answer(connection)[0] == 200
            connection.sendall(b"\r\n")
            assert answer(connection)[0] == 200
            # Nor is the rest of a body that was answered before it came.
            connection.sendall(
                post(b" " * (1 << 20)).replace(b"events", b"nothing") + GET + b"\r\n"
            )
            assert answer(connection)[0] == 404
            assert answer(connection)[0] == 200


def test_a_head_has_a_time() -> None:
    with served(limits=SHORT) as port:
        begun = {
            b"": 0,
            b"GET /hea": 408,
            GET: 408,
            GET + b"x-a: b\r\n": 408,
            GET + b"\r\n" + GET: 408,
            post(b'{"price": 1}') + GET: 408,
        }
        connections = {data: connected(port) for data in begun}
        for data, connection in connections.items():
            connection.sendall(data)
        for data, status in begun.items():
            connection = connections[data]
            if data.count(b"HTTP/1.1") == 2:
                assert answer(connection)[0] == 200
            assert answer(connection)[0] == status, data
            assert is_ended(connection)
            connection.close()
        # a byte now and then doesn't help
        with connected(port) as connection, contextlib.suppress(ConnectionError):
            for _ in range(600):
                connection.sendall(b"\r\n")
                time.sleep(0.05)
            pytest.fail("the connection stays")
        # nor is one that waits for its answer cut
        with connected(port) as connection:
            made = b'{"space": "s"}'
            connection.sendall(
                b"PUT /v1/consumers/c HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s"
                % (len(made), made)
            )
            assert answer(connection)[0] == 200
            pull = b"GET /v1/consumers/c/messages?wait=2 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            connection.sendall(pull + GET)
            assert answer(connection)[0] == 200
            assert answer(connection)[0] == 408


@pytest.mark.parametrize("form", ["short", "usual", "chunked"])
def test_a_body_has_a_time(form: str, caplog: pytest.LogCaptureFixture) -> None:
    whole = post(b'{"price": 1}', *(["X-A: b", "Content-Encoding: identity"] * (form != "short")))
    if form == "chunked":
        whole = whole.replace(b"Content-Length: 12", b"Transfer-Encoding: chunked")
        whole = whole.replace(b'{"price"', b'c\r\n{"price"')
    with caplog.at_level(logging.ERROR), served(limits=SHORT) as port:
        with connected(port) as connection:
            connection.sendall(whole[:-5])
            status, headers, _ = answer(connection)
            assert (status, headers["connection"]) == (408, "close")
            assert is_ended(connection)
        with connected(port) as connection:  # a byte now and then doesn't help
            large = post(b" " * 100_000, *(["Content-Encoding: identity"] * (form != "short")))
            connection.sendall(large[:-99_900])
            with contextlib.suppress(ConnectionError):
                for _ in range(2000):
                    connection.sendall(b" ")
                    time.sleep(0.02)
                pytest.fail("the connection stays")
        with connected(port) as connection:  # one that leaves
            connection.sendall(whole[:-5])
        with connected(port) as connection:
            connection.sendall(post(b'{"price": 1}'))
            assert answer(connection)[0] == 200
    assert not caplog.records


class _Clock:
    """The event loop, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio.get_running_loop(), name)


@pytest.mark.parametrize(("each", "is_taken"), [(1024, True), (10, False)])
def test_a_slow_body_of_a_good_rate_is_taken(each: int, is_taken: bool) -> None:
    async def work() -> None:
        async with serving() as service:
            protocol, transport = Spoken(service).connected()
            protocol.loop = clock = _Clock()
            data = post(b'{"price": 1}'.ljust(100 * each))
            protocol.data_received(data[: -100 * each])
            for left in range(100 * each, 0, -each):
                clock.now += 1.0
                protocol.data_received(data[len(data) - left :][:each])
                protocol.check_time(clock.now)
            await asyncio.wait_for(transport.is_whole.wait(), 60)
            assert transport.written.startswith(b"HTTP/1.1 200" if is_taken else b"HTTP/1.1 408")
            protocol.connection_lost(None)

    run(work)


@pytest.mark.parametrize("header", [[], ["Content-Encoding: identity"]])
def test_a_client_that_sends_no_more_gets_its_answer(header: list[str]) -> None:
    with served() as port:
        for data in (post(b'{"price": 1}', *header), GET + b"\r\n"):
            with connected(port) as connection:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                assert answer(connection)[0] == 200
                assert is_ended(connection)


def test_connections_have_a_bound() -> None:
    with (
        served(limits=ConnectionLimits(max_connections=5)) as port,
        contextlib.ExitStack() as open_,
    ):
        some = [open_.enter_context(connected(port)) for _ in range(4)]
        for one in some:
            one.sendall(GET + b"\r\n")
            assert answer(one)[0] == 200
        socket_ = open_.enter_context(connect(f"ws://127.0.0.1:{port}/v1/stream", proxy=None))
        with connected(port) as over:
            over.sendall(GET + b"\r\n")
            status, headers, _ = answer(over)
            assert (status, headers["connection"]) == (503, "close")
            assert "retry-after" in headers
        some[0].close()
        deadline = time.monotonic() + 600
        status = 503
        while status == 503 and time.monotonic() < deadline:
            with connected(port) as again:
                again.sendall(GET + b"\r\n")
                status = answer(again)[0]
        assert status == 200
        socket_.send('{"type": "heartbeat", "ref": 1}')
        assert json.loads(socket_.recv())["type"] == "ok"


def test_the_limits_hold_over_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-keyout", key, "-out", certificate),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.create_default_context(cafile=certificate)

    def secured(port: int) -> ssl.SSLSocket:
        return context.wrap_socket(connected(port), server_hostname="127.0.0.1")

    with served(limits=SHORT, certificate=certificate, key=key) as port:
        with connected(port) as silent, connected(port) as half:
            half.sendall(b"\x16\x03\x01\x02\x00\x01")  # the begin of a handshake
            assert is_ended(silent)
            assert is_ended(half)
        for data, status in (
            (GET, 408),
            (post(b'{"price": 1}')[:-2], 408),
            (GET + b"x-a: " + b"b" * (1 << 20), 431),
            (GET + b"\r\n", 200),
        ):
            with secured(port) as connection:
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    connection.sendall(data)
                assert answer(connection)[0] == status, data[:100]
