"""The server without a network: what it promises of one log and one order."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rangecast import Engine, Integer, Number, Space, String, Timestamp
from rangecast.errors import RangecastError
from rangecast.model.encoding.events import encode_event
from rangecast.server.delivery.hub import Listener
from rangecast.server.delivery.messages import Message
from rangecast.server.encoding import encoded, points_of_lines
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import EVENTS as EVENTS_UNIT
from rangecast.server.state.edits import (
    DeleteConsumer,
    DeleteSubscription,
    PutConsumer,
    PutSpace,
    PutSubscription,
)
from rangecast.workloads import generate
from tests.support.server.serving import HANGS, ids_of, until

MADE = generate("market", seed=5, subscriptions=120, events=300)
SPACE = MADE.space
SUBSCRIPTIONS = {row["id"]: row["filter"] for row in MADE.tables["subscriptions"].to_pylist()}
EVENTS = [
    json.dumps({k: v for k, v in row.items() if k != "id"}, default=str).encode()
    for row in MADE.tables["events"].to_pylist()
]
T = "default"


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, HANGS))


async def edit(service: Service, *edits: Any, **options: Any) -> int:
    return await result_of(service.core.edit(*edits, **options))


async def publish(service: Service, lines: list[bytes], **options: Any) -> Any:
    entry = service.core.registry.space(T, "market")
    return await result_of(service.core.publish(entry, lines, **options))


async def prepared(service: Service) -> None:
    service.start()
    await edit(service, PutSpace(T, "market", SPACE.definition()))
    await edit(service, PutConsumer(T, "one", "market"), PutConsumer(T, "two", "market"))


def put(name: str, consumer: str = "one", wanted: str | None = None) -> PutSubscription:
    return PutSubscription(T, name, "market", wanted or SUBSCRIPTIONS[name], consumer)


async def all_of(service: Service, consumer: str, after: int | None = None) -> list[Message]:
    listener = service.core.hub.open(service.core.registry.consumer(T, consumer), after)
    found = await taken(listener)
    service.core.hub.close(listener)
    return found


async def taken(listener: Listener) -> list[Message]:
    found: list[Message] = []
    while True:
        batch = await listener.next_batch(7, wait=0)
        found += batch.messages
        if not batch.messages and batch.gap is None:
            return found


def pairs(messages: list[Message]) -> set[tuple[int, str]]:
    return {(one.seq, name) for one in messages for name in ids_of(one)}


class DeliveryOracle:
    """What a plain engine says, edit by edit and event by event."""

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


def test_bad_events_are_rejected_one_by_one() -> None:
    async def work() -> None:
        service = Service(None)
        await prepared(service)
        lines = [b'{"price": 1}', b"{", b"[]", b'{"price": "x"}', b'{"prise": 1}', b'{"price": 2}']
        found = await publish(service, lines)
        assert (found.count, [row for row, _ in found.rejected]) == (2, [1, 2, 3, 4])
        for words, (_, reason) in zip(
            ("not JSON", "JSON object", "not a number", "did you mean 'price'"),
            found.rejected,
            strict=True,
        ):
            assert words in reason
        assert (await publish(service, lines, strict=True)).count == 0
        found = await publish(service, [b'{"prise": 1}'], ignore_unknown=True)
        assert found.count == 1
        service.stop()

    run(work())


ODD = (None, True, 0, -0.0, 1, 2.5, 1e300, 10**400, 2**53 + 1, "7", "x", "tech", [], {}, "\u00fc")


def test_events_are_encoded_as_everywhere() -> None:
    dice = random.Random(2)
    for size in (1, 3, 60, 200):
        rows = []
        for _ in range(size):
            row = json.loads(dice.choice(EVENTS))
            if dice.random() < 0.3:
                row[dice.choice([*row, "other"])] = dice.choice(ODD)
            rows.append(row)
        lines = [json.dumps(row).encode() for row in rows]
        for ignore in (False, True):
            expected, rejected = [], []
            for place, row in enumerate(rows):
                try:
                    expected.append(encode_event(row, SPACE, ignore_unknown=ignore))
                except RangecastError:
                    rejected.append(place)
            found, wrong = encoded(lines, SPACE, ignore_unknown=ignore)
            assert [place for place, _ in wrong] == rejected
            assert np.array_equal(found.points, np.array(expected).reshape(-1, len(SPACE)))
            assert [json.loads(line) for line in found.lines] == found.rows
            again = points_of_lines(found.lines, "", SPACE)
            assert np.array_equal(again, found.points)


@pytest.mark.parametrize(
    "attributes",
    [
        [Number("x"), Integer("n", min=-5), String("who")],
        [Number("class"), Integer("_n"), String("größe")],  # no names of a field
        [Number("x", source="$.a.x"), Integer("n"), String("who")],
    ],
)
def test_events_of_the_log_are_read_as_they_were(attributes: list[Any]) -> None:
    space = Space(attributes)
    x, n, who = space.names
    space.attributes[2].equal("ann")
    rows: list[dict[str, Any]] = [
        {x: 1.5, n: 3, who: "ann", "a": {"x": 2}, "more": [1, {"x": 5}]},
        {x: 2**64 + 1, who: "bob"},
        {x: None, n: -0.0},
        {n: 4.0, "a": {"x": -0.0}},
        {x: -0.0, n: None, who: ""},
        {},
    ] * 3
    lines = [json.dumps(row).encode() for row in rows]
    lines.append(b'{"%s": 1, "%s": 2}' % (n.encode(), n.encode()))  # the last one counts
    rows.append({n: 2})
    expected = [encode_event(row, space, ignore_unknown=True) for row in rows]
    assert np.array_equal(points_of_lines(lines, "", space), expected)
    assert np.array_equal(points_of_lines(lines[:2], "", space), expected[:2])
    envelopes = [
        json.dumps({"specversion": "1.0", "id": "1", "data": json.loads(line)}).encode()
        for line in lines
    ]
    assert np.array_equal(points_of_lines(envelopes, "cloudevents", space), expected)


TIMES = (
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00.123456+05:30",
    "2026-01-01 00:00",
    "20260101T000000,5",
    " 2026-01-01 ",
    "0001-01-01",
    "2300-01-01T00:00:00.000001",
    "2026-01-01T00:00:00.1234567",
    "2026-01-01T00:00:00.1234560",
    "2026-13-01",
    "",
    "now",
)


@pytest.mark.parametrize("text", TIMES)
def test_moments_are_read_as_everywhere(text: str) -> None:
    space = Space([Timestamp("at", min="1990-01-01", max="2310-01-01"), Number("x")])
    rows = [{"at": "2026-01-01T00:00:00Z", "x": 1}, {"x": 2}] * 4 + [{"at": text}]
    try:
        expected = [encode_event(row, space) for row in rows]
    except RangecastError:
        expected = [encode_event(row, space) for row in rows[:-1]]
    found, wrong = encoded([json.dumps(row).encode() for row in rows], space, ignore_unknown=False)
    assert len(found.lines) + len(wrong) == len(rows)
    assert np.array_equal(found.points, np.array(expected))


def test_single_events_of_many_kinds_are_read_together() -> None:
    async def work() -> None:
        service = Service(None)
        await prepared(service)
        await edit(service, put("some", "one", "price > 5"))
        expected = []
        for number in range(80):
            row = {"id": number if number % 2 else f"n{number}", "price": number}
            if number % 3 == 0:
                row["price"] = str(number)
            accepted = await publish(service, [json.dumps(row).encode()])
            expected += [accepted.first] if number > 5 else []
        await edit(service, PutConsumer(T, "one", "market", start=0))
        found = await all_of(service, "one")
        assert [one.seq for one in found] == expected
        assert [json.loads(one.event)["id"] for one in found[:2]] == ["n6", 7]
        service.stop()

    run(work())


def test_a_space_grows_and_old_filters_go_on(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path)
        await prepared(service)
        await edit(service, put("cheap", "one", "price < 5 and symbol = 'A'"))
        grown = SPACE.definition()
        grown["attribute"].append({"name": "venue", "type": "string"})
        await edit(service, PutSpace(T, "market", grown))
        await edit(service, put("here", "one", "venue = 'X'"))
        line = b'{"price": 1, "symbol": "A", "venue": "X"}'
        assert (await publish(service, [line], wants_matches=True)).matches == [["cheap", "here"]]
        with pytest.raises(RangecastError, match="can't become this one"):
            await edit(service, PutSpace(T, "market", {"attribute": grown["attribute"][1:]}))
        service.stop()
        service = Service(tmp_path)
        service.start()
        assert (await publish(service, [line], wants_matches=True)).matches == [["cheap", "here"]]
        assert [one.seq for one in await all_of(service, "one")] == [7, 9]  # 8: an epoch
        service.stop()

    run(work())


def test_replay_with_the_set_of_then_or_of_now() -> None:
    async def work() -> None:
        service = Service(None)
        await prepared(service)
        line = b'{"price": 1}'
        await edit(service, put("old", "one", "price < 5"))
        first = (await publish(service, [line])).first
        await edit(service, DeleteSubscription(T, "old", "market"), put("new", "one", "price < 9"))
        then = PutConsumer(T, "one", "market", start=0)
        await edit(service, then)
        assert pairs(await all_of(service, "one")) == {(first, "old")}
        await edit(service, PutConsumer(T, "one", "market", start=0, current_subscriptions=True))
        assert pairs(await all_of(service, "one")) == {(first, "new")}
        service.stop()

    run(work())


def test_who_gives_up_waiting_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        service = Service(None)
        await prepared(service)
        may_write, append = threading.Event(), service.core.log.append

        def slow(drafts: Any) -> Any:
            may_write.wait(60)
            return append(drafts)

        monkeypatch.setattr(service.core.log, "append", slow)
        for one in (EVENTS[:1], EVENTS[:200]):
            waiting = asyncio.create_task(publish(service, one))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        may_write.set()
        accepted = await publish(service, EVENTS[:3], wants_matches=True)
        assert accepted.count == 3
        assert not service.core.pipeline.has_failed
        events = [unit for unit in service.core.log.read(0, 1 << 30) if unit.kind == EVENTS_UNIT]
        assert [unit.length for unit in events] == [1, 200, 3]
        service.stop()

    run(work())


def test_answers_come_to_every_loop() -> None:
    service = Service(None)

    async def begin() -> None:
        await prepared(service)

    async def many() -> list[int]:
        found = await asyncio.gather(*(publish(service, EVENTS[:1]) for _ in range(50)))
        return [one.first for one in found]

    asyncio.run(begin())
    places = [*asyncio.run(many()), *asyncio.run(many())]
    assert places == sorted(set(places))
    assert len(places) == 100
    service.stop()


def test_what_comes_in_one_turn_of_the_loop_is_one_group() -> None:
    async def work() -> None:
        service = Service(None)
        await prepared(service)
        service.core.pipeline.coalesce_wakeups(asyncio.get_running_loop().call_soon)
        before = service.core.pipeline.groups
        found = await asyncio.gather(*(publish(service, EVENTS[n : n + 1]) for n in range(50)))
        assert [one.first for one in found] == [*range(found[0].first, found[0].first + 50)]
        assert service.core.pipeline.groups == before + 1
        # another thread isn't of the loop: its requests don't wait for a turn
        entry = service.core.registry.space(T, "market")
        answer = await asyncio.to_thread(service.core.publish, entry, EVENTS[:1])
        assert answer.result(60).count == 1
        service.stop()

    run(work())


@pytest.mark.parametrize("meanwhile", ["moved", "made again"])
def test_an_acknowledgement_from_before_does_not_win_over_a_move(
    tmp_path: Path, meanwhile: str
) -> None:
    """It comes while the move is written, so it is not part of that group."""

    async def work() -> None:
        service = Service(tmp_path)
        await prepared(service)
        await edit(service, put("all", "one", "price is not null"))
        first = (await publish(service, EVENTS[:10])).first
        consumer = service.core.registry.consumer(T, "one")
        log: Any = service.core.log
        append = log.append

        def slowly(drafts: Any) -> Any:
            log.append = append
            service.core.acknowledge(consumer, first + 8)
            return append(drafts)

        log.append = slowly
        back = PutConsumer(T, "one", "market", start=first)
        if meanwhile == "moved":
            await edit(service, back)
        else:
            await edit(service, DeleteConsumer(T, "one"), back)
            service.core.acknowledge(consumer, first + 9)  # by somebody who doesn't know yet
        await publish(service, EVENTS[:1])  # the next group takes acknowledgements along
        assert service.core.registry.consumer(T, "one").cursor == first
        service.core.pipeline.stop()
        service.close()  # as a crash: no snapshot
        service = Service(tmp_path)
        assert service.core.registry.consumer(T, "one").cursor == first
        service.close()

    run(work())
