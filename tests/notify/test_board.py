"""A board as a set: saved and opened, copied, and given in any form."""

import copy
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rangecast import Number, Space
from rangecast.errors import RangecastError
from rangecast.model.io.writer import write_table
from rangecast.notify import Board

OBJECTS = {
    "id": ["a", "b", "c", "d"],
    "position": [1.0, 2.0, 3.0, 4.0],
    "value": [5.0, 3.0, 3.0, 1.0],
}
INTERESTS = {
    "id": [7, 3, 5],
    "position_lo": [0.0, 2.0, None],
    "position_hi": [3.0, None, None],
    "k": [None, 1, 2],
}
CHANGES = [("b", 9.0), ("e", 3.0, 2.5), ("d", None), ("a", 1.0), ("c", 4.0, 0.5)]


def edited(**options):
    """Return a board whose slots, rows and orders are no longer those of the tables."""
    board = Board(2, objects=OBJECTS, interests=INTERESTS, **options)
    board.update_batch([("a", 4.0), ("d", 2.0, 1.5)])
    board.unsubscribe(3)
    board.subscribe(9, 1, 2)  # in as many as the board has
    board.replace(7, 0, 2.5)
    board.remove("b")
    board.add("b", 0.25, 3.0)
    return board


def content(board):
    lists = {one: (i.lo, i.hi, i.k, i.best) for one in board for i in [board[one]]}
    return list(board), lists, list(board.objects.values()), board.best(k=9), board.seq, repr(board)


@pytest.mark.parametrize(
    "options",
    [{}, {"algorithm": "dense", "epsilon": 0.5}, {"sketch": 2}, {"descending": True}],
)
def test_snapshots_pickles_and_copies_go_on_where_the_board_was(tmp_path, options):
    board = edited(**options)
    board.save(tmp_path / "board")
    twins = [
        Board.open(tmp_path / "board"),
        pickle.loads(pickle.dumps(board)),
        copy.copy(board),
        copy.deepcopy(board),
    ]
    was = content(board)
    for twin in twins:
        assert content(twin) == was
        assert (twin.algorithm, twin.epsilon, twin.sketch, twin.descending) == (
            board.algorithm,
            board.epsilon,
            board.sketch,
            board.descending,
        )
        lists = twin.lists()
        lists.deliver(twin.update_many(CHANGES))
        lists.deliver(twin.update_batch([("e", 8.0), ("a", None)]))
        assert not len(twin.mismatches(lists))
    assert content(board) == was
    board.update_many(CHANGES)
    board.update_batch([("e", 8.0), ("a", None)])
    assert all(content(twin) == content(board) for twin in twins)


def test_a_board_is_opened_with_other_options(tmp_path):
    edited().save(tmp_path / "board")
    dense = Board.open(tmp_path / "board", algorithm="dense", k=3)
    assert (dense.algorithm, dense.k, dense[5].k, dense[9].k) == ("dense", 3, 2, 3)
    with pytest.raises(RangecastError, match="an interest wants 2 objects"):
        Board.open(tmp_path / "board", k=1)
    with pytest.raises(RangecastError, match="saved with descending=False"):
        Board.open(tmp_path / "board", descending=True)
    with pytest.raises(RangecastError, match="already exists"):
        edited().save(tmp_path / "board")
    edited().save(tmp_path / "board", overwrite=True)


def test_an_empty_board_is_saved(tmp_path):
    Board(4).save(tmp_path / "board")
    board = Board.open(tmp_path / "board")
    assert (len(board), len(board.objects), board.k, board.best()) == (0, 0, 4, [])
    board.add("a", 1, 1)
    assert [entry.object for entry in board.subscribe("x").best] == ["a"]
    assert repr(board) == "<Board: 1 object, 1 interest in the 4 best>"


@pytest.mark.parametrize("form", ["columns", "rows", "arrow", "pandas", "csv", "parquet"])
def test_objects_and_interests_are_given_in_any_form(tmp_path, form):
    def given(columns, name):
        table = pa.table(columns)
        if form == "rows":
            return table.to_pylist()
        if form == "arrow":
            return table
        if form == "pandas":
            return pd.DataFrame(columns)
        if form == "columns":
            return columns
        path = tmp_path / f"{name}.{form}"
        write_table(table, path)
        return path

    board = Board(2, objects=given(OBJECTS, "objects"), interests=given(INTERESTS, "interests"))
    assert content(board) == content(Board(2, objects=OBJECTS, interests=INTERESTS))


