"""Epochs of a log: positions are valid as far as histories are one, and never taken for others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from rangecast import Client
from rangecast.server.delivery.messages import PositionError
from rangecast.server.state.edits import BeginEpoch
from rangecast.server.state.lineage import Lineage, LostPositionError
from rangecast.server.state.registry import MAX_EPOCHS, Registry
from tests.server.replication.test_follower import wait_for
from tests.support.server.served import Served

LONGEST = 90.0
SPACE = {"attribute": [{"name": "price", "type": "number"}]}


def lineage_of(*begun: tuple[str, int, int]) -> Lineage:
    """Return the epochs `root` and these: name, first seq, first number."""
    registry, before = Registry(), "root"
    for name, first, number in begun:
        [*registry.apply([BeginEpoch("", name, before, number, "")], first)]
        before = name
    return Lineage("root", registry)


def test_a_position_is_valid_up_to_where_its_epoch_ends() -> None:
    lineage = lineage_of(("one", 11, 1000), ("two", 21, 2000))
    assert [lineage.at(seq) for seq in (1, 10, 11, 20, 21)] == ["root"] * 2 + ["one"] * 2 + ["two"]
    assert lineage.names == ["two", "one", "root"]
    for text, seq in (("root:0", 0), ("root:10", 10), ("one:3", 3), ("one:20", 20), ("two:25", 25)):
        assert lineage.seq_of(text, 25) == seq
    for text, resume in (("root:11", 10), ("one:21", 20), ("one:999", 20)):
        with pytest.raises(LostPositionError, match="another history") as lost:
            lineage.seq_of(text, 25)
        assert lost.value.resume == resume
    with pytest.raises(LostPositionError, match="isn't known") as unknown:
        lineage.seq_of("other:5", 25, 3)
    assert (unknown.value.resume, unknown.value.upto) == (None, "two:2")
    with pytest.raises(PositionError, match="after the end of the log"):
        lineage.seq_of("two:26", 25)
    lineage.ended = "two"  # the next start has written nothing yet
    with pytest.raises(LostPositionError) as lost:
        lineage.seq_of("two:26", 25)
    assert lost.value.resume == 25
    for text in ("", "two", "two:", "two:x", "two:-1", "two:" + "1" * 19, "two:\u0663"):
        with pytest.raises(PositionError, match="a position must be a string"):
            lineage.seq_of(text, 25)


def test_numbers_for_other_servers_grow_from_epoch_to_epoch() -> None:
    lineage = lineage_of(("one", 11, 1000), ("two", 21, 2000))
    for seq, number in ((1, 1), (10, 10), (11, 1000), (20, 1009), (21, 2000), (99, 2078)):
        assert lineage.number_of(seq) == number
        assert lineage.seq_of_number(number) == seq
    for lost in (11, 999, 1010, 1999):  # given by a log that went on where this one ended
        assert lineage.seq_of_number(lost) is None
    high = 1 << 61
    assert lineage.next(99, b"", above=high).number == high + 1
    assert lineage.next(99, b"").number > 10**16  # the time


def test_epochs_are_forgotten_with_the_log_and_bounded() -> None:
    registry = Registry()
    for place in range(MAX_EPOCHS + 5):
        [*registry.apply([BeginEpoch("", f"e{place}", "x", place * 10, "")], place + 2)]
    assert len(registry.epochs) == MAX_EPOCHS
    registry.forget(MAX_EPOCHS)
    assert [one.first for one in registry.epochs][:2] == [MAX_EPOCHS - 1, MAX_EPOCHS]
    registry.forget(10 * MAX_EPOCHS)
    assert len(registry.epochs) == 1


class Server:
    """A server with one consumer, `c`, that gets everything; it is read in all ways."""

    def __init__(self, data: Path, **options: Any):
        self._served = Served(data=data, spaces={}, **options)
        self.url = self._served.url
        self.http = httpx.Client(base_url=self.url, timeout=LONGEST, trust_env=False)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self._served.stop()

    def prepare(self) -> None:
        for path, body in (
            ("spaces/s", SPACE),
            ("consumers/c", {"space": "s"}),
            ("spaces/s/subscriptions/all", {"filter": "price >= 0", "consumer": "c"}),
        ):
            self.http.put(f"/v1/{path}", json=body).raise_for_status()

    def publish(self, *prices: int) -> str:
        """Publish events; return the position of the last."""
        lines = "\n".join(json.dumps({"price": one}) for one in prices)
        answer = self.http.post("/v1/spaces/s/events", content=lines).raise_for_status()
        last: str = answer.json()["last"]
        return last

    def page(self) -> tuple[list[int], Any]:
        page = self.http.get("/v1/consumers/c/messages", params={"limit": 1000, "wait": 1}).json()
        return [one["event"]["price"] for one in page["items"]], page

    def streamed(self, position: str, count: int) -> list[Any]:
        """Return what server-sent events have after a position: gaps and prices."""
        found: list[Any] = []
        headers = {"Last-Event-ID": position}
        with self.http.stream("GET", "/v1/consumers/c/stream", headers=headers) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    found.append(told(json.loads(line[6:])))
                if len(found) == count:
                    return found
        raise AssertionError(found)

    def attached(self, position: str, count: int) -> list[Any]:
        """Return what a WebSocket has after a position."""
        found: list[Any] = []
        address = f"{self.url.replace('http', 'ws')}/v1/stream"
        with connect(address, proxy=None) as socket:
            socket.send(json.dumps({"type": "attach", "consumer": "c", "position": position}))
            assert json.loads(socket.recv(LONGEST))["type"] == "attached"
            while len(found) < count:
                frame = json.loads(socket.recv(LONGEST))
                if frame["type"] in ("gap", "match"):
                    found.append(told(frame))
        return found


def told(frame: dict[str, Any]) -> Any:
    return frame["gap"] if "gap" in frame else frame["event"]["price"]


def check_lost(server: Server, position: str, prices: list[int]) -> None:
    """A position of the lost history is a gap, in whatever way it is given; then come these."""
    for found in (
        server.streamed(position, 1 + len(prices)),
        server.attached(position, 1 + len(prices)),
    ):
        assert (found[0]["after"], found[0]["reason"]) == (position, "history")
        assert found[1:] == prices
    before = server.page()
    for path in ("ack", "seek"):
        answer = server.http.post(f"/v1/consumers/c/{path}", json={"position": position})
        assert (answer.status_code, answer.json()["gap"]["reason"]) == (409, "history")
        assert "another history" in answer.json()["detail"]
    assert server.http.get("/v1/spaces/s/events", params={"after": position}).status_code == 409
    assert server.page()[0] == before[0]


@pytest.fixture
def lost_tail(tmp_path: Path) -> tuple[Path, str, str]:
    """A folder as it was some events ago; a position of then, and one of what it lacks."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    with Server(data) as server:
        server.prepare()
        kept = server.publish(*range(10))
    shutil.copytree(data, copy)
    with Server(data) as server:
        lost = server.publish(*range(10, 20))
    return copy, kept, lost


