"""Links between servers, each in a thread of this process: what is rejected, and in which words.

`tests/server/links/test_link_kills.py` has real processes that are cut and killed.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from rangecast import Client, Space
from rangecast.errors import RangecastError, RejectedRow, UsageError
from rangecast.overlay.wire.frames import MAX_BYTES, Heartbeat, Hello, decode, encode
from rangecast.overlay.wire.frames import Events as EventsFrame
from rangecast.server.encoding import encoded
from rangecast.server.links import dialer
from rangecast.server.links.broker_runner import MAX_EVENT_BYTES
from rangecast.server.links.journal import ServerJournal
from rangecast.server.log.base import MemoryLog
from rangecast.server.log_tools import dumped
from rangecast.server.pipeline.apply import WrittenRequest
from rangecast.server.pipeline.commands import Events
from rangecast.server.process import Settings, serve
from rangecast.server.state.edits import EventsHead, PutBroker, edits_draft, events_draft
from rangecast.server.state.entries import SpaceEntry
from rangecast.server.state.lineage import Lineage
from rangecast.server.state.registry import Registry
from tests.soak.link_kills import LONGEST, free_port
from tests.support.server.served import Served

SPACE = Space.from_toml(
    'attribute = [{ name = "x", type = "number" }, { name = "who", type = "string" }]'
)
HTTP = httpx.Client(timeout=LONGEST, trust_env=False)
OTHER = Space.from_toml('attribute = [{ name = "x", type = "number" }]')


@contextmanager
def serving(data: Path, name: str, *to: str, **options: Any) -> Iterator[str]:
    """Run a server that is the broker of this name."""
    links = tuple(f"{one.replace('http', 'ws')}/v1/link" for one in to)
    given = {"data": data / name, "spaces": {"s": SPACE}, "broker": name, "links": links} | options
    served = Served(**given)
    try:
        # FastAPI makes routes when they are first looked at, with warnings switched off in a way
        # that two threads spoil for each other: so all of this server's are made now.
        with httpx.Client(verify=False, trust_env=False, timeout=LONGEST) as http:
            http.get(f"{served.url}/nowhere")
        yield served.url
    finally:
        served.stop()


def status(url: str) -> dict[str, Any]:
    found: dict[str, Any] = HTTP.get(f"{url}/v1/status").json()
    return found


def until(is_so: Callable[[], Any]) -> Any:
    """Wait for something; return it."""
    deadline = time.monotonic() + LONGEST
    while not (found := is_so()):
        assert time.monotonic() < deadline, "it didn't come about"
        time.sleep(0.02)
    return found


def links_up(url: str) -> list[str]:
    return [one["broker"] for one in status(url)["links"] if one["state"] == "up"]


def rejected(url: str) -> str:
    """Return why the first link that a server makes is rejected."""
    error: str = until(lambda: status(url)["outgoing"][0]["error"])
    return error


@contextmanager
def neighbour(url: str, name: str = "stranger") -> Iterator[ClientConnection]:
    """Speak to a server as if we were another one."""
    address = f"{url.replace('http', 'ws')}/v1/link"
    headers = {"rangecast-broker": name}
    with connect(address, additional_headers=headers, proxy=None, open_timeout=LONGEST) as socket:
        yield socket


def told(socket: ClientConnection) -> str:
    """Return the words in which a connection is rejected."""
    while not isinstance(said := socket.recv(LONGEST), str):
        pass
    text: str = json.loads(said)["detail"]
    return text


def greeted(socket: ClientConnection, name: str = "stranger") -> Hello:
    """Say Hello as the server expects it; return its own."""
    hello = Hello(broker=name, incarnation=1, space="")
    socket.send(encode(hello))  # of another space, but its answer says which one is expected
    found = decode(bytes(socket.recv(LONGEST)))
    assert isinstance(found, Hello)
    return found


def test_events_cross_links_both_ways_as_they_were_given(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "hub") as hub,
        serving(tmp_path, "east", hub) as east,
        serving(tmp_path, "west", hub) as west,
        Client(east, space="s") as at_east,
        Client(west, space="s") as at_west,
    ):
        for client in (at_east, at_west):
            client.put_consumer("c")
        at_east.subscribe("low", "x < 5 and who = 'ann'", consumer="c")
        at_west.subscribe("high", "x >= 5 or who = 'bob'", consumer="c")
        until(
            lambda: at_east.wait_until_propagated("low") and at_west.wait_until_propagated("high")
        )
        lines = [
            '{"id": "a", "x": 1.0, "who": "ann"}',
            '{"id": "b", "x": 7, "who": "ann"}',
            '{"who": "bob", "x": 1e0, "id": "c"}',
            '{"id": "d", "x": 1, "who": "eve"}',
        ]
        for url in (east, west):
            HTTP.post(f"{url}/v1/spaces/s/events", content="\n".join(lines)).raise_for_status()
        envelope = {"specversion": "1.0", "id": "e", "source": "/t", "type": "t", "data": {"x": 6}}
        HTTP.post(
            f"{east}/v1/spaces/s/events",
            json=envelope,
            headers={"Content-Type": "application/cloudevents+json"},
        ).raise_for_status()

        def got(client: Client, count: int) -> list[Any]:
            return until(
                lambda: (
                    found
                    if len(found := [one.event for one in client.messages("c").items]) >= count
                    else None
                )
            )

        assert [one["id"] for one in got(at_east, 2)] == ["a", "a"]
        assert sorted(one["id"] for one in got(at_west, 5)) == ["b", "b", "c", "c", "e"]
        assert envelope in got(at_west, 5)
        assert set(links_up(hub)) == {"east", "west"}
        found = {one["broker"]: one for one in status(hub)["links"]}
        assert found["west"]["wants"] == found["east"]["wants"] == 1
        assert "rangecast_link_up{broker=" in HTTP.get(f"{hub}/metrics").text
    logs = {
        name: [json.loads(one) for one in dumped(tmp_path / name, 0)] for name in ("hub", "west")
    }
    came = [one for one in logs["west"] if "number" in one]
    assert [one["event"]["id"] for one in came] == ["b", "c", "e"]  # not what nobody wants there
    assert [one["event"].get("id") for one in logs["hub"] if "event" in one].count("d") == 0
    texts = "\n".join(dumped(tmp_path / "west", 0))
    assert '"event":{"who": "bob", "x": 1e0, "id": "c"}' in texts  # byte by byte


def test_a_link_and_what_waits_for_it_survive_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path, "hub") as hub:
        port = int(hub.rpartition(":")[2])
        with serving(tmp_path, "east", hub) as east, Client(east, space="s") as client:
            client.put_consumer("c")
            client.subscribe("low", "x < 5", consumer="c")
            until(lambda: client.wait_until_propagated("low"))
        with Client(hub, space="s") as client:  # east is away
            client.publish([{"id": 1, "x": 1}, {"id": 2, "x": 9}])
            cursors = {
                one["name"]: one["lag"] for one in HTTP.get(f"{hub}/v1/consumers").json()["items"]
            }
            assert cursors["link-east"] > 0
    with serving(tmp_path, "hub", port=port) as hub, Client(hub, space="s") as client:
        client.publish([{"id": 3, "x": 2}])
        with serving(tmp_path, "east", hub) as east, Client(east, space="s") as client:
            got = until(
                lambda: (
                    [one.event["id"] for one in client.messages("c").items][1:]
                    and client.messages("c").items
                )
            )
            assert [one.event["id"] for one in got] == [1, 3]
            until(lambda: all(one["lag"] == 0 for one in status(hub)["links"]))


def test_links_that_can_t_be_are_rejected_in_words(tmp_path: Path) -> None:
    with serving(tmp_path, "hub") as hub:
        with serving(tmp_path, "odd", hub, spaces={"s": OTHER}) as odd:
            text = rejected(odd)
            digests = [word for word in text.replace(";", "").split() if len(word) == 16]
            assert len(set(digests)) == 2, text
            until(lambda: "link-odd" not in str(HTTP.get(f"{hub}/v1/consumers").json()))
        (tmp_path / "twin").mkdir()
        with serving(tmp_path / "twin", "hub", hub) as twin:
            assert "is also called 'hub'" in rejected(twin)
        with serving(tmp_path, "east", hub) as east:
            until(lambda: links_up(hub) == ["east"])
            with serving(tmp_path, "north", hub, east) as north:  # one of the two closes a cycle
                errors = until(
                    lambda: [one["error"] for one in status(north)["outgoing"] if one["error"]]
                )
                assert any("can already be reached without it" in one for one in errors)
                until(lambda: len(links_up(north)) == 1)
        with neighbour(hub, "hub") as socket:
            socket.send(b"x")
            assert "is also called 'hub'" in told(socket)
        with neighbour(hub, "no name") as socket:
            assert "the name of a broker" in told(socket)


def test_two_links_between_the_same_servers_are_one(tmp_path: Path) -> None:
    port = free_port()
    with (
        serving(tmp_path, "a", f"http://127.0.0.1:{port}") as a,
        serving(tmp_path, "b", a, a.replace("127.0.0.1", "localhost"), port=port) as b,
    ):
        until(lambda: links_up(a) == ["b"] and links_up(b) == ["a"])
        until(lambda: any("linked by" in str(one["error"]) for one in status(b)["outgoing"]))
        time.sleep(1)
        assert (links_up(a), links_up(b)) == (["b"], ["a"])


def test_frames_that_aren_t_right_close_the_link_and_harm_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, "hub") as hub, Client(hub, space="s") as client:
        with neighbour(hub) as socket:
            digest = greeted(socket).space
            assert digest in told(socket)
        hello = Hello(broker="stranger", incarnation=2, space=digest)
        events = EventsFrame(
            origin="far/1", after=0, upto=1, numbers=[1], ids=[], points=b"", texts=[b'{"x": 1}']
        )
        wrong = {
            b"\xc1": "not a frame",
            encode(msgspec.structs.replace(events, texts=[b"{"])): "doesn't fit this space",
            encode(msgspec.structs.replace(events, texts=[])): "are not 1 points",
            encode(msgspec.structs.replace(events, numbers=[3, 2])): "don't increase",
            encode(
                msgspec.structs.replace(events, texts=[b'{"who": "%s"}' % (b"x" * MAX_EVENT_BYTES)])
            ): "at most 1,048,576 bytes",
        }
        for frame, words in wrong.items():
            with neighbour(hub) as socket:
                socket.send(encode(hello))
                socket.send(frame)
                assert words in told(socket), words
        with neighbour(hub) as socket, contextlib.suppress(ConnectionClosed):
            socket.send(b"x" * (MAX_BYTES + 1))  # it may be closed before all was sent
            socket.recv(LONGEST)
            raise AssertionError("a frame that is too long was answered")
        with neighbour(hub) as socket:  # all is well, and the right frame is taken
            socket.send(encode(hello))
            socket.send(encode(Heartbeat(incarnation=2, version=0, digest=0)))
            socket.send(encode(events))
            until(lambda: client.match({"x": 1}) == [] and status(hub)["events"] == 1)
        assert status(hub)["counts"]["frames rejected"] >= 4
        rejected: list[RejectedRow] = []
        long = client.publish([{"x": 1}, {"who": "x" * MAX_EVENT_BYTES}], rejected=rejected)
        assert (long.accepted, [one.row for one in rejected]) == (1, [1])
        HTTP.delete(f"{hub}/v1/consumers/link-stranger").raise_for_status()
        until(lambda: status(hub)["links"] == [])


def test_a_link_needs_a_token_of_its_own_and_tls_hides_it(tmp_path: Path, monkeypatch: Any) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", key, "-out", certificate, "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serving(tmp_path, "hub", certificate=certificate, key=key) as hub:
        trusted = ssl.create_default_context(cafile=str(certificate))
        tokens: dict[str, str] = {}
        with httpx.Client(verify=trusted, trust_env=False, timeout=LONGEST) as http:
            for scope in ("admin", "read", "link"):
                headers = {"Authorization": f"Bearer {tokens['admin']}"} if tokens else {}
                given = {"label": scope, "scopes": [scope]}
                answer = http.post(f"{hub}/v1/tokens", json=given, headers=headers).json()
                tokens[scope] = answer["token"]
        link = (f"{hub.replace('https', 'wss')}/v1/link",)
        with serving(tmp_path, "east", links=link) as east:
            assert "a token is required" in rejected(east)
        with serving(tmp_path, "east", links=link, token=tokens["read"]) as east:
            assert "this operation requires 'link'" in rejected(east)
        with serving(tmp_path, "east", links=link, token=tokens["link"]) as east:
            until(lambda: links_up(east) == ["hub"])
        monkeypatch.delenv("SSL_CERT_FILE")
        with serving(tmp_path, "east", links=link, token=tokens["link"]) as east:
            assert "certificate" in rejected(east).lower()


def test_what_is_given_for_links_is_checked_before_anything_starts(tmp_path: Path) -> None:
    good = {"data": tmp_path, "spaces": {"s": SPACE}, "broker": "a"}
    wrong = [
        ({"broker": None, "links": ("ws://127.0.0.1/v1/link",)}, "--link requires --server-name"),
        ({"data": None}, "--server-name requires --data"),
        ({"spaces": {}}, "exactly one --space"),
        ({"spaces": {"s": SPACE, "t": SPACE}}, "exactly one --space"),
        ({"broker": "a b"}, "the name of a broker"),
        ({"follow": "http://127.0.0.1", "spaces": {}}, "can't have links"),
        ({"links": ("http://127.0.0.1/v1/link",)}, "wss://HOST:PORT/v1/link"),
        ({"links": ("ws://127.0.0.1/v2",)}, "must end with /v1/link"),
        ({"links": ("ws://127.0.0.1", "ws://127.0.0.1/v1/link")}, "appears twice"),
        ({"links": ("ws://example.org/v1/link",), "token": "t"}, "without TLS"),
    ]
    Settings(**good).check()
    for given, words in wrong:
        with pytest.raises(RangecastError, match=words):
            Settings(**good | given).check()
    assert dialer.checked_url("ws://[::1]:1", "t", insecure=False) == "ws://[::1]:1/v1/link"


def test_a_broker_reads_the_log_of_its_server_from_memory_and_from_disk() -> None:
    log, entry = MemoryLog(), SpaceEntry("default", "s", 0, SPACE, 0)
    came = EventsHead(
        "default", "s", source="broker:far/1", upto=9, numbers=[7, 9], hops=2, over="n"
    )
    drafts = [
        edits_draft([PutBroker("default", "a", "s", 1)], 0),
        events_draft(EventsHead("default", "s"), [b'{"x": 1, "who": "z"}', b'{"x": 2}'], 0),
        events_draft(EventsHead("default", "other"), [b'{"x": 1}'], 0),
        events_draft(came, [b'{"x": 3}', b'{"x": 4}'], 0),
    ]
    units = log.append(drafts)
    journal = ServerJournal(log, Lineage(log.epoch, Registry()), entry, "a/1")
    more = log.append([events_draft(EventsHead("default", "s"), [b'{"x": 5}'], 0)])
    taken, _ = encoded([b'{"x": 5}'], SPACE, ignore_unknown=True)
    written = WrittenRequest(more[0], Events(entry, taken, EventsHead("default", "s")), [])
    journal.note([written], log.last, is_whole=True)

    def found(begin: int, end: int = 99) -> list[Any]:
        blocks = journal.between(begin, end)
        return [(at, one and (one.origin, one.numbers)) for at, one in blocks]

    every = [(1, ("a/1", [2, 3])), (4, ("far/1", [7, 9])), (6, ("a/1", [7]))]
    for begin in range(8):
        assert found(begin) == [one for one in every if one[0] >= begin]
        assert found(0, begin) == [one for one in every if one[0] < begin]
    blocks = [block for _, block in journal.between(0, 99)]
    assert None not in blocks
    assert blocks[0].words == {"who": ["z", None]}
    assert (blocks[1].upto, blocks[1].hops, blocks[1].came_over) == (9, 2, "n")
    assert [one.texts for one in blocks[1:]] == [[b'{"x": 3}', b'{"x": 4}'], [b'{"x": 5}']]
    journal.note([], log.last, is_whole=False)  # too much at once: all is read from the log
    assert found(0) == every
    assert journal.gaps == 0
    log.drop(units[1].last)
    assert (found(0), journal.gaps) == ([(3, None), *every[1:]], 1)
    for number, chain in ((2, b""), (3, b""), (7, more[0].chain), (8, None)):
        assert journal.mark_of(number) == chain


def test_a_folder_keeps_the_name_that_it_had(tmp_path: Path) -> None:
    with serving(tmp_path, "hub"):
        pass
    with pytest.raises(UsageError, match="belongs to the broker 'hub'"):
        serve(Settings(data=tmp_path / "hub", port=0, spaces={"s": SPACE}, broker="other"))
