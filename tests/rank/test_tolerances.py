"""Relaxed ranking with tolerances: an attribute counts by how near its value is to its range."""

import math
import pickle
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import Boolean, Engine, Integer, Number, Space, Text, Timestamp
from rangecast.errors import UsageError
from rangecast.model.boxes import frozen
from rangecast.rank.choose import build
from rangecast.rank.liveness import Liveness
from rangecast.rank.scan import Scan
from rangecast.rank.scores.combine import COMBINATIONS
from rangecast.rank.scores.tolerances import (
    encode_tolerances,
    read_tolerances,
    write_tolerances,
)
from rangecast.rank.slabs.index import Slabs
from tests.rank.test_combine import MAX, weighted, with_weights
from tests.rank.test_structures import answers, many
from tests.support.examples import examples

WIDTHS = [0.0, 5e-324, 0.5, 1.0, 3.0, 1e300, MAX]


def share(value, lo, hi, tolerance):
    """The share of its weight that an attribute counts, or nothing."""
    if lo <= value <= hi:
        return 1.0
    if not tolerance or value == math.inf:
        return None
    gap = lo - value if value < lo else value - hi
    part = 1 - gap / tolerance if gap < math.inf else 0
    return part if part > 0 else None


def by_hand(boxes, point, combine, tolerances):
    """The score of each subscription, spelled out a value at a time."""
    scores = {}
    for row, lo, hi in zip(boxes.owner.tolist(), boxes.lo, boxes.hi, strict=True):
        counted = []
        for j, value in enumerate(point.tolist()):
            if lo[j] == -math.inf and hi[j] == math.inf:
                continue
            part = share(value, float(lo[j]), float(hi[j]), float(tolerances[j]))
            if part is not None:
                weight = 1.0 if boxes.weights is None else float(boxes.weights[row, j])
                counted.append(weight * part)
        if not counted:
            continue
        total = counted[0]
        for weight in counted[1:]:
            if combine == "product":
                total = min(total * weight, MAX)
            else:
                total = {"sum": sum, "min": min, "max": max}[combine]((total, weight))
        scores[row] = max(scores.get(row, -math.inf), total)
    return sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))


def rankings(best):
    return [list(zip(rows, scores, strict=True)) for rows, scores in answers(best)]


@st.composite
def tolerant(draw):
    boxes, points = draw(weighted())
    widths = draw(st.lists(st.sampled_from(WIDTHS), min_size=points.shape[1], max_size=9))
    return boxes, points, frozen(widths[: points.shape[1]], np.float64)


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["scan", "slabs"])
@pytest.mark.parametrize("combine", COMBINATIONS)
@examples(40)
@given(case=tolerant(), k=st.integers(1, 9))
def test_every_index_counts_by_distance(name, combine, case, k):
    boxes, points, widths = case
    index = build(boxes, name, relaxed=True, combine=combine)
    expected = [by_hand(boxes, point, combine, widths)[:k] for point in points]
    assert rankings(index.best_near(points, k, widths)) == expected
    again = pickle.loads(pickle.dumps(index))
    assert rankings(again.best_near(points, k, widths)) == expected


@pytest.mark.parametrize("combine", COMBINATIONS)
def test_slabs_on_large_sets_with_dead_rows(combine):
    boxes, points = many(4_000, 3, several=True)
    rng = np.random.default_rng(7)
    boxes = with_weights(boxes, np.round(2 * rng.random((boxes.rows, 3)), 1))
    died = frozen(np.where(rng.random(boxes.rows) < 0.3, 0, 9), np.int64)
    live = Liveness(frozen([], np.int32), died, 5)
    spread = float(np.ptp(points[np.isfinite(points)]))
    for widths in ([spread / 50, 0.0, spread], [0.0, spread / 9, 0.0]):
        near = frozen(widths, np.float64)
        slabs = Slabs(boxes, relaxed=True, combine=combine)
        expected = Scan(boxes, relaxed=True, combine=combine)
        found = slabs.best_near(points, 20, near, liveness=live)
        assert answers(found) == answers(expected.best_near(points, 20, near, liveness=live))
        assert answers(slabs.best(points, 20)) == answers(expected.best(points, 20))


def test_a_search_stops_when_nothing_left_can_get_more():
    """Tolerances lower what counts, so the bound by which relaxed ranking stops holds."""
    boxes, points = many(4_000, 2)
    rng = np.random.default_rng(8)
    boxes = with_weights(boxes, rng.random((boxes.rows, 2)))
    found = Slabs(boxes, relaxed=True).best_near(points, 5, frozen([1e9, 1e9], np.float64))
    assert found.work.words < len(points) * 2 * len(boxes.lo) / 64 / 4


def space():
    return Space([Number("price"), Integer("rooms"), Timestamp("at"), Text("town"), Boolean("new")])


NEAR = {"price": 5.0, "rooms": 2, "at": timedelta(minutes=1)}


def subscribed(rank_index="auto"):
    engine = Engine(space(), rank_index=rank_index)
    engine.subscribe("cheap", "price < 10", weights={"price": 2})
    engine.subscribe("large", "rooms >= 4 and town = 'Ulm'")
    engine.subscribe("early", "at <= '2026-01-01T08:00Z' or price between 90 and 95")
    engine.subscribe("fresh", "new = true and price > 50")
    return engine


