"""Events that are spans, and uncertain ones, by every ranking structure: as the oracle says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.engine import Engine
from rangecast.errors import UsageError
from rangecast.model.attributes.base import Number
from rangecast.model.attributes.places import Location
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.rank.choose import INDEXES
from rangecast.rank.liveness import Liveness
from rangecast.rank.papers.ir import IrTrees
from rangecast.rank.scores.adjusted import best_uncertain
from tests.rank.test_events import ranked, spans, spans_by_hand
from tests.rank.test_structures import RANKERS, TREES, answers, many, scored
from tests.support import adversarial
from tests.support.examples import examples
from tests.support.strategies import boxes_and_points

INF = np.inf
CASES = adversarial.cases()
HOW = pytest.mark.parametrize("how", ["overlap", "contain"])


def by_hand(boxes, lo, hi, k, how, alive=None):
    """The k best of each span, by comparing all boxes."""
    found = []
    for first, last in zip(lo, hi, strict=True):
        rows = np.unique(boxes.owner[spans_by_hand(boxes, first, last, how)])
        rows = rows if alive is None else rows[alive[rows]]
        found.append(ranked({int(row): float(boxes.scores[row]) for row in rows}, k))
    return found


@HOW
@pytest.mark.parametrize("name", RANKERS)
@examples(25)
@given(case=boxes_and_points(), k=st.integers(1, 6))
def test_spans_are_ranked_as_their_meaning_says(name, how, case, k):
    boxes, points = case
    lo, hi = spans(points)
    assert answers(RANKERS[name](boxes).best_spans(lo, hi, k, how)) == by_hand(
        boxes, lo, hi, k, how
    )


@HOW
@pytest.mark.parametrize("name", RANKERS)
@pytest.mark.parametrize("several", [False, True])
def test_spans_on_a_large_set(name, how, several):
    boxes, points = many(6000, 3, several=several)
    lo, hi = spans(points)
    hi[:10] = lo[:10]  # points
    hi[10:14], lo[12:16] = INF, -INF
    best = RANKERS[name](boxes).best_spans(lo, hi, 20, how)
    assert answers(best) == by_hand(boxes, lo, hi, 20, how)
    alone = [
        answers(RANKERS[name](boxes).best_spans(lo[e : e + 1], hi[e : e + 1], 20, how))[0]
        for e in (0, 13, 39)
    ]
    assert alone == [answers(best)[e] for e in (0, 13, 39)]


@HOW
@pytest.mark.parametrize("name", RANKERS)
def test_more_than_there_are_is_all_of_them(name, how):
    boxes, points = many(700, 1, free=0.0)
    lo, hi = spans(points)
    best = RANKERS[name](boxes).best_spans(lo, hi, 900, how)
    assert answers(best) == by_hand(boxes, lo, hi, 900, how)


@HOW
@pytest.mark.parametrize("name", RANKERS)
def test_spans_on_sets_that_are_hard(name, how):
    for title, (boxes, points) in CASES.items():
        some = scored(boxes)
        lo, hi = spans(points[::9])
        found = answers(RANKERS[name](some).best_spans(lo, hi, 7, how))
        assert found == by_hand(some, lo, hi, 7, how), title


@HOW
@pytest.mark.parametrize("name", INDEXES)
def test_dead_rows_take_no_place(name, how):
    boxes, points = many(2000, 2)
    lo, hi = spans(points)
    rng = np.random.default_rng(3)
    alive = rng.random(boxes.rows) < 0.3
    names = rng.permutation(boxes.rows).astype(np.int32)
    died = np.full(boxes.rows, 5)
    died[names[alive]] = 8
    names.flags.writeable = died.flags.writeable = False
    liveness = Liveness(names, died, 6)
    best = INDEXES[name](boxes).best_spans(lo, hi, 9, how, liveness=liveness)
    assert answers(best) == by_hand(boxes, lo, hi, 9, how, alive)


@HOW
@pytest.mark.parametrize("branching", [2, 50])
def test_an_ir_tree_that_was_edited_ranks_spans(how, branching):
    boxes, points = many(1500, 2)
    trees = IrTrees(boxes.take(np.arange(500)), branching=branching)
    for first in range(500, 1500, 100):
        trees.insert(boxes.take(np.arange(first, first + 100)))
    alive = np.random.default_rng(4).random(1500) < 0.6
    trees.delete(np.flatnonzero(~alive))
    lo, hi = spans(points)
    found = answers(trees.best_spans(lo, hi, 9, how))
    assert found == by_hand(boxes, lo, hi, 9, how, alive)


@pytest.mark.parametrize("name", INDEXES)
@examples(15)
@given(case=boxes_and_points(), k=st.integers(1, 5), seed=st.integers(0, 9))
def test_uncertain_events_are_ranked_by_what_they_surely_hold(name, case, k, seed):
    boxes, points = case
    lo, hi = spans(points)
    sure = np.random.default_rng(seed).choice([0.0, 0.25, 0.5, 1.0], points.shape)
    index = INDEXES[name](boxes)
    best = best_uncertain(
        lambda events, ask: index.best_spans(lo[events], hi[events], ask, "contain"),
        boxes.take,
        (lo, hi, sure),
        k,
    )
    for event, found in enumerate(answers(best)):
        totals = {}
        for box in np.flatnonzero(spans_by_hand(boxes, lo[event], hi[event], "contain")).tolist():
            row = int(boxes.owner[box])
            total = float(boxes.scores[row]) * float(np.prod(sure[event][boxes.mentions[box]]))
            totals[row] = max(totals.get(row, -INF), total)
        assert found == ranked(totals, k)


@pytest.mark.parametrize("rank_index", INDEXES)
def test_a_live_set_takes_spans_with_any_structure(rank_index):
    space = Space([Number("x"), Number("y")])
    boxes, points = many(3000, 2)
    boxes = Boxes.of(boxes.lo, boxes.hi, scores=boxes.scores, ids=list(range(3000)))
    engine, oracle = Engine(space, rank_index=rank_index), Engine(space, rank_index="scan")
    events = [
        {"x": (min(x, y), max(x, y)), "y": (x / 2, x)}
        for x, y in points[np.isfinite(points).all(axis=1)].tolist()
    ]
    for first in range(0, 3000, 1000):
        for live in (engine, oracle):
            live.subscribe_many(boxes.take(np.arange(first, first + 1000)))
            live.unsubscribe_many(list(range(first, first + 1000, 3)))
        for span in ("overlap", "contain"):
            assert list(engine.rank_many(events, 5, span=span)) == list(
                oracle.rank_many(events, 5, span=span)
            )
        sure = {"x": 0.5, "y": 0.25}
        assert list(engine.rank_many(events, 5, probabilities=sure)) == list(
            oracle.rank_many(events, 5, probabilities=sure)
        )


@pytest.mark.parametrize("name", TREES)
def test_a_span_looks_at_what_it_needs_alone(name):
    """To contain a span takes no more pages than its first end, to overlap it not all that do.

    SOPT-R keeps no order among boxes that don't meet each other, so it finds all that overlap, as
    the interval tree by ends does for points, too.
    """
    boxes, _ = many(6000, 1, free=0.0)
    index = RANKERS[name](boxes)
    lo = np.arange(5.0, 65.0, 5)[:, None]
    hi = lo + 2
    same, point = index.best_spans(lo, lo, 10, "overlap"), index.best(lo, 10)
    assert (answers(same), same.work) == (answers(point), point.work)
    contain = index.best_spans(lo, hi, boxes.rows, "contain").work
    all_of_point = index.best(lo, boxes.rows).work
    assert sum(contain.opened) <= sum(all_of_point.opened)
    assert contain.examined <= all_of_point.examined
    ends = zip(lo, hi, strict=True)
    held = sum(int(spans_by_hand(boxes, first, last, "overlap").sum()) for first, last in ends)
    overlap = index.best_spans(lo, hi, 10, "overlap").work
    assert (overlap.examined >= held) == (name.startswith("sopt") or name == "interval-ends")


def test_a_set_with_shapes_ranks_no_spans():
    engine = Engine(Space([Location("at"), Number("x")]))
    engine.subscribe("near", "within(at, circle(13.4, 52.5, 5 km))", score=1)
    with pytest.raises(UsageError, match="spans can't be ranked by subscriptions with shapes"):
        engine.rank({"longitude": 13.4, "latitude": 52.5, "x": (1, 2)}, 1, span="overlap")


def test_a_relaxed_index_ranks_no_spans():
    for name in INDEXES:
        index = INDEXES[name](Boxes.of([[0.0]], [[1.0]]), relaxed=True)
        with pytest.raises(UsageError, match="ranked exactly"):
            index.best_spans(np.array([[1.0]]), np.array([[2.0]]), 1, "overlap")
        exact = INDEXES[name](Boxes.of([[0.0]], [[1.0]]))
        with pytest.raises(UsageError, match="must not end before it begins"):
            exact.best_spans(np.array([[2.0]]), np.array([[1.0]]), 1, "contain")
        with pytest.raises(UsageError, match="span must be"):
            exact.best_spans(np.array([[1.0]]), np.array([[1.0]]), 1, "touch")
