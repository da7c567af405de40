"""The doors: ids, filters and sets, checked against the very space that they are given to."""

import pickle
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import rangecast
from rangecast import (
    Boxes,
    Engine,
    Filter,
    FilterError,
    Number,
    Space,
    String,
    UsageError,
    encode_subscriptions,
)
from rangecast.model.sets.members import Members, as_id
from rangecast.model.validation.inputs import as_boxes, as_filter, as_space


def words(*texts: str) -> Space:
    return Space([String("symbol", texts), Number("price")])


# ---- ids


@pytest.mark.parametrize(
    ("given", "kept"),
    [("a", "a"), (7, 7), (np.int64(7), 7), (np.str_("é"), "é"), (-(2**63), -(2**63))],
)
def test_an_id_is_an_integer_or_a_text(given, kept):
    assert as_id(given) == kept
    assert type(as_id(given)) is type(kept)


@pytest.mark.parametrize("given", [1.5, True, np.bool_(True), None, 2**63, b"a", ("a",), "\ud800"])
def test_anything_else_is_rejected(given):
    with pytest.raises(UsageError, match="the id of a subscription must be"):
        as_id(given)


def test_members_are_of_one_kind_and_each_there_once():
    members = Members()
    members.bind(members.new(1), 0)
    for wrong, why in (
        ("a", "integers"),
        (1, "already exists; use replace"),
        (1.0, "must be an integer"),
    ):
        with pytest.raises(UsageError, match=why):
            members.new(wrong)
    assert True not in members
    assert 1.0 not in members
    assert np.int64(1) in members
    with pytest.raises(UsageError, match="no subscription 2: known: '1'"):
        members.row(2)


@pytest.mark.parametrize("wrong", [np.float32(1.0), np.bool_(True), 1.0, True, None, (1,)])
def test_what_equals_an_id_is_not_one(wrong):
    members = Members.of([1])
    assert wrong not in members
    with pytest.raises(UsageError, match="no subscription"):
        members.row(wrong)


def test_a_column_of_ids_is_checked_at_once_and_opened_when_one_is_asked_for():
    members = Members.of(pa.array(["a", "b"]), "interest")
    assert len(members) == 2
    assert members._column is not None
    assert members.row("b") == 1
    assert list(members) == ["a", "b"]
    with pytest.raises(UsageError, match="strings"):
        members.new(3)
    members.bind(members.new("c"), 2)
    assert len(members) == 3
    for wrong, why in ((["a", "b", "a"], "duplicate id 'a'"), ([None], "missing")):
        with pytest.raises(UsageError, match=why):
            Members.of(wrong)
    assert pickle.loads(pickle.dumps(Members.of([3, 4]))).row(4) == 1


@pytest.mark.parametrize("wrong", [[1.5], [True], [None, 1], [b"a"], [2**63], ["\ud800"], [1, "a"]])
def test_boxes_and_columns_take_ids_alone(wrong):
    with pytest.raises(UsageError, match="all 64-bit integers or all strings"):
        Boxes.of([[0.0]] * len(wrong), [[1.0]] * len(wrong), ids=wrong)


@pytest.mark.parametrize(
    ("many", "why"),
    [
        ([2, 1], "1 already exists"),
        ([2, 2], "duplicate id 2"),
        ([2, "a"], "2 and 'a'"),
        (["a"], "integers"),
    ],
)
def test_many_are_added_all_or_none(many, why):
    members = Members()
    members.bind(1, 0)
    with pytest.raises(UsageError, match=why):
        members.new_many(many)
    assert list(members) == [1]


def test_many_are_known_each_once():
    members = Members.of(["a", "b"])
    assert members.known_many(["b", "a"]) == (["b", "a"], [1, 0])
    for wrong, why in ((["a", "x"], "no subscription 'x'"), (["a", "a"], "duplicate id 'a'")):
        with pytest.raises(UsageError, match=why):
            members.known_many(wrong)


def test_many_leave_all_or_none():
    members = Members()
    members.bind_many(["a", "b", "c"], range(3))
    with pytest.raises(UsageError, match="no subscription 'x'"):
        members.release_many(["a", "x"])
    assert members.release_many(["b", "a", "b"]) == [1, 0]
    assert list(members) == ["c"]


# ---- filters


def test_a_filter_of_an_equal_space_keeps_its_meaning():
    mine, theirs = words("IBM"), words("AAPL")
    taken = as_filter(Filter.parse("symbol = 'AAPL' and price < 3", theirs), mine)
    assert taken == Filter.parse("symbol = 'AAPL' and price < 3", mine)
    assert str(as_filter(Filter.parse("symbol != 'AAPL'", theirs), mine)) == "symbol != 'AAPL'"


def test_a_filter_with_more_boxes_than_a_text_may_have_is_taken_from_an_equal_space():
    lo = np.arange(3000.0)[:, None] * 2
    theirs = Filter.from_boxes(Space([Number("price")]), lo, lo + 1)
    assert len(as_filter(theirs, Space([Number("price")])).boxes) == 3000


@pytest.mark.parametrize("given", [5, None, ("a",), {"price": 3}])
def test_what_is_no_filter_is_rejected(given):
    with pytest.raises(UsageError, match="a filter must be a string"):
        as_filter(given, words())


def test_a_filter_of_another_space_is_rejected():
    with pytest.raises(UsageError, match="another space"):
        as_filter(Filter.parse("x < 3", Space([Number("x")])), words())


