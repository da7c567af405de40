"""Shapes behind servers: followers, restored logs, tails and errors are those of the engine."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from rangecast import Client, Engine, Location, Number, Space
from rangecast.errors import FilterError
from rangecast.server.log.base import MemoryLog
from rangecast.server.pipeline.futures import result_of
from rangecast.server.state.edits import (
    AnyEdit,
    DeleteSubscription,
    PutConsumer,
    PutSpace,
    PutSubscription,
    edits_draft,
)
from rangecast.server.workers.matcher import Event, Matcher
from tests.server.links.test_manager import until
from tests.soak.link_kills import LONGEST
from tests.support.server.served import Served
from tests.support.server.serving import Client as Service
from tests.support.server.serving import T, run, serving
from tests.support.server.serving import until as eventually
from tests.support.server.webhook import receiver

SPACE = Space([Location("position", longitude="lon", latitude="lat"), Number("speed")])
HOLED = (
    "POLYGON ((13 52, 14 52, 14 53, 13 53, 13 52), (13.2 52.2, 13.8 52.2, 13.5 52.8, 13.2 52.2))"
)
EAST = {
    "holed": f"within(position, '{HOLED}')",
    "circle": "within(position, circle(13.5, 52.5, 25 km)) and speed > 30",
}
WEST = {
    "road": "within(position, buffer('LINESTRING (12.8 51.8, 14.2 53.2)', 4 km))",
    "across": "within(position, 'POLYGON ((179 52, -179 52, -179 53, 179 53, 179 52))')",
    "away": "not within(position, circle(13.5, 52.5, 60 km)) and speed < 10",
}


def positions(count: int, seed: int) -> list[dict[str, Any]]:
    turn = random.Random(seed)
    made = []
    for number in range(count):
        lon = turn.uniform(12.7, 14.3) if number % 5 else turn.choice([-1, 1]) * 179.5
        speed = turn.choice([5.0, 50.0])
        made.append({"id": number, "lon": lon, "lat": turn.uniform(51.7, 53.3), "speed": speed})
    return made


def engine_of(filters: dict[str, str]) -> Engine:
    engine = Engine(SPACE)
    for name, text in filters.items():
        engine.subscribe(name, text)
    return engine


def expected(filters: dict[str, str], events: list[dict[str, Any]]) -> dict[int, list[Any]]:
    """Return the subscriptions of each event that has some, by the engine."""
    engine = engine_of(filters)
    found = {}
    for event in events:
        values = {key: value for key, value in event.items() if key != "id"}
        if matches := engine.match(values):
            found[event["id"]] = sorted(map(str, matches))
    return found


def test_a_follower_and_a_restored_log_match_the_same(tmp_path: Path) -> None:
    filters = EAST | WEST
    events = positions(60, seed=5)
    values = [{key: value for key, value in one.items() if key != "id"} for one in events]
    wanted = [engine_of(filters).match(one) for one in values]
    first = Served(data=tmp_path / "first", spaces={"s": SPACE})
    with Client(first.url, space="s") as client:
        for name, text in filters.items():
            client.subscribe(name, text)
        second = Served(data=tmp_path / "second", spaces={}, follow=first.url)
        with Client(second.url, space="s") as follower:
            last = client.status()["durable_seq"]
            until(lambda: follower.status()["matched_seq"] >= last)
            assert [follower.match(one) for one in values] == wanted
            shapes = "/v1/spaces/s/shapes"
            assert httpx.get(second.url + shapes).json() == httpx.get(first.url + shapes).json()
    second.stop()
    first.stop()
    again = Served(data=tmp_path / "second", spaces={})
    with Client(again.url, space="s") as client:
        assert [client.match(one) for one in values] == wanted
    again.stop()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    served = Served(spaces={"s": SPACE})
    yield served.url
    served.stop()


def test_a_tail_gets_what_lies_in_its_shape(url: str) -> None:
    events = positions(80, seed=6)
    wanted = list(expected({"holed": EAST["holed"]}, events))
    with connect(f"{url.replace('http', 'ws')}/v1/stream", proxy=None) as socket:
        socket.send(json.dumps({"type": "credit", "messages": 300}))
        socket.send(json.dumps({"type": "follow", "space": "s", "filter": EAST["holed"]}))
        while json.loads(socket.recv(LONGEST))["type"] != "attached":
            pass
        with Client(url, space="s") as client:
            client.publish(events)
        got: list[int] = []
        deadline = time.monotonic() + LONGEST
        while len(got) < len(wanted) and time.monotonic() < deadline:
            frame = json.loads(socket.recv(LONGEST))
            if frame["type"] == "match":
                got.append(frame["event"]["id"])
    assert got == wanted


@pytest.mark.parametrize(
    "text",
    [
        "within(position, 'POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))')",
        "within(position, 'POLYGON ((0 0, 1 1, 1 0))')",
        "within(position, 'POLYGON ((0 95, 1 95, 1 96, 0 95))')",
        "within(position, 'POLYGON ((0 0, 1 0, 1 1, 0 0)')",
        "within(position, circle(13, 52, 5))",
        "speed > 3 and within(position, circle(13, 52, 5 parsecs))",
        "within(positoin, circle(13, 52, 5 km))",
        "within(position, 'LINESTRING (0 0, 1 1)')",
        "within(position, circle(13, 99, 5 km))",
        "distance(position, point(1, 2)) < 5",
    ],
)
def test_bad_shapes_give_the_same_error_as_in_python(url: str, text: str) -> None:
    with pytest.raises(FilterError) as raised:
        Engine(SPACE).subscribe("bad", text)
    answer = httpx.put(f"{url}/v1/spaces/s/subscriptions/bad", json={"filter": text})
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["code"] == "filter"
    assert problem["detail"] == str(raised.value)
    assert problem["reason"] == raised.value.reason.partition("\n")[0]
    assert raised.value.span is not None
    assert tuple(problem["span"]) == raised.value.span
    assert problem.get("hint", "") == raised.value.hint
    with Client(url, space="s") as client, pytest.raises(FilterError) as remote:
        client.subscribe("bad", text)
    assert str(raised.value) in str(remote.value)


def test_too_many_corners_are_refused_and_nothing_is_lost(url: str) -> None:
    ring = ", ".join(f"{at * 1e-3} {at % 7}" for at in range(100_001))
    text = f"within(position, 'POLYGON (({ring}, 0 0))')"
    answer = httpx.put(
        f"{url}/v1/spaces/s/subscriptions/large", json={"filter": text}, timeout=LONGEST
    )
    assert answer.status_code in (413, 422)
    assert "at most" in answer.json()["detail"]
    with Client(url, space="s") as client:
        client.subscribe("fine", "within(position, circle(13, 52, 5 km))")
        assert "fine" in client.match({"lon": 13.0, "lat": 52.0})


def test_a_webhook_gets_what_lies_in_its_shapes(tmp_path: Path) -> None:
    filters = EAST | WEST
    events = positions(60, seed=7)
    wanted = expected(filters, events)

    lines = [json.dumps(event).encode() for event in events]

    async def work() -> None:
        async with receiver() as there, serving(tmp_path) as service:
            core = service.core
            await result_of(core.edit(PutSpace(T, "fleet", SPACE.definition())))
            there_url = f"http://127.0.0.1:{there.port}/x"
            out = {"kind": "webhook", "url": there_url, "allow_private": True, "batch": 20}
            await Service(service)("PUT", "consumers/out", {"space": "fleet", "delivery": out})
            puts = [PutSubscription(T, name, "fleet", filters[name], "out") for name in filters]
            await result_of(core.edit(*puts))
            sent = await result_of(core.publish(core.registry.space(T, "fleet"), lines))
            last = sent.first + len(lines) - 1
            await eventually(lambda: core.registry.consumer(T, "out").cursor >= last)
        bodies = [one["data"] for *_, body in there.got for one in json.loads(body)]
        got = {one["event"]["id"]: sorted(one["subscriptions"]) for one in bodies}
        assert got == wanted
        assert len(bodies) == len(wanted)

    run(work)


def test_workers_find_what_the_engine_finds() -> None:
    """The part of a worker that matches, fed with the log's edits and lines of events."""
    filters = EAST | WEST
    log, matcher = MemoryLog(), Matcher("here", T, "s", "in")
    matcher.begin(None, log.epoch, 1)
    edits: list[AnyEdit] = [PutSpace(T, "s", SPACE.definition()), PutConsumer(T, "one", "s")]
    edits += [PutSubscription(T, name, "s", text, "one") for name, text in filters.items()]
    for number, edit in enumerate([edits, [DeleteSubscription(T, "road", "s")]]):
        if number:
            del filters["road"]
        matcher.take(log.append([edits_draft(edit, 0)]))
        events = positions(80, seed=8 + number)
        lines = [json.dumps(event).encode() for event in events]
        answer = matcher.match([Event(3, at, line) for at, line in enumerate(lines)])
        assert not answer.rejected
        got = {
            one.event.offset: sorted(json.loads(one.body)["data"]["subscriptions"])
            for one in answer.matches
        }
        assert got == expected(filters, events)
