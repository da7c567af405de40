"""Tracks with clocks that jump, retention that drops events, a log on Kafka, and message buses."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rangecast import Number, Point, Space, Timestamp
from rangecast.server.delivery import push
from rangecast.server.encoding import encoded
from rangecast.server.maintenance import Retention
from rangecast.server.pipeline.commands import Events
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.edits import EventsHead, PutConsumer, PutSpace, PutSubscription
from tests.support.server.connectors import committed
from tests.support.server.servers import nats_server
from tests.support.server.service import all_of
from tests.support.server.serving import Client, run, serving, until
from tests.support.server.set_clock import SetClock, clock
from tests.support.server.tracks import settled

__all__ = ["clock"]
T, NAME = "default", "fleet"
SPACE = Space([Timestamp("at"), Number("speed")])
TRACK = {"key": "truck", "time": "at"}


async def prepared(service: Service, **track: Any) -> None:
    put = PutSpace(T, NAME, SPACE.definition(), TRACK | track)
    await result_of(service.core.edit(put, PutConsumer(T, "out", NAME, start=0)))
    await follow(service)


async def follow(service: Service) -> None:
    subscription = PutSubscription(T, "fast", NAME, "speed > 80", "out", track={})
    await result_of(service.core.edit(subscription))


async def drive(service: Service, second: float, speed: float, truck: str = "t1") -> None:
    at = datetime.fromtimestamp(second, UTC).isoformat()
    line = json.dumps({"truck": truck, "at": at, "speed": speed}).encode()
    entry = service.core.registry.space(T, NAME)
    await result_of(service.core.publish(entry, [line], wants_matches=True))
    await settled(service)


async def pass_time(service: Service) -> None:
    """Let time pass by the clock, as the server does from time to time."""
    service.maintenance._pass_time()
    await follow(service)  # comes after it
    await settled(service)


def late(service: Service) -> int:
    (tracks,) = service.core.tracks.spaces.values()
    return tracks.tracker.late


async def push_to(service: Service, **delivery: Any) -> None:
    body = {"space": NAME, "delivery": delivery}
    await Client(service)("PUT", "consumers/out", body)


async def told(service: Service) -> list[tuple[str, str, str]]:
    messages = [json.loads(message.json("e")) for message in await all_of(service, "out", 0)]
    return [(said["key"], said["transition"], said["reason"]) for said in messages]


def test_a_clock_that_jumps_ends_a_stay_once(tmp_path: Path, clock: SetClock) -> None:
    expected = [("t1", "enter", "event"), ("t1", "exit", "silent")]

    async def work() -> None:
        async with serving(tmp_path) as service:
            service.maintenance.stop()
            await prepared(service, clock="1 min", after="1 h")
            await drive(service, clock.seconds, 90)
            clock.jump(1_800)
            await pass_time(service)
            assert await told(service) == expected[:1]
            clock.jump(7_200)
            await pass_time(service)
            assert await told(service) == expected
            clock.jump(-9_000)
            for _ in range(3):
                await pass_time(service)
                clock.pass_(600)
            await drive(service, clock.seconds, 90)  # before the time that has passed
            assert late(service) == 1
            assert await told(service) == expected
        async with serving(tmp_path) as service:
            service.maintenance.stop()
            await pass_time(service)
            assert await told(service) == expected
            assert late(service) == 1
            clock.pass_(90_000)  # the clock has caught up
            await drive(service, clock.seconds, 90)
            assert await told(service) == [*expected, ("t1", "enter", "event")]

    run(work)


def test_events_of_other_servers_have_no_accuracy_if_theirs_is_none(tmp_path: Path) -> None:
    """They aren't checked before: neither the matcher nor a start may fail at them."""
    values = [10**400, -(10**400), 10**308, -1, "1", None, True, [1]]

    async def work() -> None:
        async with serving(tmp_path) as service:
            space = Space([Timestamp("at"), Point("spot")])
            track = TRACK | {"accuracy": {"spot": "radius"}}
            await result_of(service.core.edit(PutSpace(T, NAME, space.definition(), track)))
            entry = service.core.registry.space(T, NAME)
            rows = [
                {"truck": "t", "at": f"2026-01-01T00:00:0{at}Z", "x": 1, "y": 1, "radius": value}
                for at, value in enumerate(values)
            ]
            lines = [json.dumps(row).encode() for row in rows]
            answer = service.core.publish(entry, lines, ignore_unknown=True)
            rejected = [row for row, _ in (await result_of(answer)).rejected]
            assert rejected == [0, 1, 3, 4, 6, 7]
            events, _ = encoded(lines, space, ignore_unknown=True)  # as a link does
            request = Events(entry, events, EventsHead(T, NAME), wants_matches=True)
            service.core.pipeline.submit(request)
            assert (await result_of(request.answer)).count == len(values)
        async with serving(tmp_path) as service:
            assert service.core.log.last == 2 + 2 + len(values)

    run(work)


