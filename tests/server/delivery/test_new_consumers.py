"""A consumer that is created with its first subscriptions: both are there afterwards, or none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rangecast.errors import FilterError
from rangecast.server.http.auth import SCOPES, Caller
from rangecast.server.http.routes import new_consumers, websocket
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.edits import PutConsumer
from tests.support.server.serving import Client, T, ids_of, publish, run, serving, until

PUT = "spaces/s/subscriptions/one?create_consumer=true"
BULK = "spaces/s/subscriptions:bulk?create_consumer=true"


def test_it_gets_what_comes_after(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as service:
            client = Client(service)
            await publish(service, 5)
            made = await client("PUT", PUT, {"filter": "price < 9", "consumer": "c"})
            consumer = service.core.registry.consumer(T, "c")
            assert made["position"].endswith(f":{consumer.cursor + 1}")
            rows = [{"id": f"b{n}", "filter": "price < 7", "consumer": f"c{n % 2}"} for n in (1, 2)]
            made = await client("POST", BULK, [*rows, {"id": "b3", "filter": "price < 7"}])
            assert (made["accepted"], made["rejected"]) == (3, [])
            assert made["position"].endswith(f":{service.core.log.last}")
            await publish(service, 5)
        async with serving(tmp_path) as service:
            for name, ids in (("c", ["one"]), ("c0", ["b2"]), ("c1", ["b1"])):
                found = service.core.registry.consumer(T, name)
                batch = service.core.hub.reader(found).read(
                    found.cursor, service.core.pipeline.durable, 9
                )
                assert [ids_of(one) for one in batch.messages] == [ids]

    run(work)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", PUT, {"filter": "prise < 9", "consumer": "c"}, 422),
        ("PUT", PUT, {"filter": "price < 9", "consumer": "c d"}, 422),
        ("PUT", PUT, {"filter": "price < 9", "consumer": "c", "weights": {"x": 1}}, 422),
        ("PUT", PUT.partition("?")[0], {"filter": "price < 9", "consumer": "c"}, 404),
        ("POST", BULK, [{"id": "a", "filter": "prise < 9", "consumer": "c"}], 422),
        ("POST", BULK + "&strict=true", [{"id": "a", "filter": "x", "consumer": "c"}], 422),
        ("POST", BULK, [{"id": "a", "filter": "price < 9", "consumer": "c d"}], 422),
        (
            "POST",
            BULK.partition("?")[0],
            [{"id": "a", "filter": "price < 9", "consumer": "c"}],
            404,
        ),
    ],
)
def test_nothing_is_left_of_what_is_rejected(
    method: str, path: str, body: Any, status: int
) -> None:
    async def work() -> None:
        async with serving() as service:
            last = service.core.log.last
            await Client(service)(method, path, body, status)
            assert (service.core.log.last, service.core.registry.consumers) == (last, {})

    run(work)


def test_another_request_may_create_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its options stay: the consumer that is there is taken as it is."""
    missing = new_consumers._missing

    async def work() -> None:
        async with serving() as service:
            other = PutConsumer(T, "c", "s", on_gap="stop", max_per_event=3)
            asked = [service.core.edit(other)]

            def late(*given: Any) -> Any:
                found = missing(*given)
                if asked:  # as if it hadn't been there a moment ago
                    asked.pop().result(90)
                    return [PutConsumer(T, "c", "s", only_new=True)]
                return found

            monkeypatch.setattr(new_consumers, "_missing", late)
            client = Client(service)
            await client("PUT", PUT, {"filter": "price < 9", "consumer": "c"})
            consumer = service.core.registry.consumer(T, "c")
            assert (consumer.on_gap, consumer.max_per_event, len(consumer.versions)) == (
                "stop",
                3,
                1,
            )
            monkeypatch.setattr(
                new_consumers, "_missing", lambda *_: [PutConsumer(T, "c", "s", only_new=True)]
            )
            body = {"filter": "price < 8", "consumer": "c"}
            await client("PUT", PUT, body, 503)

    run(work)


def test_many_at_once_make_one_consumer() -> None:
    async def work() -> None:
        async with serving() as service:
            client = Client(service)
            rows = [{"id": f"s{n}", "filter": "price < 7", "consumer": "c"} for n in range(20)]
            made = await asyncio.gather(*(client("POST", BULK, [row]) for row in rows))
            assert [one["accepted"] for one in made] == [1] * 20
            assert len(service.core.registry.consumer(T, "c").versions) == 20
            await result_of(
                service.core.edit(PutConsumer(T, "c", "s", max_per_event=1))
            )  # may still be changed

    run(work)


def test_a_session_that_ends_while_it_is_opened_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its consumer is in the log by then, and the session has had no answer."""

    async def work() -> None:
        async with serving() as service:
            waiting = asyncio.Event()

            async def late(answer: Any) -> int:
                await result_of(answer)
                waiting.set()
                await asyncio.Event().wait()
                raise AssertionError("it was cancelled")

            monkeypatch.setattr(websocket, "result_of", late)
            socket: Any = SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(grants=None)))
            session = websocket.Session(service.core, socket)
            monkeypatch.setattr(session, "_may", lambda _scope: Caller(T, SCOPES))
            frame = {"space": "s", "filter": "price < 9"}
            opening = asyncio.create_task(session._follow(frame))
            await asyncio.wait_for(waiting.wait(), 90)
            assert len(service.core.registry.consumers) == 1
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            await session._end()
            await until(lambda: not service.core.registry.consumers)
            assert not service.core.registry.space(T, "s").live
            with pytest.raises(FilterError):
                await session._follow({**frame, "filter": "prise < 9"})
            assert session._own == []

    run(work)
