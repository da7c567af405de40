"""The one shape of every set of subscriptions that a user holds: one body of tests for all."""

import copy
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rangecast import Boxes, Engine, Filter, Number, Space, String, encode_subscriptions
from rangecast.cover import CoverSet
from rangecast.errors import RangecastError, RejectedRowError, SnapshotError
from rangecast.merge import ExactSummary, SplitSummary, Summary
from rangecast.model.io.writer import write_table

EVENTS = [{"symbol": s, "price": p} for s in ("IBM", "AAPL", "MSFT") for p in range(-1, 12)]
ROWS = {
    "id": ["wide", "inner", "apple", "either"],
    "filter": [
        "price < 9",
        "price between 3 and 4",
        "symbol = 'AAPL'",
        "price > 10 or symbol = 'IBM' and price = 1",
    ],
}


def space():
    return Space([String("symbol"), Number("price")])


SETS = {
    "engine": (Engine, lambda s: [set(found) for found in s.match_many(EVENTS)]),
    "cover": (CoverSet, lambda s: (s.uncovered(), {one: s.covered_by(one) for one in s})),
    "summary": (Summary, lambda s: s.may_match_many(EVENTS).tolist()),
    "exact": (ExactSummary, lambda s: [set(s.match(event)) for event in EVENTS]),
    "split": (
        lambda space: SplitSummary(space, subsets=[["symbol"], ["price"]]),
        lambda s: s.may_match_many(EVENTS).tolist(),
    ),
}


COARSE = ("summary", "split")
"""Sets whose answers depend on their cells, and so on the texts that they have seen."""


@pytest.fixture(params=SETS)
def kind(request):
    return request.param


@pytest.fixture
def made(kind):
    make, _ = SETS[kind]
    made = make(space())
    made.subscribe_many(ROWS)
    return made


def answers(kind, one):
    return SETS[kind][1](one)


def content(one):
    return {subscription: one[subscription].filter for subscription in one}


def agrees(kind, one, other):
    """Return whether two sets are equal and answer alike; a summary may match more events."""
    if content(one) != content(other):
        return False
    if kind not in COARSE:
        return answers(kind, one) == answers(kind, other)
    wanted = [bool(found) for found in fresh("engine", _rows(other)).match_many(EVENTS)]
    return all(np.greater_equal(answers(kind, each), wanted).all() for each in (one, other))


def _rows(one):
    return {"id": list(one), "filter": list(content(one).values())}


def fresh(kind, rows):
    made = SETS[kind][0](space())
    made.subscribe_many(rows)
    return made


def test_a_set_is_a_collection_of_ids_in_order_of_arrival(made):
    assert len(made) == 4
    assert list(made) == ROWS["id"]
    assert "inner" in made
    assert "outer" not in made
    assert made["inner"].id == "inner"
    assert pickle.loads(pickle.dumps(made["inner"])) == made["inner"]
    assert "4 subscriptions" in repr(made)
    assert made.memory > 0


def test_it_keeps_what_it_was_given(made):
    for subscription, text in zip(*ROWS.values(), strict=True):
        expected = Filter.parse(text, made.space)
        assert Filter.parse(made[subscription].filter, made.space) == expected


@pytest.mark.parametrize(
    "form", ["columns", "dicts", "arrow", "pandas", "path", "boxes", "one by one"]
)
def test_a_set_is_given_in_any_form(kind, form, tmp_path):
    table = pa.table(ROWS)
    made = SETS[kind][0](space())
    if form == "one by one":
        for subscription, text in zip(*ROWS.values(), strict=True):
            made.subscribe(subscription, Filter.parse(text, space()) if "or" in text else text)
    else:
        write_table(table, tmp_path / "subscriptions.csv")
        given = {
            "columns": lambda: ROWS,
            "dicts": table.to_pylist,
            "arrow": lambda: table,
            "pandas": table.to_pandas,
            "path": lambda: tmp_path / "subscriptions.csv",
            "boxes": lambda: encode_subscriptions(ROWS, made.space),
        }
        made.subscribe_many(given[form]())
    assert agrees(kind, made, fresh(kind, ROWS))


def test_replacing_and_removing_give_what_a_new_set_gives(kind, made):
    made.replace("inner", "price between 2 and 5")
    made.replace_many({"id": ["apple", "wide"], "filter": ["symbol = 'MSFT'", "price < 7"]})
    made.unsubscribe("either")
    made.subscribe("late", "price = 11")
    made.unsubscribe_many(["late"])
    expected = {
        "id": ["wide", "inner", "apple"],
        "filter": ["price < 7", "price between 2 and 5", "symbol = 'MSFT'"],
    }
    assert list(made) == expected["id"]
    assert agrees(kind, made, fresh(kind, expected))
    made.unsubscribe_many(list(made))
    assert len(made) == 0
    assert answers(kind, made) == answers(kind, SETS[kind][0](space()))


