"""Errors of one frame, block or neighbour of a link: they end that link, never the server."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from rangecast import Client
from rangecast.overlay.broker.broker import Broker
from rangecast.overlay.broker.event_log import JournalError
from rangecast.overlay.wire.frames import Events as EventsFrame
from rangecast.overlay.wire.frames import Hello, encode
from rangecast.server.links import connection as wire_module
from rangecast.server.links import manager as links_module
from rangecast.server.links.broker_runner import BrokerRunner
from rangecast.server.links.connection import LinkConnection
from rangecast.server.links.journal import ServerJournal
from rangecast.server.log.base import MemoryLog
from rangecast.server.state.edits import EventsHead, events_draft
from rangecast.server.state.entries import SpaceEntry
from rangecast.server.state.lineage import Lineage
from rangecast.server.state.registry import Registry
from tests.server.links.test_manager import (
    HTTP,
    SPACE,
    greeted,
    links_up,
    neighbour,
    serving,
    status,
    told,
    until,
)
from tests.support.server.serving import run


def test_a_frame_that_can_t_be_decoded_ends_its_link_alone(tmp_path: Path) -> None:
    with serving(tmp_path, "hub") as hub, serving(tmp_path, "east", hub) as east:
        until(lambda: links_up(hub) == ["east"])
        with neighbour(hub) as socket:
            digest = greeted(socket).space
            told(socket)
        hello = Hello(broker="stranger", incarnation=2, space=digest)
        for text in (
            b'{"x": 1, "id": ' + b"[" * 3000 + b"]" * 3000 + b"}",
            b"[" * 100_000,
            b'{"who": "\xff"}',
            b'{"x": 1e999}',
        ):
            frame = EventsFrame(
                origin="far/1", after=0, upto=1, numbers=[1], ids=[], points=b"", texts=[text]
            )
            with neighbour(hub) as socket:
                socket.send(encode(hello))
                socket.send(encode(frame))
                assert "a frame was rejected" in told(socket)
        found = status(hub)
        assert found["counts"]["frames rejected"] == 4
        assert found["failures"] == 0
        assert links_up(hub) == ["east"]
        assert HTTP.get(f"{east}/readyz").status_code == 200


def test_any_error_of_a_frame_ends_its_link_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RecursionError("too deep")

    with serving(tmp_path, "hub") as hub, serving(tmp_path, "east", hub):
        until(lambda: links_up(hub) == ["east"])
        with neighbour(hub) as socket:
            digest = greeted(socket).space
            told(socket)
        monkeypatch.setattr(BrokerRunner, "_decoded_frame", broken)
        hello = Hello(broker="stranger", incarnation=2, space=digest)
        frame = EventsFrame(
            origin="far/1", after=0, upto=1, numbers=[1], ids=[], points=b"", texts=[b"{}"]
        )
        with neighbour(hub) as socket:
            socket.send(encode(hello))
            socket.send(encode(frame))
            assert "RecursionError" in told(socket)
        assert links_up(hub) == ["east"]


def test_a_broker_that_fails_begins_again_and_the_server_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links_module, "_AGAIN", 0.05)
    with serving(tmp_path, "hub") as hub, serving(tmp_path, "east", hub) as east:
        until(lambda: links_up(hub) == ["east"])
        handle, left = Broker.handle, 3

        def failing(broker: Broker, now: float, given: Any) -> Any:
            nonlocal left
            if broker.name == "hub" and left:
                left -= 1
                raise RecursionError("too deep")
            return handle(broker, now, given)

        monkeypatch.setattr(Broker, "handle", failing)
        until(lambda: status(hub)["failures"] >= 3)
        until(lambda: links_up(hub) == ["east"] and links_up(east) == ["hub"])
        assert any("RecursionError" in one for one in status(hub)["alarms"])
        with Client(east, space="s") as client, Client(hub, space="s") as there:
            client.put_consumer("c")
            client.subscribe("low", "x < 5", consumer="c")
            until(lambda: client.wait_until_propagated("low"))
            there.publish([{"id": 1, "x": 1}])
            until(lambda: client.messages("c").items)


def test_a_part_of_the_log_that_can_t_be_read_ends_the_link_that_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, entry = MemoryLog(), SpaceEntry("default", "s", 0, SPACE, 0)
    journal = ServerJournal(log, Lineage(log.epoch, Registry()), entry, "a/1")
    log.append([events_draft(EventsHead("default", "s"), [b'{"x": 1}', b"{"], 0)])
    journal.note([], log.last, is_whole=False)
    with pytest.raises(JournalError, match="at seq 1"):
        list(journal.between(0, 9))
    # in a server: east needs it, west was there before
    with serving(tmp_path, "hub") as hub:
        with serving(tmp_path, "east", hub) as east, Client(east, space="s") as client:
            client.put_consumer("c")
            client.subscribe("low", "x < 5", consumer="c")
            until(lambda: client.wait_until_propagated("low"))
        until(lambda: links_up(hub) == [])
        read, has_read = ServerJournal.between, threading.Event()

        def noted(journal: ServerJournal, begin: int, end: int) -> Any:
            yield from read(journal, begin, end)
            has_read.set()

        monkeypatch.setattr(ServerJournal, "between", noted)
        with Client(hub, space="s") as client:
            client.publish([{"id": 1, "x": 1}])
        until(has_read.is_set)  # the hub's own broker has seen it

        def damaged(journal: ServerJournal, begin: int, end: int) -> Any:
            for place, block in read(journal, begin, end):
                if b'"id":1' in block.texts[0].replace(b" ", b""):
                    raise JournalError(f"the log can't be read at seq {place + 1}")
                yield place, block

        monkeypatch.setattr(ServerJournal, "between", damaged)
        with serving(tmp_path, "west", hub) as west:
            until(lambda: links_up(hub) == ["west"])
            with serving(tmp_path, "east", hub) as east, Client(east, space="s") as client:
                until(lambda: any("can't be read" in one for one in status(hub)["alarms"]))
                assert links_up(hub) == ["west"]
                assert links_up(west) == ["hub"]
                assert status(hub)["failures"] == 0
                assert HTTP.get(f"{hub}/readyz").status_code == 200
                monkeypatch.undo()  # as after a repair: nothing was skipped
                until(lambda: client.messages("c").items)


def test_a_neighbour_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_module, "MAX_WAITING_BYTES", 1000)
    monkeypatch.setattr(wire_module, "CLOSE_SECONDS", 0.01)

    gone: list[LinkConnection] = []

    class Heard:
        def down(self, connection: LinkConnection) -> None:
            gone.append(connection)

    async def work() -> None:
        for end in (False, True):
            connection = LinkConnection(Heard(), "peer")  # type: ignore[arg-type]
            connection.send(b"x" * 600)
            running = asyncio.create_task(connection.run(never, never))
            await asyncio.sleep(0)
            if end:
                connection.end("the server stops")
            else:
                connection.send(b"x" * 600)
            await running
            assert connection in gone
            assert connection.rejected

    async def never(*_: Any) -> Any:
        with contextlib.suppress(TimeoutError):
            await asyncio.Event().wait()

    run(work)
