import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast.errors import UsageError
from rangecast.kernels.curves.hilbert import (
    ROOM,
    axes_by_selectivity,
    cell_at,
    cells_at,
    check_curve,
    expected_ranges,
    groups_by_axes,
    index_of,
    indexes_of,
    new_stack,
    ranges_of_box,
    ranges_of_boxes,
    turns_of,
)

SMALL = [(1, 1), (1, 5), (2, 1), (2, 2), (2, 3), (2, 5), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2)]


def whole_curve(axes, bits):
    """All cells in curve order, and the inverse as an array of indexes by cell."""
    cells = np.empty((1 << axes * bits, axes), np.uint64)
    cells_at(np.arange(len(cells), dtype=np.uint64), bits, cells)
    by_cell = np.empty((1 << bits,) * axes, np.int64)
    by_cell[tuple(cells.T.astype(int))] = np.arange(len(cells))
    return cells, by_cell


def ranges(first, last, bits, limit=1 << 14):
    starts, ends = np.empty((2, ROOM * limit), np.uint64)
    given_cells = np.array(first, np.uint64), np.array(last, np.uint64)
    count, visited = ranges_of_box(*given_cells, bits, limit, starts, ends, new_stack())
    return list(zip(starts[:count].tolist(), ends[:count].tolist(), strict=True)), visited


def maximal(indexes):
    """Sorted indexes as closed ranges that don't touch."""
    indexes = np.sort(np.asarray(indexes).ravel())
    breaks = np.flatnonzero(np.diff(indexes) > 1)
    first, last = np.r_[0, breaks + 1], np.r_[breaks, len(indexes) - 1]
    return list(zip(indexes[first].tolist(), indexes[last].tolist(), strict=True))


def boxes_of(axes, bits):
    """All boxes on one axis, to be combined."""
    ends = [(a, b) for a in range(1 << bits) for b in range(a, 1 << bits)]
    return itertools.product(ends, repeat=axes)


@pytest.mark.parametrize(("axes", "bits"), SMALL)
def test_the_curve_visits_each_cell_once_a_step_at_a_time(axes, bits):
    cells, _ = whole_curve(axes, bits)
    assert len(np.unique(cells, axis=0)) == len(cells)
    assert (np.abs(np.diff(cells.astype(int), axis=0)).sum(axis=1) == 1).all()
    back = np.empty(len(cells), np.uint64)
    for turns in (turns_of(axes), np.zeros(0, np.uint32)):  # with the table, and computed
        turns = turns.view()
        turns.flags.writeable = False
        indexes_of(cells, bits, turns, back)
        np.testing.assert_array_equal(back, np.arange(len(cells)))


@pytest.mark.parametrize(
    ("axes", "bits"), [(1, 64), (2, 32), (3, 21), (4, 15), (7, 9), (16, 4), (33, 1), (64, 1)]
)
def test_an_index_of_up_to_64_bits_leads_back_to_its_cell(axes, bits):
    rng = np.random.default_rng(axes)
    cells = (
        rng.integers(0, 1 << bits, (200, axes), np.uint64, endpoint=False)
        if bits < 64
        else (rng.integers(0, 2**64 - 1, (200, axes), np.uint64, endpoint=True))
    )
    cells[0], cells[1] = 0, (1 << bits) - 1
    indexes, back = np.empty(len(cells), np.uint64), np.empty_like(cells)
    indexes_of(cells, bits, turns_of(axes), indexes)
    cells_at(indexes, bits, back)
    np.testing.assert_array_equal(back, cells)
    one = np.empty(axes, np.uint64)
    cell_at(indexes[2], bits, one)
    np.testing.assert_array_equal(one, cells[2])
    assert index_of(cells[2], bits, turns_of(axes)) == indexes[2]


def test_a_curve_beyond_64_bits_is_rejected():
    check_curve(4, 16)
    for axes, bits in [(4, 17), (65, 1), (0, 3), (2, 0)]:
        with pytest.raises(UsageError, match="at most 64"):
            check_curve(axes, bits)


def test_the_example_of_the_paper():
    """Up to the symmetries of the curve, which the figure leaves open."""
    wanted = {(32, 35), (45, 46), (50, 55)}  # without 28, with 50 and 52
    corners = np.array([[4, 6], [2, 5]])
    seen = []
    for swap, flip_x, flip_y in itertools.product((False, True), repeat=3):
        (x0, x1), (y0, y1) = corners[::-1] if swap else corners
        x0, x1 = (7 - x1, 7 - x0) if flip_x else (x0, x1)
        y0, y1 = (7 - y1, 7 - y0) if flip_y else (y0, y1)
        seen.append(set(ranges([x0, y0], [x1, y1], 3)[0]))
    assert wanted in seen