@pytest.mark.parametrize("lateness", [None, "1 ms", "36500 d"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_times_at_the_ends_of_the_calendar_stop_no_server(
    tmp_path: Path, lateness: str | None, zone: str
) -> None:
    """One event may have any time that there is: neither the matcher nor a start may fail."""
    first, last = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)
    starts = [first, first + timedelta(hours=1), first + timedelta(days=9)]
    ends = [last - timedelta(days=9), last - timedelta(hours=1), last]

    async def work() -> None:
        async with serving(tmp_path) as service:
            track = TRACK | ({} if lateness is None else {"lateness": lateness})
            policy = {"digest": {"at": "23:30", "zone": zone, "days": "Mon"}}
            hours = {"schedule": f"Mon-Fri 22:00-06:00 {zone}"}
            await result_of(
                service.core.edit(
                    PutSpace(T, NAME, SPACE.definition(), track),
                    PutConsumer(T, "out", NAME, start=0),
                    PutConsumer(T, "digests", NAME, start=0, policy=policy),
                    PutSubscription(T, "fast", NAME, "speed > 80", "out", track={}),
                    PutSubscription(T, "often", NAME, "speed > 80", "digests", track={}),
                    PutSubscription(T, "night", NAME, "speed > 80", "out", track=hours),
                )
            )
            entry = service.core.registry.space(T, NAME)
            for at in [*starts, *ends]:
                for truck, speed in (("a", 90), ("b", 90), ("a", 10)):
                    row = {"truck": truck, "at": f"{at.isoformat()}Z", "speed": speed}
                    line = json.dumps(row).encode()
                    answer = service.core.publish(entry, [line], wants_matches=True)
                    assert (await result_of(answer)).count == 1
            await settled(service)
            found = len(await all_of(service, "out", 0))
            assert found
        async with serving(tmp_path) as service:
            assert len(await all_of(service, "out", 0)) == found

    run(work)


def test_a_stay_outlives_the_segment_with_its_beginning(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, retention=Retention(bytes=4_000)) as service:
            log: Any = service.core.log
            log._segment_bytes = 1_000
            await prepared(service)
            await drive(service, 60, 90)
            entered = log.last
            for number in range(120):
                await drive(service, 120 + number, 10, f"other{number}")
                if number % 20 == 19:
                    await asyncio.to_thread(service.maintenance.run_once)
            assert log.first > entered  # the event that began the stay is gone
        async with serving(tmp_path, retention=Retention(bytes=4_000)) as service:
            await drive(service, 600, 10)
            listener = service.core.hub.open(service.core.registry.consumer(T, "out"))
            batch = await listener.next_batch(100, wait=1)
            (message,) = batch.messages
            said = json.loads(message.json("e"))
            assert batch.gap is not None
            assert (said["transition"], said["key"]) == ("exit", "t1")
            assert said["since"] == "1970-01-01T00:01:00Z"

    run(work)


async def delivered(service: Service) -> None:
    """Wait until all messages so far have arrived."""
    (*_, last) = await all_of(service, "out", 0)
    consumer = service.core.registry.consumer(T, "out")
    await until(lambda: consumer.cursor >= last.seq, 120)


def transitions_of(bodies: list[bytes]) -> list[tuple[str, str, str]]:
    """Each transition of CloudEvents once, in order."""
    events = [json.loads(body) for body in bodies]
    assert {event["type"] for event in events} == {"rangecast.transition"}
    data = sorted((event["data"] for event in events), key=lambda said: said["seq"])
    assert len({said["id"] for said in data}) == len(data)
    return [(said["key"], said["transition"], said["reason"]) for said in data]


JOURNEY = [(0, 90, "t1"), (1, 95, "t2"), (2, 10, "t1"), (3, 99, "t1"), (4, 0, "t2"), (5, 0, "t1")]
CHANGES = [
    (truck, "enter" if speed > 80 else "exit", "event") for _, speed, truck in JOURNEY
]  # each event is a change


@pytest.mark.process
def test_nats_gets_transitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nats

    monkeypatch.setattr(push, "AGAIN", 0.1)

    async def work(url: str) -> None:
        there = await nats.connect(url)
        stream = there.jetstream(timeout=90)
        await stream.add_stream(name="out", subjects=["changes"])
        for half in (JOURNEY[:3], JOURNEY[3:]):  # a restart lies between
            async with serving(tmp_path / "data", nats=url) as service:
                if not service.core.tracks.spaces:
                    await prepared(service)
                    await push_to(service, kind="nats", subject="changes")
                for second, speed, truck in half:
                    await drive(service, second, speed, truck)
                await delivered(service)
        info = await stream.stream_info("out")
        got = await stream.pull_subscribe("changes")
        bodies = [each.data for each in await got.fetch(info.state.messages, timeout=60)]
        assert transitions_of(bodies) == CHANGES
        await there.close()

    with nats_server(tmp_path) as url:
        run(lambda: work(url))


@pytest.mark.process
@pytest.mark.xdist_group("kafka")
def test_a_log_on_kafka_has_tracks_and_a_topic_gets_transitions(
    kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    monkeypatch.setattr(push, "AGAIN", 0.1)
    admin = AdminClient({"bootstrap.servers": kafka})
    for made in admin.create_topics([NewTopic("changes", 2)]).values():
        made.result()

    async def work() -> None:
        for half in (JOURNEY[:3], JOURNEY[3:]):  # all of the state is read from the log
            async with serving(None, kafka=kafka, log=f"kafka://{kafka}/tracks") as service:
                if not service.core.tracks.spaces:
                    await prepared(service)
                    await push_to(service, kind="kafka", topic="changes")
                for second, speed, truck in half:
                    await drive(service, second, speed, truck)
                await delivered(service)
        assert transitions_of(await asyncio.to_thread(committed, kafka, "changes")) == CHANGES

    run(work)
