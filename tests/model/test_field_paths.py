"""Epochs as timestamps, and values from fields within fields: the same through every door."""

import json
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import (
    Category,
    Engine,
    EventFile,
    Filter,
    FilterError,
    Integer,
    InvalidValueError,
    Number,
    RejectedRowError,
    Space,
    SpaceError,
    String,
    Timestamp,
    UsageError,
    encode_events,
    encode_subscriptions,
)
from rangecast.model.attributes.timestamps import EPOCH_UNITS, FIRST_MOMENT, LAST_MOMENT
from rangecast.model.encoding.columns import coordinate, encode, encode_bounds, explain
from rangecast.model.encoding.events import encode_event
from rangecast.model.io.writer import write_table
from rangecast.server.encoding import encoded

SECOND = 1_700_000_000
ISO = "2023-11-14T22:13:20Z"


def test_numbers_of_an_epoch_are_the_moments_that_texts_name():
    for unit, micros in EPOCH_UNITS.items():
        at = Timestamp("at", epoch=unit)
        number = SECOND * 1_000_000 // micros
        for given_as in (
            number,
            float(number),
            Decimal(number),
            str(number),
            np.int64(number),
            ISO,
        ):
            assert coordinate(at, given_as) == SECOND * 1e6
        space = Space([at])
        assert Space.from_toml(space.to_toml()) == space
        assert space != Space([Timestamp("at")])
        later = Filter.parse(f"at > {number}", space)
        assert later.boxes == Filter.parse(f"at > '{ISO}'", space).boxes
        assert Filter.parse(str(later), space).boxes == later.boxes


def test_filters_snap_fractions_of_an_epoch_inwards_and_events_reject_them():
    space = Space([Timestamp("at", epoch="s")])
    same = Filter.parse("at >= '2023-11-14T22:13:20.5Z'", space)
    assert Filter.parse(f"at >= {SECOND}.5", space).boxes == same.boxes
    assert (
        Filter.parse("at >= 0.0000001", space).boxes
        == Filter.parse("at > '1970-01-01T00:00:00Z'", space).boxes
    )
    for value in (SECOND + 0.5, Decimal("0.5"), "1.5"):
        with pytest.raises(InvalidValueError, match="must be whole seconds since 1970"):
            encode_event({"at": value}, space)
    for value in (10**15, -(10**15), 1e300, True, float("nan"), "soon"):
        with pytest.raises(InvalidValueError):
            encode_event({"at": value}, space)
    with pytest.raises(FilterError, match="count seconds since 1970"):
        Filter.parse(f"at < {SECOND}000", space)


@pytest.mark.parametrize(
    ("unit", "takes"),
    [
        ("s", "whole seconds since 1970 such as 1769851800, or an ISO"),
        ("ms", "whole milliseconds since 1970 such as 1769851800000, or an ISO"),
        ("us", "whole microseconds since 1970 such as 1769851800000000, or an ISO"),
        (None, "an ISO"),
    ],
)
def test_what_is_no_moment_is_told_what_this_attribute_takes(tmp_path, unit, takes):
    at = Timestamp("at", epoch=unit)
    told = f"'at' must be {takes} 8601 timestamp such as '2026-01-31T09:30:00Z'"
    for wrong in ("yesterday", [], True):
        with pytest.raises(InvalidValueError) as caught:
            at.coordinate(wrong)
        assert caught.value.reason == told
    (tmp_path / "e.csv").write_text("at\n2026-01-31\nyesterday\n")
    with pytest.raises(RejectedRowError) as bad:
        list(EventFile(tmp_path / "e.csv", Space([at])))
    assert bad.value.rejected.reason == told
    if unit is not None:
        number = re.findall("[0-9]{10,}", takes)[0]
        assert at.coordinate(int(number)) == at.coordinate("2026-01-31T09:30:00Z")


def test_numbers_without_an_epoch_are_rejected_with_a_hint():
    space = Space([Timestamp("at")])
    with pytest.raises(InvalidValueError, match="numbers require an epoch in the space"):
        encode_event({"at": SECOND}, space)
    with pytest.raises(SpaceError, match="epoch is one of 's', 'ms', 'us'; given: 'h'"):
        Timestamp("at", epoch="h")
    with pytest.raises(SpaceError, match="a number has no 'epoch'"):
        Space.from_toml('[[attribute]]\nname="x"\ntype="number"\nepoch="s"')
    bounded = Timestamp("at", epoch="s", min=0, max=SECOND)
    assert bounded == Timestamp("at", epoch="s", min="1970-01-01", max=ISO)


