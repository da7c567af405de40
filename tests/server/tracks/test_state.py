"""Tracks of a server inside: a full disk, retention, a space that grows, subscriptions that change
hands; and the shell.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rangecast import Number, Space, String, Timestamp
from rangecast.client import Client
from rangecast.errors import SpaceError
from rangecast.server.log.base import Draft, LogFullError
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import (
    TRANSITIONS,
    DeleteConsumer,
    PutConsumer,
    PutSpace,
    PutSubscription,
)
from rangecast.server.state.tracks.options import load_space
from tests.support.server.served import Served
from tests.support.server.service import all_of, run
from tests.support.server.tracks import settled

T = "default"
SPACE = Space([Timestamp("at"), Number("speed")])
TRACK = {"key": "truck", "time": "at"}


async def edit(service: Service, *edits: Any) -> None:
    await result_of(service.core.edit(*edits))


async def prepared(service: Service) -> None:
    service.start()
    consumers = [PutConsumer(T, name, "s", start=0) for name in ("one", "two")]
    await edit(service, PutSpace(T, "s", SPACE.definition(), TRACK), *consumers)
    await edit(service, put())


def put(consumer: str = "one", **options: Any) -> PutSubscription:
    given = {"track": {}} | options
    return PutSubscription(T, "fast", "s", "speed > 80", consumer, **given)


async def drive(service: Service, minute: int, speed: float, truck: Any = "t1", **more: Any) -> Any:
    event = {"truck": truck, "at": f"2026-01-31T09:{minute:02}Z", "speed": speed} | more
    entry = service.core.registry.space(T, "s")
    return await result_of(service.core.publish(entry, [json.dumps(event).encode()]))


async def moved(service: Service, consumer: str = "one") -> list[tuple[Any, ...]]:
    await settled(service)
    found = [json.loads(message.json("e")) for message in await all_of(service, consumer, 0)]
    return [
        (one["key"], one["transition"], one["reason"]) if "transition" in one else "match"
        for one in found
    ]


def test_a_full_disk_delays_transitions_and_loses_none(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path, durability="none")
        append, left = service.core.log.append, [3]

        def full_at_first(drafts: Sequence[Draft]) -> Any:
            if left[0] and any(draft.kind == TRANSITIONS for draft in drafts):
                left[0] -= 1
                raise LogFullError("full")
            return append(drafts)

        service.core.log.append = full_at_first  # type: ignore[method-assign]
        await prepared(service)
        await drive(service, 0, 90)
        await settled(service)
        await drive(service, 1, 10)
        expected = [("t1", "enter", "event"), ("t1", "exit", "event")]
        assert await moved(service) == expected
        assert left == [0]
        service.stop()

    run(work())


def test_a_snapshot_has_the_tracks(tmp_path: Path) -> None:
    """A start from the newest snapshot goes on with the objects that were inside."""

    async def work() -> None:
        service = Service(tmp_path, durability="none")
        await prepared(service)
        await drive(service, 0, 90)
        await settled(service)
        service.core.snapshot()
        service.stop()
        for folder in sorted(tmp_path.glob("snapshot-*"))[:-1]:
            folder.rename(tmp_path / f".old-{folder.name}")
        service = Service(tmp_path, durability="none")
        service.start()
        assert service.core.tracks.spaces[0].tracker.inside("tt1") == [0]
        await drive(service, 1, 10)
        assert (await moved(service))[-1] == ("t1", "exit", "event")
        service.stop()

    run(work())


def test_a_space_that_grows_keeps_its_objects(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path, durability="none")
        await prepared(service)
        await drive(service, 0, 90)
        more = Space([*SPACE, String("driver")])
        await edit(service, PutSpace(T, "s", more.definition()))
        wanted = put()
        driven = PutSubscription(T, "ann", "s", "driver = 'Ann'", "one", track={})
        await edit(service, wanted, driven)
        await drive(service, 1, 95, driver="Ann")
        service.stop()
        for restarted in range(2):
            service = Service(tmp_path, durability="none")
            service.start()
            await drive(service, 2 + restarted, 95 - 50 * restarted, driver="Ann")
            await settled(service)
            service.stop()
        service = Service(tmp_path, durability="none")
        service.start()
        assert await moved(service) == [
            ("t1", "enter", "event"),
            ("t1", "enter", "event"),
            ("t1", "exit", "event"),
        ]
        service.stop()

    run(work())


def test_a_subscription_changes_hands_and_kinds() -> None:
    async def work() -> None:
        service = Service(None)
        await prepared(service)
        await drive(service, 0, 90)
        await edit(service, put("two"))
        await drive(service, 1, 10)
        await drive(service, 2, 90)
        await edit(service, put("two", track=None))
        await drive(service, 3, 95)
        await edit(service, put("two"))
        await drive(service, 4, 95, 7)
        await edit(service, DeleteConsumer(T, "two"))
        await drive(service, 5, 10, 7)
        assert await moved(service) == [("t1", "enter", "event")]
        assert not service.core.tracks.spaces[0].tracker.inside("i7")
        await edit(service, PutConsumer(T, "two", "s", start=0), put("two"))
        await drive(service, 6, 90)
        assert await moved(service, "two") == [("t1", "enter", "event")]
        service.stop()

    run(work())


def test_the_shell_subscribes_and_reads_the_track_of_a_file(
    tmp_path: Path, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(SPACE.to_toml() + '\n[track]\nkey = "truck"\ntime = "at"\n')
    space, track = load_space(file)
    assert (space.definition(), track) == (SPACE.definition(), TRACK)
    (tmp_path / "bad.toml").write_text(SPACE.to_toml() + '\n[track]\nkey = "truck"\n')
    with pytest.raises(SpaceError, match=r"bad.toml: track of a space requires .* as time"):
        load_space(tmp_path / "bad.toml")
    served = Served(spaces={"fleet": space}, tracks={"fleet": TRACK})
    monkeypatch.setenv("RANGECAST_SERVER", served.url)
    try:
        more = ("--id", "slow", "--consumer", "c")
        done = cli("subscribe", "speed < 5", "--track", "--dwell", "10 min", *more)
        assert "its transitions are delivered to the consumer c" in done.stdout
        for given, said in (
            (("--dwell", "1 s"), "--dwell requires --track"),
            (("--track", "--dwell", "x"), "dwell must be a length"),
        ):
            assert said in cli("subscribe", "speed < 5", *given, code=2).stderr
        with Client(served.url, space="fleet") as client:
            at = "2026-01-31T09:{:02}Z".format
            client.publish([{"truck": 1, "at": at(minute), "speed": 1} for minute in (0, 30)])
            found: list[Any] = []
            while len(found) < 2:
                found = client.messages("c", wait=5).items
            assert [one.transition for one in found] == ["enter", "dwell"]
    finally:
        served.stop()
