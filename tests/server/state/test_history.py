"""Answers as of an earlier seq or time, against edits replayed in plain Python."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rangecast.server.log.sqlite import SqliteLog
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import (
    AnyEdit,
    DeleteConsumer,
    DeleteSubscription,
    PutConsumer,
    PutSpace,
    PutSubscription,
)
from rangecast.server.state.history import versions as versions_module
from rangecast.server.state.snapshots import BASE, path_of, snapshots
from tests.support.server.serving import SPACE, Client, T, publish, run, serving

PRICES = [float(price) for price in range(0, 20, 3)]
WIDER = {"attribute": [*SPACE.definition()["attribute"], {"name": "size", "type": "number"}]}


@dataclass(frozen=True)
class Plain:
    """A subscription of the oracle: prices from `lo` to `hi`."""

    lo: int
    hi: int
    score: float
    consumer: str
    expires: int = 0


@dataclass
class Replayed:
    """Oracle: the plain subscriptions after each seq that changed them."""

    live: dict[str, Plain] = field(default_factory=dict)
    after: list[tuple[int, dict[str, Plain]]] = field(default_factory=lambda: [(0, {})])

    def apply(self, edits: list[AnyEdit], first: int) -> None:
        for seq, edit in enumerate(edits, first):
            if isinstance(edit, PutSubscription) and edit.space == "s":
                lo, hi = (int(part) for part in edit.filter.split() if part.isdecimal())
                plain = Plain(lo, hi, edit.score, edit.consumer, edit.expires)
                self.live[edit.name] = plain
            elif isinstance(edit, DeleteSubscription) and edit.space == "s":
                del self.live[edit.name]
            elif isinstance(edit, DeleteConsumer):
                self.live = {n: p for n, p in self.live.items() if p.consumer != edit.name}
            self.after.append((seq, dict(self.live)))

    def at(self, seq: int, time: int = 0) -> dict[str, Plain]:
        live = next(plain for edit, plain in reversed(self.after) if edit <= seq)
        return {n: p for n, p in live.items() if not p.expires or p.expires > time}

    def matches(self, seq: int, time: int = 0) -> list[list[str]]:
        live = self.at(seq, time)
        return [sorted(n for n, p in live.items() if p.lo <= price <= p.hi) for price in PRICES]


def put(name: str, lo: int, hi: int, **options: Any) -> PutSubscription:
    return PutSubscription(T, name, "s", f"price >= {lo} and price <= {hi}", **options)


class Editor:
    """Makes random edits of a service and of the oracle."""

    def __init__(self, seed: int):
        self._rng = random.Random(seed)
        self.oracle = Replayed()
        self._scores = iter(self._rng.sample(range(100_000), 10_000))

    async def edit(self, service: Service, *edits: AnyEdit) -> int:
        first: int = await result_of(service.core.edit(*edits))
        self.oracle.apply(list(edits), first)
        return first

    async def begin(self, service: Service) -> None:
        definition = SPACE.definition()
        await self.edit(service, PutSpace(T, "other", definition), PutConsumer(T, "one", "s"))

    async def some(self, service: Service, count: int) -> None:
        rng = self._rng
        for _ in range(count):
            kind = rng.random()
            if kind < 0.1:
                await publish(service, 5.0)
            elif kind < 0.2 and self.oracle.live:
                names = rng.sample(sorted(self.oracle.live), min(2, len(self.oracle.live)))
                await self.edit(service, *(DeleteSubscription(T, name, "s") for name in names))
            elif kind < 0.25:
                deleted = DeleteConsumer(T, "one")
                await self.edit(service, deleted, PutConsumer(T, "one", "s"))
            elif kind < 0.3:
                await self.edit(service, PutSubscription(T, "a", "other", "price > 0"))
            else:
                await self.edit(service, *self._puts(rng.randrange(1, 5)))

    def _puts(self, count: int) -> Iterator[PutSubscription]:
        for name in self._rng.sample("abcdefghijkl", count):
            lo = self._rng.randrange(15)
            hi, consumer = lo + self._rng.randrange(8), self._rng.choice(["", "one"])
            yield put(name, lo, hi, score=float(next(self._scores)), consumer=consumer)


async def asked(client: Client, verb: str, as_of: Any, *, status: int = 200, more: str = "") -> Any:
    path = f"spaces/s/events:{verb}?as_of={quote(str(as_of), safe='')}{more}"
    return await client("POST", path, [{"price": price} for price in PRICES], status)


async def verify(client: Client, oracle: Replayed, seqs: list[int]) -> None:
    for seq in seqs:
        expected = oracle.matches(seq)
        found = (await asked(client, "match", seq))["matches"]
        assert [sorted(ids) for ids in found] == expected, seq
        counts = (await asked(client, "count", seq))["counts"]
        assert counts == [len(ids) for ids in expected]
        best = (await asked(client, "rank", seq, more="&k=2"))["best"]
        live = oracle.at(seq)
        for ids, ranking in zip(expected, best, strict=True):
            top = sorted(((live[name].score, name) for name in ids), reverse=True)[:2]
            assert [(one["score"], one["subscription"]) for one in ranking] == top


def shuffled(seed: int, first: int, last: int, count: int) -> list[int]:
    rng = random.Random(seed)
    seqs = rng.sample(range(first, last + 1), min(count, last + 1 - first))
    return [*seqs, *sorted(seqs)[: count // 2], first, last]


def times(log: Any) -> list[tuple[int, int]]:
    """Return the last seq and the time of each unit, in microseconds."""
    return [(unit.last, unit.at) for unit in log.read(log.first - 1, 1 << 30)]


def shown(micros: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat()


def test_every_seq_is_answered_with_its_subscriptions_and_after_a_restart(tmp_path: Path) -> None:
    editor = Editor(1)

    async def work() -> None:
        async with serving(tmp_path) as service:
            client = Client(service)
            await editor.begin(service)
            await editor.some(service, 60)
            await verify(client, editor.oracle, shuffled(1, 0, service.core.log.last, 24))
            await editor.some(service, 20)  # the history is extended
            await verify(client, editor.oracle, shuffled(2, 0, service.core.log.last, 20))
            service.core.snapshot()
            await editor.some(service, 20)
        async with serving(tmp_path) as service:
            await editor.some(service, 10)
            seqs = shuffled(3, 0, service.core.log.last, 16)
            await verify(Client(service), editor.oracle, seqs)

    run(work)


def test_a_time_is_that_of_the_log_and_includes_the_edits_at_it() -> None:
    editor = Editor(2)

    async def work() -> None:
        async with serving() as service:
            client = Client(service)
            await editor.begin(service)
            await editor.some(service, 30)
            units = times(service.core.log)
            before = 0
            for last, at in units:
                for micros, seq in ((at, last), (at - 1, before)):
                    found = (await asked(client, "match", shown(micros)))["matches"]
                    assert [sorted(ids) for ids in found] == editor.oracle.matches(seq)
                before = last
            position = f"{service.core.epoch}:{units[9][0]}"
            assert await asked(client, "match", position) == await asked(
                client, "match", units[9][0]
            )

    run(work)


def test_a_subscription_that_had_expired_by_a_time_does_not_match() -> None:
    async def work() -> None:
        async with serving() as service:
            service.maintenance.stop()  # nothing removes it
            editor, client = Editor(3), Client(service)
            expires = service.core.clock.now() + 3_600_000_000
            first = await editor.edit(
                service, put("a", 0, 9, expires=expires), put("b", 0, 9, expires=0)
            )
            service.core.clock.advance(expires + 1)
            for micros in (expires - 1, expires, expires + 1):
                found = (await asked(client, "match", shown(micros)))["matches"]
                assert [sorted(ids) for ids in found] == editor.oracle.matches(first + 1, micros)
            # As of a seq, as events of it were matched: the log hasn't ended it.
            assert (await asked(client, "match", first + 1))["matches"][0] == ["a", "b"]

    run(work)


def dropped(service: Service) -> int:
    """Let retention drop about half of the log; return the seq up to which it was dropped."""
    log = service.core.log
    assert isinstance(log, SqliteLog)
    ends = [end for end, _, _ in log.segment_sizes()]
    service.core.snapshot()
    service.core.drop(ends[len(ends) // 2])
    return log.first - 1


def test_what_retention_dropped_is_gone_and_all_later_seqs_are_answered(tmp_path: Path) -> None:
    editor = Editor(4)

    async def work() -> None:
        async with serving(tmp_path) as service:
            log: Any = service.core.log
            log._segment_bytes = 600
            client = Client(service)
            await editor.begin(service)
            await editor.some(service, 40)
            assert len(log.segment_sizes()) > 4
            await verify(client, editor.oracle, [3, log.last])  # it was known before
            for _ in range(2):  # the second time from the state that was kept the first time
                first = dropped(service)
                assert first > 3
                problem = await asked(client, "match", first - 1, status=410)
                assert problem["earliest"] == first
                assert f"the earliest seq is {first}" in problem["detail"]
                at = times(log)[0][1] - 1
                assert (await asked(client, "count", shown(at), status=410))["earliest"] == first
                await verify(client, editor.oracle, shuffled(5, first, log.last, 12))
                await editor.some(service, 20)
            last = log.last
        assert snapshots(tmp_path, BASE) == [first]
        async with serving(tmp_path) as service:
            await verify(Client(service), editor.oracle, shuffled(6, first, last, 20))
        (path_of(tmp_path, first, BASE) / "state.json").write_text("{")
        async with serving(tmp_path) as service:  # from a snapshot, which is later
            later, client = snapshots(tmp_path)[-1], Client(service)
            assert later > first
            assert (await asked(client, "match", first, status=410))["earliest"] == later
            await verify(client, editor.oracle, shuffled(7, later, last, 10))

    run(work)


def test_a_space_with_a_new_attribute_answers_as_of_before_it() -> None:
    async def work() -> None:
        async with serving() as service:
            editor, client = Editor(5), Client(service)
            await editor.begin(service)
            await editor.some(service, 20)
            middle = service.core.log.last
            await verify(client, editor.oracle, [middle // 2, middle])
            await result_of(service.core.edit(PutSpace(T, "s", WIDER)))
            await editor.some(service, 10)
            await verify(client, editor.oracle, shuffled(8, 0, service.core.log.last, 20))
            body = [{"price": price, "size": 3} for price in PRICES]
            answer = await client("POST", f"spaces/s/events:match?as_of={middle}", body)
            found = [sorted(ids) for ids in answer["matches"]]
            assert found == editor.oracle.matches(middle)

    run(work)


def test_words_of_filters_that_ended_are_known_after_a_restart(tmp_path: Path) -> None:
    definition = {"attribute": [{"name": "city", "type": "string"}]}

    async def work() -> None:
        async with serving(tmp_path) as service:
            edits: list[AnyEdit] = [PutSpace(T, "w", definition)]
            edits += [PutSubscription(T, "r", "w", "city = 'Rome'")]
            edits += [PutSubscription(T, "n", "w", "city != 'Oslo'")]
            first = await result_of(service.core.edit(*edits))
            last = await result_of(service.core.edit(DeleteSubscription(T, "r", "w")))
            service.core.snapshot()
        async with serving(tmp_path) as service:
            client, events = Client(service), [{"city": city} for city in ("Rome", "Oslo", "Bonn")]
            for seq, expected in (
                (first + 1, [["r"], [], []]),
                (first + 2, [["r", "n"], [], ["n"]]),
                (last, [["n"], [], ["n"]]),
            ):
                answer = await client("POST", f"spaces/w/events:match?as_of={seq}", events)
                assert answer["matches"] == expected

    run(work)


def test_the_oldest_versions_are_forgotten_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versions_module, "MAX_ENDED", 20)

    async def work() -> None:
        async with serving() as service:
            editor, client = Editor(6), Client(service)
            await editor.begin(service)
            await editor.some(service, 80)
            last = service.core.log.last
            await verify(client, editor.oracle, [last, last - 3, 5, last, 9])
            (history,) = service.core.histories._versions.values()
            assert len(history._versions) <= 20 * 1.25 + 12

    run(work)


def test_events_and_other_questions_do_not_wait_for_a_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_read, parse = threading.Event(), versions_module.bounds_of

    def slow(*given: Any) -> Any:
        assert is_read.wait(600)
        return parse(*given)

    monkeypatch.setattr(versions_module, "bounds_of", slow)

    async def work() -> None:
        async with serving() as service:
            client = Client(service)
            first = await result_of(service.core.edit(put("a", 0, 9)))
            question = asyncio.create_task(asked(client, "match", first))
            body = [{"price": 3}]
            answer = await client("POST", "spaces/s/events?wait=matches", body)
            assert answer["matches"] == [["a"]]
            assert (await client("POST", "spaces/s/events:match", body))["matches"] == [["a"]]
            assert not question.done()
            is_read.set()
            assert (await question)["matches"][0] == ["a"]

    run(work)


def test_what_is_still_to_come_or_malformed_is_rejected() -> None:
    async def work() -> None:
        async with serving() as service:
            client, core = Client(service), service.core
            await publish(service, 1.0)
            last = core.log.last
            for as_of, status, detail in (
                (last + 1, 409, "after the end of the log"),
                (f"{core.epoch}:{last + 1}", 409, "after the end of the log"),
                ("0000beef:1", 409, "another history"),
                ("2099-01-31T09:30:00Z", 422, "still to come"),
                ("2020-01-31T09:30:00", 422, "without a zone"),
                ("yesterday", 422, "as_of must be a seq"),
                ("-1", 422, "as_of must be a seq"),
            ):
                problem = await asked(client, "match", as_of, status=status)
                assert detail in problem["detail"]
            found = await asked(client, "match", "2020-01-31T09:30:00+01:00")
            assert found["matches"] == [[]] * len(PRICES)  # before everything
            assert (await asked(client, "count", 0))["counts"] == [0] * len(PRICES)

    run(work)
