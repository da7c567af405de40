import numpy as np
import pytest
from hypothesis import given

from rangecast.errors import UsageError
from rangecast.match.cells.index import Cells
from rangecast.match.cells.plan import DOUBTFUL, EDGE, SURE, Plan, cut
from rangecast.match.result import Work
from rangecast.match.scan import Scan
from rangecast.match.shared.candidates import Sample, mark_disjoint
from rangecast.model.boxes import Boxes
from tests.support import adversarial, strategies
from tests.support.conformance import as_sets
from tests.support.examples import examples

WHOLE = 62


def integer_boxes(n, seed=3, rx=60, ry=40, wx=16, wy=9):
    rng = np.random.default_rng(seed)
    lo = np.stack([rng.integers(0, rx, n), rng.integers(0, ry, n)], axis=1)
    width = np.stack([rng.integers(1, wx + 1, n), rng.integers(1, wy + 1, n)], axis=1)
    return Boxes.of(lo, np.minimum(lo + width, [rx, ry]))


EVENTS = np.stack(np.meshgrid(np.arange(61.0), np.arange(41.0)), axis=-1).reshape(-1, 2)


def with_levels(boxes, *shifts):
    """All edges, these levels on both axes."""
    base = Cells(boxes).plan
    return Cells(boxes, plan=base._replace(shifts=(shifts, shifts)))


@pytest.mark.parametrize("shifts", [(0,), (0, WHOLE), (0, 2, 4, WHOLE), (0, 1, 2, 3, 4, 5, 6)])
def test_a_range_of_cells_is_cut_into_nodes_that_make_it_up(shifts):
    cells = 37
    bases = np.array([100 * level for level in range(len(shifts))])
    nodes, kinds = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
    for first in range(cells):
        for last in range(first, cells):
            for starts in (True, False):
                for ends in (True, False):
                    given_ends = first, last, starts, ends
                    count = cut(*given_ends, cells, np.array(shifts), bases, nodes, kinds)
                    seen = []
                    for node, kind in zip(nodes[:count], kinds[:count], strict=True):
                        level, place = divmod(int(node), 100)
                        begin = place << shifts[level]
                        end = min(begin + (1 << shifts[level]), cells)
                        seen += [(cell, int(kind)) for cell in range(begin, end)]
                    expected = [(cell, SURE) for cell in range(first, last + 1)]
                    if not ends:
                        expected[-1] = (last, EDGE)
                    if not starts:
                        expected[0] = (first, DOUBTFUL)
                    assert seen == expected
    assert cut(0, 36, True, True, cells, np.array(shifts), bases, nodes, kinds) <= (
        1 if WHOLE in shifts or shifts[-1] == 6 else cells
    )


def test_integers_are_copied_without_a_comparison():
    boxes = integer_boxes(1500)
    matcher = with_levels(boxes, 0)
    matches = matcher.match(EVENTS)
    assert as_sets(matches) == as_sets(Scan(boxes).match(EVENTS))
    assert matches.work == Work(visited=len(EVENTS), tested=0)
    assert matcher.entries == np.prod(boxes.hi - boxes.lo + 1, axis=1).sum()


@pytest.mark.parametrize("step", [1, 2, 3])
def test_levels_store_less_and_say_the_same(step):
    boxes = integer_boxes(1500)
    flat, levels = with_levels(boxes, 0), with_levels(boxes, *range(0, 7, step))
    assert levels.entries < 0.8 * flat.entries
    for points in (EVENTS, EVENTS + 0.25):
        assert as_sets(levels.match(points)) == as_sets(flat.match(points))


def test_events_between_the_integers_are_compared_where_boxes_end():
    boxes = integer_boxes(500)
    points = EVENTS + 0.5
    matches = with_levels(boxes, 0).match(points)
    assert as_sets(matches) == as_sets(Scan(boxes).match(points))
    ending = np.zeros(len(points), np.int64)
    for event, (x, y) in enumerate(EVENTS):
        met = ((boxes.lo <= (x, y)) & (boxes.hi >= (x, y))).all(axis=1)
        ending[event] = np.count_nonzero(met & ((boxes.hi[:, 0] == x) | (boxes.hi[:, 1] == y)))
    assert matches.work.tested == ending.sum()


def test_an_attribute_that_is_not_mentioned_costs_one_entry():
    rng = np.random.default_rng(1)
    lo = rng.integers(0, 100, (300, 2)).astype(float)
    hi = lo.copy()
    lo[:, 1], hi[:, 1] = np.where(rng.random(300) < 0.9, -np.inf, 5), np.inf
    boxes = Boxes.of(lo, hi)
    matcher = Cells(boxes)
    free = np.isneginf(lo[:, 1])
    assert matcher.entries <= 300 + 110 * np.count_nonzero(~free)
    points = rng.integers(0, 100, (200, 2)).astype(float)
    assert as_sets(matcher.match(points)) == as_sets(Scan(boxes).match(points))


