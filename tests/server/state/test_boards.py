"""Boards behind the server: their messages, to the last one, are those of a `Board` in Python."""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from rangecast import Category, Number, Space
from rangecast.client import AsyncClient, Client, ServerError
from rangecast.errors import (
    DuplicateIdError,
    RangecastError,
    RejectedRowError,
    UnknownIdError,
    UsageError,
)
from rangecast.notify import Board
from rangecast.server.delivery.messages import Gap, Message
from rangecast.server.http.problems import status_of
from rangecast.server.log.base import Unit
from rangecast.server.log.segment import checked_units
from rangecast.server.pipeline.futures import result_of
from rangecast.server.service import Service
from rangecast.server.state.boards import updates_of
from rangecast.server.state.edits import (
    UPDATES,
    DeleteBoard,
    DeleteInterest,
    PutBoard,
    PutConsumer,
    PutInterest,
)
from rangecast.server.state.registry import RequestError
from rangecast.server.verify.deliveries import verify_deliveries
from tests.server.http.test_http import Served
from tests.support.server.serving import HANGS

T, B = "default", "flats"
TOWNS = ["Arles", "Bern", "Como"]
SPACES = {
    "line": None,
    "space": Space([Number("km"), Number("m2"), Category("town", TOWNS)]),
    "upper": Space([Number("km"), Number("m2")]),
}
KINDS = [*SPACES]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, HANGS))


class Mirror:
    """A board in Python, and subscribers who apply its messages: what consumers must get."""

    def __init__(self, kind: str, seed: int):
        self.space = SPACES[kind]
        self.rng = random.Random(seed)
        self.upper = "m2" if kind == "upper" else None
        self.descending = kind == "space"
        options = {
            "space": self.space,
            "upper_bound_attribute": self.upper,
            "descending": self.descending,
        }
        self.board: Any = Board(3, **options)
        self.subscribers: dict[str, tuple[str, Any]] = {}
        self.expected: dict[str, list[tuple[int, str, Any]]] = {"one": [], "two": []}

    def made(self) -> PutBoard:
        definition = None if self.space is None else self.space.definition()
        return PutBoard(T, B, 3, definition, self.upper or "", self.descending)

    def where(self) -> dict[str, Any]:
        a, b = sorted(self.rng.choices(range(20), k=2))
        if self.space is None:
            return {
                "position_lo": self.rng.choice([a, None]),
                "position_hi": self.rng.choice([b, None]),
            }
        if self.upper:
            return {"filter": f"km between {a} and {b} and m2 <= {self.rng.randrange(20)}"}
        town = self.rng.choice(TOWNS)
        return {"filter": self.rng.choice([f"km > {a} or m2 <= {b}", f"town = '{town}'", "true"])}

    def put(self, seq: int, name: str, consumer: str, k: int, where: dict[str, Any]) -> None:
        if name in self.board:
            self.board.unsubscribe(name)
        one = self.board.subscribe(name, *where.values(), k=k or None)
        self.subscribers[name] = consumer, one
        self.note(seq, name)

    def remove(self, name: str) -> None:
        self.board.unsubscribe(name)
        del self.subscribers[name]

    def note(self, seq: int, name: str) -> None:
        consumer, one = self.subscribers[name]
        best = [{"object": e.object, "value": e.value, "position": e.position} for e in one.best]
        self.expected[consumer].append((seq, name, best))

    def change(self) -> dict[str, Any]:
        """Return a change that can be made."""
        rng, known = self.rng, list(self.board.objects)
        if known and rng.random() < 0.15:
            return {"id": rng.choice(known), "value": None}
        is_new = not known or rng.random() < 0.4
        name = f"o{rng.randrange(10**6)}" if is_new else rng.choice(known)
        found: dict[str, Any] = {"id": name}
        if is_new or rng.random() < 0.3:
            found |= self.place()
        if is_new or len(found) == 1 or rng.random() < 0.5:
            found["value"] = rng.randrange(12)
        return found

    def place(self) -> dict[str, Any]:
        if self.space is None:
            return {"position": self.rng.randrange(20)}
        values: dict[str, Any] = {"km": self.rng.randrange(20), "m2": self.rng.randrange(20)}
        if len(self.space) == 3:
            values["town"] = self.rng.choice([*TOWNS, None])
        return values

    def apply(self, seq: int, *rows: dict[str, Any], batch: bool = False) -> None:
        changes = []
        for row in rows:
            place = {name: value for name, value in row.items() if name not in ("id", "value")}
            x = None if not place else place if self.space else place["position"]
            y = row["value"] if "value" in row else self.board.objects[row["id"]].value
            changes.append((row["id"], y, x))
        before = {name: one.best for name, (_, one) in self.subscribers.items()}
        make = self.board.update_batch if batch else self.board.update_many
        messages = list(make(changes))
        for name, (_, one) in self.subscribers.items():
            for message in messages:
                one.receive(message)
            if [e._replace(arrival=0) for e in one.best] != [
                e._replace(arrival=0) for e in before[name]
            ]:
                self.note(seq, name)


