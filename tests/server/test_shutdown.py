"""A server stops within a bounded time, whatever its peers do, and loses nothing."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from rangecast.server.http import stalled
from rangecast.server.http.routes.websocket import Session
from rangecast.server.log_tools import dumped
from tests.server.test_process import HERE, SERVE, address, certify
from tests.support.server.served import MADE, Served
from tests.support.server.servers import server
from tests.support.server.silent_peers import dial, request, send_frame, upgrade

pytestmark = pytest.mark.process
LONG = "x" * 20_000
SLACK = 60.0
"""Seconds that a busy machine may take for what takes none; below that nothing is measured."""


@contextmanager
def running(folder: Path, *options: Any) -> Iterator[tuple[Any, str, Path]]:
    MADE.space.save(folder / "market.toml")
    log = folder / "log.txt"
    command = [*SERVE, "--data", "data", *options]
    is_up = lambda: "Serving on" in log.read_text()  # noqa: E731
    with server(command, log, is_up, cwd=folder, env=HERE) as process:
        yield process, address(log), log


def fill(url: str, *, count: int = 300) -> list[int]:
    """Make a consumer and publish megabytes for it; return the seqs that were acknowledged."""
    with httpx.Client(base_url=url, trust_env=False, timeout=90, verify=False) as http:
        http.put("/v1/consumers/c", json={"space": "market"}).raise_for_status()
        given = {"filter": "price >= 0", "consumer": "c"}
        http.put("/v1/spaces/market/subscriptions/all", json=given).raise_for_status()
        events = [{"symbol": LONG, "price": n} for n in range(count)]
        answer = http.post("/v1/spaces/market/events?wait=matches", json=events)
        assert answer.status_code == 200, answer.text
        first = int(answer.json()["first"].split(":")[1])
        return [*range(first, first + count)]


def hold(url: str, stack: ExitStack) -> list[socket.socket]:
    """Open connections of all kinds that get nowhere."""
    held = [stack.enter_context(dial(url)) for _ in range(6)]
    silent, events, pull, trickle, idle, flood = held
    upgrade(silent)
    send_frame(silent, {"type": "attach", "consumer": "c"})
    events.sendall(request("GET", "/v1/consumers/c/stream"))
    pull.sendall(request("GET", "/v1/spaces/market/events?limit=100000"))
    path = "/v1/spaces/market/events?strict=true"
    trickle.sendall(request("POST", path, b"{" * 9_000, Content_Type="application/json")[:-5000])
    upgrade(idle)
    upgrade(flood)
    send_frame(flood, {"type": "attach", "consumer": "c"})
    return held


def is_stuck(url: str) -> bool:
    with httpx.Client(base_url=url, trust_env=False, timeout=90, verify=False) as http:
        status: dict[str, Any] = http.get("/v1/status").json()
        return bool(status["listeners"] >= 3)


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_signal_ends_it_whatever_its_peers_do(tmp_path: Path, is_tls: bool) -> None:
    """Peers that don't read megabytes, don't end their request, don't end their handshake."""
    certify(tmp_path, "one")
    tls = ["--tls-cert", "tls.pem", "--tls-key", "tls.key"] if is_tls else []
    with (
        ExitStack() as stack,
        running(tmp_path, "--shutdown-seconds", "2", *tls) as (process, url, log),
    ):
        acked = fill(url)
        hold(url, stack)
        stack.enter_context(dial(url.replace("https", "http"))).sendall(b"\x16\x03\x01")
        deadline = time.monotonic() + 600
        while not is_stuck(url):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(2 + 5 + SLACK) == 0
        text = log.read_text()
    assert "connections: they didn't end within 2 seconds" in text
    assert "without waiting for" not in text  # by itself, not by its last resort
    lines = [json.loads(line) for line in dumped(tmp_path / "data", 0)]
    assert [one["seq"] for one in lines if "event" in one] == acked


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with (
        ExitStack() as stack,
        running(tmp_path, "--shutdown-seconds", "3600") as (process, url, log),
    ):
        acked = fill(url)
        hold(url, stack)
        process.send_signal(signal.SIGTERM)
        port = int(url.rpartition(":")[2])
        deadline = time.monotonic() + 600
        while True:  # it has begun to stop when it listens no more
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) != 0:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert process.poll() is None  # connections hold it
        process.send_signal(signal.SIGTERM)
        assert process.wait(SLACK) == 128 + signal.SIGTERM
        assert "received a second signal" in log.read_text()
    lines = [json.loads(line) for line in dumped(tmp_path / "data", 0)]
    assert [one["seq"] for one in lines if "event" in one] == acked


