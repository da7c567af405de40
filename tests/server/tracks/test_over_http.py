"""Tracks over HTTP: what a consumer gets by each way, and what is rejected."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from rangecast import Digest, Engine, Number, Policy, Rule, Space, Timestamp, Tracker
from rangecast.client import AsyncClient, Client, ServerError, TransitionMessage
from rangecast.client.results import DigestMessage
from rangecast.errors import RangecastError
from tests.support.server.served import Served
from tests.support.server.webhook import receiver

SPACE = Space([Timestamp("at"), Number("speed")])
TRACK = {"key": "truck", "time": "at"}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    served = Served(spaces={}, allow_private_webhooks=True)
    yield served
    served.stop()


@pytest.fixture
def fleet(server: Served, request: pytest.FixtureRequest) -> Iterator[Client]:
    name = "".join(one if one.isalnum() else "-" for one in request.node.name)[:100]
    with Client(server.url, space=name) as client:
        client.put_space(name, SPACE, track=TRACK)
        yield client


def event(minute: int, speed: float, truck: Any = "t1") -> dict[str, Any]:
    return {"truck": truck, "at": f"2026-01-31T09:{minute:02}:00Z", "speed": speed}


def got(client: Client, consumer: str, count: int) -> list[TransitionMessage]:
    """Return the next messages, this many."""
    found: list[TransitionMessage] = []
    while len(found) < count:
        page = client.messages(consumer, wait=10)
        assert page.items, f"{len(found)} of {count} came"
        found += page.items
        client.acknowledge(consumer, page.position)
    assert not client.messages(consumer).items
    return found


def names(found: list[TransitionMessage]) -> list[tuple[Any, ...]]:
    return [(one.key, one.transition, one.subscriptions[0], one.at.minute) for one in found]


def test_a_consumer_gets_transitions_instead_of_matches(fleet: Client):
    fleet.subscribe("fast", "speed > 80", consumer="a", create_consumer=True, track=Rule())
    fleet.subscribe("each", "speed > 80", consumer="b", create_consumer=True)
    for minute, speed in enumerate([50, 90, 95, 60]):
        found = fleet.publish(event(minute, speed), matches=True)
        assert found.matches == [["fast", "each"] if speed > 80 else []]
    assert sorted(fleet.match(event(9, 99))) == ["each", "fast"]
    enter, left = got(fleet, "a", 2)
    assert names([enter, left]) == [("t1", "enter", "fast", 1), ("t1", "exit", "fast", 3)]
    assert (enter.event, left.event) == (event(1, 90), event(3, 60))
    assert left.since == enter.at == datetime(2026, 1, 31, 9, 1, tzinfo=UTC)
    assert (left.reason, len(left.id)) == ("event", 32)
    assert [one.event["speed"] for one in fleet.messages("b").items] == [90, 95]


def test_edits_and_the_end_of_a_subscription_are_transitions(fleet: Client):
    fleet.subscribe("fast", "speed > 80", consumer="c", create_consumer=True, track={})
    fleet.subscribe("slow", "speed < 20", consumer="c", ttl=1, track={"on": ["exit"]})
    fleet.publish([event(0, 90), event(0, 10, "t2"), event(0, 90, 3)])
    fleet.replace("fast", "speed > 99")
    fleet.publish(event(1, 95))
    fleet.unsubscribe("fast")
    found = got(fleet, "c", 5)
    assert {(one.key, one.transition, one.reason) for one in found} == {
        ("t1", "enter", "event"),
        (3, "enter", "event"),
        ("t1", "exit", "edited"),
        (3, "exit", "removed"),
        ("t2", "exit", "removed"),
    }
    assert [one.event for one in found if one.reason == "removed"] == [None, None]


def test_a_stream_a_socket_and_a_webhook_say_the_same(fleet: Client, server: Served):
    async def work() -> None:
        async with receiver() as there, httpx.AsyncClient(base_url=server.url) as http:
            out = {
                "kind": "webhook",
                "url": f"http://127.0.0.1:{there.port}/x",
                "allow_private": True,
            }
            await asyncio.to_thread(fleet.put_consumer, "hook", delivery=out)
            for consumer in ("hook", "pulled"):
                options: Any = {"consumer": consumer, "create_consumer": True}
                await asyncio.to_thread(
                    fleet.subscribe, f"to {consumer}", "speed > 80", track=Rule(), **options
                )
            watch = await asyncio.to_thread(fleet.watch, "speed > 80", track={"on": ["exit"]})
            path = "/v1/consumers/pulled/stream"
            async with http.stream("GET", path, timeout=20) as stream:
                await asyncio.to_thread(fleet.publish, [event(1, 90), event(2, 10)])
                seen = []
                async for line in stream.aiter_lines():
                    if line.startswith("data: "):
                        seen.append(json.loads(line[6:]))
                    if len(seen) == 2:
                        break
            watched = await asyncio.to_thread(watch.next, 10)
            await asyncio.to_thread(watch.close)
            while sum(body.count(b'"transition"') for _, _, body in there.got) < 2:
                await asyncio.sleep(0.05)
        bodies = [json.loads(body) for _, _, body in there.got]
        sent = [one for body in bodies for one in (body if isinstance(body, list) else [body])]
        assert {one["type"] for one in sent} == {"rangecast.transition"}
        pulled = await asyncio.to_thread(got, fleet, "pulled", 2)
        fields = ("transition", "key", "reason", "event")
        wanted = [("enter", "t1", "event", event(1, 90)), ("exit", "t1", "event", event(2, 10))]
        assert [tuple(one["data"][name] for name in fields) for one in sent] == wanted
        assert [tuple(one[name] for name in fields) for one in seen] == wanted
        assert [one["id"] for one in seen] == [one.id for one in pulled]
        assert isinstance(watched, TransitionMessage)
        assert (watched.transition, watched.event) == ("exit", event(2, 10))

    asyncio.run(asyncio.wait_for(work(), 60))


def test_an_async_client_sets_and_reads_tracks(fleet: Client, server: Served):
    async def work() -> None:
        space = fleet._named_space()
        async with AsyncClient(server.url, space=space) as client:
            options: Any = {"consumer": "d", "create_consumer": True}
            await client.subscribe("f", "speed > 80", track=Rule(dwell="5 min"), **options)
            await client.publish([event(0, 90), event(10, 90)])
            found: list[Any] = []
            while len(found) < 2:
                page = await client.messages("d", wait=10)
                found += page.items
                await client.acknowledge("d", page.position)
            moved = [(one.transition, one.at.minute) for one in found]
            assert moved == [("enter", 0), ("dwell", 5)]

    asyncio.run(asyncio.wait_for(work(), 60))


def test_time_passes_by_the_clock_of_the_server(server: Served):
    with Client(server.url, space="by-clock") as client:
        client.put_space("by-clock", SPACE, track=TRACK | {"after": "1 s", "clock": "0 s"})
        client.subscribe("fast", "speed > 80", consumer="e", create_consumer=True, track={})
        now = datetime.now(UTC).isoformat()
        client.publish({"truck": "t1", "at": now, "speed": 99})
        found = got(client, "e", 2)
        assert [(one.transition, one.reason) for one in found] == [
            ("enter", "event"),
            ("exit", "silent"),
        ]


def test_a_new_consumer_gets_the_transitions_of_the_past(fleet: Client):
    """As a tracker finds them that has had its subscriptions from the beginning."""
    events = [event(minute, 40 + 37 * minute % 60, f"t{minute % 3}") for minute in range(40)]
    for first in range(0, 40, 8):
        fleet.publish(events[first : first + 8])
    rule = Rule(dwell="5 min")
    fleet.subscribe("fast", "speed > 80", consumer="new", create_consumer=True, track=rule)
    assert not fleet.messages("new").items
    fleet.seek("new", "start", subscriptions="current")
    engine = Engine(SPACE)
    engine.subscribe("fast", "speed > 80")
    wanted = Tracker(engine, key="truck", time="at", rule=rule).update_many(events)
    assert len(wanted) > 10
    found: list[Any] = []
    while page := fleet.messages("new", limit=1).items:
        found += page
        fleet.acknowledge("new", page[-1].position)
    assert {one.id for one in found} == {one.id for one in wanted}
    assert len(found) == len(wanted)
    caused = [one for one in found if one.reason == "event"]
    assert all(one.event in events and one.event["truck"] == one.key for one in caused)
    fleet.publish(event(50, 99, "t9"))
    assert names(got(fleet, "new", 1)) == [("t9", "enter", "fast", 50)]


def test_ids_do_not_depend_on_the_subscriptions_of_other_consumers(fleet: Client):
    """They come and go while an object moves from one to another, at the same moment."""
    for consumer in ("mine", "theirs"):
        fleet.put_consumer(consumer)
    rule, middle = Rule(dwell="2 min"), "speed between 50 and 80"
    fleet.subscribe("b1", "speed < 60", consumer="theirs", track={})
    fleet.subscribe("a1", "speed between 55 and 70", consumer="mine", track=rule)
    fleet.subscribe("a2", "speed > 75", consumer="mine", track={})
    fleet.replace("a1", middle, consumer="mine", track=rule)
    events = [
        [event(minute, 40 + 37 * minute % 60, f"t{truck}") for truck in range(3)]
        for minute in range(30)
    ]
    for minute, rows in enumerate(events):
        fleet.publish(rows)
        if minute % 10 == 5:
            fleet.unsubscribe("b1")
            fleet.subscribe("b1", f"speed < {60 + minute}", consumer="theirs", track={})
    engine = Engine(SPACE)
    engine.subscribe("a1", middle)
    engine.subscribe("a2", "speed > 75")
    alone = Tracker(engine, key="truck", time="at", rules={"a1": rule})
    wanted = [one for rows in events for one in alone.update_many(rows)]
    live = got(fleet, "mine", len(wanted))
    assert sorted(one.id for one in live) == sorted(one.id for one in wanted)
    assert len({one.id for one in live}) == len(live) > 60
    fleet.seek("mine", "start", subscriptions="current")
    again = got(fleet, "mine", len(wanted))
    assert [one.id for one in again] == [one.id for one in live]
    assert names(again) == names(live)


@pytest.mark.parametrize(
    ("track", "said"),
    [
        ({"key": "truck"}, "requires the name of a column as time"),
        ({"key": "truck", "time": "speed"}, "'speed' is a number"),
        ({"key": "truck", "time": "when"}, "'when' isn't there: known: 'at'"),
        ({"key": 7, "time": "at"}, "requires the name of a column as key; given: 7"),
        (TRACK | {"lateness": "soon"}, "lateness must be a length of time"),
        (TRACK | {"colour": 1}, "has no 'colour'"),
    ],
)
def test_a_bad_track_of_a_space_is_rejected(server: Served, track: Any, said: str):
    with Client(server.url) as client:
        with pytest.raises(RangecastError, match=said):
            client.put_space("never", SPACE, track=track)
        assert "never" not in client.spaces()


@pytest.mark.parametrize(
    ("track", "said"),
    [
        ({"dwel": "10 min"}, "has no 'dwel'.*did you mean"),
        ({"dwell": 10}, "dwell must be a length of time"),
        ({"on": ["leave"]}, "on must be a list of"),
        ({"until": "price > 3"}, "price"),
        ({"margin": {"at": 1}}, "margin"),
        ([], "track must be an object|valid dictionary"),
    ],
)
def test_a_bad_rule_is_rejected(fleet: Client, server: Served, track: Any, said: str):
    path = f"{server.url}/v1/spaces/{fleet._named_space()}/subscriptions/s"
    body = {"filter": "speed > 1", "consumer": "x", "track": track}
    answer = httpx.put(path, json=body, params={"create_consumer": True}, trust_env=False)
    assert answer.status_code == 422
    assert re.search(said, answer.json()["detail"], re.S), answer.json()
    assert len(fleet) == 0


def test_a_track_needs_a_key_and_a_consumer(fleet: Client, server: Served):
    with pytest.raises(ServerError, match="has a track, but no consumer"):
        fleet.subscribe("s", "speed > 1", track={})
    with Client(server.url, space="plain") as client:
        client.put_space("plain", SPACE)
        with pytest.raises(ServerError, match="doesn't track objects"):
            client.subscribe("s", "speed > 1", consumer="y", create_consumer=True, track={})
        with pytest.raises(RangecastError):
            client.publish({"truck": "t1", "speed": 1})  # not an attribute of this space
    with pytest.raises(ServerError, match="are already tracked with other options"):
        fleet.put_space(fleet._named_space(), SPACE, track=TRACK | {"key": "van"})
    fleet.put_space(fleet._named_space(), SPACE)


def test_events_without_a_usable_key_lose_nothing(fleet: Client, server: Served):
    fleet.subscribe("fast", "speed > 80", consumer="f", create_consumer=True, track={})
    fleet.subscribe("all", "speed > 0", consumer="g", create_consumer=True)
    bad: list[Any] = []
    good = event(3, 99)
    given = [event(1, 99, 1.5), event(1, 99, True), event(2, 99, None), good, event(1, 99, ["t"])]
    given += [{"at": good["at"], "speed": 5}, {"truck": "t9", "speed": 99}]
    done = fleet.publish(given, rejected=bad)
    assert [one.row for one in bad] == [0, 1, 4]
    assert "'truck' must identify an object: a 64-bit integer or a string" in bad[0].reason
    assert done.accepted == 4
    path = f"{server.url}/v1/spaces/{fleet._named_space()}/events"
    answer = httpx.post(path, content=b'{"truck": NaN, "speed": 1}', trust_env=False)
    assert "not JSON" in answer.text
    with pytest.raises(RangecastError, match="lorry"):
        fleet.publish(event(4, 1) | {"lorry": 1})
    assert names(got(fleet, "f", 1)) == [("t1", "enter", "fast", 3)]
    assert len(fleet.messages("g").items) == 4
    shown = httpx.get(path.removesuffix("/events"), trust_env=False).json()
    assert shown["track"] == TRACK
    assert shown["tracked"]["incomplete"] == 3


def test_a_policy_of_a_consumer_over_http_and_in_the_shell(fleet: Client, server: Served, cli):
    policy = Policy(throttle=(3, "1 h"), digest=Digest(count=3))
    put = fleet.put_consumer("ops", policy=policy, max_per_event=7)
    assert put["policy"] == policy.definition() == fleet.consumer("ops")["policy"]
    for name, text in (("fast", "speed > 80"), ("slow", "speed < 20")):
        fleet.subscribe(name, text, consumer="ops", track=Rule())
    fleet.publish([event(0, 90), event(1, 50), event(2, 10), event(3, 50)])
    (digest,) = got(fleet, "ops", 1)
    assert isinstance(digest, DigestMessage)
    assert (digest.subscriptions, digest.window) == (["fast", "slow"], "1")
    told = [(one.subscriptions, one.transition) for one in digest.transitions]
    assert told == [(["fast"], "enter"), (["fast"], "exit"), (["slow"], "enter")]
    args = ["consumers", "ops", "--server", server.url]
    cli(*args, "--renotify", "2 h", "--throttle", "2 per 1 h")
    shown = fleet.consumer("ops")
    assert shown["policy"] == {"renotify": "2 h", "throttle": [2, "1 h"]}
    assert shown["max_per_event"] == 7
    cli(*args, "--no-policy")
    assert "policy" not in fleet.consumer("ops")
    for wrong in (["--delete", "--no-policy"], ["--throttle", "often"]):
        cli(*args, *wrong, code=2)

    async def put_again() -> Any:
        async with AsyncClient(server.url, space=fleet._named_space()) as client:
            return await client.put_consumer("ops", policy=policy)

    assert asyncio.run(put_again())["policy"] == policy.definition()


def test_a_policy_of_a_consumer_that_cannot_be_is_rejected(fleet: Client, server: Served):
    with pytest.raises(RangecastError, match="policy has no 'often'"):
        fleet.put_consumer("p", policy={"often": 1})
    with Client(server.url, space="untracked") as client:
        client.put_space("untracked", SPACE)
        with pytest.raises(ServerError, match="doesn't track objects"):
            client.put_consumer("p", policy=Policy(renotify="1 h"))
    with pytest.raises(RangecastError, match="'policy' is only for consumers of a space"):
        fleet.put_consumer("p", board="none", policy={})
