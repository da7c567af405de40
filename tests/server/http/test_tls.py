"""TLS: clients that stall, send something else or don't end; certificates that change or expire."""

from __future__ import annotations

import logging
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from rangecast.server.http import stalled
from rangecast.server.http.connections import MAX_HEAD, ConnectionLimits
from rangecast.server.process import Server, Settings
from tests.client.test_tls import Authority
from tests.support.server.served import Served
from tests.support.server.silent_peers import dial, request

LONG = 90.0


def until(is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LONG
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Secured:
    """A server with a certificate of a private authority."""

    def __init__(self, folder: Path, **options: Any):
        self.authority = Authority(folder, "authority")
        self.folder = folder
        self.names = folder / "tls.pem", folder / "tls.key"
        self.use("first")
        self.served = Served(certificate=self.names[0], key=self.names[1], **options)
        self.url = self.served.url
        self.client = ssl.create_default_context(cafile=str(self.authority.file))

    def use(self, name: str, **dates: int) -> None:
        made = self.authority.signed(name, **dates)
        shutil.copy(made.certificate, self.names[0])
        shutil.copy(made.key, self.names[1])

    @property
    def server(self) -> Server:
        assert self.served.server is not None
        return self.served.server

    def plain(self) -> socket.socket:
        """Connect without TLS."""
        return dial(self.url.replace("https", "http"))

    def reload(self) -> None:
        """Reload the certificate as a signal does, on the event loop."""
        done = threading.Event()

        def work() -> None:
            self.server.reload_certificate()
            done.set()

        loop = self.server.service.core.hub._loop
        assert loop is not None
        loop.call_soon_threadsafe(work)
        assert done.wait(LONG)

    def answers(self) -> bool:
        with httpx.Client(verify=self.client, trust_env=False, timeout=LONG) as http:
            return http.get(f"{self.url}/healthz").status_code == 200


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    made = Secured(tmp_path, limits=ConnectionLimits(header_seconds=0.5))
    yield made
    made.served.stop()


def test_what_is_no_handshake_ends_its_connection_alone(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    for sent in (
        request("GET", "/healthz"),
        b"\x00" * 100,
        b"\x16\x03\x01\xff\xff" + b"\xff" * 70_000,
        b"\x16\x03\x01\x00\x05hello",
        b"\x15\x03\x03\x00\x02\x02\x28",
    ):
        with secured.plain() as one:
            one.sendall(sent)
            got = b""
            try:
                while part := one.recv(1000):
                    got += part
            except ConnectionResetError:
                pass
            assert b"HTTP/1.1 200" not in got
    assert secured.answers()
    until(lambda: not secured.server.server_state.connections)
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


def test_a_handshake_that_stalls_is_ended(secured: Secured) -> None:
    for begun in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"):
        with secured.plain() as one:
            one.sendall(begun)
            assert one.recv(1000) == b""  # ended by the server
    assert secured.answers()


def test_a_client_that_does_not_confirm_the_end_is_let_go(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalled, "MAX_STALL", 0.5)
    with dial(secured.url) as one:
        one.sendall(request("GET", "/healthz", Connection="close"))
        until(lambda: secured.server.server_state.total_requests)
        until(lambda: not secured.server.server_state.connections)


def test_heads_are_bounded_over_tls(secured: Secured) -> None:
    with dial(secured.url, room=None) as one:
        one.sendall(request("GET", "/healthz", X="x" * (2 * MAX_HEAD)))
        assert one.recv(1000).startswith(b"HTTP/1.1 431 ")
    with dial(secured.url, room=None) as one:
        one.sendall(b"GET / HTTP/1.1\r\nX-Half: ")
        assert one.recv(1000).startswith(b"HTTP/1.1 408 ")
    assert secured.answers()


def test_the_certificate_changes_under_load(secured: Secured) -> None:
    """New connections get one or the other, and none fails; an open one goes on."""
    failures: list[str] = []
    is_over = threading.Event()
    counts = [0, 0]

    def load(number: int) -> None:
        while not is_over.is_set():
            try:
                assert secured.answers()
                counts[number] += 1
            except (httpx.HTTPError, AssertionError) as error:
                failures.append(repr(error))

    threads = [threading.Thread(target=load, args=(number,)) for number in range(2)]
    url = secured.url.replace("https", "wss") + "/v1/stream"
    with connect(url, proxy=None, ssl=secured.client) as open_before:
        for thread in threads:
            thread.start()
        try:
            for turn in range(10):
                before = counts.copy()
                secured.use(f"turn-{turn}")
                if turn % 2:
                    secured.names[1].write_text("no key")  # it goes on with what it has
                secured.reload()
                until(lambda at=before: all(a < b for a, b in zip(at, counts, strict=True)))
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        open_before.send('{"type": "heartbeat"}')
        assert '"ok"' in str(open_before.recv(timeout=LONG))
    assert not failures


@pytest.mark.parametrize(
    ("begin", "end", "words"), [(-3, -1, "expired"), (2, 3, "not yet valid"), (0, 1, "")]
)
def test_a_certificate_that_clients_reject_is_named_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, begin: int, end: int, words: str
) -> None:
    made = Authority(tmp_path, "authority").signed("one", begin=begin, end=end)
    with caplog.at_level(logging.WARNING):
        Settings(None, certificate=made.certificate, key=made.key).check()
    assert ("clients will reject --tls-cert" in caplog.text) == bool(words)
    assert words in caplog.text