def test_an_attribute_counts_by_its_distance():
    engine = subscribed()
    event = {"price": 12.5, "rooms": 3, "at": "2026-01-01T08:00:30Z", "town": "Ulm", "new": False}
    assert engine.rank(event, relaxed=True) == [("large", 1.0)]
    found = engine.rank(event, relaxed=True, tolerances=NEAR)
    assert found == [("large", 1.5), ("cheap", pytest.approx(1.0)), ("early", 0.5)]
    assert engine.rank({"price": 85.5, "town": "Bonn"}, relaxed=True, tolerances=NEAR) == [
        ("fresh", 1.0),
        ("early", pytest.approx(0.1)),
    ]
    assert engine.rank({"town": "Bonn"}, relaxed=True, tolerances=NEAR) == []
    seconds = {**NEAR, "at": 60}
    assert engine.rank(event, relaxed=True, tolerances=seconds) == found
    assert engine.rank_many([event], relaxed=True, tolerances=NEAR)[0] == found


def test_edits_are_ranked_as_a_set_built_once():
    rng = np.random.default_rng(8)
    boxes, points = many(1_500, 2, several=True)
    boxes = with_weights(boxes, np.round(2 * rng.random((boxes.rows, 2)), 1))
    plane = Space([Number("a"), Number("b")])
    engine, near = Engine(plane), {"a": 40.0}
    engine.subscribe_many(boxes)
    engine.rank_points(points, 5, relaxed=True, tolerances=near)
    for row in range(0, 60, 3):
        engine.rescore(row, weights={"a": 1.5})
        engine.unsubscribe(row + 1)
    engine.subscribe(9_999, "a >= 0 or b >= 0", weights={"a": 1.2, "b": 1.3})
    engine.replace(2, "a between 3 and 4 or b < 2")
    now = engine.boxes()
    ids = now.ids.to_pylist()
    for some in (points, points[:1]):
        found = engine.rank_points(some, 12, relaxed=True, tolerances=near)
        for event, point in enumerate(some):
            right = by_hand(now, point, "sum", [40.0, 0.0])[:12]
            assert found[event] == [(ids[row], score) for row, score in right]


def test_subscriptions_with_shapes_count_by_the_distance_of_their_numbers():
    from rangecast import Point

    plane = Space([Number("x"), Number("y"), Point("at", x="x", y="y"), Number("price")])
    engine = Engine(plane)
    engine.subscribe("near", "within(at, circle(0, 0, 1)) and price < 10")
    engine.subscribe("far", "within(at, circle(9, 9, 1)) and price < 12")
    event = {"x": 0.5, "y": 0, "price": 13}
    assert engine.rank(event, relaxed=True) == [("near", 1.0)]
    tolerances = {"price": 4.0, "x": 100.0}
    assert engine.rank(event, relaxed=True, tolerances=tolerances) == [
        ("near", pytest.approx(1.25)),
        ("far", pytest.approx(0.75)),
    ]


@pytest.mark.parametrize(
    ("tolerances", "message"),
    [
        ({"town": 1}, "'town' is of type .* which has no distance"),
        ({"new": 1}, "no distance"),
        ({"pric": 1}, "did you mean 'price'"),
        ({"price": 0}, "a positive, finite number"),
        ({"price": -1}, "a positive, finite number"),
        ({"price": math.inf}, "a positive, finite number"),
        ({"price": math.nan}, "a positive, finite number"),
        ({"price": "5"}, "a positive, finite number"),
        ({"price": True}, "a positive, finite number"),
        ({"price": timedelta(1)}, "a positive, finite number"),
        ({"at": timedelta(0)}, "of seconds, or a timedelta"),
        ([("price", 5)], "a dict from attributes to numbers"),
    ],
)
def test_tolerances_are_checked(tolerances, message):
    with pytest.raises(Exception, match=message):
        subscribed().rank({"price": 1}, relaxed=True, tolerances=tolerances)


def test_tolerances_are_for_relaxed_ranking_by_slabs_or_scan():
    with pytest.raises(UsageError, match="relaxed=True"):
        subscribed().rank({"price": 1}, tolerances=NEAR)
    with pytest.raises(UsageError, match="relaxed=True"):
        subscribed().rank_points(np.ones((1, 5)), tolerances=NEAR)
    engine = subscribed("ir")
    with pytest.raises(UsageError, match="'slabs' or 'scan'; given: 'ir'"):
        engine.rank({"price": 1}, relaxed=True, tolerances=NEAR)
    assert engine.rank({"price": 1}, relaxed=True, tolerances={}) == [("cheap", 2.0)]
    few = Engine(Space([Number("price")]), rank_index="ir")
    few.subscribe(1, "price < 5")
    with pytest.raises(UsageError, match="'slabs' or 'scan'; given: 'ir'"):
        few.rank({"price": 6}, relaxed=True, tolerances={"price": 5})


def test_tolerances_as_text():
    texts = write_tolerances(NEAR)
    assert texts == ["price=5.0", "rooms=2", "at=60.0"]
    both = (encode_tolerances(near, space()).tolist() for near in (NEAR, read_tolerances(texts)))
    first = next(both)
    assert first == next(both)
    assert first[:3] == [5.0, 2.0, 60e6]
    assert not any(first[3:])  # texts and booleans have none
    assert read_tolerances(["a=b=1e3"]) == {"a=b": 1000.0}
    for wrong, message in [
        (["price"], "ATTRIBUTE=NUMBER"),
        (["=5"], "ATTRIBUTE=NUMBER"),
        (["price=x"], "ATTRIBUTE=NUMBER"),
        (["price=1", "price=2"], "two tolerances"),
    ]:
        with pytest.raises(UsageError, match=message):
            read_tolerances(wrong)
