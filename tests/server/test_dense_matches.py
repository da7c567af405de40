"""Bodies whose events match everything: memory is bounded, and nothing is lost by that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rangecast import Engine, Number, Space
from rangecast.client import Client
from rangecast.server.pipeline import apply
from rangecast.server.state import space_index
from tests.support.server.served import Served

SUBSCRIPTIONS = 300
EVENTS = 2_000
AT_ONCE, MAX_PAIRS = 200 * SUBSCRIPTIONS, 3 * SUBSCRIPTIONS


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give the events of each call of an engine that has all subscriptions."""
    monkeypatch.setattr(space_index, "MAX_PAIRS", MAX_PAIRS)
    monkeypatch.setattr(space_index, "_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(space_index, "_MIN_EVENTS", 16)
    match_points = Engine.match_points
    found: list[int] = []

    def counted(self: Engine, points: Any, **options: Any) -> Any:
        if len(self) == SUBSCRIPTIONS:
            found.append(len(points))
        return match_points(self, points, **options)

    monkeypatch.setattr(Engine, "match_points", counted)
    return found


@pytest.fixture
def client(calls: list[int]) -> Iterator[Client]:
    served = Served(spaces={"market": Space([Number("price")])})
    with Client(served.url, space="market") as client:
        client.put_consumer("ann", start_at="start")
        client.subscribe_many(
            [{"id": n, "filter": "true", "consumer": "ann"} for n in range(SUBSCRIPTIONS)]
        )
        yield client
    served.stop()


def test_what_matches_everything_is_matched_and_read_in_pieces(
    client: Client, calls: list[int]
) -> None:
    everything = list(range(SUBSCRIPTIONS))
    messages: list[Any] = []
    client.messages("ann", wait=0)  # its listener is open now: messages are dispatched to it
    client.publish([{"price": price} for price in range(EVENTS)])
    while len(messages) < EVENTS:
        page = client.messages("ann", wait=10)
        assert page.gap is None
        messages += page.items
        client.acknowledge("ann", page.position)
    assert [one.event["price"] for one in messages] == list(range(EVENTS))
    assert all(one.subscriptions == everything for one in messages)
    assert sum(calls) >= 2 * EVENTS  # by the matcher, and from the log by the listener
    assert max(calls) * SUBSCRIPTIONS <= AT_ONCE


def test_an_answer_has_at_most_a_million_matches(
    client: Client, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "MAX_PAIRS", 100 * SUBSCRIPTIONS)
    events = [{"price": price} for price in range(101)]
    published = client.publish(events[:100], matches=True)
    assert published.matches == [list(range(SUBSCRIPTIONS))] * 100
    published = client.publish(events, matches=True)
    assert (published.accepted, published.matches) == (101, None)
    assert published.last is not None
    assert client.publish(events[:1], matches=True).matches == [list(range(SUBSCRIPTIONS))]
    assert max(calls) * SUBSCRIPTIONS <= AT_ONCE
