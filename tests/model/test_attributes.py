import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import InvalidValueError, SpaceError, did_you_mean
from rangecast.model.attributes.base import MISSING, Boolean, Integer, Number
from rangecast.model.attributes.numbers import MAX, double_at_least, double_at_most, read_number
from rangecast.model.attributes.text import OTHER, Category, Hierarchy, String
from rangecast.model.attributes.timestamps import Timestamp

TREE = {"EU": ["de", {"FR": ["paris", "lyon"]}], "US": ["ny", "ca"]}


def test_a_number_rounds_to_the_nearest_double():
    price = Number("price")
    assert price.coordinate(Decimal("0.1")) == 0.1
    assert price.coordinate(2**53 + 1) == 2.0**53
    assert math.copysign(1, price.coordinate(-0.0)) == 1
    assert price.coordinate(None) == MISSING


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 10**400, Decimal("nan"), "5", True]
)
def test_a_number_rejects_what_is_none(value):
    with pytest.raises(InvalidValueError, match="'price'"):
        Number("price").coordinate(value)


def test_an_integer_that_a_double_cannot_carry_is_rejected_never_rounded():
    n = Integer("n")
    assert n.coordinate(2**53) == 2.0**53
    assert n.coordinate(2**60) == 2.0**60
    for value in (2**53 + 1, 2**63, -(2**63) - 1, 1.5, math.nan, Decimal("NaN"), True, "5"):
        with pytest.raises(InvalidValueError):
            n.coordinate(value)


@pytest.mark.parametrize("attribute", [Integer("n"), Timestamp("t")])
def test_strict_bounds_snap_to_the_grid(attribute):
    """`x < 5` is `x <= 4`, and `4 < x < 5` holds nothing."""
    value = (lambda n: n) if attribute.type == "integer" else attribute.value
    assert attribute.at_most(value(5), strict=True) == 4.0
    assert attribute.at_least(value(4), strict=True) == 5.0
    assert attribute.clip(5.0, 4.0) is None


def test_fractions_bound_integers_from_inside():
    n = Integer("n")
    assert (n.at_least(1.5), n.at_most(4.5)) == (2.0, 4.0)
    assert (n.at_least(Decimal("1.5"), strict=True), n.at_most(4.5, strict=True)) == (2.0, 4.0)
    assert n.at_most(Decimal("4.0000000000000000001"), strict=True) == 4.0
    assert n.equal(4.5) is None


@given(st.integers(-(2**70), 2**70))
def test_bounds_beyond_2_to_53_keep_their_meaning(value):
    """Every integer that a double carries is on the side of the bound that it should be."""
    below, above = double_at_most(value), double_at_least(value)
    assert int(below) <= value <= int(above)
    assert max(int(below) + 1, int(math.nextafter(below, math.inf))) > value
    assert min(int(above) - 1, int(math.nextafter(above, -math.inf))) < value


def test_a_strict_bound_of_a_number_is_the_neighbouring_double():
    price = Number("price")
    assert price.at_most(5, strict=True) == math.nextafter(5, -math.inf)
    assert price.at_least(5, strict=True) == math.nextafter(5, math.inf)
    assert price.at_least(-5e-324, strict=True) == 0.0


def test_min_and_max_clip_bounds_and_reject_events():
    age = Integer("age", min=0, max=120)
    assert age.clip(age.at_least(-5), age.at_most(200)) == (0.0, 120.0)
    assert age.clip(age.at_least(130), MAX) is None
    with pytest.raises(InvalidValueError, match="outside its domain, 0 to 120"):
        age.coordinate(121)
    with pytest.raises(SpaceError, match="above max"):
        Integer("age", min=5, max=4)