def test_a_restored_server_tells_clients_of_the_lost_history(
    lost_tail: tuple[Path, str, str],
) -> None:
    copy, kept, lost = lost_tail
    with Server(copy) as server:
        server.publish(*range(100, 130))  # more than were lost: their seqs are given twice
        new = list(range(100, 130))
        # The epoch of the lost events began after the copy was made: where the consumer stands,
        # which is at the start, is all that is known.
        check_lost(server, lost, [*range(10), *new])
        assert server.streamed(kept, 30) == server.attached(kept, 30) == new
        assert server.page()[0] == [*range(10), *new]
        assert server.http.post("/v1/consumers/c/ack", json={"position": kept}).status_code == 200
        assert server.page()[0] == new


def test_a_promoted_follower_tells_clients_of_the_lost_history(tmp_path: Path) -> None:
    leader = Server(tmp_path / "leader")
    with leader:
        leader.prepare()
        kept = leader.publish(*range(10))
        with (
            Server(tmp_path / "copy", follow=leader.url) as follower,
            Client(follower.url) as client,
        ):
            wait_for(client, int(kept.partition(":")[2]))
            assert follower.page() == leader.page()
        lost = leader.publish(*range(10, 30))  # the follower is away
    with Server(tmp_path / "copy") as promoted:
        check_lost(promoted, lost, [])
        new = list(range(100, 130))
        promoted.publish(*new)
        check_lost(promoted, lost, new)
        assert promoted.streamed(kept, 30) == new
        items = promoted.page()[1]["items"]
        assert items[9]["position"] == kept  # a message keeps its position
        last = items[-1]["position"]
    with Server(tmp_path / "copy") as promoted:  # and again
        promoted.publish(200)
        assert promoted.streamed(last, 1) == [200]
        check_lost(promoted, lost, [*new, 200])
        status = promoted.http.get("/v1/status").json()
        assert status["log"] == kept.partition(":")[0]
        assert status["epoch"] not in (status["log"], last.partition(":")[0])


def test_a_start_that_writes_nothing_begins_no_epoch(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        server.prepare()
        last = server.publish(1)
    for _ in range(2):
        with Server(tmp_path) as server:
            assert server.http.get("/v1/status").json()["durable_seq"] == int(
                last.partition(":")[2]
            )
            assert server.streamed(f"{last.partition(':')[0]}:0", 1) == [1]
