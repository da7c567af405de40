import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.match.rtree import RTree
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes
from tests.support import adversarial, strategies
from tests.support.conformance import as_sets, streamed

CASES = adversarial.cases()


def some_boxes(n, d, seed=0, width=0.1, mentions=None):
    """Boxes of about this width; each mentions `mentions` attributes (all, if not given)."""
    rng = np.random.default_rng(seed)
    lo = rng.random((n, d))
    hi = lo + rng.uniform(0, 2 * width, (n, d))
    if mentions is not None:
        free = rng.random((n, d)).argsort(axis=1) >= mentions
        lo[free], hi[free] = -np.inf, np.inf
    return Boxes.of(lo, hi), rng.random((300, d))


@given(strategies.boxes_and_points(), st.integers(1, 9))
def test_streams_and_single_events_say_the_same(case, buffer):
    boxes, points = case
    tree = RTree(boxes)
    expected = as_sets(Scan(boxes).match(points))
    assert streamed(tree, points, buffer) == expected
    for point, rows in zip(points, expected, strict=True):
        one = tree.match_one(point).tolist()
        assert len(one) == len(rows)
        assert set(one) == rows


@pytest.mark.parametrize("name", CASES)
def test_adversarial_streams(name):
    boxes, points = CASES[name]
    assert streamed(RTree(boxes), points, 7) == as_sets(Scan(boxes).match(points))


@pytest.mark.parametrize(
    ("n", "d", "mentions"),
    [(15, 1, None), (16, 2, None), (17, 2, None), (257, 3, None), (5000, 4, 2), (3000, 20, 4)],
)
def test_larger_sets_are_matched_exactly(n, d, mentions):
    boxes, points = some_boxes(n, d, mentions=mentions)
    points[::7, 0] = np.inf
    assert as_sets(RTree(boxes).match(points)) == as_sets(Scan(boxes).match(points))
    assert as_sets(RTree(boxes, events=points).match(points)) == as_sets(Scan(boxes).match(points))


def test_an_event_that_matches_everything_streams_without_starting_over():
    boxes = Boxes.of(np.full((20_000, 2), -np.inf), np.full((20_000, 2), np.inf))
    tree = RTree(boxes)
    pieces = [piece for _, piece in tree.stream(np.zeros((2, 2)), 1000)]
    assert sum(len(piece.rows) for piece in pieces) == 40_000
    at_once = tree.match(np.zeros((2, 2))).work.visited
    in_pieces = sum(piece.work.visited for piece in pieces)
    assert in_pieces <= at_once + 4 * len(pieces)  # a path to the root for each piece
    assert sorted(tree.match_one(np.zeros(2)).tolist()) == list(range(20_000))


def test_few_nodes_are_opened_and_hardly_a_box_is_compared():
    for d, width, share in [(2, 0.005, 0.004), (4, 0.05, 0.03)]:
        boxes, points = some_boxes(50_000, d, width=width)
        tree = RTree(boxes)
        matches = tree.match(points)
        opened = matches.work.visited / len(points)
        assert opened < share * tree.nodes
        assert matches.work.tested < 0.2 * max(len(matches.rows), len(points))
    boxes, points = some_boxes(50_000, 20, mentions=4)
    matches = RTree(boxes).match(points)
    assert matches.work.visited / len(points) < 0.3 * RTree(boxes).nodes


def test_with_few_distinct_bounds_no_box_is_ever_compared():
    rng = np.random.default_rng(1)
    corners = np.sort(rng.integers(0, 50, (2, 4000, 3)), axis=0).astype(float)
    points = rng.integers(0, 50, (200, 3)).astype(float)
    matches = RTree(Boxes.of(*corners)).match(points)
    assert len(matches.rows) > 1000
    assert matches.work.tested == 0


@pytest.mark.parametrize(("d", "mentions"), [(2, None), (4, None), (4, 2), (8, None), (20, 4)])
def test_memory_is_at_most_24_bytes_a_subscription_and_attribute(d, mentions):
    n = 100_000
    boxes, _ = some_boxes(n, d, mentions=mentions)
    assert RTree(boxes).memory <= 24 * n * d


def test_a_subscription_with_several_boxes_is_reported_once():
    rng = np.random.default_rng(2)
    lo = rng.random((900, 2)) * 0.5
    boxes = Boxes.of(lo, lo + 0.4, owner=np.repeat(np.arange(300), 3))
    points = rng.random((100, 2))
    matches = RTree(boxes).match(points)
    assert as_sets(matches) == as_sets(Scan(boxes).match(points))
