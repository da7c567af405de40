"""A server from the shell: files of subscriptions, consumers, status, unsubscribe."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rangecast import Space
from rangecast.client import Client, ServerError
from tests.support.server.served import Served

pytestmark = pytest.mark.xdist_group("server_shell")
SPACE = Space.from_toml('attribute = [{ name = "price", type = "number" }]')
Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    served = Served(spaces={"s": SPACE})
    yield served.url
    served.stop()


@pytest.fixture
def client(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("RANGECAST_SERVER", url)
    with Client(url, space="s") as client:
        yield client
        for one in client.consumers():
            client.delete_consumer(one["name"])
        for name in list(client):
            client.unsubscribe(name)


def test_a_bad_filter_leaves_nothing_behind(cli: Cli, client: Client) -> None:
    for more in ((), ("--follow",), ("--consumer", "c"), ("--id", "x"), ("--id", "x", "--follow")):
        assert "no attribute 'prise'" in cli("subscribe", "prise < 3", *more, code=2).stderr
        assert "consumer" in cli("subscribe", "price < 3", "--consumer", "a b", code=2).stderr
        assert (client.consumers(), list(client)) == ([], [])


def test_a_subscription_and_its_consumer_are_one_request(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the command is interrupted, there are both or none."""
    calls: list[Any] = []
    send = Client._send

    def cut(self: Client, call: Any) -> Any:
        if call.method != "GET":
            calls.append(call)
            raise KeyboardInterrupt
        return send(self, call)

    from rangecast.cli.commands.server.subscribe import subscribe
    from rangecast.cli.shared.connection import Connection

    with monkeypatch.context() as patch:
        patch.setattr(Client, "_send", cut)
        with pytest.raises(KeyboardInterrupt):
            subscribe(Connection(client.url), "price < 3", consumer="c")
    assert (client.consumers(), list(client)) == ([], [])
    assert send(client, calls[0])["created"]
    assert [one["name"] for one in client.consumers()] == ["c"]
    assert len(client) == 1