def test_what_never_ends_is_left_behind(tmp_path: Path) -> None:
    """A webhook's receiver that doesn't answer, and a thread that never ends."""
    hung = """
import sys, threading
from rangecast.server.maintenance import Maintenance
Maintenance.stop = lambda self: threading.Event().wait()
from rangecast.cli.main import main
sys.argv = ["rangecast", *sys.argv[1:]]
main()
"""
    MADE.space.save(tmp_path / "market.toml")
    log = tmp_path / "log.txt"
    options = ["--data", "data", "--shutdown-seconds", "1", "--allow-private-webhooks"]
    command = [SERVE[0], "-c", hung, *SERVE[3:], *options]
    is_up = lambda: "Serving on" in log.read_text()  # noqa: E731
    with (
        socket.create_server(("127.0.0.1", 0)) as receiver,
        server(command, log, is_up, cwd=tmp_path, env=HERE) as process,
    ):
        url = address(log)
        out = {
            "kind": "webhook",
            "url": f"http://127.0.0.1:{receiver.getsockname()[1]}/",
            "allow_private": True,
        }
        acked = fill(url, count=3)
        with httpx.Client(base_url=url, trust_env=False, timeout=90) as http:
            given = {"space": "market", "start_at": "start", "delivery": out}
            http.put("/v1/consumers/c", json=given).raise_for_status()
        with receiver.accept()[0] as called:  # it is being delivered
            assert called.recv(10)
            process.send_signal(signal.SIGTERM)
            assert process.wait(1 + 5 + SLACK) == 0
        assert "without waiting for: MainThread" in log.read_text()
    lines = [json.loads(line) for line in dumped(tmp_path / "data", 0)]
    assert [one["seq"] for one in lines if "event" in one] == acked


def test_peers_that_read_are_told(tmp_path: Path) -> None:
    served = Served(data=tmp_path)
    fill(served.url, count=3)
    address = served.url.replace("http", "ws") + "/v1/stream"
    with (
        connect(address, proxy=None) as one,
        httpx.Client(base_url=served.url, trust_env=False, timeout=90) as http,
    ):
        answers: list[httpx.Response] = []
        there = {"position": http.get("/v1/consumers/c/messages").json()["position"]}
        http.post("/v1/consumers/c/ack", json=there).raise_for_status()
        pull = threading.Thread(
            target=lambda: answers.append(http.get("/v1/consumers/c/messages?wait=60"))
        )
        pull.start()
        one.send('{"type": "attach", "consumer": "c"}')
        one.recv(timeout=90)
        served.stop()  # it waits for neither
        with suppress(ConnectionClosed):
            while True:
                one.recv(timeout=90)
        assert (one.close_code, one.close_reason) == (1012, "the server is restarting")
        pull.join(90)
        assert answers[0].json()["items"] == []


@pytest.mark.parametrize("kind", ["websocket", "sse", "answer"])
def test_a_peer_that_does_not_read_is_cut(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while megabytes wait for it: a ping waits behind them."""
    monkeypatch.setattr(stalled, "MAX_STALL", 0.5)
    served = Served()
    try:
        fill(served.url, count=400)
        with dial(served.url) as one:
            if kind == "websocket":
                upgrade(one)
                send_frame(one, {"type": "attach", "consumer": "c"})
            elif kind == "sse":
                one.sendall(request("GET", "/v1/consumers/c/stream"))
            else:
                one.sendall(request("GET", "/v1/spaces/market/events?limit=100000"))
            assert served.server is not None
            state = served.server.server_state
            deadline = time.monotonic() + 600
            is_seen = False
            while not is_seen or state.connections:
                is_seen |= any(
                    found.transport.get_write_buffer_size() for found in list(state.connections)
                )
                assert time.monotonic() < deadline
                time.sleep(0.02)
            while state.tasks:
                assert time.monotonic() < deadline
                time.sleep(0.02)
    finally:
        served.stop()


def test_a_ping_time_out_ends_a_connection_with_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rangecast.server.process.PING", 0.3)
    monkeypatch.setattr(stalled, "MAX_STALL", 3600.0)  # nothing else ends it
    served = Served()
    try:
        fill(served.url)
        with dial(served.url) as one:
            upgrade(one)
            send_frame(one, {"type": "attach", "consumer": "c"})
            assert served.server is not None
            state = served.server.server_state
            deadline = time.monotonic() + 600
            while state.connections:
                assert time.monotonic() < deadline
                time.sleep(0.02)
    finally:
        served.stop()


def test_pings_of_a_peer_that_does_not_read_take_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sessions: list[Any] = []
    run = Session.run
    monkeypatch.setattr(Session, "run", lambda self: (sessions.append(self), run(self))[1])
    served = Served()
    try:
        fill(served.url)
        with dial(served.url) as one:
            upgrade(one)
            send_frame(one, {"type": "attach", "consumer": "c"})
            assert served.server is not None
            state = served.server.server_state
            deadline = time.monotonic() + 600
            while not [f for f in list(state.connections) if f.transport.get_write_buffer_size()]:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            pings = bytes([0x89, 0x80 | 125]) + bytes(4) + b"p" * 125
            for _ in range(200):
                one.sendall(pings * 100)
            send_frame(one, {"type": "credit", "messages": 5})
            [session] = sessions
            while session._credit is None:  # all before it was read
                assert time.monotonic() < deadline
                time.sleep(0.02)
            [found] = [f for f in list(state.connections) if f.transport.get_write_buffer_size()]
            assert found.transport.get_write_buffer_size() < 1 << 20
    finally:
        served.stop()
