import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import UsageError
from rangecast.match.papers.vcr.index import Vcr
from rangecast.match.papers.vcr.rectangles import (
    choose_sides,
    covering_sides,
    covering_table,
    cut,
    lap_of,
    pieces_of,
    vcr_id,
)
from rangecast.match.result import Work
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes
from tests.support import adversarial, strategies
from tests.support.conformance import as_sets
from tests.support.examples import examples

SIMPLE, OVERLAPPED = False, True


def sides_of(start, width, k, overlapped):
    starts, levels = np.zeros(200, np.int64), np.zeros(200, np.int64)
    count = cut(start, width, k, overlapped, starts, levels)
    return list(zip(starts[:count].tolist(), (1 << levels[:count]).tolist(), strict=True))


def decomposed(box, k, overlapped):
    a, b, w, h = box
    return {
        (x, y, lx, ly)
        for x, lx in sides_of(a, w, k, overlapped)
        for y, ly in sides_of(b, h, k, overlapped)
    }


# The paper's geometry


def test_the_papers_example_of_both_decompositions():
    simple = decomposed((3, 3, 11, 6), 2, SIMPLE)
    assert len(simple) == 8
    assert {(lx, ly) for _, _, lx, ly in simple} == {(4, 4), (4, 2), (2, 4), (2, 2), (1, 4), (1, 2)}
    overlapped = decomposed((3, 3, 11, 6), 2, OVERLAPPED)
    assert overlapped == {(x, y, 4, 4) for x in (3, 7, 10) for y in (3, 5)}


@pytest.mark.parametrize(("overlapped", "mean"), [(SIMPLE, 6.5213), (OVERLAPPED, 4.1500)])
def test_mean_number_of_vcrs_of_the_papers_workload(overlapped, mean):
    wide, high = np.arange(1, 41), np.arange(1, 21)
    pieces = pieces_of(wide, 4, overlapped).mean() * pieces_of(high, 3, overlapped).mean()
    assert pieces == pytest.approx(mean, abs=6e-5)


@pytest.mark.parametrize("overlapped", [SIMPLE, OVERLAPPED])
@pytest.mark.parametrize("k", range(4))
def test_a_side_is_covered_exactly_and_each_place_has_one_first_side(k, overlapped):
    for width in range(1, 40):
        sides = sides_of(5, width, k, overlapped)
        assert len(sides) == pieces_of(np.array([width]), k, overlapped)[0]
        for point in range(50):
            inside = [(x, side) for x, side in sides if x <= point <= x + side]
            assert bool(inside) == (5 <= point <= 5 + width)
            past = [(x, side) for x, side in sides if x <= point < x + side]
            assert bool(past) == (5 <= point < 5 + width)
            for covering, extra in ((inside, 0), (past, 1)):
                firsts = [
                    x
                    for x, side in covering
                    if point - x + extra > lap_of(5, x, side.bit_length() - 1)
                ]
                assert firsts == [x for x, _ in sorted(covering)[:1]]


@pytest.mark.parametrize(("kx", "ky", "size"), [(2, 2, 100), (4, 3, 684), (0, 0, 4), (3, 1, 95)])
def test_size_of_the_covering_set(kx, ky, size):
    table = covering_table(kx, ky, 100)
    assert len(table.distance) == size
    assert (np.diff(table.distance) > 0).all()
    assert len(covering_sides(kx)[0]) == 2 * (1 << kx) + kx


def test_ids_are_those_of_the_figure_and_unique():
    kx, ky, rx, ry = 2, 1, 5, 4
    assert vcr_id(0, 0, 0, 0, 2, 2, 50) == 0
    assert vcr_id(0, 0, 2, 2, 2, 2, 50) == 8
    ids = [
        vcr_id(x, y, i, j, kx, ky, rx)
        for y in range(ry)
        for x in range(rx)
        for j in range(ky + 1)
        for i in range(kx + 1)
    ]
    assert ids == list(range(rx * ry * 6))


def covering_by_pivot(a, b, kx, ky, rx, ry):
    """The VCRs that the table finds for a point, margin left out; ids are taken apart again."""
    lx, ly = 1 << kx, 1 << ky
    table = covering_table(kx, ky, rx + lx)
    pivot = vcr_id(a, b, 0, 0, kx, ky, rx + lx)  # (a - lx, b - ly) with the margin added
    found = set()
    for distance in (pivot + table.distance).tolist():
        corner, shape = divmod(distance, (kx + 1) * (ky + 1))
        y, x = divmod(corner, rx + lx)
        j, i = divmod(shape, kx + 1)
        if x >= lx and y >= ly:
            found.add((x - lx, y - ly, 1 << i, 1 << j))
    return found