@pytest.mark.parametrize("room", [0, 1_000, 10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("kind", ["integers", "reals", "five attributes"])
def test_it_stays_within_the_memory_allowed_and_right(kind, room):
    rng = np.random.default_rng(2)
    boxes = integer_boxes(800)
    points = EVENTS[::7]
    if kind == "reals":
        lo = rng.random((800, 2))
        boxes, points = Boxes.of(lo, lo + rng.random((800, 2)) / 5), rng.random((300, 2))
    elif kind == "five attributes":
        lo = rng.integers(0, 10, (800, 5)).astype(float)
        boxes = Boxes.of(lo, lo + rng.integers(0, 5, lo.shape))
        points = rng.integers(0, 15, (300, 5)).astype(float)
    held = boxes.lo.nbytes + boxes.hi.nbytes + boxes.owner.nbytes
    allowed = held + 2 * 800 + 12 + room
    matcher = Cells(boxes, memory=allowed)
    assert matcher.memory <= allowed + 10 * (2 + sum(len(e) for e in matcher.plan.edges)) * 8
    matches = matcher.match(points)
    assert as_sets(matches) == as_sets(Scan(boxes).match(points))
    if room == 0:
        assert matches.work == Work(visited=len(points), tested=800 * len(points))
    if room == 1_000_000:
        assert matches.work.tested < 0.1 * 800 * len(points)


def test_more_memory_means_less_work():
    boxes = integer_boxes(3000)
    held = boxes.lo.nbytes + boxes.hi.nbytes + boxes.owner.nbytes
    tested = [
        Cells(boxes, memory=held + room).match(EVENTS).work.tested
        for room in (7_000, 20_000, 100_000, 1_000_000)
    ]
    assert tested == sorted(tested, reverse=True)
    assert tested[0] > tested[-1] == 0


def test_memory_that_cannot_hold_the_boxes_is_rejected():
    boxes = integer_boxes(100)
    with pytest.raises(UsageError, match="allowed: 1000"):
        Cells(boxes, memory=1000)


def test_more_boxes_than_sixteen_bits_can_number():
    rng = np.random.default_rng(4)
    lo = rng.integers(0, 500, (150_000, 2)).astype(float)
    boxes = Boxes.of(lo, lo + rng.integers(0, 12, lo.shape))
    points = rng.integers(0, 500, (40, 2)).astype(float)
    matcher = Cells(boxes)
    assert as_sets(matcher.match(points)) == as_sets(Scan(boxes).match(points))
    assert matcher.match(points).work.tested == 0
    assert matcher.match_one(points[0]).max() > 1 << 16


def test_boxes_of_one_subscription_that_never_meet_need_no_comparison():
    lo = np.array([[0.0], [5.0], [7.0], [0.0], [3.0]])
    hi = np.array([[2.0], [6.0], [9.0], [3.0], [4.0]])
    boxes = Boxes.of(lo, hi, owner=[0, 0, 0, 1, 1])
    alone = np.empty(5, np.bool_)
    mark_disjoint(boxes.lo, boxes.hi, boxes.owner, alone)
    assert alone.tolist() == [True, True, True, False, False]
    points = np.arange(-1.0, 11.0)[:, None]
    matches = Cells(boxes).match(points)
    assert as_sets(matches) == as_sets(Scan(boxes).match(points))
    assert matches.work.tested == 7  # only those of the second one, whose boxes meet


@pytest.mark.parametrize("buffer", [1, 2, 7, 1000])
@pytest.mark.parametrize("room", [500, 1 << 20])
def test_a_stream_through_a_small_buffer_is_the_match(buffer, room):
    for boxes, points in adversarial.cases().values():
        points = points[:60]
        held = (
            boxes.lo.nbytes + boxes.hi.nbytes + 2 * boxes.owner.nbytes
        )  # owners, and earlier boxes
        matcher = Cells(boxes, memory=held + room)
        whole = matcher.match(points)
        rows = [[] for _ in points]
        work = Work()
        for start, piece in matcher.stream(points, buffer):
            assert len(piece.rows) <= buffer
            work = work.plus(piece.work)
            for i in range(len(piece.offsets) - 1):
                rows[start + i] += piece.of(i).tolist()
        assert rows == [whole.of(i).tolist() for i in range(len(points))]
        assert work == whole.work


@examples(50)
@given(case=strategies.boxes_and_points())
def test_one_event_is_a_batch_of_one(case):
    boxes, points = case
    matcher = Cells(boxes)
    matches = matcher.match(points)
    for event, point in enumerate(points):
        assert matcher.match_one(point).tolist() == matches.of(event).tolist()


@examples(50)
@given(case=strategies.boxes_and_points())
def test_every_plan_is_right(case):
    """Whatever attributes, edges and levels are taken."""
    boxes, points = case
    expected = as_sets(Scan(boxes).match(points))
    edges = (np.array([0.0, 1.0]), np.array([-1.0, 0.5, 2.0, 7.0]))
    for shifts in ((0,), (0, 1, WHOLE)):
        for axes in {(), (0,), (boxes.dimensions - 1, 0)[: boxes.dimensions]}:
            plan = Plan(axes, edges[: len(axes)], (shifts,) * len(axes))
            assert as_sets(Cells(boxes, plan=plan).match(points)) == expected


def test_the_sample_knows_what_tells_boxes_apart():
    rng = np.random.default_rng(8)
    lo = rng.random((2000, 3)) * [1, 1, 0]
    boxes = Boxes.of(lo, lo + np.array([0.5, 0.01, 1]))
    sample = Sample(boxes)
    assert sample.axes(3) == (1, 0)
    held = as_sets(Scan(boxes).match(sample.events))
    mean = sum(len(rows) for rows in held) / len(held)
    assert sample.matches((0, 1, 2)) == pytest.approx(mean, rel=0.5)
