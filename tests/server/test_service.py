"""The server without a network: what it promises of one log and one order."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from rangecast import Engine
from rangecast.errors import RangecastError
from rangecast.server.delivery.messages import Message
from rangecast.server.service import Service
from rangecast.server.state.edits import (
    DeleteConsumer,
    DeleteSubscription,
    PutConsumer,
    PutSubscription,
)
from tests.support.server.service import (
    EVENTS,
    SPACE,
    SUBSCRIPTIONS,
    T,
    all_of,
    edit,
    pairs,
    prepared,
    publish,
    put,
    run,
    taken,
)
from tests.support.server.serving import HANGS, ids_of, until


class DeliveryOracle:
    """Return the answers of a plain engine, edit by edit and event by event."""

    def __init__(self) -> None:
        self.engine = Engine(SPACE)
        self.owner: dict[str, str] = {}
        self.expected: dict[str, set[tuple[int, str]]] = {"one": set(), "two": set()}

    def put(self, name: str, consumer: str, wanted: str) -> None:
        if name in self.engine:
            self.engine.replace(name, wanted)
        else:
            self.engine.subscribe(name, wanted)
        self.owner[name] = consumer

    def remove(self, name: str) -> None:
        self.engine.unsubscribe(name)

    def event(self, seq: int, line: bytes) -> None:
        for name in self.engine.match(json.loads(line)):
            self.expected[self.owner[str(name)]].add((seq, str(name)))


async def history(service: Service, judge: DeliveryOracle) -> None:
    """Edits among events; every event is matched with exactly the subscriptions of its seq."""
    names = list(SUBSCRIPTIONS)
    for turn in range(12):
        some = names[turn * 10 : turn * 10 + 10]
        owner = "one" if turn % 2 else "two"
        await edit(service, *[put(name, owner) for name in some])
        for name in some:
            judge.put(name, owner, SUBSCRIPTIONS[name])
        if turn > 2:
            gone, changed = names[turn * 10 - 15], names[turn * 10 - 14]
            await edit(service, DeleteSubscription(T, gone, "market"))
            judge.remove(gone)
            other = SUBSCRIPTIONS[names[0]]
            await edit(service, put(changed, "one", other))
            judge.put(changed, "one", other)
        lines = EVENTS[turn * 25 : turn * 25 + 25]
        accepted = await publish(service, lines)
        for place, line in enumerate(lines):
            judge.event(accepted.first + place, line)


def test_every_event_is_matched_with_the_subscriptions_of_its_seq(tmp_path: Path) -> None:
    async def work() -> None:
        service, judge = Service(tmp_path), DeliveryOracle()
        await prepared(service)
        live = service.core.hub.open(service.core.registry.consumer(T, "one"))
        got: list[Message] = []

        async def listen() -> None:
            while not live.is_closed:
                got.extend((await live.next_batch()).messages)

        listening = asyncio.create_task(listen())
        await history(service, judge)
        await until(lambda: len(pairs(got)) >= len(judge.expected["one"]))
        service.core.hub.close(live)
        await listening
        # live, read again, after a restart by snapshot, and after one without: the same
        assert pairs(got) == judge.expected["one"]
        assert [one.seq for one in got] == sorted({one.seq for one in got})
        assert await all_of(service, "one") == got
        assert pairs(await all_of(service, "two")) == judge.expected["two"]
        service.stop()
        last = service.core.log.last
        for _ in range(2):
            service = Service(tmp_path)
            service.start()
            for name in ("one", "two"):
                found = [one for one in await all_of(service, name) if one.seq <= last]
                assert pairs(found) == judge.expected[name]
            # what it indexes is what the engine holds
            accepted = await publish(service, EVENTS[:40], wants_matches=True)
            expected = [
                sorted(map(str, judge.engine.match(json.loads(one)))) for one in EVENTS[:40]
            ]
            assert [sorted(one) for one in accepted.matches] == expected
            service.core.pipeline.stop()
            service.close()
            for snapshot in tmp_path.glob("snapshot-*"):
                for file in sorted(snapshot.rglob("*"), reverse=True):
                    file.rmdir() if file.is_dir() else file.unlink()
                snapshot.rmdir()

    run(work())


def test_a_consumer_that_wants_the_best_gets_those(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path)
        await prepared(service)
        await edit(service, PutConsumer(T, "top", "market", max_per_event=3))
        judge = Engine(SPACE)
        for place, (name, wanted) in enumerate(SUBSCRIPTIONS.items()):
            score = float(place % 7)
            judge.subscribe(name, wanted, score=score)
            await edit(service, PutSubscription(T, name, "market", wanted, "top", score))
        live = service.core.hub.open(service.core.registry.consumer(T, "top"))
        await live.next_batch(wait=0)
        assert live.is_live
        first = (await publish(service, EVENTS[:100])).first
        expected = []
        for place, line in enumerate(EVENTS[:100]):
            best = [name for name, _ in judge.rank(json.loads(line), 3)]
            if best:
                expected.append((first + place, best))
        got = (await live.next_batch(wait=5)).messages
        for found in (got, await all_of(service, "top")):
            assert [(one.seq, ids_of(one)) for one in found] == expected
        service.core.hub.close(live)
        service.stop()

    run(work())


def test_a_listener_that_falls_behind_reads_the_log_and_misses_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(None)
        await prepared(service)
        await edit(service, put("all", "one", "price is not null or price is null"))
        slow = service.core.hub.open(service.core.registry.consumer(T, "one"))
        while not slow.is_live:
            assert not (await slow.next_batch(wait=0.01)).messages
        first = (await publish(service, EVENTS)).first
        for _ in range(3):
            await publish(service, EVENTS)
        while not slow.overflows:
            await asyncio.sleep(0.01)
        assert not slow.is_live
        found = await taken(slow)
        assert [one.seq for one in found] == list(range(first, first + 4 * len(EVENTS)))
        assert slow.is_live
        service.stop()

    run(work())


def test_a_listener_that_is_cancelled_as_news_come_ends() -> None:
    async def work() -> None:
        service = Service(None)
        await prepared(service)
        listener = service.core.hub.open(service.core.registry.consumer(T, "one"))
        waiting = asyncio.create_task(listener.next_batch(wait=30))
        await asyncio.sleep(0.1)
        listener.wake()
        waiting.cancel()
        await asyncio.wait([waiting], timeout=HANGS)
        assert waiting.cancelled()
        service.stop()

    run(work())


def test_a_request_is_carried_out_whole_or_not_at_all() -> None:
    async def work() -> None:
        service = Service(None)
        await prepared(service)
        names = list(SUBSCRIPTIONS)
        with pytest.raises(RangecastError, match="no consumer 'nobody'"):
            await edit(service, put(names[0]), put(names[1], "nobody"))
        assert not service.core.registry.spaces[T, "market"].live
        assert service.core.log.last == 3
        with pytest.raises(RangecastError, match="no subscription"):
            await edit(service, put(names[0]), DeleteSubscription(T, "none", "market"))
        # a group sees its own earlier edits
        await edit(service, put(names[0]), DeleteSubscription(T, names[0], "market"))
        await edit(service, put(names[1]), DeleteConsumer(T, "one"))
        assert not service.core.registry.spaces[T, "market"].live
        assert service.core.registry.counts[T] == 0
        with pytest.raises(RangecastError, match="no consumer 'one'"):
            await edit(service, put(names[0]))
        service.stop()

    run(work())


def test_conditions_on_what_is_there() -> None:
    async def work() -> None:
        service = Service(None)
        await prepared(service)
        name = next(iter(SUBSCRIPTIONS))
        with pytest.raises(RangecastError, match="no subscription"):
            await edit(service, put(name), if_match="*")
        seq = await edit(service, put(name), if_match="new")
        with pytest.raises(RangecastError, match="already exists"):
            await edit(service, put(name), if_match="new")
        with pytest.raises(RangecastError, match="has changed"):
            await edit(service, put(name), if_match=f'"{seq + 1}"')
        await edit(service, put(name), if_match=f'"{seq}"')
        service.stop()

    run(work())


def test_a_repeated_request_is_carried_out_once(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path)
        await prepared(service)
        given = {"key": "k1", "digest": "d"}
        first = await publish(service, EVENTS[:5], **given)
        again = await publish(service, EVENTS[:5], **given)
        assert again.repeated
        assert (again.first, again.count) == (first.first, 5)
        with pytest.raises(RangecastError, match="another body"):
            await publish(service, EVENTS[5:9], key="k1", digest="e")
        lines = [b'{"id": 1, "price": 3}', b'{"id": 2, "price": 3}', b'{"id": 1, "price": 3}']
        assert (await publish(service, lines, dedup=True)).count == 2
        service.core.pipeline.stop()
        service.close()  # as a crash: no snapshot
        service = Service(tmp_path)
        service.start()
        assert (await publish(service, EVENTS[:5], **given)).repeated
        found = await publish(service, [*lines, b'{"id": 3, "price": 3}'], dedup=True)
        assert (found.count, found.skipped) == (1, 3)
        service.stop()

    run(work())
