"""Changes of objects mean the same to a board in Python, over HTTP and to both clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from rangecast import Number, Space
from rangecast.client import AsyncClient, Client
from rangecast.errors import RangecastError
from rangecast.notify import Board
from tests.support.server.served import Served

SPACE = Space([Number("a"), Number("b")])
BEFORE: dict[str, Any] = {"a": 1.0, "b": 2.0, "value": 5.0}
CASES: list[tuple[str, Callable[[Any], Any], dict[str, Any] | None]] = [
    ("move takes a value away", lambda o: o.move("m", {"b": None}), {"b": None}),
    ("move keeps the others", lambda o: o.move("m", {"a": 3}), {"a": 3.0}),
    ("move with a value", lambda o: o.move("m", {"b": None}, 7), {"b": None, "value": 7.0}),
    ("move of nothing", lambda o: o.move("m", {"b": 2}), {}),
    ("triple", lambda o: o.update_many([("m", 6, {"b": None})]), {"b": None, "value": 6.0}),
    (
        "triple in a batch",
        lambda o: o.update_batch([("m", 6, {"b": None})]),
        {"b": None, "value": 6.0},
    ),
    ("pair", lambda o: o.update_many([("m", 6)]), {"value": 6.0}),
    (
        "dict",
        lambda o: o.update_many([{"id": "m", "value": 6, "b": None}]),
        {"b": None, "value": 6.0},
    ),
    (
        "dict in a batch",
        lambda o: o.update_batch([{"id": "m", "value": 6, "b": None}]),
        {"b": None, "value": 6.0},
    ),
    ("dict without y", lambda o: o.update_many([{"id": "m", "b": None}]), {"b": None}),
    ("dict without a place", lambda o: o.update_many([{"id": "m", "value": 6}]), {"value": 6.0}),
    (
        "dicts, the second without y",
        lambda o: o.update_many([{"id": "m", "value": 9}, {"id": "m", "a": None}]),
        {"a": None, "value": 9.0},
    ),
    ("dict with a value of None", lambda o: o.update_many([{"id": "m", "value": None}]), None),
    ("both taken away", lambda o: o.move("m", {"a": None, "b": None}), {"a": None, "b": None}),
    (
        "add with None",
        lambda o: (o.remove("m"), o.add("m", {"a": 4, "b": None}, 5)),
        {"a": 4.0, "b": None},
    ),
    (
        "add without",
        lambda o: (o.remove("m"), o.add("m", {"a": 4}, 5)),
        {"a": 4.0, "b": None},
    ),
]
REJECTED: list[Callable[[Any], Any]] = [
    lambda o: o.move("m", {"c": None}),
    lambda o: o.update_many([{"id": "m", "value": 1, "c": 1}]),
    lambda o: o.update_many([{"id": "m"}]),
    lambda o: o.update_many([{"value": 1}]),
    lambda o: o.update_many([{"id": "new", "a": 1}]),
    lambda o: o.update_many([{"id": "m", "value": "six"}]),
]


class Awaited:
    """An asynchronous board, call by call."""

    def __init__(self, url: str):
        self._url = url

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*given: Any) -> Any:
            async with AsyncClient(self._url) as client:
                return await getattr(client.board("objects"), name)(*given)

        return lambda *given: asyncio.run(call(*given))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    served = Served(spaces={"plane": SPACE})
    with Client(served.url) as client:
        client.put_board("objects", 2, space="plane")
    yield served.url
    served.stop()


@pytest.fixture(params=["space", "upper", "client", "awaited"])
def board(request: pytest.FixtureRequest, url: str) -> Iterator[tuple[Any, Callable[[], Any]]]:
    """A board with the object `m`, and a function that returns the object as it is now."""
    if request.param in ("space", "upper"):
        upper = "b" if request.param == "upper" else None
        local: Any = Board(
            2, space=SPACE, upper_bound_attribute=upper, objects=[{"id": "m", **BEFORE}]
        )
        yield local, lambda: {one["id"]: one for one in local.table().to_pylist()}.get("m")
        return
    with Client(url) as client, httpx.Client(base_url=url, trust_env=False) as http:
        there = http.get("/v1/boards/objects/objects").json()["items"]
        board = client.board("objects")
        board.update_many([("m", None)] * bool(there) + [{"id": "m", **BEFORE}])

        def now() -> Any:
            items = http.get("/v1/boards/objects/objects").json()["items"]
            return {one["id"]: one for one in items}.get("m")

        yield (board if request.param == "client" else Awaited(url)), now


@pytest.mark.parametrize(
    ("call", "changed"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_none_takes_a_value_away_and_what_is_not_given_stays(
    board: tuple[Any, Callable[[], Any]],
    call: Callable[[Any], Any],
    changed: dict[str, Any] | None,
) -> None:
    there, now = board
    call(there)
    found = now()
    if changed is None:
        assert found is None
    else:
        assert {name: found[name] for name in BEFORE} == BEFORE | changed


@pytest.mark.parametrize("call", REJECTED)
def test_what_is_no_change_is_rejected(
    board: tuple[Any, Callable[[], Any]], call: Callable[[Any], Any]
) -> None:
    there, now = board
    with pytest.raises(RangecastError):
        call(there)
    assert {name: now()[name] for name in BEFORE} == BEFORE


@pytest.mark.parametrize("change", ["update_many", "update_batch"])
def test_in_a_table_null_is_as_before(change: str) -> None:
    board = Board(2, space=SPACE, objects=[{"id": "m", **BEFORE}])
    rows = pa.table({"id": ["m"], "value": [6.0], "a": [3.0], "b": pa.nulls(1, pa.float64())})
    getattr(board, change)(rows)
    assert board.objects["m"].position == {"a": 3.0, "b": 2.0}
    assert board.objects["m"].value == 6.0


def test_lists_follow_an_object_that_loses_a_value() -> None:
    board = Board(1, space=SPACE, objects=[{"id": "m", **BEFORE}])
    bounded, free = board.subscribe("bounded", "b < 9"), board.subscribe("free", "a < 9")
    for message in board.move("m", {"b": None}):
        bounded.receive(message)
        free.receive(message)
    assert bounded.best == []
    assert free.best == board["free"].best
    assert free.best[0].position == {"a": 1.0, "b": None}


def test_a_change_on_a_line_without_y_keeps_the_value() -> None:
    board = Board(1, objects={"id": ["m"], "position": [1.0], "value": [5.0]}, descending=True)
    board.update_many(
        [{"id": "m", "position": 2}, {"id": "m", "value": 7}, {"id": "m", "position": 3}]
    )
    assert board.objects["m"][1:] == (3.0, 7.0)
    with pytest.raises(RangecastError, match="position must be a finite number"):
        board.update_many([{"id": "m", "position": None}])
