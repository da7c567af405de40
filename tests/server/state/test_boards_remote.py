"""Boards over HTTP, with clients, and over kills of the server."""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from rangecast.client import AsyncClient, Client, ServerError
from rangecast.errors import (
    DuplicateIdError,
    RejectedRowError,
    UnknownIdError,
    UsageError,
)
from rangecast.server.log.segment import checked_units
from rangecast.server.service import Service
from rangecast.server.state.boards import updates_of
from rangecast.server.state.edits import (
    UPDATES,
)
from rangecast.server.verify.deliveries import verify_deliveries
from tests.server.replication.test_follower import wait_for
from tests.support.server.boards import SPACES, B, Mirror, T, all_of, run
from tests.support.server.served import Served

_NINE = [(f"o{n}", float(n)) for n in range(9)]


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


def test_a_board_with_shapes_over_http(tmp_path: Path) -> None:
    served = Served(data=tmp_path / "data", spaces={"flats": SPACES["shapes"]})
    try:
        with Client(served.url) as client:
            board = client.put_board(B, 2, space="flats")
            client.put_consumer("ann", start_at="start", board=B)
            board.update_many([(name, value, {"km": value, "m2": 9}) for name, value in _NINE])
            disk, half = "within(place, circle(5, 9, 2.5))", "0.3 * km + 0.7 * m2 >= 8"
            found = board.subscribe("disk", disk, consumer="ann").best
            assert [(one.object, one.position) for one in found] == [
                ("o3", {"km": 3.0, "m2": 9.0}),
                ("o4", {"km": 4.0, "m2": 9.0}),
            ]
            board.subscribe("half", half, consumer="ann")
            board.set_value("o1", 9)  # in none of them
            board.set_value("o3", 9)
            board.move("o6", {"m2": 30})
            board.update_batch([("o4", None), ("o8", 1, {"km": 5})])
            lists = [
                {name: [entry.object for entry in best] for name, best in one.lists.items()}
                for one in client.messages("ann").items
            ]
            assert lists == [
                {"disk": ["o3", "o4"]},
                {"half": ["o6", "o7"]},
                {"disk": ["o4", "o5"]},
                {"half": ["o6", "o7"]},  # it shows where o6 is now
                {"disk": ["o8", "o5"]},
            ]
            assert [one.object for one in board.best("km * m2 < 20", k=3)] == ["o0", "o2", "o1"]
            with pytest.raises(UsageError, match="unknown field 'place'"):
                board.update_many([{"id": "o1", "value": 1, "place": 3}])
            page = httpx.get(f"{served.url}/v1/consumers/ann/messages", trust_env=False).json()
            twin = Served(data=tmp_path / "second", spaces={}, follow=served.url)
            try:
                with Client(twin.url) as follower:
                    wait_for(follower, client.status()["durable_seq"])
                    assert follower.messages("ann") == client.messages("ann")
                    assert follower.board(B)["disk"].best == board["disk"].best
            finally:
                twin.stop()
    finally:
        served.stop()
    (tmp_path / "got.jsonl").write_text("\n".join(map(json.dumps, page["items"])))
    report = verify_deliveries(tmp_path / "data", T, "ann", tmp_path / "got.jsonl")
    assert report.holds, report
    assert report.expected == 5


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