def covering_by_definition(a, b, kx, ky, rx, ry):
    return {
        (x, y, 1 << i, 1 << j)
        for x in range(rx)
        for y in range(ry)
        for i in range(kx + 1)
        for j in range(ky + 1)
        if x <= a <= x + (1 << i) and y <= b <= y + (1 << j)
    }


@pytest.mark.parametrize(("kx", "ky"), [(0, 0), (1, 2), (2, 1)])
def test_the_covering_set_of_every_point_up_to_the_edges(kx, ky):
    rx, ry = 9, 7
    for a in range(rx):
        for b in range(ry):
            args = a, b, kx, ky, rx, ry
            assert covering_by_pivot(*args) == covering_by_definition(*args)


def test_no_id_runs_into_the_row_before():
    """Without the margin 40 of the 100 ids of this point would be wrong."""
    found = covering_by_pivot(1, 10, 2, 2, 50, 50)
    assert len(found) == 60
    assert found == covering_by_definition(1, 10, 2, 2, 50, 50)


def test_larger_boxes_get_larger_sides():
    def chosen(most):
        widths = np.random.default_rng(1).integers(1, most + 1, (500, 2))
        return choose_sides(widths, (300, 200), 10_000.0, 100.0, SIMPLE, 10**6)

    small, medium, large = chosen(4), chosen(20), chosen(150)
    assert small < medium < large


# The index


def integer_boxes(n, seed=3, rx=60, ry=40, wx=16, wy=9):
    rng = np.random.default_rng(seed)
    lo = np.stack([rng.integers(0, rx, n), rng.integers(0, ry, n)], axis=1)
    width = np.stack([rng.integers(1, wx + 1, n), rng.integers(1, wy + 1, n)], axis=1)
    return Boxes.of(lo, np.minimum(lo + width, [rx, ry]))


GRID = (np.arange(61), np.arange(41))
EVENTS = np.stack(np.meshgrid(np.arange(61.0), np.arange(41.0)), axis=-1).reshape(-1, 2)
VARIANTS = [
    {"overlapped": overlapped, "hashed": hashed}
    for overlapped in (SIMPLE, OVERLAPPED)
    for hashed in (False, True)
]


@pytest.mark.parametrize("options", VARIANTS)
def test_integers_need_no_comparison_and_the_papers_work(options):
    boxes = integer_boxes(400)
    matcher = Vcr(boxes, sides=(8, 4), axes=(0, 1), edges=GRID, **options)
    widths = (boxes.hi - boxes.lo).astype(np.int64)
    proper = (widths > 0).all(axis=1)  # those at the upper edge were clipped to a width of 0
    pieces = pieces_of(np.maximum(widths[:, 0], 1), 3, options["overlapped"])
    pieces = pieces * pieces_of(np.maximum(widths[:, 1], 1), 2, options["overlapped"])
    assert matcher.entries == pieces.sum()
    assert matcher.covering == (2 * 8 + 3) * (2 * 4 + 2)
    matches = matcher.match(EVENTS)
    assert as_sets(matches) == as_sets(Scan(boxes).match(EVENTS))
    assert matches.work.visited == len(EVENTS) * matcher.covering
    assert matches.work.tested <= len(EVENTS) * np.count_nonzero(~proper)
    only = Boxes.of(boxes.lo[proper], boxes.hi[proper])
    again = Vcr(only, sides=(8, 4), axes=(0, 1), edges=GRID, **options).match(EVENTS)
    assert again.work.tested == 0


def test_real_events_are_covered_by_fewer_vcrs():
    boxes = integer_boxes(300)
    matcher = Vcr(boxes, sides=(8, 4), axes=(0, 1), edges=GRID)
    points = EVENTS + 0.5
    matches = matcher.match(points)
    assert as_sets(matches) == as_sets(Scan(boxes).match(points))
    assert matches.work.visited == len(points) * (2 * 8 - 1) * (2 * 4 - 1)


def test_hashed_lists_do_the_same_work_as_direct_ones():
    boxes = integer_boxes(500)
    direct, hashed = (Vcr(boxes, hashed=hashed, sides=(4, 4)) for hashed in (False, True))
    assert direct.entries == hashed.entries
    assert direct.active == hashed.active
    assert hashed.slots < direct.slots
    one, other = direct.match(EVENTS), hashed.match(EVENTS)
    assert one.work == other.work
    assert as_sets(one) == as_sets(other)


