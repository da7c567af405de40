"""Reading the past while it goes on: from any position, what comes is what the log says."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

from rangecast import Engine
from rangecast.server.delivery.log_reader import MAX_BATCH_BYTES, Reader
from rangecast.server.log_tools import dumped
from rangecast.server.service import Service
from rangecast.server.state.edits import DeleteSubscription, PutConsumer
from tests.support.server.service import (
    EVENTS,
    SPACE,
    SUBSCRIPTIONS,
    T,
    edit,
    prepared,
    publish,
    put,
    run,
)
from tests.support.server.serving import ids_of

POSITIONS = 100
CONSUMERS = ("one", "two", "three")
Read = tuple[str, int, int, int, list[tuple[int, set[str]]]]
"""A read: the consumer, the seqs after and up to which, the least seq of its set, the messages."""


def test_from_a_hundred_positions_while_edits_go_on(tmp_path: Path) -> None:
    found: list[Read] = []

    async def work() -> None:
        service, dice = Service(tmp_path), random.Random(4)
        await prepared(service)
        await edit(service, PutConsumer(T, "three", "market"))

        async def write() -> None:
            names = list(SUBSCRIPTIONS)
            for _ in range(3):
                some = [put(one, dice.choice(CONSUMERS)) for one in dice.sample(names, 4)]
                await edit(service, *some)
                await publish(service, dice.sample(EVENTS, 15))
                live = service.core.registry.space(T, "market").live
                await edit(service, DeleteSubscription(T, dice.choice(list(live)), "market"))
                await publish(service, dice.sample(EVENTS, 15))

        async def read(name: str, after: int, now_from: int = 0) -> None:
            consumer, came = service.core.registry.consumer(T, name), []
            listener = service.core.hub.open(consumer, after)
            while True:
                batch = await listener.next_batch(dice.randint(1, 40), wait=0)
                came += [(m.seq, {*ids_of(m)}) for m in batch.messages]
                if not batch.messages:
                    break
            found.append((name, after, listener.sent, now_from, came))
            service.core.hub.close(listener)

        async def read_somewhere(name: str) -> None:
            await read(name, dice.randint(0, service.core.pipeline.durable))

        async def move() -> None:
            """Read with the set of now: a consumer that nobody else reads."""
            after = dice.randint(0, service.core.pipeline.durable)
            seek = PutConsumer(T, "three", "market", start=after, current_subscriptions=True)
            await read("three", after, await edit(service, seek))

        for _ in range(POSITIONS // 10):
            some = [read_somewhere(dice.choice(["one", "two"])) for _ in range(9)]
            await asyncio.gather(write(), *some, move())
        service.stop()

    run(work())
    assert len(found) == POSITIONS
    live, events, sets = _history(tmp_path)
    for name, after, upto, now_from, came in found:
        judge = Engine(SPACE)
        for one, (owner, wanted) in sets[now_from].items() if now_from else ():
            if owner == name:
                judge.subscribe(one, wanted)
        expected = []
        for seq in (one for one in sorted(events) if after < one <= upto):
            names = {one for one in live[seq] if sets[seq][one][0] == name}
            if seq < now_from:
                names = {*map(str, judge.match(events[seq]))}
            if names:
                expected.append((seq, names))
        assert came == expected, (name, after, upto, now_from)
    assert sum(len(came) for *_, came in found) > 10 * POSITIONS


def _history(folder: Path) -> Any:
    """Return the answers of a plain engine: matches and events by seq, and the set of each seq."""
    engine, now = Engine(SPACE), dict[str, tuple[str, str]]()
    live, events, sets = {}, {}, {}
    for text in dumped(folder, 0):
        line = json.loads(text)
        if "event" in line:
            events[line["seq"]] = line["event"]
            live[line["seq"]] = {*map(str, engine.match(line["event"]))}
        elif line.get("edit", {}).get("op") == "subscribe":
            one = line["edit"]
            (engine.replace if one["name"] in engine else engine.subscribe)(
                one["name"], one["filter"]
            )
            now = now | {one["name"]: (one["consumer"], one["filter"])}
        elif line.get("edit", {}).get("op") == "unsubscribe":
            engine.unsubscribe(line["edit"]["name"])
            now = {name: one for name, one in now.items() if name != line["edit"]["name"]}
        sets[line["seq"]] = now
    return live, events, sets


def test_what_is_read_at_a_time_is_bounded_by_bytes() -> None:
    async def work() -> None:
        service = Service(None)
        await prepared(service)
        await edit(service, put("all", "one", "price is not null or price is null"))
        big = b'{"symbol": "%s"}' % (b"x" * (MAX_BATCH_BYTES // 8))
        first = (await publish(service, [big] * 30)).first
        reader = Reader(service.core.log, service.core.registry.consumer(T, "one"))
        after, seqs = first - 1, []
        while messages := (
            batch := reader.read(after, service.core.pipeline.durable, 500)
        ).messages:
            assert sum(one.size for one in messages[:-1]) < MAX_BATCH_BYTES
            seqs += [one.seq for one in messages]
            after = batch.upto
        assert seqs == list(range(first, first + 30))
        service.stop()

    run(work())
