"""Sessions that never read, and sessions that come back all at once."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.sync.client import connect

from rangecast.server import process as server_run
from rangecast.server.delivery.listeners import WINDOW, WINDOW_BYTES
from tests.support.server.served import Served
from tests.support.server.server_crowd import Crowd

SILENT = 100
WRITE_BUFFER = 256 << 10
"""More than what the event loop holds for a connection before it says: wait."""


def silent(url: str, consumer: str) -> socket.socket:
    """Open a consumer by WebSocket, and never read anything from it."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    parts = urlsplit(url)
    made.connect((parts.hostname, parts.port))
    key = base64.b64encode(b"0" * 16).decode()
    made.sendall(
        f"GET /v1/stream HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        "\r\n".encode()
    )
    assert b"101" in made.recv(4096)
    text = json.dumps({"type": "attach", "consumer": consumer}).encode()
    assert len(text) < 126
    made.sendall(bytes([0x81, 0x80 | len(text)]) + b"\0" * 4 + text)  # masked by zeros
    return made


def test_those_who_never_read_cost_nobody_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_run, "PING", 900.0)  # so that they stay
    listener = server_run._listener

    def small(settings: server_run.Settings) -> socket.socket:
        made = listener(settings)  # what it accepts has its buffers: the system takes little
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
        return made

    monkeypatch.setattr(server_run, "_listener", small)
    served = Served()
    assert served.server is not None
    service, state = served.server.service, served.server.server_state
    events = [{"symbol": "A" * 1000, "price": n} for n in range(3000)]
    with ExitStack() as all_:
        all_.callback(served.stop)
        http = all_.enter_context(httpx.Client(base_url=served.url, trust_env=False, timeout=120))
        for name in ("silent", "good"):
            http.put(f"/v1/consumers/{name}", json={"space": "market"}).raise_for_status()
            given = {"filter": "price >= 0", "consumer": name}
            http.put(f"/v1/spaces/market/subscriptions/{name}", json=given).raise_for_status()
        for _ in range(SILENT):
            all_.callback(silent(served.url, "silent").close)
        deadline = time.monotonic() + 600
        while http.get("/v1/status").json()["listeners"] < SILENT:
            assert time.monotonic() < deadline
        there = served.url.replace("http", "ws") + "/v1/stream"
        good = all_.enter_context(connect(there, proxy=None))
        good.send('{"type": "attach", "consumer": "good"}')
        assert json.loads(good.recv(timeout=90))["type"] == "attached"
        prices = []
        for at in range(0, len(events), 100):
            http.post("/v1/spaces/market/events", json=events[at : at + 100]).raise_for_status()
            while len(prices) < at + 100:  # each event, as it comes
                prices.append(json.loads(good.recv(timeout=90))["event"]["price"])
        assert prices == [one["price"] for one in events]
        listeners = {
            name: service.core.hub.listeners[service.core.registry.consumer("default", name).number]
            for name in ("silent", "good")
        }
        assert [one.overflows for one in listeners["good"]] == [0]
        assert len(listeners["silent"]) == SILENT
        for one in listeners[
            "silent"
        ]:  # a cursor, and what was under way when they turned to reading
            assert one.overflows
            assert not one.is_live
            assert len(one._window) <= WINDOW
            assert one._window_bytes <= WINDOW_BYTES
        held = [one.transport.get_write_buffer_size() for one in state.connections]
        assert len(held) > SILENT
        assert max(held) < WRITE_BUFFER


@pytest.mark.process
def test_all_come_back_after_a_kill_and_miss_nothing(tmp_path: Path) -> None:
    """`python -m tests.support.server.server_crowd` does it with 2,000."""
    asyncio.run(Crowd(tmp_path, sessions=100, events=1000).run())