def test_overlapped_vcrs_are_fewer():
    boxes = integer_boxes(2000)
    simple, overlapped = (Vcr(boxes, overlapped=o, sides=(8, 4)) for o in (SIMPLE, OVERLAPPED))
    assert overlapped.entries < simple.entries
    assert overlapped.active < simple.active


def test_unbounded_sides_are_cheap():
    rng = np.random.default_rng(5)
    n = 300
    lo = rng.random((n, 2)) * 100
    hi = lo + rng.random((n, 2)) * 5
    lo[:100, 0], hi[:100, 0] = -np.inf, np.inf
    lo[100:200, 1], hi[100:200, 1] = -np.inf, np.inf
    lo[:20], hi[:20] = -np.inf, np.inf
    lo[200:220, 0] = -strategies.MAX
    boxes = Boxes.of(lo, hi)
    matcher = Vcr(boxes, sides=(4, 4))
    points = rng.random((200, 2)) * 100
    points[::7, 0] = np.inf
    points[::11, 1] = np.inf
    assert as_sets(matcher.match(points)) == as_sets(Scan(boxes).match(points))
    assert matcher.entries <= 128 * n
    free = Vcr(Boxes.of(lo[:20], hi[:20]))
    assert (free.entries, free.covering) == (20, 1)
    assert free.match(points).work == Work(visited=len(points), tested=0)
    strips = Vcr(Boxes.of(lo[20:100], hi[20:100]), sides=(4, 4))
    assert strips.covering <= 2 * (2 * 4 + 2)


def test_the_two_attributes_that_tell_boxes_apart_are_indexed():
    rng = np.random.default_rng(6)
    lo = np.full((500, 5), -np.inf)
    hi = np.full((500, 5), np.inf)
    lo[:, 3], lo[:, 1] = rng.random(500), rng.random(500)
    hi[:, 3], hi[:, 1] = lo[:, 3] + 0.05, lo[:, 1] + 0.1
    lo[:, 0], hi[:, 0] = 0.0, 1.0
    boxes = Boxes.of(lo, hi)
    matcher = Vcr(boxes)
    assert matcher.axes == (3, 1)
    points = rng.random((300, 5))
    matches = matcher.match(points)
    assert as_sets(matches) == as_sets(Scan(boxes).match(points))
    assert matches.work.tested < 0.02 * len(points) * boxes.rows


@pytest.mark.parametrize("options", VARIANTS)
@pytest.mark.parametrize("buffer", [1, 2, 7, 1000])
def test_a_stream_through_a_small_buffer_is_the_match(options, buffer):
    for boxes, points in adversarial.cases().values():
        points = points[:60]
        matcher = Vcr(boxes, **options)
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
@given(case=strategies.boxes_and_points(), options=st.sampled_from(VARIANTS))
def test_one_event_is_a_batch_of_one(case, options):
    boxes, points = case
    matcher = Vcr(boxes, **options)
    matches = matcher.match(points)
    for event, point in enumerate(points):
        assert matcher.match_one(point).tolist() == matches.of(event).tolist()


def test_one_event_that_matches_everything():
    everything = Boxes.of(np.full((5000, 1), -np.inf), np.full((5000, 1), np.inf))
    matcher = Vcr(everything)
    matcher._expected = 0.0
    assert sorted(matcher.match_one(np.zeros(1)).tolist()) == list(range(5000))


def test_memory_counts_boxes_and_lists():
    boxes = integer_boxes(1000)
    matcher = Vcr(boxes, hashed=True, slots=20_011)
    held = boxes.lo.nbytes + boxes.hi.nbytes + boxes.owner.nbytes
    assert matcher.slots == 20_011
    assert matcher.memory >= held + 16 * matcher.slots + 8 * matcher.entries


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sides": (3, 4)}, "powers of two"),
        ({"axes": (0, 0)}, "two different"),
        ({"axes": (0, 2)}, "two different"),
        ({"axes": ()}, "one attribute"),
        ({"cells": 1}, "2 to 32768"),
        ({"sides": (512, 4)}, "up to 256"),
        ({"pieces": 0}, "1 or more"),
        ({"edges": [[1.0]]}, "an array for each"),
        ({"edges": [[1.0, 1.0], [2.0]]}, "ascend"),
    ],
)
def test_options_that_make_no_sense_are_rejected(options, words):
    with pytest.raises(UsageError, match=words):
        Vcr(integer_boxes(10), **options)
