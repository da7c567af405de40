"""Frames of a WebSocket that are wrong: each is answered, or the close says why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from rangecast.overlay.wire.frames import MAX_BYTES as MAX_MESSAGE
from rangecast.server.core import Core
from rangecast.server.http.middleware import MAX_BODY_BYTES
from rangecast.server.http.routes.websocket import MAX_STRANGER
from rangecast.server.links.broker_runner import KIND
from rangecast.server.service import Service
from rangecast.server.state.edits import PutConsumer
from tests.support.server.served import Served

LONG = 90.0


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.stop()


def opened(served: Served) -> ClientConnection:
    return connect(served.url.replace("http", "ws") + "/v1/stream", proxy=None, max_size=None)


def service_of(served: Served) -> Service:
    assert served.server is not None
    return served.server.service


def asked(socket: ClientConnection, frame: str | bytes) -> dict[str, Any]:
    socket.send(frame)
    found: dict[str, Any] = json.loads(socket.recv(timeout=LONG))
    return found


@pytest.mark.parametrize("depth", [67, 1_000, 3_000, 100_000, 1_000_000])
def test_a_frame_that_is_nested_too_deep_is_answered(served: Served, depth: int) -> None:
    with opened(served) as socket:
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            inside = opening * depth + "1" + closing * depth
            frame = f'{{"type": "publish", "space": "market", "events": [{inside}]}}'
            answer = asked(socket, frame)
            assert (answer["type"], answer["status"]) == ("error", 400)
            assert "nested deeper" in answer["detail"]
        assert asked(socket, '{"type": "heartbeat"}')["type"] == "ok"  # it goes on


def test_a_frame_that_is_too_long_is_answered(served: Served) -> None:
    with opened(served) as socket:
        answer = asked(socket, json.dumps({"type": "heartbeat", "x": "x" * MAX_BODY_BYTES}))
        assert (answer["type"], answer["status"]) == ("error", 413)
        assert asked(socket, '{"type": "heartbeat"}')["type"] == "ok"


def ended(socket: ClientConnection, frame: str | bytes) -> tuple[int | None, str | None]:
    """Send a frame; return the code and the reason of the close."""
    try:
        socket.send(frame)
        while True:
            socket.recv(timeout=LONG)
    except ConnectionClosed:
        return socket.close_code, socket.close_reason


def test_a_message_that_is_far_too_long_closes_with_a_reason(served: Served) -> None:
    with opened(served) as socket:
        code, reason = ended(socket, b"x" * (MAX_MESSAGE + 1))
        assert code == 1009
        assert reason


def test_text_that_is_no_unicode_closes_with_its_code(served: Served) -> None:
    with opened(served) as socket:
        with socket.send_context():
            socket.protocol.send_text(b"\xff\xfe")
        assert ended(socket, '{"type": "heartbeat"}')[0] == 1007


def test_frames_that_are_no_request_are_answered(served: Served) -> None:
    with opened(served) as socket:
        for frame in ("", "[]", "1", "null", "{", '{"type": 5}', '{"type": "x"}', b"\xff", "{}"):
            answer = asked(socket, frame)
            assert (answer["type"], answer["status"]) == ("error", 400), frame


def test_an_error_inside_the_server_is_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Exception] = [ZeroDivisionError(), RecursionError(), RuntimeError()]

    def fail(*_: Any, **__: Any) -> None:
        raise failures.pop()

    monkeypatch.setattr(Core, "publish", fail)
    frame = {"type": "publish", "ref": 3, "space": "market", "events": [{"price": 1}]}
    with opened(served) as socket:
        for _ in range(len(failures)):
            answer = asked(socket, json.dumps(frame))
            assert (answer["type"], answer["status"], answer["ref"]) == ("error", 500, 3)
        assert asked(socket, '{"type": "heartbeat"}')["type"] == "ok"


def test_a_stranger_sends_short_frames_only() -> None:
    served = Served()
    try:
        with httpx.Client(base_url=served.url, trust_env=False, timeout=LONG) as http:
            given = {"label": "x", "scopes": ["admin"]}
            secret = http.post("/v1/tokens", json=given).json()["token"]
        long = json.dumps({"type": "heartbeat", "x": "x" * MAX_STRANGER})
        with opened(served) as socket:
            assert asked(socket, long)["status"] == 413
            assert asked(socket, json.dumps({"type": "auth", "token": secret}))["type"] == "ok"
            assert asked(socket, long)["type"] == "ok"
    finally:
        served.stop()


def test_the_cursor_of_a_link_is_moved_by_its_neighbour_alone(tmp_path: Path) -> None:
    served = Served(data=tmp_path)
    try:
        service = service_of(served)
        service.core.edit(PutConsumer("default", "far", "market", {"kind": KIND})).result(LONG)
        with httpx.Client(base_url=served.url, trust_env=False, timeout=LONG) as http:
            http.post("/v1/spaces/market/events", json=[{"price": 1}]).raise_for_status()
            before = http.get("/v1/consumers/far").json()
            there = f"{before['position'].partition(':')[0]}:{service.core.pipeline.durable}"
            assert http.post("/v1/consumers/far/ack", json={"position": there}).status_code == 409
            with opened(served) as socket:
                frame = {"type": "ack", "consumer": "far", "position": there, "ref": 1}
                assert asked(socket, json.dumps(frame))["status"] == 409
            assert http.get("/v1/consumers/far").json()["position"] == before["position"]
    finally:
        served.stop()
