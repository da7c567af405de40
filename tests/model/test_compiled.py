"""The generated encoder of a space beside the coordinates of single values.

A mapping that isn't a dict is encoded value by value: what it gives, or raises, is expected.
"""

import math
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import RangecastError, UsageError
from rangecast.model.attributes.base import Boolean, Integer, Number
from rangecast.model.attributes.patterns import Text
from rangecast.model.attributes.places import Location
from rangecast.model.attributes.residuals import Arithmetic
from rangecast.model.attributes.text import Category, Hierarchy, String
from rangecast.model.attributes.text_store import TEXTS
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.encoding.compiled import compiled_encoder, plain_points
from rangecast.model.encoding.event_columns import EventColumns
from rangecast.model.encoding.events import encode_event, encode_events, encode_one
from rangecast.model.space import Space

SPACE = Space(
    [
        Number("price", min=-5, max=1e9),
        Integer("size", min=0),
        Integer("any"),
        Boolean("open"),
        Category("sector", ["tech", "food"]),
        String("symbol", ["A", "é"]),
        Hierarchy("region", {"EU": ["de", "fr"]}),
        Timestamp("at"),
        Timestamp("epoch", epoch="ms"),
        Number("total", source="$.order.total"),
        Location("position"),
        Arithmetic(),
    ]
)
FIELDS = (*sorted(SPACE.fields), "id", "unknown")
VALUES = (
    None, 0, 1, -1, 7, 2**53, 2**53 + 1, -(2**60), 10**400, 0.0, -0.0, 2.0, 2.5, -7.5, 1e9, 1e300,
    math.nan, math.inf, True, False, "", " ", "A", "é", "tech", "food", "de", "EU", "3", "nan",
    "true", "\ud800", "2026-01-31T09:30:00Z", datetime(2026, 1, 31, tzinfo=UTC), Decimal("2.5"),
    Decimal("nan"), np.float64(2.5), np.float32(0.1), np.float64("nan"), np.int64(3), np.bool_(1),
    np.str_("tech"), np.datetime64("2026-01-31"), b"A", [], {"total": 2.5}, {"total": "x"}, {},
)  # fmt: skip
EVENTS = st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(VALUES))
OPTIONS = {"ignore_unknown": st.booleans(), "nan": st.sampled_from(["error", "missing"])}


def outcome(event, space, **options):
    """The bits of a point, or the error."""
    try:
        return encode_event(event, space, **options).tobytes()
    except RangecastError as error:
        return type(error), str(error)


@given(event=EVENTS, **OPTIONS)
def test_any_event_gives_the_same_point_or_the_same_error(event, **options):
    slowly = outcome(MappingProxyType(event), SPACE, **options)
    assert outcome(event, SPACE, **options) == slowly


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("nan", ["error", "missing"])
def test_every_value_of_every_field(field, nan):
    for value in VALUES:
        event = {field: value}
        slowly = outcome(MappingProxyType(event), SPACE, nan=nan)
        assert outcome(event, SPACE, nan=nan) == slowly, value


def test_what_most_events_are_isnt_encoded_value_by_value():
    event = {
        "price": 2.5, "size": 3, "any": 2.0, "open": True, "sector": "tech", "symbol": "A",
        "region": "de", "at": "2026-01-31T09:30:00Z", "epoch": 1_769_851_800_000,
        "order": {"total": 2}, "longitude": 1.5, "latitude": 2,
    }  # fmt: skip
    encode = compiled_encoder(SPACE)
    for taken in (event, event | {"id": 5}, {"price": 2.5}, {}, event | {"price": None}):
        point = encode(taken, False, "error")
        assert point.shape == (1, len(SPACE))
        assert point.tobytes() == encode_event(MappingProxyType(taken), SPACE).tobytes()
    for left in ({"unknown": 1}, event | {"price": "x"}, [], None, MappingProxyType(event)):
        assert encode(left, False, "error") is None
    assert encode({"unknown": 1}, True, "error") is not None


