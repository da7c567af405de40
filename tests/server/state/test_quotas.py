"""Limits of tenants: what is too much is rejected, with the number and the limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from rangecast.errors import RangecastError
from rangecast.server.log.segment import checked_units
from rangecast.server.maintenance import Retention
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state import retained
from rangecast.server.state.edits import EDITS, EVENTS, DeleteConsumer, PutConsumer, edits_of
from rangecast.server.state.quotas import LIMITS, Quotas
from rangecast.server.state.registry import Registry, RequestError
from rangecast.server.state.retained import COARSE, RetainedBytes
from tests.support.server.served import Served
from tests.support.server.serving import SPACE, Client, T, publish, run, serving


def rejected(call: Any, *arguments: Any) -> str:
    with pytest.raises(RequestError) as found:
        call(*arguments)
    return f"{found.value.status} {found.value}".partition("\n")[0]


def test_rates_are_paid_back() -> None:
    now = [0.0]
    registry = Registry()
    quotas = Quotas(registry, lambda: now[0])
    quotas.publish("a", 10**9, 10**9)  # no limit
    registry.tenants["a"] = {"events_per_second": 100, "bytes_per_second": 1000}
    quotas.publish("a", 60, 10)
    quotas.publish("a", 60, 10)
    said = rejected(quotas.publish, "a", 1, 10)
    assert said == "429 this tenant may send 100 events per second and has sent more"
    quotas.publish("b", 1000, 10)
    now[0] += 0.3
    quotas.publish("a", 1, 10)
    # a large request is taken whole, and paid for by those after it
    now[0] += 10
    quotas.publish("a", 1, 5000)
    now[0] += 3.9
    assert "bytes per second" in rejected(quotas.publish, "a", 1, 1)
    now[0] += 0.2
    quotas.publish("a", 1, 1)
    registry.tenants["a"] = {"events_per_second": 0}
    assert rejected(quotas.publish, "a", 1, 1).startswith("429")


def test_filters_and_connections() -> None:
    registry = Registry()
    quotas = Quotas(registry)
    registry.tenants["a"] = {"filter_length": 40, "filter_boxes": 2, "sessions": 1}
    quotas.parsed("a", "price < 1 or price > 2", SPACE)
    said = rejected(quotas.parsed, "a", "price < 1 or price = 3 or price > 5", SPACE)
    assert said == "403 a filter of this tenant has at most 2 boxes, not 3"
    said = rejected(quotas.parsed, "a", " " * 41, SPACE)
    assert said == "403 a filter of this tenant has at most 40 characters, not 41"
    quotas.check_session("a")
    with quotas.session("a"):
        said = rejected(quotas.check_session, "a")
        assert said == "429 this tenant may have 1 open connections and has 1"
        quotas.check_session("b")
    quotas.check_session("a")


def test_limits_over_http() -> None:
    async def work() -> None:
        async with serving() as service:
            client = Client(service)
            await client("PUT", "tenants/default", {"events_per_day": 5}, 422)
            limits = dict.fromkeys(LIMITS, 1) | {"consumers": 2, "filter_length": 30}
            limits |= {"bytes_per_second": 10_000, "events_per_second": 2}
            limits |= {"retained_bytes": 10_000, "edits_per_second": 1000}
            await client("PUT", f"tenants/{T}", limits)
            hook = {"kind": "webhook", "url": "https://hook.example/"}
            await client("PUT", "consumers/one", {"space": "s", "delivery": hook})
            await client("PUT", "consumers/one", {"space": "s", "delivery": hook})
            found = await client("PUT", "consumers/two", {"space": "s", "delivery": hook}, 403)
            assert "may have 1 webhooks and has 1" in found["detail"]
            await client("PUT", "consumers/two", {"space": "s"})
            found = await client("PUT", "consumers/two", {"space": "s", "delivery": hook}, 403)
            found = await client("PUT", "consumers/three", {"space": "s"}, 403)
            assert "may have 2 consumers and has 2" in found["detail"]
            # a group is judged with what it itself does
            edits = (DeleteConsumer(T, "two"), PutConsumer(T, "three", "s"))
            await result_of(service.core.edit(*edits))
            with pytest.raises(RangecastError, match="may have 2 consumers"):
                await result_of(service.core.edit(PutConsumer(T, "four", "s")))
            path = "spaces/s/subscriptions"
            await client("PUT", f"{path}/a", {"filter": "price < 1 or price > 3"}, 403)
            await client("PUT", f"{path}/a", {"filter": "price < 1"})
            found = await client("PUT", f"{path}/b", {"filter": "price < 1"}, 403)
            assert "may have 1 subscriptions and has 1" in found["detail"]
            rows = [
                {"id": "c", "filter": "price < 1 or price > 3"},
                {"id": "a", "filter": "price > 3"},
            ]
            found = await client("POST", f"{path}:bulk", rows)
            assert (found["accepted"], [one["row"] for one in found["rejected"]]) == (1, [0])
            await client("POST", "spaces/s/events", [{"price": 1}] * 9)
            found = await client("POST", "spaces/s/events", [{"price": 1}], 429)
            assert "2 events per second" in found["detail"]

    run(work)


def test_connections_too_many_are_told_so() -> None:
    served = Served(spaces={"s": SPACE})
    there = served.url.replace("http", "ws") + "/v1/stream"

    def hear(socket: ClientConnection) -> Any:
        return json.loads(socket.recv(timeout=90))

    with httpx.Client(base_url=served.url) as client:
        client.put("/v1/consumers/c", json={"space": "s"})
        client.put(f"/v1/tenants/{T}", json={"sessions": 1})
        with connect(there, proxy=None) as first:
            first.send('{"type": "heartbeat"}')
            assert hear(first)["type"] == "ok"
            with connect(there, proxy=None) as second:
                assert hear(second)["status"] == 429
            assert client.get("/v1/consumers/c/stream").status_code == 429
            # the one that was there goes on
            first.send('{"type": "heartbeat"}')
            assert hear(first)["type"] == "ok"
        for _ in range(2):  # each gives its place back
            with connect(there, proxy=None) as other:
                other.send('{"type": "heartbeat"}')
                assert hear(other)["type"] == "ok"
    served.stop()


def test_retained_bytes_are_forgotten_in_pieces() -> None:
    some = RetainedBytes()
    half = COARSE // 2
    for unit in range(10):
        some.note("a", 10 * unit + 9, half)
    some.note("b", 5, 100)
    assert {name: len(parts) for name, parts in some.parts.items()} == {"a": 5, "b": 1}
    some.forget(20)
    for one in (some, RetainedBytes(some.parts)):
        assert (one.of("a"), one.of("b"), one.of("c")) == (8 * half, 0, 0)


def test_retained_bytes_follow_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the log keeps of a tenant counts, also after a restart, and less after retention."""
    monkeypatch.setattr(retained, "COARSE", 1)

    def in_log() -> int:
        units = [one for one in checked_units(tmp_path) if one.kind in (EVENTS, EDITS)]
        # what an administrator does isn't the tenant's
        mine = [one for one in units if one.kind == EVENTS or edits_of(one)[0].tenant == T]
        return sum(len(one.body) for one in mine)

    async def work() -> None:
        async with serving(tmp_path) as service:
            log: Any = service.core.log
            log._segment_bytes = 10_000
            for _ in range(9):
                await publish(service, *range(300))
            kept = service.core.registry.retained.of(T)
            assert kept == in_log()
            client = Client(service)
            await client("PUT", f"tenants/{T}", {"retained_bytes": kept + 50})
            await client("POST", "spaces/s/events", [{"price": 1}])
            found = await client("POST", "spaces/s/events", [{"price": n} for n in range(9)], 403)
            assert f"the log may hold {kept + 50:,} bytes of this tenant" in found["detail"]
            kept = service.core.registry.retained.of(T)
        for _ in range(2):  # by the log, then by a snapshot
            async with serving(tmp_path, retention=Retention(bytes=30_000)) as service:
                assert service.core.registry.retained.of(T) == kept == in_log()
                service.core.snapshot()
        async with serving(tmp_path, retention=Retention(bytes=30_000)) as service:
            service.maintenance.run_once()
            items = (await Client(service)("GET", "tenants"))["items"]
            assert [one["retained_bytes"] for one in items] == [in_log()]
            assert 0 < in_log() < kept

    run(work)
