import inspect
import pickle

import rangecast.errors
from rangecast.errors import BadRow, BadRowError, RangecastError, near


def test_every_error_comes_whole_from_another_process():
    bad = BadRow("f.csv", 3, "price", "x", "is not a number", "correct it")
    for _, kind in inspect.getmembers(rangecast.errors, inspect.isclass):
        if issubclass(kind, RangecastError):
            error = kind(bad) if kind is BadRowError else kind("what, and what to do")
            again = pickle.loads(pickle.dumps(error))
            assert type(again) is kind
            assert str(again) == str(error)
    assert pickle.loads(pickle.dumps(BadRowError(bad))).bad == bad


def test_a_bad_row_names_all_that_a_person_needs():
    text = str(BadRow("f.csv", 3, "price", "x", "is not a number", "correct it"))
    for part in ("f.csv", "row 3", "'price'", "is not a number", "given: x", "hint: correct it"):
        assert part in text


def test_near_looks_at_so_many_names_only():
    assert near("n99999", [f"n{i}" for i in range(100_000)]).startswith("did you mean")
