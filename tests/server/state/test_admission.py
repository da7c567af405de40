"""What is admitted to a group is what would be admitted one after another."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from rangecast import Number, Space
from rangecast.errors import RangecastError
from rangecast.server.http.routes import boards
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.admission import Admission, Conditions
from rangecast.server.state.edits import (
    AnyEdit,
    DeleteBoard,
    DeleteConsumer,
    DeleteInterest,
    DeleteSubscription,
    PutBoard,
    PutConsumer,
    PutInterest,
    PutSpace,
    PutSubscription,
)
from rangecast.server.state.registry import Registry
from tests.support.server.service import T, run
from tests.support.server.serving import Client, serving

SPACE = Space([Number("a")]).definition()
BOARD = PutBoard(T, "b0", 2)
INTEREST = PutInterest(T, "i0", "b0", position_lo=0, position_hi=1)


def any_edit(dice: random.Random) -> AnyEdit:
    """Return an edit of few names, so that edits concern one another."""

    def name(kind: str) -> str:
        return f"{kind}{dice.randrange(2)}"

    kinds: list[Any] = [
        lambda: PutBoard(T, name("b"), dice.choice([2, 2, 2, 3])),
        lambda: DeleteBoard(T, name("b")),
        lambda: PutInterest(
            T, name("i"), name("b"), dice.choice(["", name("c")]), position_lo=0, position_hi=1
        ),
        lambda: DeleteInterest(T, name("i"), name("b")),
        lambda: PutSubscription(T, name("s"), name("p"), "a < 5", dice.choice(["", name("c")])),
        lambda: DeleteSubscription(T, name("s"), name("p")),
        lambda: PutSpace(T, name("p"), SPACE),
        lambda: PutConsumer(T, name("c"), name("p"), only_new=dice.random() < 0.3),
        lambda: PutConsumer(T, name("c"), "", board=name("b")),
        lambda: DeleteConsumer(T, name("c")),
    ]
    edit: AnyEdit = dice.choices(kinds, [1, 1, 2, 1, 2, 1, 1, 1, 1, 1])[0]()
    return edit


def outcome(admission: Admission, edits: list[AnyEdit], if_match: Conditions) -> Any:
    """Return how many subscriptions are new, or the class of the error."""
    try:
        return admission.check_all(edits, if_match)
    except RangecastError as error:
        return type(error), getattr(error, "status", None)


@pytest.mark.parametrize("seed", range(300))
def test_a_group_admits_what_is_admitted_one_after_another(seed: int) -> None:
    dice = random.Random(seed)
    grouped, plain, last = Registry(), Registry(), 1
    for registry in (grouped, plain):
        list(registry.apply([PutSpace(T, "p0", SPACE)], last))
    for _ in range(12):
        group = Admission(grouped, last + 1)
        admitted: list[tuple[list[AnyEdit], int]] = []
        for _ in range(dice.randrange(1, 7)):
            edits = [any_edit(dice) for _ in range(dice.choice([1, 1, 1, 2]))]
            if_match = dice.choice([None, None, None, "new", "*"])
            expected = outcome(Admission(plain, last + 1), edits, if_match)
            assert outcome(group, edits, if_match) == expected, (edits, if_match)
            if isinstance(expected, int):
                list(plain.apply(edits, last + 1))
                admitted.append((edits, last + 1))
                last += len(edits)
        assert group.seq == last + 1
        for edits, first in admitted:
            list(grouped.apply(edits, first))
        assert grouped.counts == plain.counts


async def answered_together(service: Service, *requests: Any) -> list[Any]:
    """Submit requests as one group; return their answers."""
    answers: list[Any] = []
    service.core.pipeline.quiesced(lambda: answers.extend(each() for each in requests))
    results: list[Any] = []
    for answer in answers:
        try:
            results.append(await result_of(answer))
        except RangecastError as error:
            results.append(str(error).partition("\n")[0])
    return results


def test_what_a_deleted_consumer_had_is_gone_though_it_is_created_again(tmp_path: Path) -> None:
    """An edit of it would fail after it is in the log: no start could read that."""

    async def work() -> None:
        service = Service(tmp_path)
        service.start()
        core = service.core
        await result_of(core.edit(PutSpace(T, "p", SPACE), PutConsumer(T, "c", "p")))
        await result_of(core.edit(PutSubscription(T, "s", "p", "a < 5", "c")))
        results = await answered_together(
            service,
            lambda: core.edit(DeleteConsumer(T, "c")),
            lambda: core.edit(PutConsumer(T, "c", "p")),
            lambda: core.edit(DeleteSubscription(T, "s", "p")),
        )
        assert results[2] == "no subscription 's'"
        await result_of(core.edit(PutSubscription(T, "t", "p", "a < 5", "c")))
        service.core.pipeline.stop()
        service.close()
        again = Service(tmp_path)
        assert [*again.core.registry.space(T, "p").live] == ["t"]
        again.close()

    run(work())


def test_what_a_deleted_board_had_is_gone_though_it_is_created_again(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path)
        service.start()
        core = service.core
        await result_of(core.edit(BOARD))
        entry = core.registry.board(T, "b0")
        await result_of(core.update(entry, [b'{"id": "a", "value": 1, "position": 1}']))
        results = await answered_together(
            service,
            lambda: core.edit(INTEREST),
            lambda: core.edit(DeleteBoard(T, "b0")),
            lambda: core.edit(BOARD),
            lambda: core.edit(DeleteInterest(T, "i0", "b0")),
            lambda: core.update(entry, [b'{"id": "a", "value": null}']),
        )
        assert results[3] == "no interest 'i0'"
        assert results[4] == "the board 'b0' was deleted in the meantime"
        await result_of(core.edit(INTEREST))
        service.core.pipeline.stop()
        service.close()
        again = Service(tmp_path)
        board = again.core.registry.board(T, "b0")
        assert ([*board.live], board.objects) == (["i0"], {})
        again.close()

    run(work())


def test_an_interest_of_a_board_that_was_created_again_is_checked_again(tmp_path: Path) -> None:
    """It may not be valid there; the matcher would stop, and no start could read the log."""

    async def work() -> None:
        service = Service(tmp_path)
        service.start()
        core = service.core
        await result_of(core.edit(BOARD))
        entry = core.registry.board(T, "b0")
        again = PutBoard(T, "b0", 2, SPACE)
        gone = "the board 'b0' was deleted in the meantime"
        results = await answered_together(
            service,
            lambda: core.edit(DeleteBoard(T, "b0")),
            lambda: core.edit(again),
            lambda: core.edit(INTEREST, board=entry),
        )
        assert results[2] == gone
        results = await answered_together(service, lambda: core.edit(INTEREST, board=entry))
        assert results == [gone]
        service.stop()

    run(work())


def test_interests_over_http_are_those_of_the_board_that_they_were_checked_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = boards._check

    async def work() -> None:
        async with serving() as service:
            core, client = service.core, Client(service)

            def changed_after(*arguments: Any) -> None:
                check(*arguments)
                core.edit(DeleteBoard(T, "b0")).result()
                core.edit(PutBoard(T, "b0", 1)).result()

            await result_of(core.edit(BOARD))
            monkeypatch.setattr(boards, "_check", changed_after)
            body = {"position_lo": 0, "position_hi": 1, "k": 2}
            path = "boards/b0/interests"
            answer = await client("PUT", f"{path}/i0", body, 404)
            assert "deleted in the meantime" in answer["detail"]
            await result_of(core.edit(DeleteBoard(T, "b0"), BOARD))
            rows = [{"id": "i0", **body}]
            answer = await client("POST", f"{path}:bulk", rows, 404)
            assert "deleted in the meantime" in answer["detail"]

    asyncio.run(work())
