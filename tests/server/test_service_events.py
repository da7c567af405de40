"""Events of a service: rejected one by one, encoded as everywhere, in groups, in growing spaces."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from rangecast import Engine, Integer, Number, Space, String, Timestamp
from rangecast.errors import RangecastError
from rangecast.model import threads
from rangecast.model.encoding.events import encode_event
from rangecast.server.encoding import encoded, points_of_lines
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import EVENTS as EVENTS_UNIT
from rangecast.server.state.edits import (
    DeleteConsumer,
    DeleteSubscription,
    PutConsumer,
    PutSpace,
)
from tests.support.server.service import (
    EVENTS,
    SPACE,
    T,
    all_of,
    edit,
    pairs,
    prepared,
    publish,
    put,
    run,
)
from tests.support.server.serving import HANGS


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
        with pytest.raises(RangecastError, match="can't be changed to this one"):
            await edit(service, PutSpace(T, "market", {"attribute": grown["attribute"][1:]}))
        service.stop()
        service = Service(tmp_path)
        service.start()
        assert (await publish(service, [line], wants_matches=True)).matches == [["cheap", "here"]]
        assert [one.seq for one in await all_of(service, "one")] == [7, 9]  # 8: an epoch
        service.stop()

    run(work())


def test_events_after_a_space_grows_are_matched_with_the_subscriptions_of_their_seq() -> None:
    """Edits that were written later have no part in the index that is rebuilt."""

    async def work() -> None:
        service = Service(None)
        await prepared(service)
        grown = SPACE.definition()
        grown["attribute"].append({"name": "venue", "type": "string"})
        more = SPACE.definition()
        more["attribute"] += [
            {"name": "venue", "type": "string"},
            {"name": "lot", "type": "integer"},
        ]
        await edit(service, put("stays", "one", "price < 5"), put("goes", "one", "price < 6"))
        await edit(service, put("changes", "one", "price < 7"))
        core, line = service.core, b'{"price": 1}'
        entry = core.registry.space(T, "market")
        answers: list[Any] = []

        def submit() -> None:
            """All of it is one group: the registry is at its end before anything is matched."""
            core.edit(PutSpace(T, "market", grown))
            core.edit(put("comes", "two", "price < 8"))
            answers.append(core.publish(entry, [line], wants_matches=True))
            core.edit(DeleteSubscription(T, "goes", "market"))
            core.edit(put("changes", "one", "price > 7"))
            answers.append(core.publish(entry, [line], wants_matches=True))
            core.edit(PutSpace(T, "market", more))
            core.edit(put("late", "two", "price < 9"))
            answers.append(core.publish(entry, [line], wants_matches=True))
            core.edit(DeleteSubscription(T, "stays", "market"))

        core.pipeline.quiesced(submit)
        matches = [(await result_of(answer)).matches for answer in answers]
        assert matches == [
            [["stays", "goes", "changes", "comes"]],
            [["stays", "comes"]],
            [["stays", "comes", "late"]],
        ]
        index = core.indexes[entry.number]
        assert (await publish(service, [line], wants_matches=True)).matches == [["comes", "late"]]
        assert [index.ids[number] for number in index.engine] == ["changes", "comes", "late"]
        service.stop()

    run(work())


def test_a_reader_never_finds_an_index_that_is_being_rebuilt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        service = Service(None)
        await prepared(service)
        await edit(service, put("cheap", "one", "price < 5"))
        index = service.core.indexes[service.core.registry.space(T, "market").number]
        found: list[Any] = []
        subscribe_many = Engine.subscribe_many

        def look(engine: Engine, *arguments: Any, **options: Any) -> Any:
            with index.reading() as now:
                points = encode_event({"price": 1}, now.engine.space)[np.newaxis]
                found.append(now.ids.listed(now.match(points).numbers))
            return subscribe_many(engine, *arguments, **options)

        monkeypatch.setattr(Engine, "subscribe_many", look)
        grown = SPACE.definition()
        grown["attribute"].append({"name": "venue", "type": "string"})
        with index.reading() as before:
            await edit(service, PutSpace(T, "market", grown))
            assert found == [["cheap"]]
            assert len(before.engine.space) == len(SPACE) < len(index.engine.space)
        service.stop()

    run(work())


def test_events_are_matched_while_others_have_all_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that read match large batches, and have as many turns as there are cores."""

    async def work() -> None:
        service = Service(None)
        await prepared(service)
        await edit(service, put("cheap", "one", "price < 5"))
        monkeypatch.setattr(threads, "_FEW", 0)
        monkeypatch.setattr(threads, "_WAIT", 2 * HANGS)
        monkeypatch.setattr(threads, "_MAX_WAIT", 2 * HANGS)
        monkeypatch.setattr(threads, "_turns", SimpleQueue())  # none is left
        answer = asyncio.create_task(publish(service, [b'{"price": 1}'] * 3, wants_matches=True))
        done, _ = await asyncio.wait([answer], timeout=HANGS / 3)
        assert done
        assert answer.result().matches == [["cheap"]] * 3
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
            service.core.acknowledge(consumer, first + 9)  # by a client that doesn't know yet
        await publish(service, EVENTS[:1])  # the next group takes acknowledgements along
        assert service.core.registry.consumer(T, "one").cursor == first
        service.core.pipeline.stop()
        service.close()  # as a crash: no snapshot
        service = Service(tmp_path)
        assert service.core.registry.consumer(T, "one").cursor == first
        service.close()

    run(work())
