"""`as_of` of both clients: the answers of an engine that had the subscriptions of then."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import httpx
import pytest

from rangecast import AsyncClient, Engine
from rangecast.client import Client, ServerError
from rangecast.errors import UsageError
from tests.support.server.served import EVENTS, MADE, SUBSCRIPTIONS


@pytest.fixture(scope="module")
def before(market: Client) -> int:
    """Return the seq before half of the subscriptions ended."""
    seq: int = market.status()["durable_seq"]
    market.unsubscribe_many([row["id"] for row in SUBSCRIPTIONS[::2]])
    return seq


@pytest.fixture(scope="module")
def engines() -> tuple[Engine, Engine]:
    """Return the engines as of before and now."""
    made = Engine(MADE.space), Engine(MADE.space)
    made[0].subscribe_many(SUBSCRIPTIONS)
    made[1].subscribe_many(SUBSCRIPTIONS[1::2])
    return made


def test_every_answer_is_that_of_the_subscriptions_of_then(
    market: Client, before: int, engines: tuple[Engine, Engine]
) -> None:
    now = market.status()["durable_seq"]
    for engine, as_of in ((engines[0], before), (engines[1], now), (engines[1], None)):
        for event in EVENTS[:5]:
            assert market.match(event, as_of=as_of) == engine.match(event)
            assert market.count(event, as_of=as_of) == engine.count(event)
            assert market.rank(event, 3, as_of=as_of) == engine.rank(event, 3)
            relaxed = market.rank(event, 3, relaxed=True, as_of=as_of)
            assert relaxed == engine.rank(event, 3, relaxed=True)
        assert list(market.match_many(EVENTS, as_of=as_of)) == list(engine.match_many(EVENTS))
        assert market.match_each(EVENTS[:9], as_of=as_of) == engine.match_each(EVENTS[:9])
        assert list(market.count_many(EVENTS, as_of=as_of)) == list(engine.count_many(EVENTS))
        best = list(market.rank_many(EVENTS, 2, as_of=as_of))
        assert best == list(engine.rank_many(EVENTS, 2))


def test_the_async_client_asks_the_same(market: Client, before: int) -> None:
    async def work() -> None:
        async with AsyncClient(market.url, space="market") as client:
            for as_of in (before, datetime.now(UTC), None):
                found = await client.match(EVENTS[0], as_of=as_of)
                assert found == market.match(EVENTS[0], as_of=as_of)
                counts = await client.count_many(EVENTS, as_of=as_of)
                assert list(counts) == list(market.count_many(EVENTS, as_of=as_of))
                best = await client.rank(EVENTS[0], 2, as_of=as_of)
                assert best == market.rank(EVENTS[0], 2, as_of=as_of)

    asyncio.run(work())


def test_a_time_needs_a_zone_and_a_seq_must_exist(market: Client, before: int) -> None:
    with pytest.raises(UsageError, match="a time with a zone"):
        market.match(EVENTS[0], as_of=datetime.now())
    with pytest.raises(UsageError, match="as_of"):
        market.count(EVENTS[0], as_of=-1)
    with pytest.raises(ServerError, match="after the end of the log"):
        market.match(EVENTS[0], as_of=10**9)


def test_unknown_fields_are_rejected_as_of_then_too(http: httpx.Client, before: int) -> None:
    path, body = f"/v1/spaces/market/events:match?as_of={before}", [{"prise": 3}]
    (rejected,) = http.post(path, json=body).json()["rejected"]
    assert "prise" in rejected["reason"]
    assert not http.post(f"{path}&ignore_unknown=true", json=body).json()["rejected"]
