"""Columns do what single values do, only faster: for every kind and every Arrow type."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import InvalidValueError
from rangecast.model.attributes.base import MISSING, Boolean, Integer, Number
from rangecast.model.attributes.text import OTHER, Category, Hierarchy, String
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.encoding.columns import (
    bounds,
    coordinate,
    decode,
    encode,
    encode_bounds,
    explain,
    explain_bounds,
)
from rangecast.model.io.batch import value_at
from tests.support.examples import examples

ATTRIBUTES = {
    "number": Number("a"),
    "number with domain": Number("a", min=-1, max=10),
    "integer": Integer("a"),
    "integer with domain": Integer("a", min=-1, max=10),
    "timestamp": Timestamp("a"),
    "timestamp with domain": Timestamp("a", min=datetime(2000, 1, 1, tzinfo=UTC)),
    "boolean": Boolean("a"),
    "category": Category("a", ["tech", "energy", "1"]),
    "string": String("a", ["tech", "energy", ""]),
    "hierarchy": Hierarchy("a", {"EU": ["de", "fr"], "US": ["ny"], "tech": ["energy"]}),
}

edge_ints = st.sampled_from(
    [0, 1, -1, 10, 11, 2**53, 2**53 + 1, 2**60, 2**60 + 1, 2**63 - 1, -(2**63), -(2**53) - 1]
)
ints = st.one_of(edge_ints, st.integers(-(2**63), 2**63 - 1))
floats = st.one_of(
    st.floats(),
    st.sampled_from([0.0, -0.0, 1.0, 1.5, 10.0, 11.0, 2.0**53, 2.0**63, -(2.0**63), 1e300]),
)
decimals = st.decimals(-(10**18), 10**18, places=2)
WORDS = """tech energy de EU 1 0 true FALSE 5 5.0 1.5 -0 1e3 1e999 nan inf 007 12. +3 x
2026-01-31 2026-01-31T09:30:00Z 2026-01-31T09:30:00.123456+02:00 2026-01-31T09:30:00.1234567Z
9007199254740993 99999999999999999999"""
texts = st.one_of(
    st.sampled_from([*WORDS.split(), "", " ", " 5 "]),
    ints.map(str),
    floats.map(repr),
    decimals.map(str),
)
moments = st.datetimes(timezones=st.just(UTC))
ARRAYS = {
    "int64": st.lists(st.none() | ints).map(lambda v: pa.array(v, pa.int64())),
    "uint64": st.lists(st.integers(0, 2**64 - 1)).map(lambda v: pa.array(v, pa.uint64())),
    "int8": st.lists(st.integers(-128, 127)).map(lambda v: pa.array(v, pa.int8())),
    "float64": st.lists(st.none() | floats).map(lambda v: pa.array(v, pa.float64())),
    "float32": st.lists(st.floats(width=32)).map(lambda v: pa.array(v, pa.float32())),
    "decimal": st.lists(st.none() | decimals).map(lambda v: pa.array(v, pa.decimal128(25, 2))),
    "string": st.lists(st.none() | texts).map(lambda v: pa.array(v, pa.string())),
    "dictionary": st.lists(st.none() | texts).map(
        lambda v: pa.array(v, pa.string()).dictionary_encode()
    ),
    "us": st.lists(st.none() | moments).map(lambda v: pa.array(v, pa.timestamp("us", "UTC"))),
    "naive ms": st.lists(st.datetimes()).map(
        lambda v: pa.array(v, pa.timestamp("us")).cast(pa.timestamp("ms"), safe=False)
    ),
    "ns": st.lists(st.integers(-(2**62), 2**62)).map(
        lambda v: pa.array(v, pa.int64()).cast(pa.timestamp("ns", "UTC"))
    ),
    "date": st.lists(st.none() | st.dates()).map(lambda v: pa.array(v, pa.date32())),
    "bool": st.lists(st.none() | st.booleans()).map(lambda v: pa.array(v, pa.bool_())),
    "null": st.integers(0, 5).map(pa.nulls),
    "list": st.lists(st.lists(st.integers(0, 3))).map(lambda v: pa.array(v, pa.list_(pa.int64()))),
}


@pytest.mark.parametrize("kind", ATTRIBUTES)
@pytest.mark.parametrize("column", ARRAYS)
@examples(40)
@given(data=st.data())
def test_a_column_is_encoded_as_its_values_are(kind, column, data):
    attribute, array = ATTRIBUTES[kind], data.draw(ARRAYS[column])
    coordinates, bad = encode(attribute, array)
    for row in range(len(array)):
        value = value_at(array, row)
        try:
            expected = coordinate(attribute, value)
        except InvalidValueError:
            assert bad[row], value
            assert explain(attribute, array, row)
        else:
            assert not bad[row], value
            assert coordinates[row] == expected
            assert math.copysign(1, coordinates[row]) == math.copysign(1, expected)


@pytest.mark.parametrize("kind", [k for k in ATTRIBUTES if k != "string"])
@pytest.mark.parametrize("column", ["int64", "float64", "decimal", "string", "us", "ns", "bool"])
@examples(40)
@given(data=st.data())
def test_bounds_of_columns_are_those_of_values(kind, column, data):
    attribute, lo = ATTRIBUTES[kind], data.draw(ARRAYS[column])
    hi = lo.take(pa.array(data.draw(st.permutations(range(len(lo)))), pa.int64()))
    low, high, bad = encode_bounds(attribute, lo, hi, len(lo))
    for row in range(len(lo)):
        ends = value_at(lo, row), value_at(hi, row)
        try:
            expected = bounds(attribute, *ends)
        except InvalidValueError:
            assert bad[row], ends
            where, why = explain_bounds(attribute, lo, hi, row)
            assert where in ("a_lo", "a_hi")
            assert why
        else:
            assert not bad[row], ends
            assert (low[row], high[row]) == expected


def test_bounds_finer_than_a_microsecond_round_inwards():
    moments = pa.array([1, 2000, 2999], pa.int64()).cast(pa.timestamp("ns"))
    low, high, bad = encode_bounds(Timestamp("t"), moments, None, 3)
    assert low.tolist() == [1, 2, 3]
    _, high, bad = encode_bounds(Timestamp("t"), None, moments, 3)
    assert high.tolist() == [0, 2, 2]
    assert not bad.any()


def test_both_ends_null_is_not_mentioned_and_one_is_one_sided():
    low, high, bad = encode_bounds(
        Integer("n", min=0), pa.array([None, 3]), pa.array([None, None]), 2
    )
    assert (low.tolist(), high.tolist()) == ([-np.inf, 3], [np.inf, np.finfo(float).max])
    assert not bad.any()
    low, high, _ = encode_bounds(Number("n"), None, pa.array([4.0]), 1)
    assert (low[0], high[0]) == (-np.finfo(float).max, 4.0)


def test_a_string_needs_the_same_text_at_both_ends():
    symbol = String("s")
    lo, hi = pa.array(["A", "A", "A", None]), pa.array(["A", "B", None, None])
    low, high, bad = encode_bounds(symbol, lo, hi, 4)
    assert bad.tolist() == [False, True, True, False]
    assert (low[0], high[0]) == (0.0, 0.0)
    assert "same text" in explain_bounds(symbol, lo, hi, 1)[1]
    assert encode(symbol, pa.array(["A", "never heard of"])).coordinates.tolist() == [0.0, OTHER]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("number", [1.5, -2.0, None, 1e300]),
        ("integer", [2**53, -5, None, 2**60]),
        ("timestamp", [datetime(2026, 1, 31, 9, 30, 0, 5, tzinfo=UTC), None]),
        ("boolean", [True, False, None]),
        ("category", ["energy", "tech", None]),
        ("string", ["energy", "", None]),
        ("hierarchy", ["ny", "de", None]),
    ],
)
def test_decode_is_the_inverse_of_encode(kind, values):
    attribute = ATTRIBUTES[kind]
    coordinates, bad = encode(attribute, pa.array(values))
    assert not bad.any()
    assert decode(attribute, coordinates).to_pylist() == values


def test_decimals_and_small_floats_round_as_documented():
    price = Number("price")
    tenths = pa.array([Decimal("0.10"), Decimal("12345678901234567.89")])
    assert encode(price, tenths).coordinates.tolist() == [0.1, 12345678901234567.89]
    single = pa.array([0.1], pa.float32())
    assert encode(price, single).coordinates[0] == float(np.float32(0.1)) != 0.1


def test_nan_is_rejected_or_missing_as_told():
    values = pa.array([1.0, math.nan])
    assert encode(Number("x"), values).bad.tolist() == [False, True]
    coordinates, bad = encode(Number("x"), values, nan="missing")
    assert coordinates.tolist() == [1.0, MISSING]
    assert not bad.any()
    coordinates, bad = encode(Number("x"), pa.array(["1", "NaN", "inf"]), nan="missing")
    assert coordinates[:2].tolist() == [1.0, MISSING]
    assert bad.tolist() == [False, False, True]


def test_dates_are_midnights():
    assert encode(Timestamp("t"), pa.array([date(1970, 1, 2)])).coordinates[0] == 86_400e6