def told(messages: list[Message]) -> list[tuple[int, str, Any]]:
    """Return each list of messages, by seq and interest."""
    found = []
    for message in messages:
        body = json.loads(message.json("e"))
        assert body["board"] == B
        found += [(body["seq"], one["interest"], one["best"]) for one in body["lists"]]
    return sorted(found, key=lambda one: one[:2])


async def all_of(service: Service, consumer: str, after: int | None = None) -> list[Message]:
    listener = service.core.hub.open(service.core.registry.consumer(T, consumer), after)
    found: list[Message] = []
    while True:
        batch = await listener.next_batch(7, wait=0)
        found += batch.messages
        if not batch.messages and batch.gap is None:
            service.core.hub.close(listener)
            return found


async def edit(service: Service, *edits: Any) -> int:
    return await result_of(service.core.edit(*edits))


async def update(service: Service, rows: list[Any], **options: Any) -> Any:
    lines = [json.dumps(row).encode() for row in rows]
    entry = service.core.registry.board(T, B)
    return await result_of(service.core.update(entry, lines, **options))


async def prepared(service: Service, mirror: Mirror) -> None:
    service.start()
    await edit(service, mirror.made())
    consumers = [PutConsumer(T, name, "", start=0, board=B) for name in mirror.expected]
    await edit(service, *consumers)


async def history(service: Service, mirror: Mirror, turns: int) -> None:
    """Interests come, change and go among changes of objects, single, many and in batches."""
    rng = mirror.rng
    for turn in range(turns):
        name, consumer = f"i{rng.randrange(8)}", rng.choice(["one", "two"])
        if name in mirror.subscribers and rng.random() < 0.3:
            await edit(service, DeleteInterest(T, name, B))
            mirror.remove(name)
        else:
            where, k = mirror.where(), rng.choice([0, 0, 1])
            seq = await edit(service, PutInterest(T, name, B, consumer, k=k, **where))
            mirror.put(seq, name, consumer, k, where)
        if turn % 4 == 3:
            rows = [mirror.change() for _ in range(3)]
            rows = list({row["id"]: row for row in rows}.values())
            accepted = await update(service, rows, is_batch=True)
            mirror.apply(accepted.first + len(rows) - 1, *rows, batch=True)
        else:
            row = mirror.change()
            accepted = await update(service, [row, {"id": "nobody", "value": 1}, {"id": 7, "z": 1}])
            assert [row for row, _ in accepted.rejected] == [1, 2]
            mirror.apply(accepted.first, row)
        assert accepted.count


