import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import UsageError
from rangecast.match.papers.hilbert import Hilbert
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes
from tests.match.test_rtree import some_boxes, streamed
from tests.support import adversarial, strategies
from tests.support.conformance import as_sets

CASES = adversarial.cases()


@given(
    strategies.boxes_and_points(),
    st.integers(1, 9),
    st.integers(1, 5),
    st.sampled_from([None, 1, 3, 12]),
    st.integers(1, 6),
    st.integers(0, 2),
)
def test_streams_and_single_events_say_the_same(case, buffer, axes, bits, ranges, company):
    """Whatever the options: they change the candidates, never the answer."""
    boxes, points = case
    table = Hilbert(boxes, axes=axes, bits=bits, ranges=ranges, company=company)
    expected = as_sets(Scan(boxes).match(points))
    assert streamed(table, points, buffer) == expected
    for point, rows in zip(points, expected, strict=True):
        one = table.match_one(point).tolist()
        assert len(one) == len(rows)
        assert set(one) == rows


@pytest.mark.parametrize("name", CASES)
def test_adversarial_streams(name):
    boxes, points = CASES[name]
    assert streamed(Hilbert(boxes, company=0), points, 7) == as_sets(Scan(boxes).match(points))


@pytest.mark.parametrize(("d", "mentions"), [(1, None), (2, None), (4, 2), (8, None), (20, 4)])
def test_larger_sets_are_matched_exactly(d, mentions):
    boxes, points = some_boxes(4000, d, mentions=mentions)
    points[::7, 0] = np.inf
    expected = as_sets(Scan(boxes).match(points))
    for options in ({}, {"events": points}, {"axes": 2, "ranges": 4}, {"axes": 3, "bits": 5}):
        assert as_sets(Hilbert(boxes, **options).match(points)) == expected


def test_an_event_that_matches_everything_streams_without_starting_over():
    rng = np.random.default_rng(3)
    lo = rng.random((20_000, 2)) * 0.5
    boxes = Boxes.of(lo, 1 - lo)
    table = Hilbert(boxes)
    point = np.full((1, 2), 0.5)
    pieces = [piece for _, piece in table.stream(point, 500)]
    assert sum(len(piece.rows) for piece in pieces) == 20_000
    at_once = table.match(point).work
    assert sum(piece.work.visited for piece in pieces) <= at_once.visited + 60 * len(pieces)
    assert sorted(table.match_one(point[0]).tolist()) == list(range(20_000))


def test_few_candidates_are_compared():
    """Selective events look at a small share of the boxes, and little besides their candidates."""
    for d, width, mentions, share in [(2, 0.02, None, 0.002), (4, 0.1, 2, 0.03), (20, 0.1, 4, 0.1)]:
        boxes, points = some_boxes(30_000, d, width=width, mentions=mentions)
        table = Hilbert(boxes)
        matches = table.match(points)
        assert matches.work.tested < share * len(points) * boxes.rows
        lists = len(points) * sum(int(top) + 1 for top in table.bundle.arrays.top)
        assert matches.work.visited < 1.5 * matches.work.tested + lists


def test_more_ranges_leave_fewer_candidates():
    boxes, points = some_boxes(10_000, 2, width=0.05)
    tables = [Hilbert(boxes, ranges=ranges) for ranges in (1, 4, 16, 64)]
    tested = [table.match(points).work.tested for table in tables]
    assert tested == sorted(tested, reverse=True)
    assert tested[-1] < 1.2 * len(Scan(boxes).match(points).rows)
    for limit, table in zip((1, 4, 16, 64), tables, strict=True):
        assert boxes.rows <= table.ranges <= limit * boxes.rows


def test_unbounded_boxes_are_cheap():
    """A box has no range along an attribute that it doesn't mention: memory doesn't grow."""
    boxes, points = some_boxes(5000, 2, width=0.01)
    lo, hi = boxes.lo.copy(), boxes.hi.copy()
    lo[:, 1], hi[:, 1] = -np.inf, np.inf
    half = Hilbert(Boxes.of(lo, hi))
    assert half.groups == [([0], half.groups[0][1])]
    assert half.ranges == boxes.rows  # on a line, a box is one range
    free = Hilbert(Boxes.of(np.full((5000, 2), -np.inf), np.full((5000, 2), np.inf)))
    assert free.groups == [([], 0)]
    assert free.ranges == 5000
    assert len(free.match(points[:3]).rows) == 15_000


def test_attributes_are_chosen_by_selectivity():
    rng = np.random.default_rng(5)
    lo = rng.random((3000, 4))
    boxes = Boxes.of(lo, lo + np.array([0.5, 0.02, 0.4, 0.01]))
    assert Hilbert(boxes, axes=2).groups[0][0] == [3, 1]
    events = rng.random((100, 4))
    events[:, 0] = -1.0  # no box is there: nothing rules out more
    assert Hilbert(boxes, axes=2, events=events).groups[0][0][0] == 0


def test_options_that_make_no_curve_are_rejected():
    boxes, _ = some_boxes(10, 2)
    with pytest.raises(UsageError, match="at most 64"):
        Hilbert(boxes, axes=8, bits=9)
    with pytest.raises(UsageError, match="at least one range"):
        Hilbert(boxes, ranges=0)
