"""A server with a device: bodies of events get the matches that the CPU finds, whatever fails."""

from __future__ import annotations

import json
import logging
from typing import Any

from rangecast import device_copy
from rangecast.device import devices
from rangecast.errors import UsageError
from rangecast.server.metrics import device_use
from rangecast.server.service import Service
from rangecast.server.state.edits import DeleteSubscription, PutConsumer, PutSpace
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
)
from tests.support.server.serving import Client

PLACES = {
    "attribute": [
        {"name": "place", "type": "point"},
        {"name": "title", "type": "text"},
        {"name": "price", "type": "number"},
    ]
}


async def answers(service: Service) -> list[Any]:
    """Return the matches in the answers to edits and bodies, and a consumer's messages."""
    await prepared(service)
    names, found = list(SUBSCRIPTIONS), []
    for turn in range(4):
        await edit(service, *[put(name) for name in names[turn * 30 : turn * 30 + 30]])
        if turn:
            await edit(service, DeleteSubscription(T, names[turn * 30 - 7], "market"))
            await edit(service, put(names[turn * 30 - 9], "one", SUBSCRIPTIONS[names[0]]))
        if turn == 2:  # another space: filters get new boxes, and the index is built anew
            attributes = [*SPACE.definition()["attribute"], {"name": "more", "type": "number"}]
            await edit(service, PutSpace(T, "market", {"attribute": attributes}))
        body = EVENTS[turn * 70 : turn * 70 + 70]
        found.append((await publish(service, body, wants_matches=True)).matches)
        found.append((await publish(service, body[:1], wants_matches=True)).matches)
    found.append(sorted(pairs(await all_of(service, "one"))))
    return found


def test_bodies_have_the_matches_of_the_cpu_through_edits_and_a_change_of_the_space() -> None:
    async def work() -> None:
        on_cpu, on_device = Service(None), Service(None, device="cuda")
        expected = await answers(on_cpu)
        assert await answers(on_device) == expected
        assert sum(len(ids) for body in expected[:-1] for ids in body) > 100
        # bodies of 70 on the device, single events not
        assert device_use(on_device.core.device) == (280, False)
        for service in (on_cpu, on_device):
            service.stop()

    run(work())


def test_candidates_of_shapes_and_texts_are_verified() -> None:
    wanted = {
        "ring": "within(place, 'POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0), (3 3, 6 3, 6 6, 3 6, 3 3))')",
        "disc": "within(place, circle(5, 5, 3)) and price > 2",
        "word": "words(title) has all ('red', 'bike')",
        "both": "title like '%bike' and distance(place, point(1, 1)) < 4",
    }
    titles = ["red bike", "a bike", "Red car", "bike red"]
    body = [
        json.dumps({"x": n % 10, "y": n // 10, "title": titles[n % 4], "price": n % 5}).encode()
        for n in range(100)
    ]

    async def work() -> None:
        found = []
        for device in (None, "cuda"):
            service = Service(None, device=device)
            service.start()
            await edit(service, PutSpace(T, "market", PLACES), PutConsumer(T, "one", "market"))
            await edit(service, *[put(name, "one", text) for name, text in wanted.items()])
            found.append((await publish(service, body, wants_matches=True)).matches)
            service.stop()
        assert found[0] == found[1]
        assert {name for ids in found[0] for name in ids} == set(wanted)

    run(work())


def test_after_an_error_of_the_device_the_cpu_matches(monkeypatch, caplog) -> None:
    async def work() -> None:
        service = Service(None, device="cuda")
        await prepared(service)
        await edit(service, *map(put, SUBSCRIPTIONS))
        body = EVENTS[:80]
        before = (await publish(service, body, wants_matches=True)).matches
        calls = []

        def lost(*_: Any) -> None:
            calls.append(1)
            raise MemoryError("out of device memory")

        monkeypatch.setattr(device_copy, "match_on_device", lost)
        with caplog.at_level(logging.ERROR):
            for _ in range(3):
                assert (await publish(service, body, wants_matches=True)).matches == before
        assert len(calls) == 1
        assert [record.message for record in caplog.records] == [
            "the device 'cuda' failed; the CPU matches from now on"
        ]
        assert device_use(service.core.device) == (80, True)
        service.stop()

    run(work())


def test_events_that_are_only_matched_use_it_too() -> None:
    async def work() -> None:
        service = Service(None, device="cuda")
        await prepared(service)
        await edit(service, *map(put, SUBSCRIPTIONS))
        client, path = Client(service), "spaces/market/events:match"
        events = [json.loads(line) for line in EVENTS]
        together = (await client("POST", path, events))["matches"]
        for place in (0, 17, 200, 299):
            alone = (await client("POST", path, events[place : place + 1]))["matches"]
            assert together[place] == alone[0]
        assert device_use(service.core.device)[0] > 200
        service.stop()

    run(work())


def test_without_a_device_the_server_does_not_start(cli, monkeypatch, tmp_path) -> None:
    def missing() -> None:
        raise UsageError("the device 'cuda' found no GPU")

    monkeypatch.setitem(devices.DEVICES, "cuda", missing)
    said = cli("serve", "--device", "cuda", "--port", "0", "--data", str(tmp_path / "d"), code=2)
    assert "found no GPU" in said.stderr
    assert not (tmp_path / "d").exists()