def test_some_objects_as_a_table():
    board = edited()
    whole = {row["id"]: row for row in board.table().to_pylist()}
    assert list(board.table(["b", "zz", "a"])["id"].to_pylist()) == ["b", "a"]
    assert board.table(["b", "zz", "a"]).to_pylist() == [whole["b"], whole["a"]]
    assert board.table([]).num_rows == 0


def test_memory_counts_what_batches_and_sketches_keep():
    plain = Board(2, objects=OBJECTS, interests=INTERESTS)
    sketched = Board(2, objects=OBJECTS, interests=INTERESTS, sketch=1)
    before = plain.memory
    assert sketched.memory == plain.engine.objects.memory + 16 * 3 + sketched.engine.index.memory
    plain.update_batch([("a", 1.0)])
    assert plain.memory == before + plain.engine.objects.memory


def test_a_sketch_saves_the_memory_of_the_interests():
    rng = np.random.default_rng(3)
    m = 20_000
    ends = np.sort(rng.random((m, 2)), axis=1)
    interests = {"id": np.arange(m), "position_lo": ends[:, 0], "position_hi": ends[:, 1]}
    objects = {"id": np.arange(300), "position": rng.random(300), "value": rng.random(300)}
    boards = {
        size: Board(3, objects=objects, interests=interests, sketch=size)
        for size in (None, 10, 1000, 10_000)
    }
    kept = {size: board.memory - board.engine.objects.memory for size, board in boards.items()}
    assert kept[None] > 36 * m
    assert kept[10] < 16 * m + 3000
    assert kept[1000] < 16 * m + 100 * 1000
    sent = dict.fromkeys(boards, 0)
    for one, y in zip(rng.integers(0, 300, 100).tolist(), rng.random(100).tolist(), strict=True):
        for size, board in boards.items():
            sent[size] += len(board.set_value(one, y))
    assert sent[None] <= sent[10_000] <= sent[1000] <= sent[10]
    assert sent[None] < sent[10]
    assert all(boards[10][one].best == boards[None][one].best for one in range(0, m, 997))


@pytest.mark.parametrize("space", [None, Space([Number("position")])], ids=["line", "space"])
def test_upserting_interests_adds_what_is_new_and_replaces_what_exists(space):
    board = Board(2, space=space, objects={"id": ["a", "b"], "position": [1, 5], "value": [1, 2]})
    for nothing in ([], {}, pa.table({})):
        assert board.subscribe_many(nothing) == board.replace_many(nothing) == 0
        assert board.upsert_many(nothing) == (0, 0)
    rows = [
        {"id": 1, "position_lo": 0, "position_hi": 2},
        {"id": 2, "position_lo": 0, "position_hi": 9, "k": 1},
    ]
    assert board.upsert_many(rows) == (2, 0)
    bad = []
    rows = [
        {"id": 1, "position_lo": 4, "position_hi": 6},
        {"id": 3, "position_lo": 2, "position_hi": 1},
        {"id": 4, "position_lo": 9},
    ]
    assert board.upsert_many(rows, rejected=bad) == (1, 1)
    assert [one.row for one in bad] == [1]
    assert list(board) == [1, 2, 4]
    assert [entry.object for entry in board[1].best] == ["b"]
    where = (0, 9) if space is None else ("position <= 9",)
    board.upsert(2, *where)
    assert (board[2].k, [entry.object for entry in board[2].best]) == (2, ["a", "b"])
    board.upsert(5, *where, k=1)
    assert (board[5].k, len(board)) == (1, 4)
    messages = board.remove("a")
    assert set(board.affected_interests(messages)) == {2, 5}


def test_a_sketch_is_tightened_when_interests_leave():
    """Where all interests have left, a change sends nothing; those that stay still hear of all."""
    rng = np.random.default_rng(4)
    left = np.sort(rng.random((400, 2)), axis=1) * 10
    right = 90 + np.sort(rng.random((40, 2)), axis=1) * 10
    ends = np.concatenate([left, right])
    positions, values = rng.random(500) * 100, rng.random(500)
    objects = {"id": range(500), "position": positions, "value": values}
    interests = {"id": range(440), "position_lo": ends[:, 0], "position_hi": ends[:, 1]}
    board = Board(2, objects=objects, interests=interests, sketch=8)
    inside = np.flatnonzero(positions < 10)
    assert sum(len(board.set_value(int(one), -1.0 - one)) for one in inside) > 0
    for interest in range(412):  # a few of the others, too: rectangles aren't drawn at each
        board.unsubscribe(interest)
    assert sum(len(board.set_value(int(one), 2.0 + one)) for one in inside) == 0
    lists = board.lists()
    for one in np.flatnonzero(positions >= 90).tolist():
        lists.deliver(board.set_value(one, -rng.random()))
    assert board.mismatches(lists).tolist() == []
