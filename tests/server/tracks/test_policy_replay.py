"""Policies on a follower and by `seek`: the same windows and ids as a local notifier."""

import json
from pathlib import Path
from typing import Any

import pytest

from rangecast.client import Client
from rangecast.client.results import DigestMessage, message
from rangecast.server.log_tools import dumped
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import PutConsumer, PutSpace
from tests.server.links.test_manager import until
from tests.server.tracks.test_policies import (
    CONSUMERS,
    SPACE,
    THINGS,
    TRACK,
    T,
    edits_of,
    events_of,
    filter_of,
    locally,
    own_of,
    rows_of,
)
from tests.support.server.served import Served
from tests.support.server.service import all_of, run
from tests.support.server.tracks import settled

EVERYONE = list(CONSUMERS)


async def published(service: Service, requests: list[list[dict[str, Any]]]) -> None:
    entry = service.core.registry.space(T, SPACE)
    for rows in requests:
        lines = [json.dumps(row).encode() for row in rows]
        await result_of(service.core.publish(entry, lines, wants_matches=True))
    await settled(service)


async def messages_of(service: Service, consumer: str) -> list[Any]:
    found = await all_of(service, consumer, 0)
    return [message(json.loads(one.json("e"))) for one in found]


@pytest.mark.parametrize("consumer", EVERYONE)
def test_the_past_of_a_new_consumer_is_that_of_a_local_notifier(consumer: str, tmp_path: Path):
    requests = events_of(3)

    async def work() -> None:
        service = Service(tmp_path / "data", durability="none")
        service.start()
        await result_of(service.core.edit(PutSpace(T, SPACE, THINGS.definition(), TRACK)))
        await published(service, requests)
        await result_of(service.core.edit(*edits_of([consumer])))
        assert not await messages_of(service, consumer)
        put = service.core.registry.consumer(T, consumer).as_put()
        options = {"policy": put.policy, "start": 0, "current_subscriptions": True}
        await result_of(service.core.edit(PutConsumer(T, consumer, SPACE, **options)))
        first = await messages_of(service, consumer)
        assert rows_of(first) == locally(requests, -1, -1, [consumer])
        assert any(isinstance(one, DigestMessage) for one in first) == (consumer != "two")
        service.core.hub.move(service.core.registry.consumer(T, consumer))
        assert await messages_of(service, consumer) == first
        service.stop()

    run(work())


def test_a_consumer_that_goes_back_gets_the_same_again(tmp_path: Path):
    """By the log, and derived again by its subscriptions, which were there from the beginning."""
    requests = events_of(4)

    async def work() -> None:
        service = Service(tmp_path / "data", durability="none")
        service.start()
        space = PutSpace(T, SPACE, THINGS.definition(), TRACK)
        await result_of(service.core.edit(space, *edits_of(["both"])))
        await published(service, requests)
        first = await messages_of(service, "both")
        assert rows_of(first) == locally(requests, -1, -1, ["both"])
        put = service.core.registry.consumer(T, "both").as_put()
        for is_current in (False, True):
            options = {"policy": put.policy, "current_subscriptions": is_current}
            await result_of(service.core.edit(PutConsumer(T, "both", SPACE, start=0, **options)))
            again = await messages_of(service, "both")
            assert rows_of(again) == rows_of(first)
        service.stop()

    run(work())


def test_a_follower_takes_over_with_the_same_windows(tmp_path: Path):
    requests = events_of(5)
    first = Served(data=tmp_path / "first", spaces={})
    options: Any = {"data": tmp_path / "second", "spaces": {}}
    with Client(first.url, space=SPACE) as leader:
        leader.put_space(SPACE, THINGS, track=TRACK)
        for consumer in EVERYONE:
            leader.put_consumer(consumer, policy=CONSUMERS[consumer] or None, start_at="start")
            for name, own in own_of(consumer).items():
                track = {"dwell": "4 min"} | ({"policy": own} if own else {})
                leader.subscribe(name, filter_of(name), consumer=consumer, track=track)
        for rows in requests[:20]:
            leader.publish(rows)
        second = Served(**options, follow=first.url)
        for rows in requests[20:40]:
            leader.publish(rows, matches=True)
        with Client(second.url, space=SPACE) as follower:
            expected = until(lambda: _all(leader))
            until(lambda: _all(follower) == expected)
    first.stop()
    second.stop()
    assert list(dumped(tmp_path / "second", 0)) == list(dumped(tmp_path / "first", 0))
    second = Served(**options)
    with Client(second.url, space=SPACE) as client:
        for rows in requests[40:]:
            client.publish(rows, matches=True)
        wanted = locally(requests, -1, -1, EVERYONE)
        until(lambda: rows_of(_all(client)) == wanted)
    second.stop()


def _all(client: Client) -> list[Any]:
    return [one for name in EVERYONE for one in client.messages(name, limit=5000).items]
