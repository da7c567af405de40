import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rangecast.kernels.grid import cell_of, cells_of, edges_of_bounds, ends_cell, starts_cell
from tests.support.strategies import COORDINATES, coordinates, intervals

EDGES = st.lists(coordinates(), unique=True).map(lambda edges: np.array(sorted(edges)))


@given(EDGES, st.one_of(coordinates(), st.sampled_from([np.inf, -np.inf])))
def test_a_cell_is_the_number_of_edges_that_are_not_above(edges, value):
    expected = len(edges) + 1 if value == np.inf else int((edges <= value).sum())
    assert cell_of(edges, value) == expected


@given(EDGES, intervals())
def test_a_range_holds_exactly_what_its_cells_say(edges, interval):
    """A cell strictly inside is held whole; one outside not at all; the ends as they say."""
    lo, hi = interval
    first, last = cell_of(edges, lo), cell_of(edges, hi)
    around = [f(v) for v in COORDINATES for f in (lambda x: x, _up, _down)]
    values = np.unique([v for v in around if v != -np.inf] + [np.inf])
    cells = cells_of(edges, values)
    held = (lo <= values) & (values <= hi)
    assert not held[(cells < first) | (cells > last)].any()
    surely = (first < cells) & (cells < last)
    if first != last:
        surely |= (cells == first) & starts_cell(edges, lo)
        surely |= (cells == last) & ends_cell(edges, hi)
    else:
        surely |= (cells == first) & (starts_cell(edges, lo) and ends_cell(edges, hi))
    assert held[surely].all()


def _up(value):
    return math.nextafter(value, math.inf)


def _down(value):
    return math.nextafter(value, -math.inf)


@given(st.lists(intervals()), st.integers(2, 40))
def test_edges_are_finite_distinct_and_few_enough(ranges, cells):
    lo, hi = np.array(ranges, dtype=np.float64).reshape(-1, 2).T
    edges = edges_of_bounds(lo, hi, cells)
    assert np.isfinite(edges).all()
    assert (edges[1:] > edges[:-1]).all()
    assert len(edges) + 2 <= max(cells, 2)


@given(st.lists(intervals(), max_size=10))
def test_with_few_bounds_nothing_is_in_doubt(ranges):
    lo, hi = np.array(ranges, dtype=np.float64).reshape(-1, 2).T
    edges = edges_of_bounds(lo, hi, 100)
    for a, b in ranges:
        assert starts_cell(edges, a)
        assert ends_cell(edges, b)


def test_edges_of_many_ranges_are_near_their_quantiles():
    rng = np.random.default_rng(8)
    lo = rng.exponential(1.0, 200_000)
    hi = lo + 0.01
    edges = edges_of_bounds(lo, hi, 102)
    bounds = np.sort(np.concatenate([lo, hi]))
    shares = np.searchsorted(bounds, edges) / len(bounds)
    assert len(edges) == 100
    assert np.abs(shares - np.arange(1, 101) / 101).max() < 0.01


def test_many_ranges_with_few_bounds_leave_nothing_in_doubt():
    rng = np.random.default_rng(8)
    lo = rng.integers(0, 40, 200_000).astype(np.float64)
    lo[7] = 1234.5
    hi = lo + 1
    edges = edges_of_bounds(lo, hi, 100)
    assert {*edges.tolist()} == {*lo.tolist(), *map(_up, hi.tolist())}