_NUMBERS = st.one_of(
    st.integers(FIRST_MOMENT // 10**6 - 2, FIRST_MOMENT // 10**6 + 2),
    st.integers(LAST_MOMENT // 10**6 - 2, LAST_MOMENT // 10**6 + 2),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-100, 10**10),
)


@given(
    st.sampled_from([*EPOCH_UNITS]),
    st.lists(_NUMBERS, min_size=1, max_size=4),
    st.sampled_from([pa.int64(), pa.float64(), pa.large_string(), pa.decimal128(30, 3)]),
)
def test_columns_of_an_epoch_are_what_single_values_are(unit, numbers, kind):
    at = Timestamp("at", epoch=unit)
    as_kind = [str(n) if kind == pa.large_string() else n for n in numbers]
    values = pa.array(as_kind, pa.int64() if kind == pa.float64() else kind)
    if kind == pa.float64():
        values = pa.array([float(n) for n in numbers])
    found, bad = encode(at, values)
    lo, _, lo_bad = encode_bounds(at, values, None, len(values))
    for place in range(len(numbers)):
        one = values[place].as_py()
        if bad[place]:
            with pytest.raises(InvalidValueError):
                coordinate(at, one)
            assert explain(at, values, place)
        else:
            assert found[place] == coordinate(at, one)
        bound = at.parse(one) if isinstance(one, str) else one
        if lo_bad[place]:
            with pytest.raises(InvalidValueError):
                at.at_least(bound)
        else:
            assert lo[place] == at.at_least(bound)


def test_texts_of_an_epoch_may_be_of_both_kinds():
    at = Timestamp("at", epoch="s")
    texts = pa.array([str(SECOND), ISO, "20231114", None, " ", f" {SECOND} "])
    found, bad = encode(at, texts)
    assert found.tolist() == [SECOND * 1e6, SECOND * 1e6, 20231114e6, np.inf, np.inf, SECOND * 1e6]
    assert not bad.any()
    only, _ = encode(at, pa.array([ISO, ISO]))
    assert only.tolist() == [SECOND * 1e6] * 2


# ---- sources

SPACE = """
[[attribute]]
name = "total"
type = "number"
source = "$.order.total"

[[attribute]]
name = "items"
type = "integer"
source = "$.order['item count']"

[[attribute]]
name = "agent"
type = "string"
source = "$.agent"

[[attribute]]
name = "at"
type = "timestamp"
epoch = "ms"
source = "$.meta.sent.at"

[[attribute]]
name = "kind"
type = "category"
values = ["a", "b"]
"""
EVENTS = [
    {
        "order": {"total": 9.5, "item count": 3, "currency": "EUR"},
        "agent": "ann",
        "meta": {"sent": {"at": 1_700_000_000_123}, "trace": "2023-11-14T22:13:20Z"},
        "kind": "a",
    },
    {"order": {"total": 1, "item count": 2**53 - 1}, "agent": None, "meta": {"sent": None}},
    {"order": None, "kind": "b"},
    {"meta": {"sent": {}}},
]


def space():
    return Space.from_toml(SPACE)


def expected(where):
    return np.array([encode_event(event, where) for event in EVENTS])


def test_a_source_is_a_path_of_fields():
    where = space()
    assert where["items"].path == ("order", "item count")
    assert Space.from_toml(where.to_toml()) == where
    assert where != Space([Number("total"), *where.attributes[1:]])
    point = encode_event(EVENTS[0], where)
    assert point.tolist() == [9.5, 3.0, where["agent"].coordinate("ann"), 1_700_000_000_123_000, 0]
    assert np.isposinf(expected(where)[3]).all()
    for wrong in ("order.total", "$", "$.order[0]", "$..a", "$.a b", 5, "$.order.", "$['']"):
        with pytest.raises(SpaceError, match="source must be the path of a field"):
            Number("x", source=wrong)


def test_every_door_finds_the_same_values(tmp_path):
    where = space()
    wanted = expected(where)
    lines = [json.dumps(event) for event in EVENTS]
    (tmp_path / "e.jsonl").write_text("\n".join(lines))
    table = pa.Table.from_pylist(EVENTS)
    write_table(table, tmp_path / "e.parquet")
    write_table(table, tmp_path / "e.arrow")
    sliced = pa.concat_tables([table, table]).slice(1, 4)
    columns = {name: [event.get(name) for event in EVENTS] for name in table.column_names}
    sent = [one.encode() for one in lines]
    doors = {
        "dicts": encode_events(EVENTS, where).points,
        "table": encode_events(table, where).points,
        "columns": encode_events(columns, where).points,
        "pandas": encode_events(pd.DataFrame(columns, dtype=object), where).points,
        "server, few": encoded(sent, where, ignore_unknown=False)[0].points,
        "server, many": encoded(sent * 20, where, ignore_unknown=False)[0].points[-4:],
        "a slice": encode_events(sliced, where).points[[3, 0, 1, 2]],
    }
    for suffix in ("jsonl", "parquet", "arrow"):
        batches = EventFile(tmp_path / f"e.{suffix}", where)
        doors[suffix] = np.concatenate([batch.points for batch in batches])
    for name, points in doors.items():
        assert np.array_equal(points, wanted), name


def test_integers_within_fields_are_exact_whatever_is_beside_them(tmp_path):
    where = Space([Integer("n", source="$.a.n")])
    big = 2**60 + 2**9
    (tmp_path / "e.jsonl").write_text(f'{{"a": {{"n": {big}}}}}\n{{"a": {{"n": 1.0}}}}\n')
    (batch,) = EventFile(tmp_path / "e.jsonl", where)
    assert batch.points.ravel().tolist() == [float(big), 1.0]


def test_a_source_may_rename_a_column(tmp_path):
    where = Space([Number("cost", source="$.price"), String("price", source="$.label")])
    (tmp_path / "e.csv").write_text("price,label\n5,x\n")
    (batch,) = EventFile(tmp_path / "e.csv", where)
    assert batch.points[0, 0] == 5
    assert np.array_equal(batch.points[0], encode_event({"price": 5, "label": "x"}, where))


def test_what_is_no_object_is_a_rejected_row_and_loses_nothing(tmp_path):
    where = space()
    wrong = {"order": 5, "kind": "a"}
    said = "'total' has no value there"
    with pytest.raises(InvalidValueError, match=said):
        encode_event(wrong, where)
    with pytest.raises(RejectedRowError, match=r"column '\$\.order\.total'") as error:
        encode_events([EVENTS[0], wrong], where)
    assert error.value.rejected.value == "'order' is 5, not an object"
    with pytest.raises(RejectedRowError, match=said):
        encode_events(pa.table({"order": [5]}), where)
    (tmp_path / "e.jsonl").write_text(f"{json.dumps(EVENTS[0])}\n{json.dumps(wrong)}\n")
    with pytest.raises(RejectedRowError, match="line 2"):
        list(EventFile(tmp_path / "e.jsonl", where))
    taken, rejected = encoded([json.dumps(wrong).encode()], where, ignore_unknown=False)
    assert not taken.rows
    assert said in rejected[0][1]
    over = {"order": {"total": "dear", "rest": 1}}
    with pytest.raises(RejectedRowError) as error:
        encode_events([over], where)
    assert (error.value.rejected.column, error.value.rejected.value) == ("$.order.total", "dear")


def test_an_attribute_with_a_source_is_not_taken_from_its_name():
    where = space()
    with pytest.raises(UsageError, match="unknown attribute 'total'"):
        encode_event({"total": 5}, where)
    with pytest.raises(UsageError, match="unknown attribute 'total'"):
        encode_events([{"total": 5}], where)
    assert np.isposinf(encode_event({"total": 5}, where, ignore_unknown=True)).all()
    boxes = encode_subscriptions([{"id": 1, "filter": "total < 5"}], where)  # filters use names
    assert boxes.hi[0, 0] < 5


def test_an_engine_matches_ranks_and_explains_nested_events(tmp_path):
    engine = Engine(space())
    engine.subscribe("dear", "total > 5 and at >= 1700000000000", score=2)
    engine.subscribe("any", "agent = 'ann'")
    assert engine.match(EVENTS[0]) == ["dear", "any"]
    assert engine.match_many(EVENTS)[0] == ["dear", "any"]
    assert engine.rank(EVENTS[0], k=1) == [("dear", 2.0)]
    why = engine.why(EVENTS[1], "dear")
    assert "1" in str(why)
    assert {line.attribute: line.value for line in why.boxes[0]}["total"] == "1"
    engine.save(tmp_path / "s")
    assert Engine.open(tmp_path / "s").match(EVENTS[0]) == ["dear", "any"]


def test_a_category_and_a_file_without_the_field_are_warned_of(tmp_path):
    where = Space([Category("kind", ["a"], source="$.x.kind"), Number("n")])
    (tmp_path / "e.jsonl").write_text('{"n": 1}\n')
    file = EventFile(tmp_path / "e.jsonl", where)
    assert np.isposinf(next(iter(file)).points[0, 0])
    list(file)
    assert "has no column for 'kind'" in file.warnings[0]
