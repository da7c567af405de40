"""Statements of paper 003 that can be checked on any machine; its running example, rebuilt.

Its figures are lost, but the text of examples 1, 2, 4 and 5 fixes the ten intervals nearly: nine
ends, who holds 20, 50, 80 and a point between 75 and 90, what is visible where, and two edges of
the constraint graph. It lets intervals that touch count as apart; ours are closed.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.model.boxes import Boxes
from rangecast.rank.choose import INDEXES
from rangecast.rank.papers.sopt import arranged, graph, sopt
from rangecast.rank.papers.trees import Trees
from rangecast.rank.scan import Scan
from tests.support.examples import examples
from tests.support.strategies import intervals

INF = np.inf
EXAMPLE = np.array(
    [
        *([30, 55], [75, 90], [45, 55], [65, 100], [10, 30]),
        *([0, 30], [75, 100], [75, 90], [10, 45], [10, 90]),
    ],
    dtype=float,
)
"""Intervals 1 to 10; 1 has the best score."""
TREES = [name for name in INDEXES if name not in ("scan", "slabs")]


def example(ends=EXAMPLE):
    return Boxes.of(ends[:, :1], ends[:, 1:], scores=np.arange(10, 0, -1))


@pytest.mark.parametrize("name", INDEXES)
@pytest.mark.parametrize(
    ("value", "held"),
    [(20, [5, 6, 9, 10]), (50, [1, 3, 10]), (80, [2, 4, 7, 8, 10]), (89, [2, 4, 7, 8, 10])],
)
def test_the_example_is_ranked_as_the_paper_says(name, value, held):
    best = INDEXES[name](example()).best(np.array([[float(value)]]), 10)
    assert (best.of(0)[0] + 1).tolist() == held


def test_the_example_has_the_paper_s_visible_blocks():
    """Of 1 to 7: interval 6 is seen on [0, 30], 1 on [30, 45], 3 to 55, 4 from 65, 7 from 75."""
    seen = {}
    for value in (15, 40, 50, 60, 70, 85):
        held = (EXAMPLE[:7, 0] <= value) & (value <= EXAMPLE[:7, 1])
        seen[value] = int(np.flatnonzero(held)[-1]) + 1 if held.any() else None
    assert seen == {15: 6, 40: 1, 50: 3, 60: None, 70: 4, 85: 7}


def test_the_example_has_the_paper_s_edges_if_ends_are_open():
    ends = np.nextafter(EXAMPLE[:, 1], -INF)  # so that those that touch are apart
    edges = {(a + 1, b + 1) for a, b in graph(EXAMPLE[:, 0], ends).tolist()}
    assert {(1, 3), (1, 9), (3, 10)} <= edges
    assert (1, 10) not in edges
    closed = {(a + 1, b + 1) for a, b in graph(EXAMPLE[:, 0], EXAMPLE[:, 1]).tolist()}
    assert (1, 5) in closed - edges  # they touch at 30: an event there must get 1 first


def by_hand(lo, hi):
    """The graph by its definition, looked for at all ends and between them."""
    ends = np.unique(np.concatenate([lo, hi, [INF]]))
    with np.errstate(over="ignore"):
        around = [ends, np.nextafter(ends, -INF), np.nextafter(ends, INF)]
    places = np.unique(np.concatenate(around))
    places = places[places > -INF]  # no event has this value
    pairs = set()
    for place in places:
        held = np.flatnonzero((lo <= place) & (place <= hi)).tolist()
        pairs.update(pairwise(held))
    return pairs


@examples(100)
@given(st.lists(intervals(), max_size=25))
def test_the_graph_is_what_its_definition_says(some):
    lo, hi = np.array(some).reshape(-1, 2).T
    if not len(lo):
        return
    pairs = graph(lo, hi)
    assert len(pairs) <= 3 * len(lo)
    assert {tuple(pair) for pair in pairs.tolist()} == by_hand(lo, hi)
    place = np.empty(len(lo), int)
    place[arranged(lo, hi)] = np.arange(len(lo))
    assert sorted(place.tolist()) == list(range(len(lo)))
    assert all(place[a] < place[b] for a, b in pairs.tolist())


def shapes(n=3000):
    rng = np.random.default_rng(5)
    ramp = np.arange(n, dtype=float)
    middle, half = rng.random(n), rng.random(n) ** 8
    return {
        "random": (middle - half, middle + half),
        "nested": (ramp / 2, n - ramp / 2),
        "nested, the best inside": ((n - ramp) / 2, n - (n - ramp) / 2),
        "disjoint": (2 * ramp, 2 * ramp + 1),
        "disjoint, shuffled": (2 * (p := rng.permutation(n).astype(float)), 2 * p + 1),
        "touching": (ramp, ramp + 1),
        "all equal": (np.zeros(n), np.ones(n)),
        "stairs": (ramp, ramp + 50),
        "stairs, downwards": (ramp[::-1].copy(), ramp[::-1] + 50),
        "a comb under a bar": (
            np.where(ramp % 2 == 0, ramp, 0.0),
            np.where(ramp % 2 == 0, ramp + 0.5, n),
        ),
    }


SHAPES = shapes()


@pytest.mark.parametrize("name", SHAPES)
def test_there_are_at_most_3n_edges(name):
    lo, hi = SHAPES[name]
    assert len(graph(lo, hi)) <= 3 * len(lo)


@pytest.mark.parametrize("branching", [2, 10, 50])
@pytest.mark.parametrize("name", SHAPES)
def test_at_most_2k_pages_of_a_level_are_opened(name, branching):
    lo, hi = SHAPES[name]
    n = len(lo)
    scores = np.arange(n, 0, -1).astype(float)
    boxes = Boxes.of(lo[:, None], hi[:, None], scores=scores)
    tree = Trees("sopt", sopt, boxes, branching=branching)
    ends = np.concatenate([lo[::97], hi[::97]])
    for value in np.concatenate([ends, ends + 0.25]).tolist():
        for k in (1, 3, 20):
            point = np.array([[value]])
            best = tree.best(point, k)
            assert best.of(0)[0].tolist() == Scan(boxes).exact(point[0], k).rows.tolist()
            assert all(opened <= 2 * k for opened in best.work.opened)
            assert best.work.holes <= k


def test_ties_are_broken_by_arrival_when_the_graph_is_made():
    """All scores equal: without an order among them every pair would be free to swap."""
    boxes = Boxes.of(np.zeros((40, 1)), np.ones((40, 1)))
    best = INDEXES["sopt"](boxes).best(np.array([[0.5]]), 40)
    assert best.of(0)[0].tolist() == list(range(40))


def test_a_scored_r_tree_has_holes_that_the_arranged_one_has_not():
    """Figure 4 against figure 5: hulls of boxes that only have their scores in common are wide."""
    rng = np.random.default_rng(0)
    lo = rng.random((20_000, 1))
    boxes = Boxes.of(lo, lo + 1e-3, scores=rng.random(20_000))
    points = rng.random((20, 1))
    plain, arranged_ = (INDEXES[name](boxes).best(points, 20).work for name in ("rtree", "sopt"))
    assert plain.holes > 20 * arranged_.holes
    assert plain.examined > 5 * arranged_.examined


@pytest.mark.parametrize("name", TREES)
def test_relaxed_ranking_stops_before_the_lists_end(name):
    rng = np.random.default_rng(4)
    lo = rng.random((5000, 3))
    boxes = Boxes.of(lo, lo + rng.random((5000, 3)), weights=rng.random((5000, 3)))
    points = 0.3 + rng.random((5, 3)) / 2
    work = INDEXES[name](boxes, relaxed=True).best(points, 5).work
    held = sum(((boxes.lo <= p) & (p <= boxes.hi)).sum() for p in points)
    assert work.calls < held / 2


TIED = st.sampled_from([0.0, 0.1, 0.2, 0.3, 1.0, 1e16])
"""Weights whose sums tie often, also because they are rounded."""


@examples(300)
@given(data=st.data(), d=st.integers(1, 5), k=st.integers(1, 6))
@pytest.mark.parametrize("name", ["sopt", "ir"])
def test_ties_with_the_bound_are_decided_by_arrival(name, data, d, k):
    """Few weights and wide ranges: nearly all scores are tied, and the order is by arrival."""
    rows = data.draw(st.integers(1, 25))
    lo = np.array(
        data.draw(st.lists(st.sampled_from([-INF, 0.0, 2.0]), min_size=rows * d, max_size=rows * d))
    )
    hi = np.where(np.isinf(lo), INF, lo + 1)
    weights = data.draw(st.lists(TIED, min_size=rows * d, max_size=rows * d))
    boxes = Boxes.of(lo.reshape(-1, d), hi.reshape(-1, d), weights=np.reshape(weights, (-1, d)))
    points = np.array([[1.0] * d, [2.0] * d, [0.0, 3.0, 0.0, 3.0, 0.0][:d]])
    best = INDEXES[name](boxes, relaxed=True).best(points, k)
    for event, right in enumerate(Scan(boxes).rank(points, k, relaxed=True)):
        found, scores = best.of(event)
        assert found.tolist() == right.rows.tolist()
        assert scores.tolist() == right.scores.tolist()


@pytest.mark.parametrize("d", [1, 3, 12])
def test_subscriptions_of_one_weight_are_not_fetched_to_the_last_one(d):
    """All tie with the bound: about k calls for each attribute, however many there are."""
    rng = np.random.default_rng(d)
    lo, hi = np.full((4000, d), -INF), np.full((4000, d), INF)
    for row in range(4000):
        for axis in rng.choice(d, min(d, 3), replace=False):
            lo[row, axis], hi[row, axis] = 0.0, 1.0
    index = INDEXES["sopt"](Boxes.of(lo, hi), relaxed=True)
    best = index.best(np.full((1, d), 0.5), 10)
    assert best.rows[0].tolist() == list(range(10))
    assert best.work.calls <= 12 * d


@pytest.mark.parametrize("name", ["segment", "interval", "rtree", "ir", "sopt"])
def test_getnext_alone_does_what_relaxed_ranking_does_but_look_up(name):
    rng = np.random.default_rng(5)
    lo = rng.integers(0, 50, (2_000, 3)).astype(float)
    boxes = Boxes.of(lo, lo + rng.integers(5, 30, lo.shape), weights=rng.random(lo.shape))
    points = rng.integers(25, 45, (20, 3)).astype(float)
    trees = INDEXES[name](boxes, relaxed=True)
    for point in points:
        whole = trees.best(point[None], 3).work
        assert whole.calls % 3 == 0, "a list ended"
        alone = trees.fetch(point[None], np.array([whole.calls // 3]))
        assert alone == whole._replace(tested=0)