def outcome_of_list(events, space, **options):
    """The bits of the points and the ids, or the error."""
    try:
        ids, points = encode_events(events, space, **options)
        return ids.to_pylist(), points.shape, points.tobytes()
    except RangecastError as error:
        return type(error), str(error)


@given(events=st.lists(EVENTS, max_size=4), texts=st.booleans(), **OPTIONS)
def test_any_list_gives_the_same_points_or_the_same_error(events, texts, **options):
    columns = EventColumns(texts=texts)
    slowly = outcome_of_list(list(map(MappingProxyType, events)), SPACE, columns=columns, **options)
    assert outcome_of_list(events, SPACE, columns=columns, **options) == slowly


@given(values=st.lists(st.sampled_from(VALUES), min_size=1, max_size=4))
@pytest.mark.parametrize("field", FIELDS)
def test_any_values_of_a_field_give_the_same_points(field, values):
    events = [{field: value} for value in values]
    slowly = outcome_of_list(list(map(MappingProxyType, events)), SPACE)
    assert outcome_of_list(events, SPACE) == slowly


def test_lists_of_what_most_events_are_make_no_table():
    event = {
        "price": 2.5, "size": 3, "any": 2.0, "open": True, "sector": "tech", "symbol": "A",
        "region": "de", "epoch": 1_769_851_800_000, "order": {"total": 2}, "longitude": 1.5,
        "latitude": 2,
    }  # fmt: skip
    taken = [event, {"price": -0.0}, {}, event | {"price": None}]
    points = plain_points(taken, SPACE)
    slowly = encode_events(list(map(MappingProxyType, taken)), SPACE).points
    assert points.tobytes() == slowly.tobytes()
    left = {"unknown": 1}, event | {"price": "x"}, {"id": 7}, event | {"id": 7}, None, []
    for other in left:
        assert plain_points([event, other], SPACE) is None
    assert plain_points([event, left[0]], SPACE, ignore_unknown=True) is not None
    assert plain_points([event, left[2]], SPACE, ignore_unknown=True) is None
    assert plain_points([], SPACE) is plain_points(iter(taken), SPACE) is None
    words = Space([Text("title"), Number("price")])
    assert plain_points([{"title": "red bike"}], words) is None
    assert plain_points([{"title": "red bike"}], words, texts=False) is not None


def test_a_string_that_a_subscription_mentions_later_is_known():
    space = Space([String("symbol")])
    before = encode_one({"symbol": "A"}, space)
    space["symbol"].equal("A")
    assert encode_one({"symbol": "A"}, space).tolist() == [[0.0]] != before.tolist()


def test_texts_are_kept_while_the_point_lives():
    space = Space([Text("title"), Number("price")])
    point = encode_one({"title": "red bike", "price": 2}, space)
    assert TEXTS.get(point[0, [space.axis("title patterns")]]) == ["red bike"]
    slowly = encode_event(MappingProxyType({"title": "red bike", "price": 2}), space)
    same = [axis for axis in range(len(space)) if axis != space.axis("title patterns")]
    assert point[0, same].tolist() == slowly[same].tolist()


def test_a_name_may_be_any_text():
    names = ["a b", "it's", 'say "x"', "\\n", "{0}", "class", "é", "event"]
    space = Space([Number(name) for name in names])
    event = {name: float(place) for place, name in enumerate(names)}
    assert encode_one(event, space).tolist() == [[float(place) for place in range(len(names))]]


def test_options_are_checked_and_a_space_still_pickles():
    encode_one({"price": 2.5}, SPACE)
    for wrong in ({"nan": "maybe"}, {"ignore_unknown": "no"}):
        with pytest.raises(UsageError):
            encode_one({"price": 2.5}, SPACE, **wrong)
    assert pickle.loads(pickle.dumps(SPACE)) == SPACE
