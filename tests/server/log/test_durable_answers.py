"""No answer before its content is in the log: also to repeats, rejections, edits of one group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rangecast.errors import RangecastError
from rangecast.server.encoding import encoded
from rangecast.server.log.base import LogError, LogFullError
from rangecast.server.pipeline.commands import Events
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import (
    EventsHead,
    PutBoard,
    PutConsumer,
    PutSpace,
    PutSubscription,
)
from rangecast.server.state.registry import RequestError
from tests.support.server.held_log import HeldLog
from tests.support.server.serving import SPACE, T, run, serving

LINES = [b'{"price": 1, "id": "a"}', b'{"price": 2, "id": "b"}']
Ask = Callable[[Service], Future[Any]]


def publishing(*lines: bytes, **options: Any) -> Ask:
    def ask(service: Service) -> Future[Any]:
        return service.core.publish(
            service.core.registry.space(T, "s"), lines or LINES, ignore_unknown=True, **options
        )

    return ask


def subscribing(**options: Any) -> Ask:
    put = PutSubscription(T, "new", "s", "price > 0", "")
    return lambda service: service.core.edit(put, **options)


KEYED = publishing(key="k", digest="d")
BY_ID = publishing(dedup=True)
BOARD = PutBoard(T, "b", 5)


def held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rangecast.server.core.MemoryLog", HeldLog)


async def in_one_group(service: Service, *asks: Ask) -> list[Future[Any]]:
    """Ask for things that are written as one group; return when it is being written."""
    log: Any = service.core.log
    log.is_held = True
    blocker = publishing(b'{"price": 7}')(service)
    await asyncio.to_thread(log.arrived.acquire)
    answers = [ask(service) for ask in asks]  # wait, as a group is being written
    log.release()
    await result_of(blocker)
    await asyncio.to_thread(log.arrived.acquire)
    return answers


REPEATS: dict[str, tuple[Ask, Ask, Any]] = {
    "same key": (KEYED, KEYED, {"repeated": True, "count": 2}),
    "same ids": (BY_ID, BY_ID, {"skipped": 2, "count": 0}),
    "some ids": (
        publishing(LINES[0], dedup=True),
        BY_ID,
        {"skipped": 1, "count": 1},
    ),
    "same key and ids": (
        publishing(key="k", digest="d", dedup=True),
        publishing(key="l", digest="d", dedup=True),
        {"skipped": 2, "count": 0},
    ),
}


@pytest.mark.parametrize("how", REPEATS)
@pytest.mark.parametrize("is_written", [True, False])
def test_a_repeat_shares_the_outcome_of_the_first(
    monkeypatch: pytest.MonkeyPatch, how: str, is_written: bool
) -> None:
    first, second, expected = REPEATS[how]
    held(monkeypatch)

    async def work() -> None:
        async with serving() as service:
            log: Any = service.core.log
            answers = await in_one_group(service, first, second, second)
            assert [one.done() for one in answers] == [False] * 3
            log.release(None if is_written else LogFullError("full"))
            if not is_written:
                for one in answers:
                    with pytest.raises(LogFullError):
                        await result_of(one)
                log.is_held = False
                answers = [first(service), second(service)]
            whole = await result_of(answers[0])
            again = await result_of(answers[1])
            assert whole.count == (1 if how == "some ids" else 2)
            assert {name: getattr(again, name) for name in expected} == expected
            if expected.get("repeated"):
                assert again.first == whole.first
            log.is_held = False

    run(work)


def test_all_of_a_group_fail_with_a_failed_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    held(monkeypatch)

    async def work() -> None:
        async with serving() as service:
            log: Any = service.core.log
            answers = await in_one_group(service, KEYED, KEYED, BY_ID, BY_ID, subscribing())
            log.release(LogError("writing failed"))
            for one in answers:
                with pytest.raises(LogError, match="writing failed"):
                    await result_of(one)

    run(work)


def test_a_repeat_of_what_was_written_before_needs_no_space(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held(monkeypatch)

    async def work() -> None:
        async with serving() as service:
            log: Any = service.core.log
            first = await result_of(KEYED(service))
            await result_of(BY_ID(service))
            asks = publishing(), KEYED, BY_ID, publishing(key="k", digest="other")
            fresh, again, by_id, other = await in_one_group(service, *asks)
            assert (await result_of(again)).first == first.first
            assert (await result_of(by_id)).skipped == 2
            log.release(LogFullError("full"))
            with pytest.raises(LogFullError):
                await result_of(fresh)
            with pytest.raises((RequestError, LogFullError)):
                await result_of(other)
            log.is_held = False

    run(work)


def test_a_repeat_waits_while_the_first_is_being_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held(monkeypatch)

    async def work() -> None:
        async with serving() as service:
            log: Any = service.core.log
            log.is_held = True
            first = KEYED(service)
            await asyncio.to_thread(log.arrived.acquire)
            again = KEYED(service)
            log.release(LogFullError("full"))
            with pytest.raises(LogFullError):
                await result_of(first)
            await asyncio.to_thread(log.arrived.acquire)  # the repeat is the first one now
            assert not again.done()
            log.release()
            assert not (await result_of(again)).repeated
            log.is_held = False

    run(work)


def updating(text: bytes) -> Ask:
    return lambda service: service.core.update(service.core.registry.board(T, "b"), [text])


CONDITIONS: dict[str, tuple[Ask, Ask, str]] = {
    "exists": (subscribing(), subscribing(if_match="new"), "already exists"),
    "other body": (KEYED, publishing(key="k", digest="other"), "with another body"),
    "source": (
        publishing(source="x", upto=5),
        lambda service: _following(service, 3),
        "was read up to 5",
    ),
    "consumer": (
        lambda service: service.core.edit(PutConsumer(T, "c", "s")),
        lambda service: service.core.edit(PutConsumer(T, "c", "", board="b")),
        "exists",
    ),
}


def _following(service: Service, follows: int) -> Future[Any]:
    entry = service.core.registry.space(T, "s")
    taken, _ = encoded(LINES, entry.space, ignore_unknown=True)
    head = EventsHead(T, "s", "", "", "", False, "x", 9, [])
    asked = Events(entry, taken, head, follows=follows)
    service.core.pipeline.submit(asked)
    return asked.answer


@pytest.mark.parametrize("how", CONDITIONS)
@pytest.mark.parametrize("is_written", [True, False])
def test_a_rejection_by_what_is_not_yet_written_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, how: str, is_written: bool
) -> None:
    first, second, rejection = CONDITIONS[how]
    held(monkeypatch)

    async def work() -> None:
        async with serving() as service:
            log: Any = service.core.log
            await result_of(service.core.edit(BOARD))
            answers = await in_one_group(service, first, second)
            assert not answers[1].done()
            log.release(None if is_written else LogFullError("full"))
            if is_written:
                await result_of(answers[0])
                with pytest.raises(RangecastError, match=rejection):
                    await result_of(answers[1])
            else:
                for one in answers:
                    with pytest.raises(LogFullError):
                        await result_of(one)
            log.is_held = False

    run(work)


@pytest.mark.parametrize("is_written", [True, False])
def test_updates_that_change_nothing_wait_for_what_they_were_judged_by(
    monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    held(monkeypatch)

    async def work() -> None:
        async with serving() as service:
            log: Any = service.core.log
            await result_of(service.core.edit(BOARD))
            put = b'{"id": "o", "position": 1, "value": 2}'
            await result_of(updating(put)(service))
            gone = updating(b'{"id": "o", "value": null}')
            first, second = await in_one_group(service, gone, gone)
            assert not second.done()
            log.release(None if is_written else LogFullError("full"))
            if is_written:
                assert (await result_of(first)).count == 1
                assert len((await result_of(second)).rejected) == 1
            else:
                with pytest.raises(LogFullError):
                    await result_of(second)
            log.is_held = False

    run(work)


def test_a_failed_group_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    held(monkeypatch)

    def state(service: Service) -> Any:
        registry, deduplicator = service.core.registry, service.core.deduplicator
        entry = registry.space(T, "s")
        return (
            [msgspec.structs.astuple(version) for version in entry.live.values()],
            dict(entry.expiring),
            entry.next_number,
            entry.space.vocabularies,
            dict(registry.consumers),
            dict(registry.counts),
            {name: list(parts) for name, parts in registry.retained.parts.items()},
            list(deduplicator.requests),
            list(deduplicator.ids),
            dict(deduplicator.offsets),
            service.core.log.last,
            {name: dict(board.objects) for name, board in registry.boards.items()},
        )

    async def work() -> None:
        async with serving() as service:
            log: Any = service.core.log
            await result_of(service.core.edit(BOARD))
            await result_of(publishing(source="x", upto=3)(service))
            asks = (
                KEYED,
                BY_ID,
                publishing(source="x", upto=8),
                subscribing(),
                lambda service: service.core.edit(PutConsumer(T, "c", "s")),
                updating(b'{"id": "o", "position": 1, "value": 2}'),
            )
            answers = await in_one_group(service, *asks)
            before = state(service)
            log.release(LogFullError("full"))
            for one in answers:
                with pytest.raises(LogFullError):
                    await result_of(one)
            log.is_held = False
            after = state(service)
            clean = before[:7], [], [], {"default/s/x": 3}, before[10:]
            assert (after[:7], *after[7:10], after[10:]) == clean

    run(work)


def test_the_oldest_ids_make_room_only_for_what_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held(monkeypatch)
    monkeypatch.setattr("rangecast.server.state.dedup.IDS", 2)
    monkeypatch.setattr("rangecast.server.state.dedup.REQUESTS", 1)

    async def work() -> None:
        async with serving() as service:
            log: Any = service.core.log
            await result_of(publishing(key="k", digest="d", dedup=True)(service))
            more = publishing(b'{"price": 1, "id": "c"}', key="l", digest="d", dedup=True)
            log.is_held = True
            full = more(service)
            await asyncio.to_thread(log.arrived.acquire)
            log.release(LogFullError("full"))
            with pytest.raises(LogFullError):
                await result_of(full)
            log.is_held = False
            assert (await result_of(BY_ID(service))).skipped == 2
            assert (await result_of(KEYED(service))).repeated

    run(work)


def test_edits_written_while_the_matcher_fails_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held(monkeypatch)

    async def work() -> None:
        service = Service(None)
        service.start()
        await result_of(service.core.edit(PutSpace(T, "s", SPACE.definition())))
        log: Any = service.core.log
        log.is_held = True
        asked = subscribing()(service)
        await asyncio.to_thread(log.arrived.acquire)
        service.core.pipeline.fail(LogError("the matcher has failed"))
        log.release()
        with pytest.raises(LogError, match="matcher"):
            await result_of(asked)
        service.core.pipeline.stop()

    run(work)


def test_repeats_on_a_full_disk_are_rejected_as_the_first_is(tmp_path: Path) -> None:
    """Of the real log: 20 keys, each asked for by many at once, on a disk without space."""

    async def work() -> None:
        async with serving(tmp_path) as service:
            log: Any = service.core.log
            await result_of(publishing(*LINES)(service))
            pages = log._writer.execute("PRAGMA page_count").fetchone()[0]
            log._writer.execute(f"PRAGMA max_page_count = {pages}")
            big = b'{"price": 3, "text": "%s"}' % (b"x" * 5000)
            before = log.last
            asks = [
                publishing(big, key=f"k{n % 20}", digest="d")(service)
                if n % 2
                else publishing(b'{"id": %d,' % (n % 20) + big[1:], dedup=True)(service)
                for n in range(400)
            ]
            found = await asyncio.gather(*map(result_of, asks), return_exceptions=True)
            assert {type(one) for one in found} == {LogFullError}
            assert log.last == before
            log._writer.execute("PRAGMA max_page_count = 1000000")
            accepted = await result_of(publishing(big, key="k1", digest="d")(service))
            assert not accepted.repeated

    run(work)
