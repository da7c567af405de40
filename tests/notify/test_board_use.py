"""Use of a board: what is rejected, restarts from a table, order, memory, public names."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import RangecastError, UsageError
from rangecast.notify.board import Board
from rangecast.notify.line.interests import Interests
from tests.support.notify import EXACT, make
from tests.support.notify_model import boards, changes


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Board(0), "k must be a whole number"),
        (lambda: Board(True), "k must be a whole number"),
        (lambda: Board(1, algorithm="sparce"), "did you mean 'sparse'"),
        (lambda: Board(1, epsilon=0), "epsilon must be above 0"),
        (lambda: Board(1, algorithm=None), "no algorithm None"),
        (lambda: Board(1, algorithm="dense", sketch=4), "a sketch is only for 'sparse'"),
        (lambda: Board(1, sketch=1.5), "sketch must be a whole number"),
        (lambda: Board(1, epsilon="1"), "epsilon must be a finite number"),
        (lambda: Board(1, objects={"id": [1], "position": [1]}), "has no column 'value'"),
        (
            lambda: Board(1, objects={"id": [1], "position": [1], "value": [1], "z": [1]}),
            "unknown column 'z'",
        ),
        (
            lambda: Board(1, objects={"id": [1], "position": [math.nan], "value": [1]}),
            "finite number",
        ),
        (
            lambda: Board(1, objects={"id": [1], "position": [True], "value": [1]}),
            "'position' must be a number",
        ),
        (lambda: Board(1, objects=[{"id": 1, "position": 1, "value": 10**400}]), "finite number"),
        (
            lambda: Board(1, objects={"id": [1, 1], "position": [1, 2], "value": [1, 2]}),
            "duplicate id",
        ),
        (
            lambda: Board(1, objects={"id": [None], "position": [1], "value": [1]}),
            "or a non-empty string",
        ),
        (
            lambda: Board(1, objects={"id": [True], "position": [1], "value": [1]}),
            "an integer or a",
        ),
        (
            lambda: Board(1, objects={"id": [1.5], "position": [1], "value": [1]}),
            "an integer or a",
        ),
        (lambda: Board(1, interests=[{"id": 1, "low": 0}]), "unknown column 'low'"),
        (lambda: Board(1, interests=5), "interests must be an Arrow table"),
        (lambda: Board(1, interests="none.csv"), "none.csv"),
        (lambda: make(1, [], [(2, 1)]), "between 2 and 1"),
        (lambda: make(1, [], [(True, 1)]), "'position' must be a number"),
        (lambda: make(1, [], [(10**400, None)]), "finite number"),
        (lambda: make(1, [], [(1, 2)], wanted=[2]), "column 'k'"),
    ],
)
def test_a_board_that_makes_no_sense_is_rejected(call, says):
    with pytest.raises(RangecastError, match=says):
        call()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda b: b.update_many([(1, 5.0), (2, 1.0)]), "give a position and a value to add it"),
        (lambda b: b.update_many([(1, 5.0), (1, 5.0, 6.0, 7.0)]), "a pair"),
        (lambda b: b.update_many([(1, 5.0), 2]), "a pair"),
        (lambda b: b.update_many("ab"), "pairs"),
        (lambda b: b.update_many([(1, 5.0), (2, 1.0, 1.0), ("a", 1.0, 1.0)]), "2 and 'a'"),
        (lambda b: b.update_batch([(1, 5.0), ("a", 1.0, 1.0)]), "all integers or all strings"),
        (lambda b: b.update_batch([(1, 5.0), (None, 1.0, 1.0)]), "the id of an object"),
        (lambda b: b.add(1, 0.0, 0.0), "already exists; use set_value"),
        (lambda b: b.add(None, 0.0, 0.0), "must be an integer or a string"),
        (lambda b: b.add(True, 0.0, 0.0), "must be an integer or a string"),
        (lambda b: b.add(1.5, 0.0, 0.0), "must be an integer or a string"),
        (lambda b: b.set_value(7, 0.0), "no object 7"),
        (lambda b: b.set_value(True, 0.0), "no object True"),
        (lambda b: b.remove(7), "no object 7"),
        (lambda b: b.move(7, 1.0), "no object 7"),
        (lambda b: b.set_value(1, math.inf), "value must be a finite number"),
        (lambda b: b.set_value(1, 10**400), "value must be a finite number\n  given: int 1000"),
        (lambda b: b.set_value(1, "5"), "value must be a finite number\n  given: str '5'"),
        (lambda b: b.set_value(1, True), "value must be a finite number"),
        (lambda b: b.update_many({"id": [1], "value": [10**400]}), "must be a finite number"),
        (
            lambda b: b.update_many([{"id": 1, "value": 5.0}, {"id": 1, "value": "a"}]),
            "row 1: value must be a finite number",
        ),
        (lambda b: b.move(1, None), "position must be a finite number"),
        (lambda b: b.add(2, None, 1), "position must be a finite number"),
        (lambda b: b.add(2, 1, None), "value must be a finite number"),
        (lambda b: b.unsubscribe_many("0"), "expected a list of interests"),
        (lambda b: b.unsubscribe_many(0), "put a single id into a list"),
        (lambda b: b.unsubscribe_many(["0"]), "the ids of this set are integers"),
        (lambda b: b.unsubscribe_many([0, 1]), "no interest 1"),
        (lambda b: b.subscribe_many([{"id": 5}, {"id": 0}]), "interest 0 already exists"),
        (lambda b: b.subscribe_many([{"id": 5}, {"id": 5}]), "duplicate id"),
        (lambda b: b.subscribe_many([{"id": "a"}]), "this set's are integers"),
        (lambda b: b.replace_many([{"id": 0, "position_hi": 9}, {"id": 5}]), "no interest 5"),
        (lambda b: b.best(0, 1, k=0), "k must be a whole number"),
        (lambda b: b.subscribe(9, 2, 1), "is empty"),
        (lambda b: b.subscribe(9, 10**400), "lo must be a finite number"),
        (lambda b: b.subscribe(9, k=2), "from 1 to 1"),
        (lambda b: b.replace(0, 2, 1), "is empty"),
    ],
)
def test_what_a_board_rejects_changes_nothing(call, says):
    board = make(1, [(1, 0.0, 0.0)], [(0, 1)])
    board.update_batch([(1, 0.0)])
    with pytest.raises(RangecastError, match=says):
        call(board)
    assert board.objects[1] == (1, 0.0, 0.0)
    assert list(board.objects) == [1]
    assert list(board) == [0]
    assert (board[0].lo, board[0].hi) == (0, 1)
    assert board.seq == 1


def test_a_board_goes_on_from_its_table():
    board = make(2, [(i, float(i % 3), 1.0) for i in range(6)], [(0, 9)])
    board.update_many([(2, None), (9, 1.0, 2.0), (0, 1.0, 5.0)])
    again = Board(2, objects=board.table())
    assert again.best(0, 9, k=6) == board.best(0, 9, k=6)
    assert [e.object for e in again.best(0, 9, k=6)] == [0, 1, 3, 4, 5, 9]
    with pytest.raises(UsageError, match="distinct whole numbers"):
        Board(1, objects={"id": [1, 2], "position": [0, 0], "value": [0, 0], "arrival": [3, 3]})


@given(st.data(), st.integers(1, 3), st.sampled_from(EXACT))
def test_highest_first_is_lowest_first_with_the_sign_turned(data, k, how):
    """In lists, messages, objects and tables; by single changes, by many, and in batches."""
    objects, interests = data.draw(boards())
    algorithm, sketch = how
    options = {"algorithm": algorithm, "sketch": sketch}
    low = make(k, [(n, x, -y) for n, x, y in objects], interests, **options)
    high = make(k, objects, interests, descending=True, **options)
    held = [high[i] for i in range(len(interests))]
    for batch in range(3):
        there = [(one.id, one.position, one.value) for one in high.objects.values()]
        some = data.draw(changes(there, most=5))
        turned = [(n, None if y is None else -y, *x) for n, y, *x in some]
        call = "update_batch" if batch == 1 else "update_many"
        messages = getattr(high, call)(some)
        mirrored = [m._replace(value=0.0 - m.value) for m in getattr(low, call)(turned)]
        assert list(messages) == mirrored
        assert messages.table().to_pylist() == [m._asdict() for m in mirrored]
        for message in messages:
            for one in held:
                one.receive(message)
        for (lo, hi), one in zip(interests, held, strict=True):
            assert one.best == high.best(lo, hi)
            assert [e._replace(value=0.0 - e.value) for e in one.best] == low.best(lo, hi)
    assert not len(high.mismatches(high.lists()))


def test_messages_are_read_as_a_sequence():
    board = make(2, [(i, float(i), float(i)) for i in range(5)], [(0, 4), (1, 3)])
    messages = board.update_many({"id": [0, 1], "value": [9.0, 8.0]})
    assert messages[0] == next(iter(messages))
    assert messages[-1] == list(messages)[-1]
    assert messages.to_pandas()["object"].tolist() == [m.object for m in messages]
    with pytest.raises(IndexError):
        messages[len(messages)]
    assert list(board.update_many([])) == []
    assert board.update_many([]).table().num_rows == 0


def test_memory_of_an_interest():
    ends = np.sort(np.random.default_rng(0).random((50_000, 2)), axis=1)
    assert Interests(ends[:, 0], ends[:, 1]).memory <= 40 * 50_000


def test_what_the_package_offers():
    from rangecast import notify

    assert notify.__all__ == [
        "Board",
        "BoxInterest",
        "BoxMessage",
        "BoxMessages",
        "Change",
        "Entry",
        "Interest",
        "Message",
        "Messages",
        "Object",
        "Output",
        "QueryCounts",
        "Server",
        "ServerLostError",
        "ServerProcesses",
        "Servers",
        "SpaceQueryCounts",
    ]
    assert notify.Board is Board
    assert all(hasattr(notify, name) for name in dir(notify))
