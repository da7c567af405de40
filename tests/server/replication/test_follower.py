"""A server that follows another one, and takes its place."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rangecast.client import Client, ServerError
from rangecast.errors import RangecastError
from rangecast.server.log_tools import dumped
from rangecast.server.replication.follower import Leader
from rangecast.server.service import Service
from tests.support.server.served import EVENTS, SUBSCRIPTIONS, Served


def wait_for(follower: Client, seq: int) -> None:
    deadline = time.monotonic() + 600
    while follower.status()["matched_seq"] < seq:
        assert time.monotonic() < deadline, follower.status()
        time.sleep(0.02)


def test_a_follower_has_everything_and_takes_over(tmp_path: Path) -> None:
    first = Served(data=tmp_path / "first")
    with Client(first.url, space="market") as leader:
        leader.put_consumer("all")
        leader.upsert_many([{**row, "consumer": "all"} for row in SUBSCRIPTIONS])
        before = leader.status()["durable_seq"]
        earlier = list(leader.match_many(EVENTS))
        leader.unsubscribe_many([row["id"] for row in SUBSCRIPTIONS[:20]])
        leader.publish(EVENTS[:50])
        options = {"data": tmp_path / "second", "spaces": {}, "follow": first.url}
        second = Served(**options)
        with Client(second.url, space="market") as follower:
            leader.publish(EVENTS[50:100])
            expected = list(leader.match_many(EVENTS))
            wait_for(follower, leader.status()["durable_seq"])
            assert list(follower.match_many(EVENTS)) == expected
            assert list(follower.match_many(EVENTS, as_of=before)) == earlier != expected
            assert follower.messages("all", limit=5000) == leader.messages("all", limit=5000)
            for write in (
                lambda: follower.publish(EVENTS[:1]),
                lambda: follower.subscribe("new", "price < 5"),
                lambda: follower.acknowledge("all", leader.messages("all").position),
            ):
                with pytest.raises(ServerError, match="send the request there"):
                    write()
            second.stop()
            page = leader.messages("all", limit=5000)
            leader.publish(EVENTS[100:120])
    second = Served(**options)  # it goes on where it was
    with Client(first.url) as leader, Client(second.url) as follower:
        wait_for(follower, leader.status()["durable_seq"])
    first.stop()
    second.stop()
    assert list(dumped(tmp_path / "second", 0)) == list(dumped(tmp_path / "first", 0))
    second = Served(data=tmp_path / "second", spaces={})  # the first is gone: take over
    with Client(second.url, space="market") as client:
        again = client.messages("all", limit=5000)
        assert again.items[: len(page.items)] == page.items
        assert list(client.match_many(EVENTS, as_of=before)) == earlier
        assert client.publish(EVENTS[120:]).accepted == len(EVENTS) - 120
    second.stop()


def test_another_history_is_rejected(tmp_path: Path) -> None:
    first, other = Served(data=tmp_path / "first"), Served(data=tmp_path / "other")
    other.stop()
    service = Service(tmp_path / "other", leader=Leader(first.url, None))
    assert service.follower is not None
    assert service._leader is not None
    with pytest.raises(RangecastError, match="another history"):
        service.follower._take(service._leader.piece(0))
    service.close()
    first.stop()
    with pytest.raises(RangecastError, match="a first copy needs the leader"):
        Service(tmp_path / "third", leader=Leader(first.url, None))
