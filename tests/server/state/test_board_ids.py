"""Ids on a server's board come back as they were given, from memory, log and snapshot."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rangecast import Engine, Number, Space
from rangecast.client import Client
from rangecast.errors import RejectedRowError, UnknownIdError, UsageError
from rangecast.notify import Board
from tests.support.server.served import Served


def filled(board: Any) -> list[Any]:
    """Make interests and objects with integers as ids; return what the board answers."""
    board.subscribe(7, 0, 10)
    board.subscribe_many([{"id": 8, "position_lo": 5, "position_hi": 20}])
    board.add(1, 5, 30.0)
    board.update_many([(2, 20.0, 6), (3, 10.0, 7)])
    board.set_value(2, 40.0)
    board.remove(3)
    return answers(board)


def answers(board: Any) -> list[Any]:
    return [
        sorted(board),
        [(one.object, one.value) for one in board.best(0, 10, k=5)],
        [(one.object, one.value) for one in board[7].best],
        [board[one].id for one in sorted(board)],
        7 in board,
    ]


@pytest.mark.parametrize("source", ["snapshot", "log"])
def test_integers_stay_integers_over_restarts(tmp_path: Path, source: str) -> None:
    expected: list[Any] = []
    for _ in range(3):
        for snapshot in tmp_path.glob("data/snapshot-*") if source == "log" else ():
            shutil.rmtree(snapshot)
        served = Served(data=tmp_path / "data")
        try:
            with Client(served.url) as client:
                board = client.put_board("b", 2)
                if not expected:
                    client.put_consumer("ann", start_at="start", board="b")
                    expected = filled(board)
                    assert expected == [
                        [7, 8],
                        [(1, 30.0), (2, 40.0)],
                        [(1, 30.0), (2, 40.0)],
                        [7, 8],
                        True,
                    ]
                    board.upsert(7, 0, 10, consumer="ann")
                    board.set_value(1, 35.0)
                    continue
                found = [one.lists for one in client.messages("ann").items]
                assert [
                    {key: [(o.object, o.value) for o in best] for key, best in one.items()}
                    for one in found
                ] == [{7: [(1, 30.0), (2, 40.0)]}, {7: [(1, 35.0), (2, 40.0)]}]
                expected[1] = expected[2] = [(1, 35.0), (2, 40.0)]
                assert answers(board) == expected
        finally:
            served.stop()


def test_an_object_keeps_the_id_it_was_added_with() -> None:
    """A path can't tell 7 from "7": both name the same object and the same interest."""
    served = Served()
    try:
        with Client(served.url) as client:
            board = client.put_board("b", 2)
            board.add(7, 1, 1.0)
            board.set_value("7", 2.0)
            assert [(one.object, one.value) for one in board.best(0, 10)] == [(7, 2.0)]
            board.remove("7")
            board.add("7", 1, 3.0)
            assert [(one.object, one.value) for one in board.best(0, 10)] == [("7", 3.0)]
            with pytest.raises(UnknownIdError, match="no object 8"):
                board.set_value(8, 1.0)
    finally:
        served.stop()


def test_an_empty_id_is_rejected_everywhere() -> None:
    served = Served()
    try:
        with Client(served.url) as client:
            for board in (Board(2), client.put_board("b", 2)):
                with pytest.raises(UsageError, match="a non-empty string"):
                    board.subscribe("", 0, 1)
                with pytest.raises(UsageError, match="a non-empty string"):
                    board.add("", 1, 1.0)
    finally:
        served.stop()


@pytest.mark.parametrize(
    "ids", [["a", ""], pa.array(["a", ""]), pa.array(["a", ""]).dictionary_encode()]
)
def test_an_empty_id_in_a_column_is_a_rejected_row(ids: Any) -> None:
    space = Space([Number("price")])
    table = pa.table({"id": ids, "filter": ["price < 1", "price < 2"]})
    served = Served(spaces={"market": space})
    try:
        with Client(served.url, space="market") as client:
            for engine in (Engine(space), client):
                with pytest.raises(RejectedRowError, match="integer or a non-empty string") as one:
                    engine.subscribe_many(table)
                assert one.value.rejected.row == 1
                with pytest.raises(UsageError, match="a non-empty string"):
                    engine.subscribe("", "price < 1")
                assert len(engine) == 0
    finally:
        served.stop()
