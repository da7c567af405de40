"""Status and metrics: a tenant sees its own, and nothing of what others do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rangecast.server.delivery.listeners import Listener
from rangecast.server.delivery.messages import WINDOW, Mailbox
from tests.server.http.test_auth import SPACE, Tenants

SHARED = {
    "epoch",
    "log",
    "first_seq",
    "durable_seq",
    "matched_seq",
    "durability",
    "disk_full",
    "uptime_seconds",
    "limits",
}
"""Fields about the server: positions, which all answers have, and whether it takes events."""
OWN = {
    *(
        "log_bytes",
        "events",
        "edits",
        "matches",
        "updates",
        "spaces",
        "boards",
        "interests",
        "subscriptions",
    ),
    *("consumers", "listeners"),
}
SHARED_METRICS = {"durable_seq", "matched_seq", "first_seq", "disk_full"}
OWN_METRICS = {
    *(
        "events_matched_total",
        "matches_total",
        "edits_applied_total",
        "listener_overflows_total",
        "listeners",
    ),
    *("subscriptions", "log_bytes", "dead_letters", "consumer_stopped"),
}
LAG = "consumer_lag"
"""In seqs, which all tenants share: it grows when others publish."""
OF_ALL = {
    *("commits_total", "commit_queue_bytes", "log_damaged"),
    *("device_events_total", "device_failed"),
}


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    made = Tenants(data=tmp_path_factory.mktemp("data") / "log")
    yield made
    made.end()


def status(tenants: Tenants, tenant: str, scope: str = "read") -> dict[str, Any]:
    found: dict[str, Any] = tenants.ask(tenant, scope, "GET", "/v1/status").json()
    return found


def metrics(tenants: Tenants, tenant: str, scope: str = "read") -> dict[str, float]:
    text = tenants.ask(tenant, scope, "GET", "/metrics").text
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name.removeprefix("rangecast_"): float(value) for name, _, value in lines}


def act(tenants: Tenants, tenant: str) -> None:
    """Let a tenant do something of every kind that is counted."""

    def ask(method: str, path: str, body: Any) -> None:
        tenants.ask(tenant, "admin", method, f"/v1/{path}", body).raise_for_status()

    ask("PUT", "spaces/more", SPACE.definition())
    ask("PUT", "boards/more", {"k": 1})
    ask("PUT", "consumers/more", {"space": "s"})
    ask("PUT", "spaces/s/subscriptions/more", {"filter": "price < 5", "consumer": "more"})
    ask("POST", "spaces/s/events?wait=matches", [{"price": 1}] * 20)
    ask("PUT", "boards/more/interests/more", {"position_lo": 0, "position_hi": 5})
    ask("POST", "boards/s/updates", {"id": "more", "position": 1, "value": 2})


def family(name: str) -> str:
    return name.partition("{")[0]


def test_nothing_of_another_tenant_is_counted(tenants: Tenants) -> None:
    before, numbers = status(tenants, "blue"), metrics(tenants, "blue")
    assert before.keys() == SHARED | OWN
    assert {family(name) for name in numbers} == SHARED_METRICS | OWN_METRICS | {LAG}
    mine, own = status(tenants, "red"), metrics(tenants, "red")
    with tenants.socket(tenants.secrets["red", "read"]) as socket:
        socket.send('{"type": "attach", "consumer": "red-consumer"}')
        assert json.loads(socket.recv(timeout=90))["type"] == "attached"
        act(tenants, "red")
        after, then = status(tenants, "blue"), metrics(tenants, "blue")
        assert {name: after[name] for name in OWN} == {name: before[name] for name in OWN}
        kept = {one for one in numbers if family(one) in OWN_METRICS}
        assert {one: then[one] for one in kept} == {one: numbers[one] for one in kept}
        assert then.keys() == numbers.keys()
        # each of them does change for the tenant itself
        later, also = status(tenants, "red"), metrics(tenants, "red")
        assert [name for name in OWN if later[name] <= mine[name]] == []
        unlike = OWN_METRICS - {"listener_overflows_total", "dead_letters", "consumer_stopped"}
        assert [name for name in unlike if also[name] <= own[name]] == []


def test_an_administrator_sees_the_sum(tenants: Tenants) -> None:
    parts = [status(tenants, one) for one in ("default", "red", "blue")]
    found = status(tenants, "red", "admin")
    assert found.keys() == SHARED | OWN | {"snapshot_seq", "damage"}
    for name in OWN - {"log_bytes", "edits"}:
        assert found[name] == sum(one[name] for one in parts), name
    assert found["edits"] >= sum(one["edits"] for one in parts)  # also those of no tenant
    assert found["log_bytes"] >= sum(one["log_bytes"] for one in parts)  # as it is on the disk
    names = {family(one) for one in metrics(tenants, "blue", "admin")}
    assert names == SHARED_METRICS | OWN_METRICS | OF_ALL | {LAG}


def test_listeners_that_fall_behind_are_counted_by_tenant(tenants: Tenants) -> None:
    assert tenants.served.server is not None
    service = tenants.served.server.service
    before = {one: metrics(tenants, one)["listener_overflows_total"] for one in ("red", "blue")}
    consumer = service.core.registry.consumers["blue", "blue-consumer"]
    listener = Listener(service.core.hub, consumer, 0)
    mailbox = Mailbox()
    for _ in range(WINDOW + 1):
        mailbox.add(_Message())  # type: ignore[arg-type]
    listener.dispatch(mailbox)
    service.core.hub.reading.discard(listener)
    assert metrics(tenants, "red")["listener_overflows_total"] == before["red"]
    assert metrics(tenants, "blue")["listener_overflows_total"] == before["blue"] + 1


class _Message:
    seq, size = 1 << 60, 1


def test_what_a_tenant_has_is_known_again_after_a_restart(tmp_path: Path) -> None:
    tenants = Tenants(data=tmp_path / "log")
    before = status(tenants, "blue")
    secrets = tenants.secrets
    tenants.end()
    again = Tenants(data=tmp_path / "log", secrets=secrets)
    after = status(again, "blue")
    again.end()
    kept = ("log_bytes", "spaces", "boards", "subscriptions", "consumers")
    assert [after[name] for name in kept] == [before[name] for name in kept]