@pytest.mark.parametrize(("axes", "bits"), [(1, 4), (2, 2), (2, 3), (3, 2), (4, 1)])
def test_range_sets_of_all_boxes_are_their_cells(axes, bits):
    _, by_cell = whole_curve(axes, bits)
    for box in boxes_of(axes, bits):
        first, last = zip(*box, strict=True)
        inside = by_cell[tuple(slice(a, b + 1) for a, b in box)]
        assert ranges(first, last, bits)[0] == maximal(inside)


@given(st.data())
def test_range_sets_of_random_boxes_are_their_cells(data):
    axes, bits = data.draw(st.sampled_from([(2, 5), (3, 3), (4, 2), (4, 3)]))
    box = [
        sorted(data.draw(st.tuples(*[st.integers(0, (1 << bits) - 1)] * 2))) for _ in range(axes)
    ]
    _, by_cell = _curves(axes, bits)
    first, last = zip(*box, strict=True)
    inside = by_cell[tuple(slice(a, b + 1) for a, b in box)]
    exact = maximal(inside)
    assert ranges(first, last, bits)[0] == exact
    limit = data.draw(st.integers(1, 12))
    few, _ = ranges(first, last, bits, limit)
    assert len(few) <= limit
    assert all(b + 1 < a for (_, b), (a, _) in itertools.pairwise(few))
    for a, b in exact:  # coarsened, never narrowed
        assert any(c <= a and b <= d for c, d in few)


_CACHE = {}


def _curves(axes, bits):
    if (axes, bits) not in _CACHE:
        _CACHE[axes, bits] = whole_curve(axes, bits)
    return _CACHE[axes, bits]


