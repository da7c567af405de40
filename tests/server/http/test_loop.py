"""The event loop isn't held up: what takes long is done by other threads, and has bounds."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space
from rangecast.server import json_text
from rangecast.server.http.bodies.read import INLINE_BYTES
from rangecast.server.http.routes import events as http_events
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.edits import PutSpace, PutSubscription
from rangecast.server.state.quotas import DEFAULTS, INLINE_LENGTH, Quotas
from rangecast.server.state.registry import Registry
from tests.support.server.served import Served
from tests.support.server.serving import SPACE, T, run, serving
from tests.support.spoken import Spoken

LENGTH = DEFAULTS["filter_length"]
LONG = {
    "or": "price < 1 or " * 1200 + " price < 2",
    "in": f"price in ({', '.join(map(str, range(3000)))})",
    "not": "not " * 4000 + "price < 1",
    "name": "a" * (LENGTH - 10) + " < 5",
    "and": " and ".join(f"(price < {at} or price > {at + 5})" for at in range(400)),
}
"""Filters of shapes that take long."""


@pytest.fixture
def parsed_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """Note each text that is parsed or decoded: its length, and the thread that does it."""
    seen: list[tuple[int, int]] = []
    parse, check = Filter.parse.__func__, json_text.check_depth  # type: ignore[attr-defined]

    def noted(cls: Any, text: str, space: Space, **options: Any) -> Filter:
        seen.append((len(text), threading.get_ident()))
        found: Filter = parse(cls, text, space, **options)
        return found

    def checked(text: bytes, max_depth: int = json_text.MAX_DEPTH) -> None:
        if len(text) > INLINE_BYTES:
            seen.append((len(text), threading.get_ident()))
        check(text, max_depth)

    monkeypatch.setattr(Filter, "parse", classmethod(noted))
    monkeypatch.setattr(json_text, "check_depth", checked)
    return seen


@asynccontextmanager
async def watched(seen: list[tuple[int, int]]) -> AsyncIterator[None]:
    """Watch the loop: no long text is read on its thread."""
    seen.clear()
    yield
    mine = threading.get_ident()
    assert not [size for size, thread in seen if thread == mine and size > INLINE_LENGTH]
    assert any(size > INLINE_LENGTH for size, _ in seen), "nothing long was read"


@pytest.mark.parametrize("what", LONG)
def test_long_filters_are_read_by_another_thread(
    what: str, parsed_in: list[tuple[int, int]]
) -> None:
    text = LONG[what]
    body = json.dumps({"filter": text}).encode()
    rows = json.dumps([{"id": "a", "filter": text}]).encode()
    requests = [
        ("PUT", "spaces/s/subscriptions/a", body, {"Content_Type": "application/json"}),
        ("PUT", "spaces/s/subscriptions/a", body, {"If_None_Match": "*"}),
        ("POST", "spaces/s/subscriptions:bulk", rows, {}),
        ("POST", "spaces/s/filters:preview", body, {}),
        ("POST", "spaces/s/subscriptions:find-covering", body, {}),
        ("PUT", "boards/b/interests/a", body, {}),
        ("POST", "boards/b/interests:bulk", rows, {}),
    ]

    async def work() -> None:
        async with serving() as service:
            spoken = Spoken(service)
            await spoken.json("PUT", "/v1/boards/b", {"k": 2, "space": "s"})
            for method, path, content, headers in requests:
                async with watched(parsed_in):
                    status, answer = await spoken.ask(method, f"/v1/{path}", content, **headers)
                    assert status in (200, 412, 422), (path, answer)

    assert INLINE_LENGTH < len(text) <= LENGTH
    run(work)


def test_filters_have_a_length_everywhere() -> None:
    text = "price < 1 or " * (LENGTH // 13) + " price < 2000"
    body = json.dumps({"filter": text}).encode()
    rows = json.dumps([{"id": "a", "filter": text}, {"id": "b", "filter": "price < 5"}]).encode()
    boxes = {"filter": " or ".join(f"price = {at}" for at in range(1025))}

    async def work() -> None:
        async with serving() as service:
            spoken = Spoken(service)
            await spoken.json("PUT", "/v1/boards/b", {"k": 2, "space": "s"})
            for method, path in (
                ("PUT", "spaces/s/subscriptions/a"),
                ("POST", "spaces/s/filters:preview"),
                ("POST", "spaces/s/subscriptions:find-covering"),
                ("PUT", "boards/b/interests/a"),
            ):
                status, answer = await spoken.ask(
                    method, f"/v1/{path}", body, Content_Type="application/json"
                )
                assert status == 403, (path, answer)
                assert b"at most 65,536 characters" in answer
                status, answer = await spoken.ask(
                    method,
                    f"/v1/{path}",
                    json.dumps(boxes).encode(),
                    Content_Type="application/json",
                )
                assert status == 422, (path, answer)
                assert b"1,024" in answer
            for path in ("spaces/s/subscriptions:bulk", "boards/b/interests:bulk"):
                status, answer = await spoken.ask("POST", f"/v1/{path}", rows)
                found = json.loads(answer)
                assert (found["accepted"], [one["row"] for one in found["rejected"]]) == (1, [0])
                assert "at most 65,536 characters" in found["rejected"][0]["reason"]
            # a tenant may have more, or less
            await spoken.json("PUT", f"/v1/tenants/{T}", {"filter_length": 10})
            status, _ = await spoken.ask(
                "PUT", "/v1/spaces/s/subscriptions/a", b'{"filter": "price < 1000"}'
            )
            assert status == 403
            more = {"filter_length": 200_000, "filter_boxes": 2000}
            await spoken.json("PUT", f"/v1/tenants/{T}", more)
            await spoken.json("PUT", "/v1/spaces/s/subscriptions/a", boxes)
            found = await spoken.json(
                "POST", "/v1/spaces/s/subscriptions:bulk", [{"id": "c", **boxes}]
            )
            assert found["accepted"] == 1
            status, answer = await spoken.ask("PUT", "/v1/spaces/s/subscriptions/a", body)
            assert status == 200, answer
            last = {"filter": " or ".join(f"price = {at}" for at in range(2001))}
            status, _ = await spoken.ask(
                "PUT", "/v1/spaces/s/subscriptions/a", json.dumps(last).encode()
            )
            assert status == 422
        assert Quotas(Registry()).limit("x", "filter_boxes") == 1024

    run(work)


def test_websockets_have_the_same_bounds(parsed_in: list[tuple[int, int]]) -> None:
    from websockets.sync.client import connect

    served = Served(spaces={"s": SPACE})
    try:
        with connect(served.url.replace("http", "ws") + "/v1/stream", proxy=None) as socket:

            def ask(**frame: Any) -> Any:
                socket.send(json.dumps(frame))
                return json.loads(socket.recv(timeout=90))

            long, over = LONG["not"], LONG["not"] + " or price < 2" * 5000
            assert ask(type="subscribe", space="s", id="a", filter=over)["status"] == 403
            assert ask(type="follow", space="s", filter=over)["status"] == 403
            assert ask(type="subscribe", space="s", id="a", filter=long)["type"] == "ok"
            assert ask(type="follow", space="s", filter=long)["type"] == "attached"
            some = [{"price": at} for at in range(5000)]
            socket.send(json.dumps({"type": "publish", "space": "s", "events": some}))
            while (heard := json.loads(socket.recv(timeout=90)))["type"] != "ok":
                assert heard["type"] in ("heartbeat", "match")
            assert heard["accepted"] == 5000
            loop = served._thread.ident
            long_ones = [thread for size, thread in parsed_in if size > INLINE_LENGTH]
            assert len(long_ones) >= 3
            assert loop not in long_ones
            deep = '{"type": "publish", "ref": 7, "events": ' + "[" * 5000 + "]" * 5000 + "}"
            socket.send(deep)
            while (heard := json.loads(socket.recv(timeout=90)))["type"] != "error":
                assert heard["type"] in ("heartbeat", "match")
            assert heard["status"] == 400
            assert "nested deeper" in heard["detail"]
    finally:
        served.stop()


def test_large_bodies_are_read_by_another_thread(parsed_in: list[tuple[int, int]]) -> None:
    events = json.dumps([{"price": at} for at in range(9000)]).encode()
    lines = events[1:-1].replace(b"}, ", b"}\n")
    wide = b'{"price": 5, "id": "' + b"[" * 500_000 + b'"}'
    large = json.dumps({"filter": "price < 5", "consumer": "x" * 900_000}).encode()
    requests = [
        ("POST", "spaces/s/events", events, 200),
        ("POST", "spaces/s/events", wide, 200),
        ("POST", "spaces/s/events:match", events, 200),
        ("POST", "spaces/s/events:rank?k=5", events, 200),
        ("POST", "spaces/s/subscriptions:bulk", events, 422),
        ("POST", "spaces/s/filters:preview", large, 200),
        ("PUT", "spaces/s/subscriptions/x", large, 404),
        ("PUT", "consumers/x", large, 422),
        ("PUT", "spaces/x", large, 422),
        ("POST", "boards/b/updates", events, 422),
        ("POST", "boards/b/interests:bulk", events, 422),
    ]

    async def work() -> None:
        async with serving() as service:
            spoken = Spoken(service)
            await spoken.json("PUT", "/v1/boards/b", {"k": 2})
            await spoken.json("PUT", "/v1/spaces/s/subscriptions/a", {"filter": "price < 50"})
            for method, path, body, expected in requests:
                async with watched(parsed_in):
                    status, answer = await spoken.ask(
                        method, f"/v1/{path}", body, Content_Type="application/json"
                    )
                    assert status == expected, (path, answer[:300])
            status, _ = await spoken.ask(
                "POST", "/v1/spaces/s/events", lines, Content_Type="application/x-ndjson"
            )
            assert status == 200

    run(work)


def test_answers_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_events, "MAX_PAIRS", 1000)

    async def work() -> None:
        async with serving() as service:
            spoken = Spoken(service)
            rows = [{"id": f"a{at:03}", "filter": "price > 0"} for at in range(100)]
            await spoken.json("POST", "/v1/spaces/s/subscriptions:bulk", rows)
            some = [{"price": 1}] * 10
            found = await spoken.json("POST", "/v1/spaces/s/events:match", some)
            assert [len(one) for one in found["matches"]] == [100] * 10
            assert found["matches"][0] == [one["id"] for one in rows]
            few = await spoken.json("POST", "/v1/spaces/s/events:match", [{"price": -1}] * 200)
            assert few["matches"] == [[]] * 200
            for path in ("events:match", "events:rank?k=100"):
                status, answer = await spoken.ask(
                    "POST", f"/v1/spaces/s/{path}", json.dumps([*some, *some]).encode()
                )
                assert status == 413, answer
            found = await spoken.json("POST", "/v1/spaces/s/events:rank?k=50", [*some, *some])
            assert [len(one) for one in found["best"]] == [50] * 20

    run(work)


def test_pages_of_many_are_made_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    from rangecast.server.http.routes import spaces

    threads: set[int] = set()
    page_of = spaces.page_of

    def noted(*given: Any) -> Any:
        threads.add(threading.get_ident())
        return page_of(*given)

    monkeypatch.setattr(spaces, "page_of", noted)

    async def work() -> None:
        async with serving() as service:
            spoken = Spoken(service)
            rows = [{"id": f"a{at:03}", "filter": f"price > {at}"} for at in range(500)]
            await spoken.json("POST", "/v1/spaces/s/subscriptions:bulk", rows)
            path = "/v1/spaces/s/subscriptions?limit=200"
            seen: list[Any] = []
            after: str | None = ""
            while after is not None:
                page = await spoken.json("GET", f"{path}&after={after}")
                seen += page["items"]
                after = page["next"]
                assert page["count"] == 500
            assert [one["id"] for one in seen] == [one["id"] for one in rows]
            found = await spoken.json("GET", f"{path}&contains=PRICE%20%3E%2049")
            assert [one["id"] for one in found["items"]][:3] == ["a049", "a490", "a491"]
            assert threading.get_ident() not in threads

    run(work)


def test_edits_wait_by_their_bytes() -> None:
    """What waits to be written is bounded by bytes, long filters included."""
    from rangecast.server.pipeline.commands import Edits

    long = PutSubscription(T, "a", "s", "price < 1" + " " * 60_000)
    assert Edits([long] * 10).size > 600_000
    assert Edits([PutSpace(T, "s", {"attribute": ["x" * 50_000]})]).size > 50_000


@pytest.mark.parametrize("path", ["edit", "bulk"])
def test_edits_count_against_limits(path: str) -> None:
    def request(at: int) -> tuple[str, str, Any]:
        filter_ = f"price < {at}" + " " * 1000
        if path == "edit":
            return "PUT", "/v1/spaces/s/subscriptions/a", {"filter": filter_}
        return "POST", "/v1/spaces/s/subscriptions:bulk", [{"id": "a", "filter": filter_}]

    async def status(spoken: Spoken, at: int) -> tuple[int, str]:
        method, where, given = request(at)
        code, answer = await spoken.ask(
            method, where, json.dumps(given).encode(), Content_Type="application/json"
        )
        return code, answer.decode()

    async def work() -> None:
        for limits, code, words in (
            ({"edits_per_second": 1}, 429, "1 edits per second"),
            ({"bytes_per_second": 1000}, 429, "1,000 bytes per second"),
            ({"retained_bytes": 5000}, 403, "5,000 bytes of this tenant"),
        ):
            async with serving() as service:
                service.core.quotas._clock = lambda: 0.0
                spoken = Spoken(service)
                await spoken.json("PUT", f"/v1/tenants/{T}", {"subscriptions": 5} | limits)
                found = [await status(spoken, at) for at in range(9)]
                assert found[0][0] == 200
                assert found[-1][0] == code
                assert words in found[-1][1]
                # what is there can be ended, and others aren't affected
                await spoken.json("DELETE", "/v1/spaces/s/subscriptions/a")
                assert service.core.registry.retained.of(T) > 1000
                assert not service.why_not_ready()

    run(work)


def test_the_bytes_of_edits_are_those_of_the_log(tmp_path: Any) -> None:
    async def work() -> None:
        async with serving(tmp_path) as service:
            spoken = Spoken(service)
            await spoken.json("PUT", "/v1/boards/b", {"k": 2})
            await spoken.json("PUT", "/v1/spaces/s/subscriptions/a", {"filter": "price < 5"})
            await spoken.json("POST", "/v1/boards/b/updates", {"id": 1, "position": 1, "value": 1})
            await spoken.json("POST", "/v1/spaces/s/events", {"price": 1})
            kept = service.core.registry.retained.of(T)
            units = service.core.log.read(0, 1 << 20)
            assert kept == sum(len(one.body) for one in units if one.kind != "acks")
            service.core.snapshot()
            await spoken.json("PUT", "/v1/spaces/s/subscriptions/a", {"filter": "price < 6"})
            kept = service.core.registry.retained.of(T)
        async with serving(tmp_path) as service:  # by a snapshot and the log
            assert service.core.registry.retained.of(T) == kept
        for one in tmp_path.glob("snapshot-*"):
            (one / "state.json").unlink()
        async with serving(tmp_path) as service:  # by the log
            assert service.core.registry.retained.of(T) == kept

    run(work)


def test_a_filter_that_is_wrong_says_so_from_any_thread() -> None:
    async def work() -> None:
        async with serving() as service:
            long = PutSubscription(T, "a", "s", "price <" + " " * 5000)
            with pytest.raises(Exception, match="the end"):
                await result_of(service.core.edit(long))
            good = PutSubscription(T, "a", "s", "price < 5" + " " * 5000)
            assert await result_of(service.core.edit(good)) == service.core.log.last

    run(work)
