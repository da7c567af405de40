from datetime import UTC, datetime
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from rangecast.match.scan import Scan
from rangecast.model.attributes.base import Integer, Number
from rangecast.model.attributes.text import Category, Hierarchy
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.encoding.events import encode_events
from rangecast.model.encoding.subscriptions import encode_subscriptions
from rangecast.model.explain import explain_match
from rangecast.model.space import Space
from tests.support import strategies
from tests.support.conformance import as_sets


@given(strategies.boxes_and_points(max_rows=6))
def test_the_verdict_is_that_of_the_oracle(case):
    boxes, points = case
    space = Space([Number(f"a{j}") for j in range(boxes.dimensions)])
    for point, expected in zip(points[:4], as_sets(Scan(boxes).match(points[:4])), strict=True):
        values = {f"a{j}": v for j, v in enumerate(point.tolist()) if v != np.inf}
        for row in range(boxes.rows):
            explanation = explain_match(space, boxes, row, point, values)
            assert explanation.matches == (row in expected)
            assert ("does not match" in explanation.verdict) != explanation.matches


def space():
    return Space(
        [
            Number("price"),
            Integer("n"),
            Timestamp("at"),
            Category("kind", ["x", "y"]),
            Hierarchy("region", {"EU": ["de", "fr"], "US": ["ny"]}),
        ]
    )


@pytest.mark.parametrize(
    ("filter_text", "event", "wanted", "distance"),
    [
        ("price < 20", {"price": 25.5}, "price < 20", "5.5 too high"),
        ("n >= 5", {"n": 3}, "n >= 5", "2 too low"),
        ("n between 5 and 9", {"n": 6}, "n between 5 and 9", "1 inside"),
        (
            "at < '2026-01-01T00:00:00Z'",
            {"at": datetime(2026, 1, 1, 1, tzinfo=UTC)},
            "at < '2026-01-01T00:00:00Z'",
            "1:00:00.000001 too high",
        ),
        ("kind = 'x'", {"kind": "y"}, "kind = 'x'", ""),
        ("region = 'EU'", {"region": "ny"}, "region = 'EU'", ""),
        ("price is null", {"price": 5}, "price is null", ""),
        ("price > 3", {}, "price > 3", ""),
    ],
)
def test_each_kind_says_how_far_off_it_is(filter_text, event, wanted, distance):
    where = space()
    boxes = encode_subscriptions(pa.table({"id": ["s"], "filter": [filter_text]}), where)
    points = encode_events([event], where).points
    lines = explain_match(where, boxes, 0, points[0], event).boxes[0]
    (line,) = [line for line in lines if line.mentioned]
    assert (line.wanted, line.distance) == (wanted, distance)
    assert line.holds == ("inside" in distance)


def _lack(lines, lo, hi, point):
    """Return what one box of numbers lacks: attributes that fail, then their relative gaps."""
    gaps = []
    for line, low, high, at in zip(lines, lo.tolist(), hi.tolist(), point.tolist(), strict=True):
        if line.holds:
            continue
        bound = low if at < low else high
        gap = abs(Fraction(bound) - Fraction(at)) if np.inf not in (abs(at), abs(bound)) else None
        gaps.append(Fraction(1) if gap is None else gap / (gap + max(abs(Fraction(at)), 1)))
    return len(gaps), sum(gaps)


@given(strategies.boxes_and_points(max_rows=6))
def test_the_alternative_named_as_nearest_lacks_least(case):
    boxes, points = case
    space = Space([Number(f"a{j}") for j in range(boxes.dimensions)])
    for point in points[:4]:
        for row in range(boxes.rows):
            explanation = explain_match(space, boxes, row, point, {})
            mine = range(*boxes.box_offsets[row : row + 2])
            lacks = [
                _lack(lines, boxes.lo[box], boxes.hi[box], point)
                for lines, box in zip(explanation.boxes, mine, strict=True)
            ]
            failed, off = lacks[explanation.nearest]
            assert failed == min(failed for failed, _ in lacks)
            least = min(off for count, off in lacks if count == failed)
            assert off <= least + Fraction(1, 10**12)
            assert (failed == 0) == explanation.matches


@pytest.mark.parametrize(
    ("filter_text", "event", "nearest"),
    [
        ("price = -1.7e308 or price = -1.5e308", {"price": 1.7e308}, "price = -1.5e+308"),
        ("price < 1 or price > 8", {"price": 7}, "price > 8"),
        ("price < 1 or price > 8", {"price": 1.5}, "price < 1"),
        ("n < 5 and price < 2 or n > 90 and price < 2", {"n": 80, "price": 1}, "n >= 91"),
        ("n < 5 or n > 90 and price < 2", {"n": 80, "price": 3}, "n <= 4"),  # one fails, not two
        ("price < 5 or price > 7.000000000000001", {"price": 6}, "price < 5"),
    ],
)
def test_of_alternatives_that_fail_equally_often_the_closer_is_named(filter_text, event, nearest):
    where = space()
    boxes = encode_subscriptions(pa.table({"id": ["s"], "filter": [filter_text]}), where)
    points = encode_events([event], where).points
    verdict = explain_match(where, boxes, 0, points[0], event).verdict
    assert f"{nearest} fails at" in verdict


def test_of_alternatives_almost_equally_far_off_the_closer_is_named():
    where = Space([Number("a"), Number("b")])
    filter_text = "a = 5 and b = 1 or a = 5.000000000000002 and b = 1"
    boxes = encode_subscriptions(pa.table({"id": ["s"], "filter": [filter_text]}), where)
    explanation = explain_match(where, boxes, 0, np.array([6.0, 1.0]), {"a": 6, "b": 1})
    assert "a = 5.000000000000002 fails at 6" in explanation.verdict
