"""Relaxed ranking by the least, the largest or the product of the weights that hold."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.engine import Engine
from rangecast.errors import UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.rank.choose import INDEXES, build
from rangecast.rank.scan import Scan
from rangecast.rank.scores.combine import COMBINATIONS, check_combine
from tests.rank.test_structures import RANKERS, answers, many
from tests.support import strategies
from tests.support.examples import examples

MAX = float(np.finfo(np.float64).max)
WEIGHTS = [0.0, 0.3, 0.9, 1.0, 1.1, 2.0, 1e200, 1e-300]


def with_weights(boxes, weights):
    return Boxes.of(boxes.lo, boxes.hi, owner=boxes.owner, scores=boxes.scores, weights=weights)


def by_hand(boxes, point, combine):
    """The score of each subscription, spelled out a value at a time."""
    scores = {}
    for row, lo, hi in zip(boxes.owner.tolist(), boxes.lo, boxes.hi, strict=True):
        held = [
            float(boxes.weights[row, j])
            for j, value in enumerate(point)
            if lo[j] <= value <= hi[j] and not (lo[j] == -np.inf and hi[j] == np.inf)
        ]
        if held:
            total = held[0]
            for weight in held[1:]:
                if combine == "product":
                    total = min(total * weight, MAX)
                else:
                    total = {"sum": sum, "min": min, "max": max}[combine]((total, weight))
            scores[row] = max(scores.get(row, -math.inf), total)
    return sorted((-score, row) for row, score in scores.items())


@st.composite
def weighted(draw):
    boxes, points = draw(strategies.boxes_and_points())
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    some = draw(st.lists(st.sampled_from(WEIGHTS), min_size=1, max_size=4))
    return with_weights(boxes, rng.choice(some, (boxes.rows, boxes.dimensions))), points


@pytest.mark.conformance
@pytest.mark.parametrize("combine", COMBINATIONS)
@examples(40)
@given(case=weighted(), k=st.integers(1, 9))
def test_the_oracle_says_what_was_meant(combine, case, k):
    boxes, points = case
    scan = Scan(boxes, relaxed=True, combine=combine)
    for point, found in zip(points, scan.rank(points, k, relaxed=True), strict=True):
        right = by_hand(boxes, point, combine)[:k]
        assert found.rows.tolist() == [row for _, row in right]
        assert found.scores.tolist() == [-score for score, _ in right]


@pytest.mark.conformance
@pytest.mark.parametrize("combine", ["min", "max", "product"])
@pytest.mark.parametrize("name", RANKERS)
@examples(15)
@given(case=weighted(), k=st.integers(1, 9))
def test_every_structure_combines_as_the_oracle_does(name, combine, case, k):
    boxes, points = case
    index = RANKERS[name](boxes, relaxed=True, combine=combine)
    expected = answers(Scan(boxes, relaxed=True, combine=combine).best(points, k))
    assert answers(index.best(points, k)) == expected
    assert answers(pickle.loads(pickle.dumps(index)).best(points, k)) == expected


@pytest.mark.parametrize("combine", ["min", "max", "product"])
@pytest.mark.parametrize("name", INDEXES)
def test_every_structure_on_large_sets(name, combine):
    boxes, points = many(4_000, 3, several=True)
    rng = np.random.default_rng(7)
    for weights in (np.round(2 * rng.random((boxes.rows, 3)), 1), np.ones((boxes.rows, 3))):
        some = with_weights(boxes, weights)
        index = build(some, name, relaxed=True, combine=combine)
        expected = Scan(some, relaxed=True, combine=combine).best(points, 20)
        assert answers(index.best(points, 20)) == answers(expected)


def test_ties_with_the_bound_are_decided_by_arrival():
    """All weights are 1: the least and the largest are found at once, not after all that tie."""
    n = 5_000
    boxes = Boxes.of(np.zeros((n, 2)), np.ones((n, 2)))
    for combine in ("min", "max"):
        best = build(boxes, "ir", relaxed=True, combine=combine).best(np.array([[0.5, 0.5]]), 10)
        assert best.rows.tolist() == [list(range(10))]
        assert best.work.calls <= 25


@pytest.mark.parametrize("combine", COMBINATIONS)
@pytest.mark.parametrize("rank_index", ["auto", "sopt", "scan"])
def test_a_live_set_combines_as_a_set_built_once(rank_index, combine):
    rng = np.random.default_rng(8)
    boxes, points = many(1_500, 2, several=True)
    boxes = with_weights(boxes, np.round(2 * rng.random((boxes.rows, 2)), 1))
    engine = Engine(Space([Number("a"), Number("b")]), rank_index=rank_index)
    engine.subscribe_many(boxes)
    engine.rank_points(points, 5, relaxed=True, combine=combine)
    for one in range(0, 60, 3):
        engine.rescore(one, weights={"a": 1.5})
        engine.unsubscribe(one + 1)
    engine.subscribe(9_999, "a >= 0 or b >= 0", weights={"a": 1.2, "b": 1.3})
    now = engine.boxes()
    ids = now.ids.to_pylist()
    expected = Scan(now, relaxed=True, combine=combine).best(points, 12)
    found = engine.rank_points(points, 12, relaxed=True, combine=combine)
    for event, (rows, scores) in enumerate(answers(expected)):
        assert found[event] == list(zip([ids[row] for row in rows], scores, strict=True))
    events = [dict(zip("ab", point, strict=True)) for point in points if np.isfinite(point).all()]
    many_events = engine.rank_many(events, 3, relaxed=True, combine=combine)
    for event, given_event in enumerate(events):
        assert engine.rank(given_event, 3, relaxed=True, combine=combine) == many_events[event]


def test_a_combination_is_checked():
    engine = Engine(Space([Number("a")]))
    with pytest.raises(UsageError, match="did you mean 'product'"):
        engine.rank({"a": 1}, relaxed=True, combine="prodct")
    with pytest.raises(UsageError, match="relaxed=True"):
        engine.rank_many([{"a": 1}], combine="max")
    with pytest.raises(UsageError, match="only combined in relaxed ranking"):
        build(Boxes.of([[0]], [[1]]), combine="min")
    check_combine("sum", relaxed=False)