@pytest.mark.process
def test_a_follower_that_is_killed_leaves_nothing_behind(client: Client) -> None:
    follow = subprocess.Popen(
        [sys.executable, "-m", "rangecast", "subscribe", "price < 3", "--follow"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follow.stdout is not None
    deadline = time.monotonic() + 600
    while not client.consumers():
        assert follow.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    client.publish([{"price": 2}, {"price": 5}])
    assert json.loads(follow.stdout.readline())["event"] == {"price": 2}
    follow.send_signal(signal.SIGKILL)
    follow.wait(90)
    follow.stdout.close()
    while client.consumers() or list(client):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_file_of_subscriptions(cli: Cli, client: Client, tmp_path: Path) -> None:
    (tmp_path / "fences.csv").write_text("id,price_lo,price_hi\na,1,2\nb,3,\n")
    load = ("subscribe", "--file", "fences.csv", "--consumer", "fleet")
    assert "2 subscriptions saved in " in cli(*load).stdout
    assert {name: client[name].filter for name in client} == {
        "a": "price between 1 and 2",
        "b": "price >= 3",
    }
    assert [one["name"] for one in client.consumers()] == ["fleet"]
    (tmp_path / "fences.csv").write_text("id,price_lo,price_hi\nc,2,1\nd,3,\ne\n")
    assert "columns" in cli(*load, code=2).stderr
    (tmp_path / "fences.csv").write_text("id,price_lo,price_hi\nc,2,1\nd,3,\n")
    said = cli(*load, code=2).stderr
    assert "fences.csv, row 0 (counted from 0), column 'price_hi': " in said
    assert "pass --rejected FILE" in said
    assert "d" not in client
    done = cli(*load, "--rejected", "no.csv", "--json")
    assert json.loads(done.stdout) == {"saved": 1, "rejected": 1, "rejected_file": "no.csv"}
    rows = (tmp_path / "no.csv").read_text().splitlines()
    assert (rows[0], rows[1][:2]) == ("row,column,value,reason,remedy", "0,")
    assert "saved in" in cli(*load, "--rejected", "no.jsonl").stdout
    assert cli(*load, "--rejected", "no.jsonl", "--quiet").stdout == ""
    assert "d" in client
    for wrong, words in (
        ((*load, "price < 3"), "either a filter or --file"),
        (("subscribe",), "either a filter or --file"),
        (("subscribe", "fences.csv"), "--file fences.csv"),
        ((*load, "--id", "x"), "--id is only for a single filter"),
        ((*load, "--follow"), "--follow is only for a single filter"),
        (("subscribe", "price < 3", "--rejected", "no.csv"), "--rejected requires --file"),
        (("subscribe", "--file", "none.csv"), "no such file"),
        ((*load, "--rejected", "none/no.csv"), "none"),
    ):
        assert words in cli(*wrong, code=2).stderr, wrong


def test_consumers_are_listed_and_deleted(cli: Cli, client: Client) -> None:
    assert "There are no consumers" in cli("consumers").stdout
    cli("subscribe", "price < 3", "--id", "cheap", "--consumer", "alerts", "--json")
    client.put_consumer("other", max_per_event=2)
    client.publish([{"price": 1}] * 3)
    header, *rows = cli("consumers").stdout.splitlines()
    assert header.split() == ["NAME", "OF", "LAG", "LISTENERS", "DELIVERY", "STATE"]
    assert [row.split()[0] for row in rows] == ["alerts", "other"]
    lag = {one["name"]: one["lag"] for one in client.consumers()}
    assert rows[0].split()[1:] == ["space", "s", str(lag["alerts"]), "0", "pull", "-"]
    shown = cli("consumers", "other").stdout
    assert [line.split() for line in shown.splitlines() if line.startswith("max_per_event")] == [
        ["max_per_event", "2"]
    ]
    found = json.loads(cli("consumers", "--json").stdout)["consumers"]
    assert {one["name"]: one["lag"] for one in found} == lag
    assert len(json.loads(cli("consumers", "other", "--json").stdout)["consumers"]) == 1
    assert "no consumer 'none'" in cli("consumers", "other", "none", "--delete", code=2).stderr
    assert "requires the names" in cli("consumers", "--delete", code=2).stderr
    assert len(client.consumers()) == 2  # all of them must be there before one is deleted
    assert cli("consumers", "--delete", "alerts").stdout == "deleted: alerts\n"
    assert json.loads(cli("consumers", "--delete", "other", "--json").stdout) == {
        "deleted": ["other"]
    }
    assert (client.consumers(), list(client)) == ([], [])


def test_subscriptions_are_ended(cli: Cli, client: Client) -> None:
    client.upsert_many([{"id": name, "filter": "price < 3"} for name in ("a", "b/c ü", "d")])
    done = cli("unsubscribe", "a", "none", "b/c ü", code=2)
    assert "2 subscriptions ended, 1 unknown." in done.stdout
    assert "no subscription 'none'" in done.stderr
    assert list(client) == ["d"]
    assert json.loads(cli("unsubscribe", "d", "--json").stdout) == {"ended": ["d"], "unknown": []}
    assert "no space 'none'" in cli("unsubscribe", "d", "--space", "none", code=2).stderr


def test_the_status(cli: Cli, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = dict(line.split(None, 1) for line in cli("status").stdout.splitlines())
    assert lines["ready"] == "ok"
    assert lines["spaces"] == "1"
    found = json.loads(cli("status", "--json").stdout)
    assert (found["ready"], found["spaces"]) == ("ok", 1)
    monkeypatch.setattr(Client, "ready", lambda _: "disk full")
    assert "disk full" in cli("status", code=1).stdout
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert "no response" in cli("status", "--server", "http://127.0.0.1:9", code=2).stderr


def test_publish_counts_what_came_before_an_error(
    cli: Cli, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "e.jsonl").write_text('{"price": 1}\n{"price": "x"}\n{"price": 2}\n')
    done = cli("publish", "e.jsonl", "--json", code=2)
    assert json.loads(done.stdout) == {"published": 2, "rejected": 1}
    assert "row 1 was rejected: " in done.stderr
    publish = Client.publish

    def rejecting(self: Client, events: Any, **options: Any) -> Any:
        if events[0]["price"] == 2:
            raise ServerError("it is gone")
        return publish(self, events, **options)

    (tmp_path / "u.jsonl").write_text('{"colour": 1}')
    assert "; --ignore-unknown ignores it" in cli("publish", "u.jsonl", code=2).stderr
    monkeypatch.setattr(Client, "publish", rejecting)
    done = cli("publish", "e.jsonl", "--batch", 1, code=2)
    assert "1 event published, 1 rejected." in done.stdout
    assert "it is gone" in done.stderr
