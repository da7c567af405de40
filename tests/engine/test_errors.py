import inspect
import pickle

import pytest

import rangecast.errors
from rangecast import Engine, Number, Space
from rangecast.cover import CoverSet
from rangecast.errors import (
    DuplicateIdError,
    InvalidValueError,
    RangecastError,
    RejectedRow,
    RejectedRowError,
    UnknownIdError,
    did_you_mean,
)
from rangecast.notify import Board


def test_every_error_comes_whole_from_another_process():
    bad = RejectedRow("f.csv", 3, "price", "x", "is not a number", "correct it")
    for _, kind in inspect.getmembers(rangecast.errors, inspect.isclass):
        if issubclass(kind, RangecastError):
            error = kind(bad) if kind is RejectedRowError else kind("what, and what to do")
            again = pickle.loads(pickle.dumps(error))
            assert type(again) is kind
            assert str(again) == str(error)
    assert pickle.loads(pickle.dumps(RejectedRowError(bad))).rejected == bad


def test_a_rejected_row_names_all_that_a_person_needs():
    text = str(RejectedRow("f.csv", 3, "price", "x", "is not a number", "correct it"))
    for part in ("f.csv", "row 3", "'price'", "is not a number", "given: x", "hint: correct it"):
        assert part in text


def test_near_looks_at_so_many_names_only():
    assert did_you_mean("n99999", [f"n{i}" for i in range(100_000)]).startswith("did you mean")


SPACE = Space([Number("price")])


@pytest.mark.parametrize("kind", [Engine, CoverSet])
def test_ids_that_are_unknown_or_taken_are_errors_of_their_own(kind):
    made = kind(SPACE)
    made.subscribe("a", "price < 1")
    _check_ids(made, lambda one: (one, "price < 2"))


def test_ids_of_interests_are_the_same_errors():
    board = Board(1)
    board.subscribe("a", 0, 1)
    _check_ids(board, lambda one: (one, 1, 2))
    for change in (lambda: board.set_value("z", 1.0), lambda: board.update_many([("z", 1.0)])):
        with pytest.raises(UnknownIdError, match="no object 'z'"):
            change()


def _check_ids(made, given):
    for call in (
        lambda: made["z"],
        lambda: made.replace(*given("z")),
        lambda: made.unsubscribe("z"),
        lambda: made.unsubscribe_many(["a", "z"]),
    ):
        with pytest.raises(KeyError) as caught:
            call()
        assert type(caught.value) is UnknownIdError
        assert str(caught.value).startswith("no ")  # not the repr that a KeyError shows
    with pytest.raises(DuplicateIdError, match="'a' already exists"):
        made.subscribe(*given("a"))
    assert list(made) == ["a"]


def test_values_that_cant_be_used_are_value_errors():
    engine = Engine(SPACE)
    for kind, call in (
        (InvalidValueError, lambda: engine.match({"price": "x"})),
        (RejectedRowError, lambda: engine.match_many([{"price": "x"}])),
    ):
        with pytest.raises(ValueError, match="is not a number") as caught:
            call()
        assert type(caught.value) is kind
