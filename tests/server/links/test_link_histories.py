"""Links of servers whose logs were restored, promoted, cut or doubled: nothing is confirmed that
didn't arrive, and what can't arrive is told.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from rangecast import Client
from rangecast.overlay.wire.frames import Events as EventsFrame
from rangecast.overlay.wire.frames import Heartbeat, Hello, Snapshot, decode, encode
from rangecast.server.links import journal as journal_module
from rangecast.server.links import manager as links_module
from rangecast.server.log import sqlite
from rangecast.server.log_tools import dumped
from rangecast.server.maintenance import Retention
from rangecast.server.state import lineage as lineage_module
from tests.server.links.test_manager import (
    HTTP,
    LONGEST,
    links_up,
    neighbour,
    rejected,
    serving,
    status,
    told,
    until,
)
from tests.server.replication.test_follower import wait_for
from tests.support.server.served import Served


def prepare(url: str) -> None:
    """Let a server have a consumer that gets everything, known at all others."""
    with Client(url, space="s") as client:
        client.put_consumer("c")
        client.subscribe("all", "x >= 0", consumer="c")
        until(lambda: client.wait_until_propagated("all"))


def publish(url: str, *ids: int) -> None:
    with Client(url, space="s") as client:
        client.publish([{"id": one, "x": 1} for one in ids])


def got(url: str) -> list[Any]:
    """Return all that the consumer of a server has: ids, and reasons of gaps."""
    with Client(url, space="s") as client:
        found: list[Any] = []
        client.seek("c", "start")
        while True:
            page = client.messages("c", limit=1000)
            found += [page.gap["reason"]] if page.gap else []
            found += [one.event["id"] for one in page.items]
            if not page.items and not page.gap:
                return found
            client.acknowledge("c", page.position)


def ids(url: str) -> list[int]:
    return [one for one in got(url) if isinstance(one, int)]


def alarms(url: str) -> str:
    return "\n".join(status(url)["alarms"])


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_what_a_restored_server_accepts_arrives_at_its_neighbours(
    tmp_path: Path, is_cut_off: bool
) -> None:
    with serving(tmp_path, "hub") as hub:
        with serving(tmp_path, "east", hub) as east:
            prepare(hub)
            publish(east, *range(10))
            until(lambda: ids(hub) == [*range(10)])
        shutil.copytree(tmp_path / "east", tmp_path / "copy")
        with serving(tmp_path, "east", hub) as east:
            publish(east, *range(10, 40))
            until(lambda: ids(hub) == [*range(40)])
        shutil.rmtree(tmp_path / "east")
        (tmp_path / "copy").rename(tmp_path / "east")
        new = [*range(100, 160)]  # more than were lost: their seqs are given twice
        if is_cut_off:  # its neighbour sees it again when the numbers that were lost are past
            with serving(tmp_path, "east") as alone:
                publish(alone, *new[:40])
        with serving(tmp_path, "east", hub) as east:
            publish(east, *new[40 if is_cut_off else 0 :])
            until(lambda: ids(hub) == [*range(40), *new])
            assert "older copy" in alarms(east)
            assert got(hub).count("link") == 1  # said once, as it can't be known
            until(lambda: all(one["lag"] == 0 for one in status(east)["links"]))
            assert "older copy" not in alarms(hub)
            prepare(east)  # and the other way
            publish(hub, 200)
            until(lambda: ids(east)[-1] == 200)


def test_what_a_promoted_follower_accepts_arrives_at_its_neighbours(tmp_path: Path) -> None:
    with serving(tmp_path, "hub") as hub:
        with serving(tmp_path, "east", hub) as east:
            prepare(hub)
            publish(east, *range(10))
            follower = Served(data=tmp_path / "copy" / "east", spaces={}, follow=east)
            with Client(follower.url) as client:
                wait_for(client, status(east)["durable_seq"])
            follower.stop()
            publish(east, *range(10, 30))  # the follower lacks these
            until(lambda: ids(hub) == [*range(30)])
        with serving(tmp_path / "copy", "east", hub) as promoted:
            publish(promoted, *range(100, 130))
            until(lambda: ids(hub) == [*range(30), *range(100, 130)])
            assert links_up(hub) == ["east"]
            # The old one comes back: another server has its place.
            with serving(tmp_path, "east", hub) as old:
                assert "a server with another log is linked here as 'east'" in rejected(old)
                assert "a second link of east was rejected" in alarms(hub)
            publish(promoted, 131)
            until(lambda: ids(hub)[-1] == 131)


def test_a_clock_that_went_back_loses_nothing_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path, "hub") as hub:
        with serving(tmp_path, "east", hub) as east:
            prepare(hub)
            publish(east, 0)
            until(lambda: ids(hub) == [0])
        shutil.copytree(tmp_path / "east", tmp_path / "copy")
        with monkeypatch.context() as later:
            ahead = time.time_ns() + 10**15
            for module in (lineage_module, links_module):
                later.setattr(module, "time", _Clock(ahead))
            with serving(tmp_path, "east", hub) as east:
                publish(east, *range(1, 30))
                until(lambda: ids(hub) == [*range(30)])
        shutil.rmtree(tmp_path / "east")
        (tmp_path / "copy").rename(tmp_path / "east")
        with serving(tmp_path, "east") as east:  # cut off: it gives lower numbers than before
            publish(east, *range(100, 110))
        with serving(tmp_path, "east", hub) as east:
            until(lambda: links_up(hub) == ["east"] and links_up(east) == ["hub"])
            assert "its clock was set back" in alarms(hub)
            publish(east, *range(110, 120))
            until(lambda: ids(hub)[-10:] == [*range(110, 120)])
            assert got(hub) == [*range(30), "link", *range(110, 120)]
            prepare(east)
            publish(hub, 200)
            until(lambda: ids(east)[-1] == 200)


class _Clock:
    """The module `time`, at another time."""

    def __init__(self, now: int):
        self._ahead = now - time.time_ns()

    def time_ns(self) -> int:
        return time.time_ns() + self._ahead

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def test_a_second_server_under_a_name_is_rejected_while_the_first_is_known(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with serving(tmp_path, "hub") as hub:
        with serving(tmp_path, "east", hub) as east:
            prepare(east)
            with serving(other, "east", hub) as second:
                assert "a server with another log is linked here as 'east'" in rejected(second)
                publish(hub, *range(10))
                until(lambda: ids(east) == [*range(10)])
                assert status(second)["events"] == 0
                assert status(hub)["counts"]["names that are taken"] >= 1
        with serving(other, "east", hub) as second:  # also while the first is away
            until(lambda: "known under this name" in alarms(hub))
            until(lambda: "known under this name" in alarms(second))
            assert "delete the link to east" in rejected(second)
            (link,) = status(hub)["links"]
            assert "known under this name" in link["rejected"]
            assert "rangecast_link_rejections_total" in HTTP.get(f"{hub}/metrics").text
        publish(hub, 10)
        with serving(tmp_path, "east", hub) as east:
            until(lambda: ids(east) == [*range(11)])
        HTTP.delete(f"{hub}/v1/consumers/link-east").raise_for_status()
        with serving(other, "east", hub) as second:  # it is gone for good: an operator says so
            prepare(second)
            publish(hub, 11)
            until(lambda: ids(second) == [11])


def test_a_cycle_that_was_accepted_for_a_moment_blocks_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, "hub") as hub, serving(tmp_path, "east", hub):
        until(lambda: links_up(hub) == ["east"])
        hello = _hello_to(hub, "north")
        with neighbour(hub, "north") as socket:
            socket.send(encode(hello))
            until(lambda: "north" in links_up(hub))
            again = Hello(**_fields(hello) | {"reach": ["north", "east"]})
            socket.send(encode(again))  # it has found another way meanwhile
            assert "can already be reached without it" in told(socket)
        assert [one["broker"] for one in status(hub)["links"]] == ["east"]
        until(lambda: "link-north" not in HTTP.get(f"{hub}/v1/consumers").text)
        prepare(hub)
        # One that was in use stays, as something may wait for it; no question does.
        with neighbour(hub, "north") as socket:
            socket.send(encode(hello))
            _want_all(socket)
            until(lambda: [one["wants"] for one in status(hub)["links"]][1:] == [1])
            socket.send(encode(again))
            assert "can already be reached without it" in told(socket)
        link = status(hub)["links"][1]
        assert "at both ends" in link["rejected"]
        with Client(hub, space="s") as client:
            client.subscribe("more", "x >= 7", consumer="c")
            until(lambda: client.wait_until_propagated("more"))


def _hello_to(url: str, name: str) -> Hello:
    """Return a Hello that a server accepts."""
    with neighbour(url, "asks") as socket:
        socket.send(encode(Hello(broker="asks", incarnation=1, space="")))
        found = decode(bytes(socket.recv(LONGEST)))
        assert isinstance(found, Hello)
    return Hello(
        broker=name, incarnation=1, space=found.space, log="its", epochs=["e"], reach=[name]
    )


def _fields(hello: Hello) -> dict[str, Any]:
    return {name: getattr(hello, name) for name in hello.__struct_fields__}


def _want_all(socket: Any, incarnation: int = 1) -> None:
    from rangecast.overlay.interest.items import EVERYTHING

    digest, items = EVERYTHING.name, [EVERYTHING]
    frame = Snapshot(incarnation=incarnation, version=1, digest=digest, items=items)
    socket.send(encode(Heartbeat(incarnation=incarnation, version=1, digest=digest)))
    socket.send(encode(frame))


def test_a_hole_cut_by_retention_is_told_behind_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_RECENT", 1_000)
    monkeypatch.setitem(sqlite.SqliteLog.__init__.__kwdefaults__, "segment", 200)
    with serving(tmp_path, "hub", retention=Retention(bytes=40_000)) as hub:
        with serving(tmp_path, "far", hub), serving(tmp_path, "east", hub) as east:
            until(lambda: len(links_up(hub)) == 2)
            prepare(east)
            publish(hub, 0)
            until(lambda: ids(east) == [0])
        first = status(hub)["first_seq"]
        with Client(hub, space="s") as client:  # east is away
            for number in range(1, 40):
                client.publish([{"id": number, "x": 1, "who": "w" * 200}])
        until(lambda: status(hub)["first_seq"] > first + 10)
        with (
            serving(tmp_path, "far", hub),
            serving(tmp_path, "east", hub) as east,
            Client(east, space="s") as client,
        ):
            found = until(lambda: 39 in (seen := got(east)) and seen)
            kept = [one for one in found if isinstance(one, int)]
            assert kept[0] == 0
            assert kept[1:] == [*range(kept[1], 40)]
            assert kept[1] > 5
            assert found[:2] == [0, "link"]
            assert found.count("link") == 1
            client.seek("c", "now")
            with listening(east) as following:  # also while it listens
                frame = EventsFrame(
                    origin="hub",
                    after=0,
                    upto=1,
                    numbers=[1],
                    ids=[],
                    points=b"",
                    texts=[b'{"id": 1000, "x": 1}'],
                )
                hello = _hello_to(east, "south")
                lost = EventsFrame(**_all(frame) | {"origin": "south", "lost": True})
                with neighbour(east, "south") as socket:
                    socket.send(encode(hello))
                    socket.send(encode(lost))
                    assert following() == "link"
                    assert following() == 1000


def _all(frame: Any) -> dict[str, Any]:
    return {name: getattr(frame, name) for name in frame.__struct_fields__}


@contextmanager
def listening(url: str) -> Iterator[Callable[[], Any]]:
    """Listen to the consumer `c` over a WebSocket; what is yielded returns what comes next."""
    with connect(f"{url.replace('http', 'ws')}/v1/stream", proxy=None) as socket:
        socket.send(json.dumps({"type": "attach", "consumer": "c"}))
        assert json.loads(socket.recv(LONGEST))["type"] == "attached"

        def following() -> Any:
            while True:
                frame = json.loads(socket.recv(LONGEST))
                if "gap" in frame:
                    return frame["gap"]["reason"]
                if "event" in frame:
                    return frame["event"]["id"]

        yield following


def test_names_with_odd_characters_never_get_into_the_log(tmp_path: Path) -> None:
    with serving(tmp_path, "hub") as hub:
        hello = _hello_to(hub, "north")
        for origin in ("a\0b", "a\nb", "\x85"):
            frame = EventsFrame(
                origin=origin, after=0, upto=1, numbers=[1], ids=[], points=b"", texts=[b"{}"]
            )
            with neighbour(hub, "north") as socket:
                socket.send(encode(hello))
                socket.send(encode(frame))
                assert "not a frame" in told(socket)
    assert not any("event" in json.loads(one) for one in dumped(tmp_path / "hub", 0))