@pytest.mark.parametrize(
    "text", ["symbol = 'F' and", "symbol = 'F' and symbol = 'T'", "symbol in ('F', 'T', 5 <", "("]
)
def test_a_rejected_filter_leaves_no_words(text):
    engine = Engine(words("MSFT"))
    engine.subscribe("x", "symbol != 'IBM'")
    for edit in (engine.subscribe, engine.upsert, engine.replace):
        with pytest.raises(FilterError):
            edit("x" if edit == engine.replace else "y", text)
    assert engine.space.vocabularies == {"symbol": ["MSFT", "IBM"]}
    engine.subscribe("y", "symbol = 'F'")
    assert engine.space.vocabularies == {"symbol": ["MSFT", "IBM", "F"]}
    assert engine.match({"symbol": "F"}) == ["x", "y"]
    assert engine.match({"symbol": "IBM"}) == []


def test_a_filter_is_read_again_if_other_words_came_meanwhile(monkeypatch):
    """Another thread may add a word while a filter is read: the numbers that it had are taken."""
    space, parse = words("MSFT"), Filter.parse

    def slow(text, where, **options):
        found = parse(text, where, **options)
        space["symbol"].equal("T")
        return found

    monkeypatch.setattr(Filter, "parse", slow)
    assert str(as_filter("symbol = 'F'", space)) == "symbol = 'F'"
    assert space.vocabularies == {"symbol": ["MSFT", "T", "F"]}


# ---- sets


ROWS = [{"id": 1, "filter": "symbol = 'AAPL'"}, {"id": 2, "filter": "symbol != 'IBM'"}]


def test_boxes_whose_codes_mean_other_texts_are_rejected():
    with pytest.raises(UsageError, match="numbers the texts of"):
        as_boxes(encode_subscriptions(ROWS, words()), words("IBM"))


def test_boxes_of_an_equal_space_with_the_same_texts_are_taken_and_their_new_texts_learned():
    theirs = words("MSFT")
    mine = pickle.loads(pickle.dumps(theirs))
    boxes = encode_subscriptions(ROWS, theirs)
    assert as_boxes(boxes, mine) is boxes
    assert mine.vocabularies == theirs.vocabularies == {"symbol": ["MSFT", "AAPL", "IBM"]}
    theirs["symbol"].equal("T")
    mine["symbol"].equal("F")  # they part here, after all that the boxes speak of
    assert as_boxes(boxes, mine) is boxes


def test_plain_boxes_need_as_many_attributes_as_the_space():
    with pytest.raises(UsageError, match="boxes of 1 attributes"):
        as_boxes(Boxes.of([[0.0]], [[1.0]]), words())


def test_boxes_remember_their_space():
    space = words()
    boxes = encode_subscriptions(ROWS, space)
    assert boxes.space is boxes.take([1]).space is space
    assert pickle.loads(pickle.dumps(boxes)).space == space


def test_what_is_no_space_is_rejected():
    with pytest.raises(UsageError, match=r"Space\.load"):
        as_space("space.toml")


def test_two_threads_never_give_two_texts_one_code():
    space = Space([String("s")])
    start = threading.Barrier(4)

    def grow(thread):
        start.wait()
        return [(f"{thread}-{i}", space["s"].equal(f"{thread}-{i}")[0]) for i in range(500)]

    with ThreadPoolExecutor(4) as pool:
        pairs = [pair for found in pool.map(grow, range(4)) for pair in found]
    assert sorted(code for _, code in pairs) == list(range(2000))
    assert all(space["s"].value(code) == text for text, code in pairs)


# ---- DataFrames


class _HalfImported(types.ModuleType):
    """pandas while another thread imports it: its classes aren't there yet."""

    __version__ = "2.0.0"


def test_pandas_that_another_thread_is_importing_is_left_alone(monkeypatch) -> None:
    table = pa.table({"id": ["a", "b"], "symbol_lo": ["x", "x"], "symbol_hi": ["x", "x"]})
    pa.array([1.5, None])  # pyarrow looks for pandas once
    monkeypatch.setitem(sys.modules, "pandas", _HalfImported("pandas"))
    engine = Engine(words())
    ways = [table, table.to_pydict(), table.to_pylist()]
    ways.append({name: np.array(values) for name, values in table.to_pydict().items()})
    for way in ways:
        engine.subscribe_many(way)
        events = {"symbol": np.array(["x", "y"]), "price": [1.0, 2.0]}
        assert list(engine.match_many(events)) == [["a", "b"], []]
        engine.unsubscribe_many(["a", "b"])


def test_classes_of_pandas_are_known_by_their_name() -> None:
    frame = pd.DataFrame({"id": ["a"], "symbol_lo": ["x"], "symbol_hi": ["x"]})

    class Frame(pd.DataFrame):
        """A DataFrame of a library on top of pandas."""

    class DataFrame(dict):
        """Named alike, but no DataFrame of pandas: a dict of columns."""

    for way in (frame, Frame(frame), DataFrame(frame.to_dict("list"))):
        engine = Engine(words())
        assert engine.subscribe_many(way) == 1
        assert engine.match({"symbol": "x"}) == ["a"]


def test_nothing_looks_into_the_modules_that_are_loaded() -> None:
    found = [
        str(path)
        for path in Path(rangecast.__file__).parent.rglob("*.py")
        if "sys.modules" in path.read_text()
    ]
    assert found == []