def test_pickles_copies_and_snapshots_are_sets_of_their_own(kind, made, tmp_path):
    made.save(tmp_path / "saved")
    with pytest.raises(SnapshotError, match="already exists"):
        made.save(tmp_path / "saved")
    before = content(made), answers(kind, made)
    copies = [
        type(made).open(tmp_path / "saved"),
        pickle.loads(pickle.dumps(made)),
        copy.copy(made),
        copy.deepcopy(made),
    ]
    for one in copies:
        assert (content(one), answers(kind, one)) == before
        one.replace("wide", "price < 2")
        one.unsubscribe("inner")
        one.subscribe("new", "symbol = 'NEW'")
        assert list(one) == ["wide", "apple", "either", "new"]
        assert (content(made), answers(kind, made)) == before
    copies[0].save(tmp_path / "saved", overwrite=True)
    assert list(type(made).open(tmp_path / "saved")) == list(copies[0])


WRONG = {
    "an id that exists": lambda s: s.subscribe("wide", "price < 1"),
    "an id of the other kind": lambda s: s.subscribe(7, "price < 1"),
    "a float as an id": lambda s: s.subscribe(1.5, "price < 1"),
    "a boolean as an id": lambda s: s.subscribe(True, "price < 1"),
    "no id": lambda s: s.subscribe(None, "price < 1"),
    "a lone surrogate": lambda s: s.subscribe("\ud800", "price < 1"),
    "an unknown attribute": lambda s: s.subscribe("new", "prize < 1"),
    "no filter": lambda s: s.subscribe("new", None),
    "a huge number": lambda s: s.subscribe("new", "price < 1e99999999999999999999"),
    "an unknown id": lambda s: s.unsubscribe("outer"),
    "an unknown id to replace": lambda s: s.replace("outer", "price < 1"),
    "a bad filter to replace": lambda s: s.replace("wide", "price <"),
    "one of many exists": lambda s: s.subscribe_many(
        {"id": ["n", "wide"], "filter": ["price < 1"] * 2}
    ),
    "one of many twice": lambda s: s.subscribe_many(
        {"id": ["n", "n"], "filter": ["price < 1"] * 2}
    ),
    "one of many is bad": lambda s: s.subscribe_many(
        {"id": ["n", "m"], "filter": ["price < 1", "?"]}
    ),
    "one of many is unknown": lambda s: s.unsubscribe_many(["wide", "outer"]),
    "one of many replaced is unknown": lambda s: s.replace_many(
        {"id": ["wide", "outer"], "filter": ["price < 1"] * 2}
    ),
    "one of many replaced twice": lambda s: s.replace_many(
        {"id": ["wide", "wide"], "filter": ["price < 1"] * 2}
    ),
    "another space": lambda s: s.subscribe("n", Filter.parse("x < 1", Space([Number("x")]))),
    "boxes of another space": lambda s: s.subscribe_many(Boxes.of([[0.0]], [[1.0]], ids=["n"])),
    "texts with other codes": lambda s: s.subscribe_many(
        encode_subscriptions(
            {"id": ["n"], "filter": ["symbol = 'IBM'"]},
            Space([String("symbol", ["MSFT"]), Number("price")]),
        )
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_rejected_and_changes_nothing(kind, made, wrong):
    before = content(made), answers(kind, made)
    with pytest.raises(RangecastError):
        WRONG[wrong](made)
    assert (content(made), answers(kind, made)) == before


def test_a_filter_of_an_equal_space_keeps_its_texts(kind):
    theirs = Space([String("symbol", ["T", "AAPL"]), Number("price")])
    made = fresh(kind, {"id": ["ibm"], "filter": ["symbol = 'IBM'"]})
    made.subscribe("apple", Filter.parse("symbol = 'AAPL'", theirs))
    assert made["apple"].filter == "symbol = 'AAPL'"


def test_numpy_and_pandas_values_are_ids(kind):
    made = SETS[kind][0](space())
    made.subscribe(np.int64(3), "price < 1")
    made.subscribe_many(pd.DataFrame({"id": [4, 5], "filter": ["price < 2", "price < 3"]}))
    assert list(made) == [3, 4, 5]
    assert np.int32(4) in made
    assert not any(one in made for one in (True, 4.0, None, "4"))
    made.unsubscribe(np.int8(3))
    assert list(made) == [4, 5]


CHANGED = {"id": ["inner", "new", "either"], "filter": ["price > 5", "price = 2", "price < 1"]}


def _after(kind):
    """Return the set as it is after `CHANGED`: what was replaced keeps its place."""
    filters = dict(zip(ROWS["id"], ROWS["filter"], strict=True))
    filters |= dict(zip(CHANGED["id"], CHANGED["filter"], strict=True))
    return fresh(kind, [{"id": one, "filter": text} for one, text in filters.items()])


def test_upserting_subscribes_what_is_new_and_replaces_what_exists(kind, made):
    one_by_one = copy.copy(made)
    done = made.upsert_many(CHANGED)
    each = [one_by_one.upsert(*row) for row in zip(*CHANGED.values(), strict=True)]
    if kind in ("engine", "split"):
        assert done == (1, 2)
        assert each == [False, True, False]
    else:
        assert [str(one) for one in done] == [str(one) for one in each]
    for one in (made, one_by_one):
        assert list(one) == [*ROWS["id"], "new"]
        assert agrees(kind, one, _after(kind))


@pytest.mark.parametrize(
    "rows",
    [
        {"id": ["new", "new"], "filter": ["price = 2", "price = 3"]},
        {"id": ["new", "wide"], "filter": ["price = 2", "price ="]},
        {"id": [1], "filter": ["price = 2"]},
    ],
)
def test_an_upsert_of_which_a_part_is_wrong_changes_nothing(kind, made, rows):
    before = content(made), answers(kind, made)
    with pytest.raises(RangecastError):
        made.upsert_many(rows)
    assert (content(made), answers(kind, made)) == before


def test_an_upsert_that_fails_on_its_way_leaves_an_engine_as_it_was(monkeypatch):
    engine = fresh("engine", ROWS)
    before = content(engine), answers("engine", engine)

    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("rangecast.liveset.mark_dead", fail)
        with pytest.raises(MemoryError):
            engine.upsert_many(CHANGED)
    assert (content(engine), answers("engine", engine)) == before
    assert "new" not in engine
    assert engine.upsert_many(CHANGED) == (1, 2)
    assert agrees("engine", engine, _after("engine"))


def test_an_upsert_replaces_scores_and_weights_too():
    engine = Engine(space())
    assert engine.upsert("a", "price < 9", score=3, weights={"price": 2})
    assert not engine.upsert("a", "price < 8")
    assert engine["a"] == ("a", "price < 8", 0.0, {})
    engine.subscribe("b", "price < 8")
    engine.upsert("a", "price < 7")
    assert engine.match({"price": 1}) == ["a", "b"]


@pytest.mark.parametrize("nothing", [[], {}, pa.table({}), pd.DataFrame()], ids=str)
def test_nothing_is_done_for_nothing(kind, made, nothing):
    before = content(made), answers(kind, made)
    for change in (made.subscribe_many, made.replace_many, made.upsert_many):
        done = change(nothing)
        assert done in (0, (0, 0)) or len(done) == 0
    done = made.unsubscribe_many([])
    assert done == 0 or len(done) == 0
    if hasattr(made, "update_many"):
        assert len(made.update_many(nothing)) == 0
    assert (content(made), answers(kind, made)) == before


BAD = [
    {"id": "good", "filter": "price = 1"},
    {"id": "torn", "filter": "price ="},
    {"id": "good", "filter": "price = 2"},
    {"id": None, "filter": "price = 2"},
    {"id": "apple", "filter": "price > 3"},
]


def test_rejected_rows_are_written_in_a_list_or_a_file(kind, made, tmp_path):
    with pytest.raises(RejectedRowError):
        made.upsert_many(BAD)
    assert "good" not in made
    bad = []
    made.upsert_many(BAD, rejected=bad)
    assert sorted((one.row, one.column) for one in bad) == [(1, "filter"), (2, "id"), (3, "id")]
    assert made["good"].filter == "price = 1"
    assert made["apple"].filter == "price > 3"
    made.replace_many([BAD[1], {"id": "apple", "filter": "price > 4"}], rejected=bad)
    assert len(bad) == 4
    assert made["apple"].filter == "price > 4"
    file = tmp_path / "bad.csv"
    made.subscribe_many([BAD[1]], rejected=file)
    assert "torn" in file.read_text()
    assert "torn" not in made
    with pytest.raises(RangecastError, match="rejected must be a list"):
        made.subscribe_many(BAD, rejected=True)