@pytest.mark.parametrize("kind", KINDS)
def test_messages_are_those_of_a_board_in_python_over_restarts(kind: str, tmp_path: Path) -> None:
    mirror = Mirror(kind, 3)
    seen: list[Message] = []

    async def first() -> None:
        service = Service(tmp_path)
        await prepared(service, mirror)
        listener = service.core.hub.open(service.core.registry.consumer(T, "one"))
        await history(service, mirror, 30)
        service.core.snapshot()
        while len(seen) < len({seq for seq, _, _ in mirror.expected["one"]}):
            seen.extend((await listener.next_batch(wait=5)).messages)
        service.core.acknowledge(listener.consumer, seen[len(seen) // 2].seq)
        await history(service, mirror, 10)
        service.core.pipeline.stop()  # as after a crash: the snapshot is of before the last edits
        service.close()

    run(first())
    assert told(seen) == sorted(
        [one for one in mirror.expected["one"] if one[0] <= seen[-1].seq], key=lambda one: one[:2]
    )

    async def second() -> None:
        service = Service(tmp_path)
        service.start()
        await history(service, mirror, 20)
        for name, expected in mirror.expected.items():
            messages = await all_of(service, name, 0)
            assert told(messages) == sorted(expected, key=lambda one: one[:2])
            assert len({one.seq for one in messages}) == len(messages)
        last = max(seq for seq, _, _ in mirror.expected["two"])
        for after in range(0, last, 7):
            found = told(await all_of(service, "two", after))
            assert found == sorted(
                [one for one in mirror.expected["two"] if one[0] > after], key=lambda one: one[:2]
            )
        cursor = service.core.registry.consumer(T, "one").cursor
        left = [one for one in mirror.expected["one"] if one[0] > cursor]
        assert told(await all_of(service, "one")) == sorted(left, key=lambda one: one[:2])
        service.stop()

    run(second())


def test_what_retention_drops_while_it_is_read_is_told_as_a_gap(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path)
        log: Any = service.core.log
        log._segment_bytes = 500
        mirror = Mirror("line", 5)
        await prepared(service, mirror)
        await history(service, mirror, 40)
        reader = service.core.hub.reader(service.core.registry.consumer(T, "two"))
        start = reader.read(0, log.last, 3).upto
        read = log.read
        drop = next(end for end, _, _ in log.segment_sizes() if end > start + 20)

        def dropped_first(after: int, most: int) -> list[Unit]:
            log.read = read
            log.drop(drop)
            found: list[Unit] = read(after, most)
            return found

        log.read = dropped_first
        gaps, found, after = [], [], start
        while after < log.last:
            batch = reader.read(after, log.last, 3)
            gaps += [batch.gap] if batch.gap else []
            found += batch.messages
            after = batch.upto
        assert gaps == [Gap(gaps[0].after, drop)]
        assert all(one.seq <= gaps[0].after or one.seq > drop for one in found)
        left = [one for one in mirror.expected["two"] if one[0] > drop]
        assert told([one for one in found if one.seq > drop]) == sorted(
            left, key=lambda one: one[:2]
        )
        assert left
        service.stop()

    run(work())


def test_what_cannot_be_is_rejected_and_changes_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        service = Service(tmp_path)
        mirror = Mirror("line", 1)
        await prepared(service, mirror)
        await update(service, [{"id": "a", "position": 1, "value": 2}])
        bad: list[Any] = [
            *(
                {"id": "b", "value": 1},
                {"id": "b", "position": 1},
                {"id": "a"},
                {"id": "b", "value": None},
            ),
            *(
                {"id": "a", "value": "x"},
                {"id": "a", "position": None},
                {"id": "a", "value": True},
                {"value": 1},
            ),
            *([1], 7, {"id": [], "value": 1}, {"id": "a", "km": 3}, {"id": "a", "value": 10**400}),
        ]
        accepted = await update(service, bad)
        assert [row for row, _ in accepted.rejected] == [*range(len(bad))]
        assert not accepted.count
        reasons = dict(accepted.rejected)
        assert "give a position and a value to add it" in reasons[0]
        assert "unknown field 'km'" in reasons[11]
        for options in ({"strict": True}, {"is_batch": True}):
            accepted = await update(
                service, [{"id": "a", "value": 9}, {"id": "b", "value": 1}], **options
            )
            assert (accepted.count, [row for row, _ in accepted.rejected]) == (0, [1])
        # later rows see what earlier ones do
        rows = [
            {"id": "a", "value": None},
            {"id": "a", "value": 1},
            {"id": "c", "position": 5, "value": 5},
        ]
        accepted = await update(service, [*rows, {"id": "c", "value": 4}])
        assert (accepted.count, [row for row, _ in accepted.rejected]) == (3, [1])
        objects = service.core.registry.board(T, B).objects
        assert [(name, one.value, one.place) for name, one in objects.items()] == [
            ("c", 4.0, (5.0,))
        ]
        for wrong, status in (
            (PutInterest(T, "i", "none", "one"), 404),
            (PutInterest(T, "i", B, "nobody"), 404),
            (DeleteInterest(T, "i", B), 404),
            (DeleteBoard(T, B), 409),
            (PutBoard(T, B, 7), 409),
            (PutConsumer(T, "one", "", board="other"), 404),
        ):
            with pytest.raises(RangecastError) as raised:
                await edit(service, wrong)
            assert status_of(raised.value) == status
        with pytest.raises(RequestError, match="at most 1,000 changes"):
            await update(service, [{"id": "c", "value": 1}] * 1001, is_batch=True)
        service.stop()

    run(work())


def test_boards_over_http_and_with_clients() -> None:
    served = Served(spaces={"flats": SPACES["space"]})
    place = {"km": 3, "m2": 40, "town": "Bern"}
    plain = httpx.Client(base_url=served.url, trust_env=False)
    try:
        with Client(served.url) as client, plain as http:
            board = client.put_board(B, 2, space="flats")
            client.put_board(B, 2, space="flats")  # the same again
            assert board.add("a", place, 700).count(":") == 1
            client.put_consumer("ann", start_at="start", board=B)
            ann = board.subscribe("near", "km < 10", consumer="ann")
            assert [(one.object, one.value, one.position) for one in ann.best] == [
                ("a", 700.0, place)
            ]
            assert board.upsert_many([{"id": "all", "filter": "true", "k": 1}]) == (1, 0)
            with pytest.raises(DuplicateIdError, match="already exists"):
                board.subscribe("near", "km < 10")
            with pytest.raises(RejectedRowError, match="an interest of the board"):
                board.upsert_many([{"id": "x", "position_lo": 1}])
            with pytest.raises(UnknownIdError, match="no object 'z'"):
                board.set_value("z", 1)
            with pytest.raises(UnknownIdError, match="no object 'z'"):
                board.move("z", place, 1)
            with pytest.raises(DuplicateIdError, match="object 'a' already exists"):
                board.add("a", place, 1)
            board.update_many([("b", 600, place), {"id": "c", "value": 1, "km": 50}])
            board.update_batch([("a", 650), ("b", None)])
            board.move("a", {"town": None})
            assert board.best("m2 > 1", k=5)[0].position == {**place, "town": None}
            assert (len(board), list(board), "near" in board, "x" in board) == (
                *(2, ["all", "near"], True, False),
            )
            found = client.messages("ann")
            expected = [["a"], ["b", "a"], ["a"], ["a"]]
            lists = [[o.object for o in one.lists["near"]] for one in found.items]
            assert lists == expected
            assert {one.board for one in found.items} == {B}
            # the same by server-sent events and by WebSocket
            with http.stream("GET", "/v1/consumers/ann/stream") as stream:
                lines = (line[6:] for line in stream.iter_lines() if line.startswith("data: "))
                events = [json.loads(next(lines)) for _ in expected]
            with connect(served.url.replace("http", "ws") + "/v1/stream", proxy=None) as socket:
                socket.send(json.dumps({"type": "attach", "consumer": "ann"}))
                frames = [json.loads(socket.recv()) for _ in range(len(expected) + 1)][1:]
            assert {frame.pop("type") for frame in frames} == {"lists"}
            assert [frame | {"consumer": 0} for frame in frames] == [
                event | {"consumer": 0} for event in events
            ]
            assert [event["position"] for event in events] == [one.position for one in found.items]
            rows = [{"id": one, "filter": "true", "k": 2} for one in ("m1", "m2")]
            assert board.subscribe_many(rows) == 2
            with pytest.raises(DuplicateIdError):
                board.subscribe_many(rows)
            assert board.replace_many([{"id": "m1", "filter": "km < 10"}]) == 1
            with pytest.raises(UnknownIdError, match="no interest 'm3'"):
                board.replace_many([{"id": "m3", "filter": "km < 10"}])
            board.replace("near", "km < 11")
            assert [board[one][1:4] for one in ("m1", "m2", "near")] == [
                (("km < 10",), 2, None),  # what isn't given stays
                (("true",), 2, None),
                (("km < 11",), None, "ann"),
            ]
            board.replace("near", "km < 10")
            assert board.upsert("m1", "true").k is None  # and upsert replaces all of it
            with pytest.raises(UsageError, match="a list of interests"):
                board.unsubscribe_many("m1")
            with pytest.raises(UnknownIdError):
                board.unsubscribe_many(["m1", "m3"])
            assert board.unsubscribe_many(["m1", "m2"]) == 2
            with (
                Client(served.url, space="flats") as other,
                pytest.raises(ServerError, match="is of the board 'flats', the subscription"),
            ):
                other.subscribe("s", "km < 1", consumer="ann")
            for path, body, status in (
                (f"/v1/boards/{B}", {"k": 0}, 422),
                (f"/v1/boards/{B}", {"k": 3}, 409),
                ("/v1/boards/up", {"k": 3, "space": "flats", "upper_bound_attribute": "km"}, 422),
                ("/v1/consumers/x", {"board": B, "space": "flats"}, 422),
                ("/v1/consumers/x", {"board": B, "max_per_event": 2}, 422),
                (f"/v1/boards/{B}/interests/i", {"filter": "rooms > 1"}, 422),
                (f"/v1/boards/{B}/interests/i", {"filter": "km > 1", "k": 3}, 422),
            ):
                assert http.put(path, json=body).status_code == status, path
            assert http.post(
                "/v1/consumers/ann/seek", json={"position": "now", "subscriptions": "current"}
            ).is_error
            assert http.get(f"/v1/boards/{B}").json()["objects"] == 2
            objects = http.get(f"/v1/boards/{B}/objects").json()
            assert [one["id"] for one in objects["items"]] == ["a", "c"]

        async def awaited() -> None:
            async with AsyncClient(served.url) as client:
                line = await client.put_board("line", 1, descending=True)
                await line.add("a", 1.5, 3)
                assert (await line.subscribe("i", 1, 2)).best[0].object == "a"
                assert (await line.replace("i", None, 1)).best == []
                await line.update_batch([("b", 2, 1)])
                await line.set_value("b", 4)
                await line.move("b", 0.5, 5)
                assert [one.value for one in await line.best(0, 1)] == [5.0]
                assert await line.upsert_many([{"id": "j"}]) == (1, 0)
                await line.remove("b")
                await line.unsubscribe("i")
                await client.delete_board("line")
                with pytest.raises(ServerError, match="no board 'line'"):
                    await line.get("j")

        asyncio.run(awaited())
    finally:
        served.stop()


@pytest.mark.process
def test_nothing_of_a_board_is_lost_by_kill_9(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rangecast", "serve", "--port", "0", "--data", "data"]
    acked: list[tuple[int, dict[str, Any]]] = []
    got: list[str] = []
    for turn in range(3):
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert found
        with httpx.Client(base_url=found[0], timeout=60, trust_env=False) as http:
            if not turn:
                http.put(f"/v1/boards/{B}", json={"k": 3}).raise_for_status()
                consumer = {"board": B, "start_at": "start"}
                http.put("/v1/consumers/one", json=consumer).raise_for_status()
                for name in range(5):
                    wanted = {"position_lo": name, "position_hi": name + 4, "consumer": "one"}
                    http.put(f"/v1/boards/{B}/interests/i{name}", json=wanted).raise_for_status()

            def write(url: str = found[0], turn: int = turn) -> None:
                rng = random.Random(turn)
                with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
                    while True:
                        name, x, y = rng.randrange(12), rng.randrange(9), rng.randrange(9)
                        row = {"id": f"o{name}", "position": float(x), "value": float(y)}
                        try:
                            answer = http.post(f"/v1/boards/{B}/updates", json=row).json()
                        except httpx.HTTPError:
                            return
                        acked.append((int(answer["first"].partition(":")[2]), row))

            writer = threading.Thread(target=write)
            writer.start()
            target = len(acked) + 40
            while len(acked) < target:
                page = http.get("/v1/consumers/one/messages?wait=1").json()
                got += map(json.dumps, page["items"])
                http.post("/v1/consumers/one/ack", json={"position": page["position"]})
            process.kill()
            process.wait()
            writer.join()
        process.stdout.close()

    async def rest() -> None:
        service = Service(tmp_path / "data")
        service.start()
        left = await all_of(service, "one")
        got.extend(one.json(service.core.log.epoch).decode() for one in left)
        service.stop()

    run(rest())
    (tmp_path / "got.jsonl").write_text("\n".join(got))
    report = verify_deliveries(tmp_path / "data", T, "one", tmp_path / "got.jsonl")
    assert report.holds, report
    assert report.expected > 50
    logged, mirror = {}, Mirror("line", 0)
    for seq in range(5):
        mirror.put(seq, f"i{seq}", "one", 0, {"position_lo": seq, "position_hi": seq + 4})
    mirror.expected["one"].clear()
    for unit in checked_units(tmp_path / "data"):
        if unit.kind == UPDATES:
            change = updates_of(unit)[1][0]
            row = {"id": change.id, "position": change.position, "value": change.value}
            logged[unit.first] = row
            mirror.apply(unit.first, row)
    assert acked == [(seq, logged[seq]) for seq, _ in acked]
    lists = {
        (one["seq"], each["interest"]): each["best"]
        for one in map(json.loads, got)
        for each in one["lists"]
        if one["seq"] in logged
    }
    assert lists == {(seq, name): best for seq, name, best in mirror.expected["one"]}
    (tmp_path / "got.jsonl").write_text("\n".join(got[1:]).replace('"value": 3.0', '"value": 3.5'))
    wrong = verify_deliveries(tmp_path / "data", T, "one", tmp_path / "got.jsonl")
    assert wrong.missing
    assert wrong.differing
