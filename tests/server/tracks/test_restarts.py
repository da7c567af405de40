"""Kills of a server, a follower that takes over, and linked servers: the same transitions."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from rangecast import Number, Space, Timestamp
from rangecast.client import Client
from rangecast.server.log_tools import dumped
from rangecast.server.verify.deliveries import verify_deliveries
from tests.server.links.test_manager import serving, until
from tests.soak.server_kills import Hunt
from tests.support.server.served import Served
from tests.support.server.server_zygote import POINTS
from tests.support.server.tracks import (
    DEFINITION,
    NOWHERE,
    EagerOracle,
    early,
    event_of,
    row_of_json,
    rule_track,
    track_of,
)
from tests.support.track_model import History, Row, Step, by_key, history_of, text

SPACE = Space([Timestamp("at"), Number("speed")])
TRACK = {"key": "truck", "time": "at"}


def event(minute: int, speed: float, truck: str = "t1") -> dict[str, Any]:
    return {"truck": truck, "at": f"2026-01-31T09:{minute:02}:00Z", "speed": speed}


def over_http(seed: int) -> History:
    """Return a history without advances; late events of both objects end it."""
    history = history_of(seed)
    left_out = ("advance", "save", "flush")
    steps = [step for step in history.steps if step.do not in left_out]
    steps += [Step("event", ("a", 900, 5, 901, 0)), Step("event", ("b", 901, 5, 902, 0))]
    history.steps = [*steps, Step("event", ("c", 950, 5, 903, 0))]
    return history


def rows(folder: Path, space: str) -> list[Row]:
    """Return the transitions of a space in a log, and have them verified."""
    found = [json.loads(line) for line in dumped(folder, 0)]
    mine = [one for one in found if one.get("space") == space and "transition" in one]
    events = {one["seq"]: one["event"] for one in found if "event" in one}
    said = []
    for one in mine:
        caused = {"event": events.get(one["transition"].get("seq")), "subscriptions": []}
        said.append(one["transition"] | caused | {"position": f"e:{one['seq']}"})
    delivered = folder / f"{space}.jsonl"
    delivered.write_text("".join(json.dumps(one) + "\n" for one in said))
    report = verify_deliveries(folder, "default", space, delivered)
    assert report.holds, report.samples
    return [row_of_json(one) for one in said]


class Killed:
    """Sends a history to a server that is killed again and again; each request takes effect
    once.
    """

    def __init__(self, folder: Path, kills: int):
        self.hunt = Hunt(folder, seed=3)
        self.left = kills
        self.http = httpx.Client(trust_env=False, timeout=30)
        self._start()

    def _start(self) -> None:
        point = ""
        if self.left:
            self.left -= 1
            point = self.hunt.dice.choice(POINTS[:4])
        self.hunt.start(point)
        while not self.hunt.is_alive():
            self.hunt.start(self.hunt.dice.choice(POINTS[:4]) if self.left else "")

    def send(self, method: str, path: str, **body: Any) -> httpx.Response:
        while True:
            try:
                answer = self.http.request(method, self.hunt.url + path, **body)
            except httpx.TransportError:
                self._start()
                continue
            if answer.status_code in (200, 404):
                return answer
            assert answer.status_code == 503, answer.text
            if not self.hunt.is_alive():
                self._start()

    def take(self, history: History, step: Step, space: str) -> None:
        base = f"/v1/spaces/{space}"
        if step.do == "event":
            key = {"Idempotency-Key": f"{space}-{step.given[3]}-{step.given[1]}"}
            self.send("POST", f"{base}/events", content=event_of(history, step), headers=key)
            return
        path = f"{base}/subscriptions/{step.given[0]}"
        if step.do == "unsubscribe":
            self.send("DELETE", path)
            return
        track = rule_track(history.rules.get(step.given[0], history.rule))
        body = {"filter": text(step.given[1]), "consumer": space, "track": track}
        self.send("PUT", path, json=body)

    def end(self, spaces: int) -> None:
        """Wait until all is in the log, and stop."""
        for number in range(spaces):
            path = f"/v1/spaces/s{number}"
            while self.send("GET", path).json()["tracked"]["pending"]:
                time.sleep(0.02)
        self.http.close()
        self.hunt.kill()
        self.hunt._end_zygote()


@pytest.mark.process
def test_kills_change_no_transition(tmp_path: Path) -> None:
    seeds = [8, 21, 34]
    killed = Killed(tmp_path, kills=7)
    histories = [over_http(seed) for seed in seeds]
    for number, history in enumerate(histories):
        definition = DEFINITION | {"track": track_of(history)}
        killed.send("PUT", f"/v1/spaces/s{number}", json=definition)
        killed.send("PUT", f"/v1/consumers/s{number}", json={"space": f"s{number}"})
        none = {"filter": NOWHERE, "consumer": f"s{number}", "track": early(history)}
        killed.send("PUT", f"/v1/spaces/s{number}/subscriptions/none", json=none)
    for number, history in enumerate(histories):
        for step in history.steps:
            killed.take(history, step, f"s{number}")
    killed.end(len(seeds))
    assert killed.left <= 3
    for number, history in enumerate(histories):
        expected = by_key([row._replace(number=0) for row in EagerOracle(history).run()])
        assert by_key(rows(tmp_path, f"s{number}")) == expected, f"seed {seeds[number]}"


def test_a_follower_takes_over_with_the_same_tracks(tmp_path: Path) -> None:
    first = Served(data=tmp_path / "first", spaces={})
    options: Any = {"data": tmp_path / "second", "spaces": {}}
    with Client(first.url, space="fleet") as leader:
        leader.put_space("fleet", SPACE, track=TRACK)
        leader.subscribe("fast", "speed > 80", consumer="c", create_consumer=True, track={})
        leader.publish([event(0, 90), event(0, 90, "t2")])
        second = Served(**options, follow=first.url)
        leader.publish(event(1, 10))
        with Client(second.url, space="fleet") as follower:
            expected = until(lambda: _as_many(leader.messages("c").items, 3))
            found = until(lambda: _as_many(follower.messages("c").items, 3))
        assert [one._asdict() for one in found] == [one._asdict() for one in expected]
    first.stop()
    second.stop()
    assert list(dumped(tmp_path / "second", 0)) == list(dumped(tmp_path / "first", 0))
    second = Served(**options)
    with Client(second.url, space="fleet") as client:
        client.publish(event(2, 10, "t2"))
        found = until(lambda: _as_many(client.messages("c").items, 4))
        assert [(one.key, one.transition) for one in found] == [
            ("t1", "enter"),
            ("t2", "enter"),
            ("t1", "exit"),
            ("t2", "exit"),
        ]
    second.stop()


def _as_many(items: list[Any], count: int) -> list[Any] | None:
    return items if len(items) >= count else None


def test_the_server_of_the_subscriber_sees_objects_leave(tmp_path: Path) -> None:
    spaces, tracks = {"s": SPACE}, {"s": TRACK}
    with (
        serving(tmp_path, "hub", spaces=spaces) as hub,
        serving(tmp_path, "east", hub, spaces=spaces, tracks=tracks) as east,
        Client(east, space="s") as at_east,
        Client(hub, space="s") as at_hub,
    ):
        at_east.subscribe("fast", "speed > 80", consumer="c", create_consumer=True, track={})
        until(lambda: at_east.wait_until_propagated("fast"))
        for one in (event(0, 90), event(1, 20), event(1, 85, "t2")):
            at_hub.publish(one, ignore_unknown=True)
        found = until(lambda: _as_many(at_east.messages("c").items, 3))
        assert {(one.key, one.transition) for one in found} == {
            ("t1", "enter"),
            ("t1", "exit"),
            ("t2", "enter"),
        }
