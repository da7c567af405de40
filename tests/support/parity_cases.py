"""The table of calls that every interface answers alike, and the cases that HTTP can't have."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from rangecast import Filter
from rangecast.errors import (
    DuplicateIdError,
    FileError,
    FilterError,
    InvalidValueError,
    RejectedRowError,
    SpaceError,
    UnknownIdError,
    UsageError,
)
from rangecast.model.sets.base import Subscription, UpsertResult
from tests.support.parity import space

NAN = float("nan")
EVENT = {"price": 4.0, "sector": "tech"}
MANY = [EVENT, {"price": 15.0, "sector": "tech"}, {"size": 200.0}, {"price": 50.0}]
TABLE = pa.table({name: [one.get(name) for one in MANY] for name in ("price", "sector", "size")})
MATCHED = [["b", "a", "c"], ["a"], ["c"], []]
NEAR = [
    (one, weight * (1 - (30.0 - math.nextafter(hi, 0)) / 40.0))
    for one, weight, hi in (("a", 2.0, 20.0), ("b", 1.0, 10.0), ("c", 1.0, 5.0))
]
RANKED = [[("a", 5.0), ("c", 3.0)], [("a", 5.0)], [("c", 3.0)], []]


class Case(NamedTuple):
    """A call and what it comes to, on every interface."""

    method: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = {}  # noqa: RUF012
    result: Any = None
    """A value, or the class of an error."""
    after: dict[str | int, Any] | None = None
    """Members as they are afterwards, those that are not as before; `None`: it is gone."""


def case(method: str, *args: Any, result: Any = None, after: Any = None, **options: Any) -> Case:
    return Case(method, args, options, result, after)


def wanted(one: Any, text: str, score: float = 0.0, **weights: float) -> Subscription:
    return Subscription(one, text, score, weights)


NEW = {"id": "d", "filter": "price < 1"}
CASES = {
    # ---- edits
    "subscribe": case("subscribe", "d", "price < 1", after={"d": wanted("d", "price < 1")}),
    "subscribe with a Filter": case(
        "subscribe",
        "d",
        Filter.parse("price < 1", space()),
        score=2,
        weights={"price": 3, "size": 1},
        after={"d": wanted("d", "price < 1", 2.0, price=3.0)},
    ),
    "subscribe a known id": case("subscribe", "a", "price < 1", result=DuplicateIdError),
    "subscribe a wrong filter": case("subscribe", "d", "prise < 1", result=FilterError),
    "subscribe no filter": case("subscribe", "d", 5, result=UsageError),
    "subscribe a float": case("subscribe", 1.5, "price < 1", result=UsageError),
    "subscribe a score that is none": case(
        "subscribe", "d", "price < 1", score=NAN, result=UsageError
    ),
    "subscribe weights of no attribute": case(
        "subscribe", "d", "price < 1", weights={"prise": 1}, result=SpaceError
    ),
    "subscribe a negative weight": case(
        "subscribe", "d", "price < 1", weights={"price": -1}, result=UsageError
    ),
    "replace": case(
        "replace", "a", "price < 1", after={"a": wanted("a", "price < 1", 5.0, price=2.0)}
    ),
    "replace with a score": case(
        "replace", "a", "price < 1", score=0, after={"a": wanted("a", "price < 1", price=2.0)}
    ),
    "replace with a weight": case(
        "replace",
        "a",
        "price < 1",
        weights={"size": 4},
        after={"a": wanted("a", "price < 1", 5.0, price=2.0, size=4.0)},
    ),
    "replace an unknown id": case("replace", "z", "price < 1", result=UnknownIdError),
    "replace by a wrong filter": case("replace", "a", "price <", result=FilterError),
    "rescore": case("rescore", "b", 7, after={"b": wanted("b", "price < 10", 7.0)}),
    "rescore weights": case(
        "rescore",
        "b",
        weights={"size": 4},
        after={"b": wanted("b", "price < 10", 1.0, size=4.0)},
    ),
    "rescore an unknown id": case("rescore", "z", 1, result=UnknownIdError),
    "upsert a new one": case(
        "upsert", "d", "price < 1", result=True, after={"d": wanted("d", "price < 1")}
    ),
    "upsert a known one": case(
        "upsert", "a", "price < 1", result=False, after={"a": wanted("a", "price < 1")}
    ),
    "unsubscribe": case("unsubscribe", "a", after={"a": None}),
    "unsubscribe an unknown id": case("unsubscribe", "z", result=UnknownIdError),
    "subscribe_many": case(
        "subscribe_many", [NEW], result=1, after={"d": wanted("d", "price < 1")}
    ),
    "subscribe_many of columns": case(
        "subscribe_many",
        {"id": ["d"], "price_hi": [1.0], "weight_size": [2.0]},
        result=1,
        after={"d": wanted("d", "price <= 1", size=2.0)},
    ),
    "subscribe_many of a table": case(
        "subscribe_many",
        pa.Table.from_pylist([NEW]),
        result=1,
        after={"d": wanted("d", "price < 1")},
    ),
    "subscribe_many of pandas": case(
        "subscribe_many", pd.DataFrame([NEW]), result=1, after={"d": wanted("d", "price < 1")}
    ),
    "subscribe_many of Polars": case(
        "subscribe_many", pl.DataFrame([NEW]), result=1, after={"d": wanted("d", "price < 1")}
    ),
    "subscribe_many with ids of another name": case(
        "subscribe_many",
        [{"name": "d", "filter": "price < 1"}],
        id="name",
        result=1,
        after={"d": wanted("d", "price < 1")},
    ),
    "subscribe_many of a table with ids of another name": case(
        "subscribe_many",
        pa.table({"name": ["d"], "filter": ["price < 1"]}),
        id="name",
        result=1,
        after={"d": wanted("d", "price < 1")},
    ),
    "subscribe_many of a known id": case(
        "subscribe_many", [NEW, {"id": "a", "filter": "price < 1"}], result=DuplicateIdError
    ),
    "subscribe_many of a wrong filter": case(
        "subscribe_many", [NEW, {"id": "e", "filter": "prise < 1"}], result=RejectedRowError
    ),
    "subscribe_many of an id twice": case("subscribe_many", [NEW, NEW], result=RejectedRowError),
    "subscribe_many of ids of two kinds": case(
        "subscribe_many", [NEW, {"id": 7, "filter": "price < 1"}], result=UsageError
    ),
    "subscribe_many of no rows": case("subscribe_many", 5, result=UsageError),
    "subscribe_many of an unknown column": case(
        "subscribe_many", [NEW | {"colour": 1}], result=FileError
    ),
    "subscribe_many without filters": case("subscribe_many", [{"id": "d"}], result=FileError),
    "subscribe_many of a score that is none": case(
        "subscribe_many", [NEW | {"score": "x"}], result=RejectedRowError
    ),
    "replace_many": case(
        "replace_many",
        [{"id": "a", "filter": "price < 1"}, {"id": "b", "filter": "price < 2", "score": 9.0}],
        result=2,
        after={"a": wanted("a", "price < 1", 5.0, price=2.0), "b": wanted("b", "price < 2", 9.0)},
    ),
    "replace_many of a table": case(
        "replace_many",
        pa.table({"id": ["a", "c"], "filter": ["price < 1", "price < 2"], "score": [None, 8.0]}),
        result=2,
        after={"a": wanted("a", "price < 1", 5.0, price=2.0), "c": wanted("c", "price < 2", 8.0)},
    ),
    "replace_many of an unknown id": case("replace_many", [NEW], result=UnknownIdError),
    "upsert_many": case(
        "upsert_many",
        [NEW, {"id": "a", "filter": "price < 1"}],
        result=UpsertResult(1, 1),
        after={"d": wanted("d", "price < 1"), "a": wanted("a", "price < 1")},
    ),
    "upsert_many of an id twice": case("upsert_many", [NEW, NEW], result=RejectedRowError),
    "unsubscribe_many": case(
        "unsubscribe_many", ["a", "b", "a"], result=2, after={"a": None, "b": None}
    ),
    "unsubscribe_many of none": case("unsubscribe_many", [], result=0),
    "unsubscribe_many of a text": case("unsubscribe_many", "ab", result=UsageError),
    "unsubscribe_many of an unknown id": case(
        "unsubscribe_many", ["a", "z"], result=UnknownIdError
    ),
    # ---- the set
    "get": case("get", "a", result=wanted("a", "price < 20 and sector = 'tech'", 5.0, price=2.0)),
    "get no id": case("get", None, result=UnknownIdError),
    "get an unknown id": case("get", "z", result=UnknownIdError),
    "contains": case("contains", "a", result=True),
    "contains no longer": case("contains", "z", result=False),
    "contains no id": case("contains", 1.5, result=False),
    "size": case("size", result=3),
    "select": case("select", ["c", "b"], result=(["c", "b"], [2, 0])),
    "select an unknown id": case("select", ["c", "z"], result=UnknownIdError),
    "select a text": case("select", "cb", result=UsageError),
    # ---- matching
    "match": case("match", EVENT, result=MATCHED[0]),
    "match NumPy's values": case(
        "match", {"price": np.float64(4), "size": np.int64(0)}, result=["b", "c"]
    ),
    "match no value": case("match", {"price": "x"}, result=InvalidValueError),
    "match NaN": case("match", {"price": NAN}, result=InvalidValueError),
    "match NaN as missing": case("match", EVENT | {"size": NAN}, nan="missing", result=MATCHED[0]),
    "match infinity": case("match", {"price": float("inf")}, result=InvalidValueError),
    "match NumPy's NaN": case("match", {"price": np.float32("nan")}, result=InvalidValueError),
    "match bytes": case("match", {"sector": b"tech"}, result=InvalidValueError),
    "match a lone surrogate": case("match", {"sector": "\ud800"}, result=InvalidValueError),
    "match an unknown attribute": case("match", {"prise": 1}, result=UsageError),
    "match and ignore unknown": case(
        "match", EVENT | {"x": 1}, ignore_unknown=True, result=MATCHED[0]
    ),
    "match a list": case("match", [EVENT], result=UsageError),
    "match with a wrong flag": case("match", EVENT, ignore_unknown="yes", result=UsageError),
    "match_many": case("match_many", MANY, result=MATCHED),
    "match_many of columns": case("match_many", {"price": [4.0, 50.0]}, result=[["b", "c"], []]),
    "match_many of a table": case("match_many", TABLE, result=MATCHED),
    "match_many of pandas": case(
        "match_many", pd.DataFrame({"price": [4.0, 50.0]}), result=[["b", "c"], []]
    ),
    "match_many of Polars": case(
        "match_many", pl.DataFrame({"price": [4.0, 50.0]}), result=[["b", "c"], []]
    ),
    "match_many of no value": case("match_many", [EVENT, {"price": "x"}], result=RejectedRowError),
    "match_many of NaN": case("match_many", [EVENT, {"price": NAN}], result=RejectedRowError),
    "match_many of an unknown attribute": case(
        "match_many", [EVENT, {"prise": 1}], result=UsageError
    ),
    "match_many of a number": case("match_many", 5, result=UsageError),
    "match_many of nothing": case("match_many", [], result=[]),
    "match_each": case(
        "match_each",
        [EVENT, {"price": "x"}, {"prise": 1}, {"price": 15.0, "sector": "tech"}],
        result=[MATCHED[0], InvalidValueError, UsageError, ["a"]],
    ),
    "count": case("count", EVENT, result=3),
    "count of no value": case("count", {"price": "x"}, result=InvalidValueError),
    "count of an unknown attribute": case("count", {"prise": 1}, result=UsageError),
    "count, ignoring it": case("count", {"price": 4.0, "prise": 1}, ignore_unknown=True, result=2),
    "count_many": case("count_many", MANY, result=[3, 1, 1, 0]),
    "count_many of a table": case("count_many", TABLE, result=[3, 1, 1, 0]),
    "count_many of no value": case("count_many", [EVENT, {"price": "x"}], result=RejectedRowError),
    "count_many of nothing": case("count_many", [], result=[]),
    "rank": case("rank", EVENT, 2, result=RANKED[0]),
    "rank relaxed": case(
        "rank", {"price": 15.0, "sector": "tech"}, 1, relaxed=True, result=[("a", 3.0)]
    ),
    "rank by the largest weight": case(
        "rank",
        {"price": 15.0, "sector": "tech"},
        1,
        relaxed=True,
        combine="max",
        result=[("a", 2.0)],
    ),
    "rank with tolerances": case(
        "rank", {"price": 30.0}, 3, relaxed=True, tolerances={"price": 40.0}, result=NEAR
    ),
    "rank with tolerances, exactly": case(
        "rank", EVENT, 1, tolerances={"price": 4}, result=UsageError
    ),
    "rank with a tolerance of a category": case(
        "rank", EVENT, 1, relaxed=True, tolerances={"sector": 4}, result=UsageError
    ),
    "rank by no number": case("rank", EVENT, "5", result=UsageError),
    "rank by another word": case(
        "rank", EVENT, 1, relaxed=True, combine="prodct", result=UsageError
    ),
    "rank_many": case("rank_many", MANY, 2, result=RANKED),
    "rank_many of no value": case("rank_many", [{"price": "x"}], result=RejectedRowError),
    # ---- explaining
    "why": case("why", {"price": 30.0}, "b", result="b does not match: price < 10 fails at 30.0."),
    "why of alternatives": case(
        "why",
        {"price": 30.0},
        "c",
        result="c does not match (nearest of its alternatives): price < 5 fails at 30.0.",
    ),
    "why of an unknown id": case("why", EVENT, "z", result=UnknownIdError),
    "why_not": case(
        "why_not",
        {"price": 15.0, "sector": "tech"},
        1,
        result=["b does not match: price < 10 fails at 15.0."],
    ),
    "why_not of no value": case("why_not", {"price": "x"}, result=InvalidValueError),
}
PYTHON_ALONE: dict[str, str] = {
    "subscribe no filter": "JSON has a text",
    "subscribe a float": "a path has a text",
    "subscribe a score that is none": "JSON has no NaN",
    "subscribe_many of columns": "a body has rows",
    "subscribe_many of a table": "a table is sent as Arrow",
    "subscribe_many of pandas": "a table is sent as Arrow",
    "subscribe_many of Polars": "a table is sent as Arrow",
    "replace_many of a table": "a table is sent as Arrow",
    "subscribe_many with ids of another name": "a body has `id`",
    "subscribe_many of a table with ids of another name": "a body has `id`",
    "subscribe_many of ids of two kinds": "a server may have both",
    "unsubscribe_many of a text": "it is no list of JSON, which the body needs",
    "select a text": "it is no list of JSON, which the body needs",
    **dict.fromkeys(
        ("match infinity", "match NumPy's NaN", "match bytes", "match a lone surrogate"),
        "JSON has none",
    ),
    "get no id": "a path has a text",
    "subscribe_many of no rows": "a body has rows",
    "subscribe_many of an unknown column": "a body has rows: each is rejected",
    "subscribe_many without filters": "a body has rows: each is rejected",
    "subscribe_many of a score that is none": "the row is rejected as the fields of one are",
    "contains no id": "a path has a text",
    "match NumPy's values": "JSON has none",
    "match NaN": "JSON has none",
    "match NaN as missing": "JSON has none",
    "match a list": "a body may be a list",
    "match with a wrong flag": "FastAPI reads a flag",
    "match_many of columns": "a body has rows",
    "match_many of a table": "a table is sent as Arrow",
    "match_many of pandas": "a table is sent as Arrow",
    "match_many of Polars": "a table is sent as Arrow",
    "match_many of NaN": "JSON has none",
    "count_many of a table": "a table is sent as Arrow",
    "match_many of a number": "it isn't a list of events",
    "rank by no number": "FastAPI reads a number",
}
"""Cases that HTTP can't have, and why."""
