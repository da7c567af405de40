"""Boards behind the server: their messages, to the last one, are those of a `Board` in Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rangecast.errors import (
    RangecastError,
)
from rangecast.server.delivery.messages import Gap, Message
from rangecast.server.http.problems import status_of
from rangecast.server.log.base import Unit
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import (
    DeleteBoard,
    DeleteInterest,
    PutBoard,
    PutConsumer,
    PutInterest,
)
from rangecast.server.state.registry import RequestError
from tests.support.server.boards import SPACES, B, Mirror, T, all_of, run

KINDS = [*SPACES]


def told(messages: list[Message]) -> list[tuple[int, str, Any]]:
    """Return each list of messages, by seq and interest."""
    found = []
    for message in messages:
        body = json.loads(message.json("e"))
        assert body["board"] == B
        found += [(body["seq"], one["interest"], one["best"]) for one in body["lists"]]
    return sorted(found, key=lambda one: one[:2])


async def edit(service: Service, *edits: Any) -> int:
    return await result_of(service.core.edit(*edits))


async def update(service: Service, rows: list[Any], **options: Any) -> Any:
    lines = [json.dumps(row).encode() for row in rows]
    entry = service.core.registry.board(T, B)
    return await result_of(service.core.update(entry, lines, **options))


async def prepared(service: Service, mirror: Mirror) -> None:
    service.start()
    await edit(service, mirror.made())
    consumers = [PutConsumer(T, name, "", start=0, board=B) for name in mirror.expected]
    await edit(service, *consumers)


async def history(service: Service, mirror: Mirror, turns: int) -> None:
    """Interests come, change and go among changes of objects, single, many and in batches."""
    rng = mirror.rng
    for turn in range(turns):
        name, consumer = f"i{rng.randrange(8)}", rng.choice(["one", "two"])
        if name in mirror.subscribers and rng.random() < 0.3:
            await edit(service, DeleteInterest(T, name, B))
            mirror.remove(name)
        else:
            where, k = mirror.where(), rng.choice([0, 0, 1])
            seq = await edit(service, PutInterest(T, name, B, consumer, k=k, **where))
            mirror.put(seq, name, consumer, k, where)
        if turn % 4 == 3:
            rows = [mirror.change() for _ in range(3)]
            rows = list({row["id"]: row for row in rows}.values())
            accepted = await update(service, rows, is_batch=True)
            mirror.apply(accepted.first + len(rows) - 1, *rows, batch=True)
        else:
            row = mirror.change()
            accepted = await update(service, [row, {"id": "nobody", "value": 1}, {"id": 7, "z": 1}])
            assert [row for row, _ in accepted.rejected] == [1, 2]
            mirror.apply(accepted.first, row)
        assert accepted.count


@pytest.mark.parametrize("kind", KINDS)
def test_messages_are_those_of_a_board_in_python_over_restarts(kind: str, tmp_path: Path) -> None:
    mirror = Mirror(kind, 3)
    seen: list[Message] = []

    async def first() -> None:
        service = Service(tmp_path)
        await prepared(service, mirror)
        listener = service.core.hub.open(service.core.registry.consumer(T, "one"))
        await history(service, mirror, 30)
        service.core.snapshot()
        while len(seen) < len({seq for seq, _, _ in mirror.expected["one"]}):
            seen.extend((await listener.next_batch(wait=5)).messages)
        service.core.acknowledge(listener.consumer, seen[len(seen) // 2].seq)
        await history(service, mirror, 10)
        service.core.pipeline.stop()  # as after a crash: the snapshot is of before the last edits
        service.close()

    run(first())
    assert told(seen) == sorted(
        [one for one in mirror.expected["one"] if one[0] <= seen[-1].seq], key=lambda one: one[:2]
    )

    async def second() -> None:
        service = Service(tmp_path)
        service.start()
        await history(service, mirror, 20)
        for name, expected in mirror.expected.items():
            messages = await all_of(service, name, 0)
            assert told(messages) == sorted(expected, key=lambda one: one[:2])
            assert len({one.seq for one in messages}) == len(messages)
        last = max(seq for seq, _, _ in mirror.expected["two"])
        for after in range(0, last, 7):
            found = told(await all_of(service, "two", after))
            assert found == sorted(
                [one for one in mirror.expected["two"] if one[0] > after], key=lambda one: one[:2]
            )
        cursor = service.core.registry.consumer(T, "one").cursor
        left = [one for one in mirror.expected["one"] if one[0] > cursor]
        assert told(await all_of(service, "one")) == sorted(left, key=lambda one: one[:2])
        service.stop()

    run(second())


def test_what_retention_drops_while_it_is_read_is_told_as_a_gap(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path)
        log: Any = service.core.log
        log._segment_bytes = 500
        mirror = Mirror("line", 5)
        await prepared(service, mirror)
        await history(service, mirror, 40)
        reader = service.core.hub.reader(service.core.registry.consumer(T, "two"))
        start = reader.read(0, log.last, 3).upto
        read = log.read
        drop = next(end for end, _, _ in log.segment_sizes() if end > start + 20)

        def dropped_first(after: int, most: int) -> list[Unit]:
            log.read = read
            log.drop(drop)
            found: list[Unit] = read(after, most)
            return found

        log.read = dropped_first
        gaps, found, after = [], [], start
        while after < log.last:
            batch = reader.read(after, log.last, 3)
            gaps += [batch.gap] if batch.gap else []
            found += batch.messages
            after = batch.upto
        assert gaps == [Gap(gaps[0].after, drop)]
        assert all(one.seq <= gaps[0].after or one.seq > drop for one in found)
        left = [one for one in mirror.expected["two"] if one[0] > drop]
        assert told([one for one in found if one.seq > drop]) == sorted(
            left, key=lambda one: one[:2]
        )
        assert left
        service.stop()

    run(work())


def test_what_cannot_be_is_rejected_and_changes_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path)
        mirror = Mirror("line", 1)
        await prepared(service, mirror)
        await update(service, [{"id": "a", "position": 1, "value": 2}])
        bad: list[Any] = [
            *(
                {"id": "b", "value": 1},
                {"id": "b", "position": 1},
                {"id": "a"},
                {"id": "b", "value": None},
            ),
            *(
                {"id": "a", "value": "x"},
                {"id": "a", "position": None},
                {"id": "a", "value": True},
                {"value": 1},
            ),
            *([1], 7, {"id": [], "value": 1}, {"id": "a", "km": 3}, {"id": "a", "value": 10**400}),
        ]
        accepted = await update(service, bad)
        assert [row for row, _ in accepted.rejected] == [*range(len(bad))]
        assert not accepted.count
        reasons = dict(accepted.rejected)
        assert "give a position and a value to add it" in reasons[0]
        assert "unknown field 'km'" in reasons[11]
        for options in ({"strict": True}, {"is_batch": True}):
            accepted = await update(
                service, [{"id": "a", "value": 9}, {"id": "b", "value": 1}], **options
            )
            assert (accepted.count, [row for row, _ in accepted.rejected]) == (0, [1])
        # later rows see what earlier ones do
        rows = [
            {"id": "a", "value": None},
            {"id": "a", "value": 1},
            {"id": "c", "position": 5, "value": 5},
        ]
        accepted = await update(service, [*rows, {"id": "c", "value": 4}])
        assert (accepted.count, [row for row, _ in accepted.rejected]) == (3, [1])
        objects = service.core.registry.board(T, B).objects
        assert [(name, one.value, one.place) for name, one in objects.items()] == [
            ("c", 4.0, (5.0,))
        ]
        for wrong, status in (
            (PutInterest(T, "i", "none", "one"), 404),
            (PutInterest(T, "i", B, "nobody"), 404),
            (DeleteInterest(T, "i", B), 404),
            (DeleteBoard(T, B), 409),
            (PutBoard(T, B, 7), 409),
            (PutConsumer(T, "one", "", board="other"), 404),
        ):
            with pytest.raises(RangecastError) as raised:
                await edit(service, wrong)
            assert status_of(raised.value) == status
        with pytest.raises(RequestError, match="at most 1,000 changes"):
            await update(service, [{"id": "c", "value": 1}] * 1001, is_batch=True)
        service.stop()

    run(work())
