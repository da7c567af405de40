"""The interface of `Engine` beside its answers: order, records, inputs of any kind, mistakes."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rangecast import (
    Boxes,
    Category,
    Engine,
    FileError,
    Hierarchy,
    Number,
    RejectedRowError,
    Space,
    String,
    Timestamp,
    UsageError,
)
from rangecast.match.choose import INDEXES


def market():
    return Space(
        [
            Number("price"),
            Category("sector", ["tech", "energy", "oil"]),
            String("symbol"),
            Timestamp("at"),
        ]
    )


@pytest.fixture
def engine():
    live = Engine(market())
    live.subscribe("a", "price < 10", score=2, weights={"price": 3})
    live.subscribe("b", "sector = 'tech'")
    live.subscribe("c", "price < 20")
    return live


EVENT = {"price": 5, "sector": "tech"}


# ---- order


def test_an_answer_to_many_events_is_in_order_of_arrival_after_a_replacement(engine):
    engine.replace("a", "price < 11")
    assert engine.match(EVENT) == ["a", "b", "c"]
    assert engine.match_many([EVENT])[0] == ["a", "b", "c"]
    assert sorted(engine.match_many([EVENT]).table()["subscription"].to_pylist()) == ["a", "b", "c"]


@pytest.mark.parametrize("index", INDEXES)
def test_an_answer_to_many_events_is_in_order_of_arrival_on_every_index(index):
    live = Engine(Space([Number("x"), Number("y")]), index=index)
    rng = np.random.default_rng(3)
    lo = rng.random((700, 2))
    live.subscribe_many(Boxes.of(lo, lo + 0.5))
    live.replace(9, "x < 5")
    answers = live.match_many({"x": [0.5, 0.9], "y": [0.6, 0.2]})
    for event in range(2):
        assert answers[event] == sorted(answers[event])
        assert 9 in answers[event]


# ---- what stays


def test_a_replacement_keeps_score_and_weights_except_for_what_is_given(engine):
    engine.replace("a", "price < 11")
    assert engine["a"] == ("a", "price < 11", 2.0, {"price": 3.0})
    engine.replace("a", "price < 12", weights={"sector": 0})
    assert engine["a"] == ("a", "price < 12", 2.0, {"price": 3.0, "sector": 0.0})
    engine.replace("a", "price < 12", score=0, weights={"price": 1})
    assert engine["a"] == ("a", "price < 12", 0.0, {"sector": 0.0})
    engine.replace("b", "sector = 'energy'", score=5)
    assert engine["b"] == ("b", "sector = 'energy'", 5.0, {})
    assert list(engine) == ["a", "b", "c"]


def test_a_replacement_keeps_what_ranking_sees(engine):
    engine.replace("a", "price < 11")
    assert engine.rank(EVENT, 1) == [("a", 2.0)]
    assert engine.rank(EVENT, 1, relaxed=True) == [("a", 3.0)]


# ---- looking into a set


def test_a_subscription_is_shown_as_a_record(engine):
    one = engine["c"]
    assert (one.id, one.filter, one.score, one.weights) == ("c", "price < 20", 0.0, {})
    engine.subscribe("d", "(price < 1 or price > 9) and symbol = 'X' or price is null")
    again = Engine(engine.space)
    again.subscribe("d", engine["d"].filter)
    assert again["d"] == engine["d"]
    with pytest.raises(UsageError, match="no subscription 'e'"):
        engine["e"]


def test_ids_are_gone_through_in_order_of_arrival_also_while_the_set_changes(engine):
    engine.replace("a", "price < 11")
    for one in engine:
        engine.unsubscribe(one)
        engine.subscribe(one + one, "true")
    assert list(engine) == ["aa", "bb", "cc"]
    assert "aa" in engine
    assert "a" not in engine


def test_the_repr_says_how_many_and_over_what():
    live = Engine(Space([Number("price")]))
    live.subscribe(1, "true")
    assert repr(live) == "<Engine: 1 subscription over Space(price: number)>"
    live.subscribe_many(Boxes.of(np.zeros((1500, 1)), np.ones((1500, 1)), ids=range(5, 1505)))
    assert repr(live) == "<Engine: 1,501 subscriptions over Space(price: number)>"


# ---- many at once

ROWS = [
    {"id": "x", "filter": "price < 1", "score": 2.0, "weight_price": 3.0},
    {"id": "y", "filter": "sector = 'tech'"},
]


def as_columns():
    return {name: [row.get(name) for row in ROWS] for name in ROWS[0]}


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        tuple(ROWS),
        iter(ROWS),
        as_columns(),
        pa.table(as_columns()),
        pa.table(as_columns()).to_batches()[0],
        pd.DataFrame(ROWS),
    ],
    ids=["list", "tuple", "iterator", "columns", "table", "batch", "pandas"],
)
def test_many_subscriptions_come_in_any_form(given):
    live = Engine(market())
    assert live.subscribe_many(given) == 2
    assert list(map(live.__getitem__, live)) == [
        ("x", "price < 1", 2.0, {"price": 3.0}),
        ("y", "sector = 'tech'", 0.0, {}),
    ]


def test_many_subscriptions_come_by_bounds_and_from_a_file(tmp_path):
    live = Engine(market())
    live.subscribe_many([{"id": 1, "price_lo": 2, "price_hi": 5}, {"id": 2, "price_lo": 3}])
    assert [live[one].filter for one in live] == ["price between 2 and 5", "price >= 3"]
    (tmp_path / "s.csv").write_text("id,filter,score\n7,price < 9,4\n")
    for path in (tmp_path / "s.csv", str(tmp_path / "s.csv")):
        again = Engine(market())
        assert again.subscribe_many(path) == 1
        assert again[7] == (7, "price < 9", 4.0, {})


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (5, UsageError, "subscriptions must be an Arrow table.*\n  given: int 5\n  hint"),
        (["price < 5"], UsageError, "given: a list with str 'price < 5'"),
        ({"id": "x", "filter": "true"}, UsageError, "given: str 'x' for 'id'\n.*into a list"),
        ([{"id": "x"}], FileError, "need 'id' and either 'filter'"),
        ([{"id": "x", "filtre": "true"}], FileError, "unknown column 'filtre'.*'filter'"),
        ([{"id": "x", "filter": "prise < 1"}], RejectedRowError, "did you mean 'price'"),
        (
            [{"id": "x", "filter": "true", "score": 10**400}],
            RejectedRowError,
            "must be a finite number",
        ),
        ([{"id": "x", "filter": "true"}, {"id": 5, "filter": "true"}], UsageError, "given: both"),
        ("none.csv", FileError, "none.csv"),
    ],
)
def test_what_is_no_set_of_subscriptions_is_rejected_and_changes_nothing(
    engine, given, error, message
):
    with pytest.raises(error, match=message):
        engine.subscribe_many(given)
    assert list(engine) == ["a", "b", "c"]


# ---- attributes that the space doesn't have


def test_unknown_attributes_are_rejected_unless_they_are_to_be_ignored(engine):
    extra = EVENT | {"title": "x", "id": 1}
    asked = {
        "match": lambda **more: engine.match(extra, **more),
        "match_many": lambda **more: engine.match_many([extra], **more)[0],
        "best": lambda **more: engine.rank(extra, **more),
        "rank_many": lambda **more: engine.rank_many([extra], **more)[0],
        "spans": lambda **more: engine.rank(extra, span="overlap", **more),
        "best_uncertain": lambda **more: engine.rank(extra, probabilities={}, **more),
        "best_adjusted": lambda **more: engine.rank(
            extra, score_factors=lambda _, ids: np.ones(len(ids)), **more
        ),
    }
    ranked = [("a", 2.0), ("b", 0.0), ("c", 0.0)]
    for name, ask in asked.items():
        with pytest.raises(UsageError, match="unknown attribute 'title'") as rejected:
            ask()
        assert "ignore_unknown=True" in str(rejected.value)
        assert ask(ignore_unknown=True) == (["a", "b", "c"] if "match" in name else ranked), name


# ---- mistakes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda e: e.rank(EVENT, k="5"),
            "k must be a whole number, at least 1\n  given: '5'\n.*k=5",
        ),
        (lambda e: e.rank(EVENT, k=2.0), "given: 2.0\n.*k=2"),
        (lambda e: e.rank(EVENT, k=True), "given: True"),
        (lambda e: e.rank(EVENT, k=0), "given: 0\n.*k=1"),
        (lambda e: e.rank(EVENT, k=None), "given: None"),
        (lambda e: e.rank_many([EVENT], k="5"), "k must be a whole number"),
        (
            lambda e: e.rank_many([EVENT], max_per_second="5/s"),
            "max_per_second must be a whole number.*\n.*'5/s'",
        ),
        (lambda e: e.rank_many([EVENT], max_per_second=0), "a whole number, at least 1"),
        (lambda e: e.rank_many([EVENT], time_attribute="at"), "hint: give both, or neither"),
        (
            lambda e: e.rank_many([EVENT], max_per_second=1, time_attribute="price"),
            "'price' isn't a timestamp",
        ),
        (lambda e: e.match_many([EVENT], threads="2"), "at least 1, or .auto.\n  given: .2.\n"),
        (lambda e: e.match([EVENT]), "an event is a dict.*\n  given: list .*\n  hint.*match_many"),
        (lambda e: e.match("price"), "an event is a dict.*\n  given: str 'price'"),
        (lambda e: e.rank([EVENT]), "an event is a dict"),
        (lambda e: e.rank([EVENT], span="overlap"), "an event is a dict"),
        (lambda e: e.match_many(EVENT), "given: int 5 for 'price'\n.*put the dict into a list"),
        (lambda e: e.match_many([[1]]), "a list with list"),
        (lambda e: e.rank_many(5), "events must be an Arrow table.*\n  given: int 5"),
        (lambda e: e.subscribe("d", "true", score="high"), "a score must be a finite.*\n.*'high'"),
        (lambda e: e.subscribe("d", "true", score=10**400), "a score must be a finite"),
        (lambda e: e.rescore("a", "high"), "a score must be a finite number"),
        (lambda e: e.replace("a", "true", score="high"), "a score must be a finite number"),
        (
            lambda e: e.subscribe("d", "true", weights=[1, 2]),
            r"weights must be a dict.*\n.*\[1, 2\]",
        ),
        (lambda e: e.subscribe("d", "true", weights={"price": -1}), "given: -1 for 'price'"),
        (lambda e: e.rescore("a", weights={"price": "x"}), "given: 'x' for 'price'"),
        (lambda e: e.replace("a", "true", weights={"price": np.nan}), "given: nan for 'price'"),
        (
            lambda e: Boxes.of([[0.0]] * 2, [[1.0]] * 2, ids=["u", "v"], weights=[[1], [-2]]),
            "attribute 0 of subscription v: -2.0",
        ),
    ],
)
def test_a_wrong_argument_is_told_in_the_callers_words(engine, call, message):
    with pytest.raises(UsageError, match=message):
        call(engine)
    assert engine["a"] == ("a", "price < 10", 2.0, {"price": 3.0})
    assert list(engine) == ["a", "b", "c"]


def test_numbers_of_other_libraries_are_numbers(engine):
    engine.subscribe("d", "price < 9", score=np.float32(4), weights={"price": Decimal("2.5")})
    assert engine["d"] == ("d", "price < 9", 4.0, {"price": 2.5})
    assert engine.rank(EVENT, np.int64(1)) == [("d", 4.0)]


def test_an_empty_text_is_told_from_a_missing_value():
    space = Space([Category("kind", ["x"]), Hierarchy("region", {"EU": ["de"]}), String("name")])
    live = Engine(space)
    live.subscribe("all", "true")
    for name in ("kind", "region"):
        for event in ({name: ""}, pa.table({name: ["", None]})):
            ask = live.match if isinstance(event, dict) else live.match_many
            with pytest.raises(Exception, match="an empty string; a missing value is null"):
                ask(event)
    assert live.match_many(pa.table({"kind": [None], "name": [""]}))[0] == ["all"]


def test_replace_keeps_scores_and_weights_of_one_and_of_many(tmp_path):
    def made():
        engine = Engine(Space([Number("a"), Number("b")]))
        engine.subscribe("x", "a < 1", score=3.0, weights={"a": 2, "b": 4})
        engine.subscribe("y", "a < 1", score=5.0)
        return engine

    (tmp_path / "s.csv").write_text("id,filter,weight_b\nx,a < 9,7\ny,a < 9,\n")
    whole = {"filter": "a < 9", "score": 1.0}
    for given, x, y in (
        ([{"id": "x", "filter": "a < 9"}], (3.0, {"a": 2, "b": 4}), (5.0, {})),
        ([{"id": "x", **whole}, {"id": "y", **whole}], (1.0, {"a": 2, "b": 4}), (1.0, {})),
        ({"id": ["y"], "a_hi": [9.0], "weight_a": [6.0]}, (3.0, {"a": 2, "b": 4}), (5.0, {"a": 6})),
        (tmp_path / "s.csv", (3.0, {"a": 2, "b": 7}), (5.0, {})),
        (
            [{"id": "y", "filter": "a < 9", "seq": 2}, {"id": "x", **whole, "seq": 1}],
            (1.0, {"a": 2, "b": 4}),
            (5.0, {}),
        ),
    ):
        engine = made()
        engine.replace_many(given)
        assert [engine["x"][2:], engine["y"][2:]] == [x, y], given
        one_by_one = made()
        one_by_one.replace("x", "a < 9", score=x[0], weights=x[1])
        assert one_by_one["x"][2:] == x
    engine = made()
    engine.replace_many(made().boxes())  # boxes have all of them
    assert [engine["x"], engine["y"]] == [made()["x"], made()["y"]]
