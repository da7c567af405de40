"""Publishing from Python: one event or many, what is rejected, what a lost answer leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from rangecast import Space
from rangecast.client import AsyncClient, Client, PublishError, ServerError
from rangecast.client.operations import parts
from rangecast.errors import FileError, RejectedRow
from tests.support.server.served import Served

pytestmark = pytest.mark.xdist_group("client_publish")
SPACE = Space.from_toml("""
attribute = [{ name = "price", type = "number" }, { name = "symbol", type = "string" }]
""")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    served = Served(spaces={"s": SPACE})
    yield served.url
    served.stop()


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url, space="s") as client:
        yield client


def events_of(client: Client) -> list[Any]:
    """All events of the server's log."""
    answer = client._http.get(f"{client.url}/v1/spaces/s/events", params={"limit": 10**6})
    return [json.loads(line)["event"] for line in answer.text.splitlines()]


def test_a_dict_is_one_event(client: Client) -> None:
    assert client.publish({"price": 3.0}).accepted == 1
    assert events_of(client)[-1] == {"price": 3.0}

    async def work() -> None:
        async with AsyncClient(client.url, space="s") as other:
            assert (await other.publish({"price": 4.0})).accepted == 1
            with pytest.raises(PublishError, match="1 of 1 event is rejected"):
                await other.publish({"price": "x"})

    asyncio.run(work())
    assert events_of(client)[-1] == {"price": 4.0}


def test_tables_and_files_are_published(client: Client, tmp_path: Path) -> None:
    rows = [{"price": 1.5, "symbol": "A"}, {"price": 2.5}]
    table = pa.Table.from_pylist(rows)
    (tmp_path / "e.csv").write_text("price,symbol\n1.5,A\n2.5,\n")
    (tmp_path / "e.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for given in (table, table.to_pandas(), tmp_path / "e.csv", str(tmp_path / "e.jsonl"), rows):
        assert client.publish(given).accepted == 2
        found = events_of(client)[-2:]
        assert [{**one, "price": float(one["price"])} for one in found] == rows


def test_rejected_events_are_an_error_with_both_parts(client: Client) -> None:
    before = len(events_of(client))
    events = [{"price": 1}, {"price": "x"}, {"price": 2}, {"colour": 3}]
    with pytest.raises(PublishError) as caught:
        client.publish(events)
    error = caught.value
    assert (error.accepted, error.status, error.unpublished_from) == (2, 422, None)
    assert [one.row for one in error.rejected] == [1, 3]
    assert "2 of 4 events are rejected, 2 published; row 1: " in str(error)
    assert "'x' is not a number" in error.rejected[0].reason
    assert len(events_of(client)) == before + 2
    rejected: list[RejectedRow] = []
    found = client.publish(events, rejected=rejected, matches=True)
    assert (found.accepted, rejected, len(found.matches or [])) == (2, error.rejected, 2)
    with pytest.raises(PublishError) as caught:
        client.publish([{"price": "x"}])
    assert (caught.value.accepted, caught.value.rejected[0].row) == (0, 0)


def test_many_events_are_cut_into_requests(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []
    send = client._send

    def noted(call: Any) -> Any:
        sizes.append((call.body.count(b"\n") + 1, len(call.body)))
        return send(call)

    monkeypatch.setattr(client, "_send", noted)
    rejected: list[RejectedRow] = []
    events = [{"price": number if number != 10_001 else "x"} for number in range(10_002)]
    found = client.publish(iter(events), rejected=rejected)
    assert (found.accepted, [one.row for one in rejected]) == (10_001, [10_001])
    assert [count for count, _ in sizes] == [10_000, 2]
    first, last = (int(str(one).partition(":")[2]) for one in (found.first, found.last))
    assert last - first == 10_000
    sizes.clear()
    long = [{"price": 1, "symbol": "x" * (3 << 20)} for _ in range(5)]
    assert client.publish(long).accepted == 5
    assert [count for count, _ in sizes] == [2, 2, 1]
    assert max(size for _, size in sizes) <= parts.MAX_BYTES
    assert len(client.match_many(long)) == 5


def losing(
    client: Client, monkeypatch: pytest.MonkeyPatch, is_lost: Callable[[int], bool]
) -> list[str]:
    """Let answers get lost on their way; return the keys of all requests that were made."""
    keys: list[str] = []
    request = client._http.request

    def lost(**given: Any) -> httpx.Response:
        answer = request(**given)
        keys.append(given["headers"]["Idempotency-Key"])
        if is_lost(len(keys)):
            raise httpx.ReadError("cut")
        return answer

    monkeypatch.setattr(client._http, "request", lost)
    monkeypatch.setattr("time.sleep", lambda _: None)
    return keys


def test_a_lost_answer_publishes_nothing_twice(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(events_of(client))
    with monkeypatch.context() as patch:
        keys = losing(client, patch, lambda number: number in (1, 2, 4))
        patch.setattr("rangecast.client.operations.many.MAX_ROWS", 2)
        found = client.publish([{"price": n} for n in range(3)])
    assert (found.accepted, len(keys), len(set(keys))) == (3, 5, 2)
    assert [one["price"] for one in events_of(client)[before:]] == [0, 1, 2]


def test_what_was_accepted_before_a_request_fails_is_known(
    client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        keys = losing(client, patch, lambda number: number > 1)
        patch.setattr("rangecast.client.operations.many.MAX_ROWS", 2)
        with pytest.raises(
            PublishError, match="2 events were published, up to row 1; then: "
        ) as no:
            client.publish([{"price": n} for n in range(3)], key="mine")
        assert (no.value.accepted, no.value.unpublished_from, no.value.status) == (2, 2, None)
        assert set(keys) == {"mine", "mine.1"}
    before = len(events_of(client))
    with monkeypatch.context() as patch:
        patch.setattr("rangecast.client.operations.many.MAX_ROWS", 2)
        assert client.publish([{"price": n} for n in range(3)], key="mine").accepted == 3
        (tmp_path / "e.jsonl").write_text('{"price": 1}\n{"price": 2}\n{"price": 3}\n{\n')
        with pytest.raises(PublishError, match="line 4: not JSON") as bad:
            client.publish(tmp_path / "e.jsonl")
        assert (bad.value.accepted, bad.value.unpublished_from) == (2, 2)
    assert len(events_of(client)) == before + 2  # all of the repeated ones were there
    (tmp_path / "e.jsonl").write_text("{\n")
    with pytest.raises(FileError, match="line 1: not JSON"):
        client.publish(tmp_path / "e.jsonl")
    with (
        Client(client.url, space="none") as other,
        pytest.raises(PublishError, match="no space") as none,
    ):
        other.publish({"price": 1})
    assert (none.value.status, none.value.unpublished_from) == (404, 0)


def test_an_answer_that_is_not_json_is_no_answer(client: Client) -> None:
    with (
        Client(f"{client.url}/page/index.html?", space="s") as other,
        pytest.raises(ServerError, match="the response isn't JSON"),
    ):
        other.status()