@given(st.integers(0, 31), st.integers(0, 31), st.integers(1, 20), st.integers(1, 20))
def test_past_the_limit_the_smallest_gaps_are_joined(x, y, width, height):
    first, last = [x, y], [min(x + width, 31), min(y + height, 31)]
    exact, _ = ranges(first, last, 5)
    gaps = sorted(a - b - 1 for (_, b), (a, _) in itertools.pairwise(exact))
    cells = sum(b - a + 1 for a, b in exact)
    expected = expected_ranges(np.array(first, np.uint64), np.array(last, np.uint64), 5, 0)
    enough = int(max(-(-len(exact) // ROOM), np.ceil(expected / (2 * ROOM))))  # room for all
    for limit in range(enough, len(exact) + 1):
        few, _ = ranges(first, last, 5, limit)
        assert len(few) == min(limit, len(exact))
        assert sum(b - a + 1 for a, b in few) == cells + sum(gaps[: len(exact) - limit])


def test_boxes_at_the_rim_of_the_largest_curves():
    assert ranges([0, 0], [2**32 - 1, 2**32 - 1], 32)[0] == [(0, 2**64 - 1)]
    assert ranges([5], [2**64 - 1], 64)[0] == [(5, 2**64 - 1)]
    cell = np.array([2**32 - 1, 7], np.uint64)
    index = int(index_of(cell, 32, turns_of(2)))
    assert ranges(cell, cell, 32)[0] == [(index, index)]
    cell = np.arange(64, dtype=np.uint64) % 2
    index = int(index_of(cell, 1, turns_of(64)))
    assert ranges(cell, cell, 1)[0] == [(index, index)]


@pytest.mark.parametrize(("axes", "bits", "width"), [(2, 10, 40), (3, 7, 12), (4, 6, 8)])
def test_ranges_are_as_many_as_the_surface_says(axes, bits, width):
    rng = np.random.default_rng(3)
    found = expected = 0
    for _ in range(300):
        size = rng.integers(width // 2, width * 3 // 2, axes)
        first = rng.integers(0, (1 << bits) - size)
        found += len(ranges(first, first + size - 1, bits)[0])
        cells = np.prod(size)
        expected += (2 * cells / size).sum() / (2 * axes)
    assert abs(found / expected - 1) < 0.08
    inner = np.full(axes, 5, np.uint64)
    by_formula = expected_ranges(inner, inner + np.uint64(width - 1), bits, 0)
    assert by_formula == pytest.approx(width ** (axes - 1))


def test_the_work_is_proportional_to_the_ranges_and_not_to_the_cells():
    rng = np.random.default_rng(4)
    for axes, bits, width in [(2, 16, 16), (2, 16, 3000), (3, 16, 60), (4, 15, 12)]:
        for _ in range(20):
            size = rng.integers(width // 2, width, axes)
            first = rng.integers(0, (1 << bits) - size)
            found, visited = ranges(first, first + size - 1, bits)
            assert visited <= 16 * len(found) + 2 * axes * bits


def test_a_bound_on_the_ranges_bounds_the_work():
    """A box with billions of ranges costs what its few ones cost, and is held well."""
    first, last = np.array([2**29 + 1, 2**28 + 3]), np.array([2**30, 2**30 - 5])
    cells = float(np.prod((last - first + 1).astype(float)))
    for limit, over in [(8, 1.5), (64, 1.1), (1024, 1.01)]:
        found, visited = ranges(first, last, 31, limit)
        assert limit / 2 < len(found) <= limit
        assert visited < 100 * limit + 200
        assert sum(float(b - a + 1) for a, b in found) < over * cells
    found, visited = ranges([3] * 8, [200] * 8, 8, 4)
    assert 1 <= len(found) <= 4
    assert visited < 2000


def test_when_even_the_room_runs_out_small_gaps_are_joined_on_the_way():
    """A thin, long box has more ranges than its surface says; the buffer is the bound."""
    starts, ends = np.empty((2, 4), np.uint64)
    for y in range(0, 1024, 17):
        first, last = np.array([0, y], np.uint64), np.array([1022, y], np.uint64)
        exact, _ = ranges(first, last, 10)
        count, _ = ranges_of_box(first, last, 10, 4, starts, ends, new_stack())
        assert 1 <= count <= 4
        for a, b in exact:
            assert any(starts[i] <= a and b <= ends[i] for i in range(count))


def test_many_boxes_through_a_buffer_that_fills_up():
    rng = np.random.default_rng(5)
    corners = np.sort(rng.integers(0, 64, (2, 50, 3)), axis=0).astype(np.uint64)
    limit = 20
    starts, ends = np.empty((2, ROOM * limit + 30), np.uint64)
    pieces = []
    box = 0
    while box < 50:
        offsets = np.zeros(51, np.int64)
        begin = box
        box, visited = ranges_of_boxes(*corners, 6, limit, box, starts, ends, offsets, new_stack())
        assert box > begin
        assert visited > 0
        for i in range(begin, box):
            some = slice(offsets[i], offsets[i + 1])
            pieces.append(list(zip(starts[some].tolist(), ends[some].tolist(), strict=True)))
    assert pieces == [ranges(a, b, 6, limit)[0] for a, b in zip(*corners, strict=True)]


def test_the_narrow_and_often_mentioned_attribute_comes_first():
    rng = np.random.default_rng(6)
    lo = rng.random((500, 4))
    hi = lo + np.array([0.5, 0.01, 0.1, 0.01])
    lo[::2, 3], hi[::2, 3] = -np.inf, np.inf
    assert axes_by_selectivity(lo, hi).tolist()[0] == 1
    assert axes_by_selectivity(lo, hi).tolist()[-1] in (0, 3)
    events = rng.random((100, 4))
    events[:, 0] = -5.0  # where no box is
    assert axes_by_selectivity(lo, hi, events).tolist()[:2] == [0, 1]
    assert axes_by_selectivity(lo[:0], hi[:0]).tolist() == [0, 1, 2, 3]


def test_boxes_are_grouped_by_what_they_mention_first():
    mentioned = np.zeros((400, 3), bool)
    mentioned[:300, 0] = True
    mentioned[100:200, 1] = True
    mentioned[300:302, 2] = True
    group, axes = groups_by_axes(mentioned, np.array([1, 0, 2]), 2, 5)
    assert axes[group[150]] == [1, 0]
    assert axes[group[50]] == axes[group[250]] == [0]
    assert axes[group[301]] == axes[group[399]] == []  # two boxes are no company
    assert len(axes) == 3
    group, axes = groups_by_axes(mentioned, np.array([1, 0, 2]), 1, 5)
    assert axes[group[150]] == [1]
    group, axes = groups_by_axes(mentioned[:0], np.array([1, 0, 2]), 1, 5)
    assert len(group) == len(axes) == 0