def test_a_timestamp_is_microseconds_in_utc():
    t = Timestamp("t")
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert t.coordinate(noon) == noon.timestamp() * 1e6
    assert t.coordinate("2026-01-31T14:00:00+02:00") == t.coordinate(noon)
    assert t.coordinate("2026-01-31T12:00") == t.coordinate(noon)
    assert t.coordinate(noon.astimezone(timezone(timedelta(hours=5)))) == t.coordinate(noon)
    assert t.value(t.coordinate(noon)) == noon
    assert t.coordinate(datetime(9999, 12, 31, tzinfo=UTC)) > 0
    for value in (5, "today", "2026-01-31T12:00:00.1234567Z"):
        with pytest.raises(InvalidValueError):
            t.coordinate(value)


def test_far_future_bounds_of_timestamps_clamp():
    t = Timestamp("t")
    end = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    with pytest.raises(InvalidValueError, match="exactly"):
        t.coordinate(end)
    micros = (end - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert t.at_most(end) == double_at_most(micros) < micros


def test_named_values_are_numbered_in_order():
    sector = Category("sector", ["tech", "energy"])
    assert [sector.coordinate(v) for v in ("tech", "energy", None)] == [0.0, 1.0, MISSING]
    with pytest.raises(InvalidValueError, match="did you mean 'tech'"):
        sector.coordinate("tec")
    with pytest.raises(InvalidValueError, match="has no order"):
        sector.at_least("tech")
    assert [Boolean("b").coordinate(v) for v in (False, True, 0, 1)] == [0, 1, 0, 1]
    with pytest.raises(InvalidValueError, match="true or false"):
        Boolean("b").coordinate(2)


def test_a_vocabulary_grows_with_what_subscriptions_mention():
    symbol = String("symbol")
    assert symbol.coordinate("AAPL") == OTHER
    assert symbol.equal("AAPL") == (0.0, 0.0)
    assert symbol.equal("MSFT") == (1.0, 1.0)
    assert symbol.coordinate("AAPL") == 0.0
    assert symbol.coordinate("IBM") == OTHER
    assert [symbol.value(c) for c in (1.0, OTHER)] == ["MSFT", None]


def test_a_concept_is_the_range_of_its_leaves():
    region = Hierarchy("region", TREE)
    assert region.leaves == ["de", "paris", "lyon", "ny", "ca"]
    assert region.equal("EU") == (0.0, 2.0)
    assert region.equal("FR") == (1.0, 2.0)
    assert region.equal("ny") == (3.0, 3.0)
    assert list(region.concepts(1, 4)) == ["FR", "US"]
    with pytest.raises(InvalidValueError, match="this is an inner concept"):
        region.coordinate("EU")
    with pytest.raises(InvalidValueError, match="did you mean 'paris'"):
        region.coordinate("pari")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"EU": ["de", "de"]}, "appears twice in the tree"),
        ({"EU": []}, "has no leaf"),
        ({}, "has no leaf"),
        ({"EU": [5]}, "consists of tables"),
    ],
)
def test_a_bad_tree_is_rejected(tree, message):
    with pytest.raises(SpaceError, match=message):
        Hierarchy("region", tree)


def test_texts_of_numbers_are_read_exactly():
    assert read_number(" 12 ") == 12
    assert read_number("1e3") == 1000
    assert read_number("0.1") == Decimal("0.1")
    for text in ("", "1_000", "0x10", "nan", "inf", "1e999999999", "9" * 500, "١"):
        with pytest.raises(InvalidValueError):
            read_number(text)


def test_near_names_what_was_meant():
    assert did_you_mean("prise", ["price", "volume"]) == "did you mean 'price'?"
    assert did_you_mean("PE", ["pe", "price"]) == "did you mean 'pe'?"
    assert did_you_mean("zzz", ["a", "b"]) == "known: 'a', 'b'"


def test_a_category_of_very_many_values_is_made_at_once():
    """Comparing each value with all others would take an hour."""
    values = [f"value {n}" for n in range(300_000)]
    assert Category("name", values).values == tuple(values)
    with pytest.raises(SpaceError, match=r"more than once"):
        Category("name", [*values, values[7]])
