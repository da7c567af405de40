"""The share of a space that a summary holds: what a random value of the space would tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangecast import (
    Boolean,
    Category,
    Hierarchy,
    Integer,
    Number,
    Space,
    String,
    Timestamp,
)
from rangecast.kernels.curves.hilbert import indexes_of, turns_of
from rangecast.kernels.curves.hilbert_measure import weight_of_ranges
from rangecast.kernels.grid import MAX
from rangecast.merge import Cells, Ranges, Summary
from rangecast.merge.measure import coverage_of, weights_of
from rangecast.merge.ranges import difference, within_budget
from rangecast.merge.tuning import Setting, outcome, recommended
from rangecast.merge.tuning import settings as to_try
from rangecast.model.boxes import Boxes
from tests.support.examples import examples


def every_kind():
    return [
        Number("price", min=0, max=100_000),
        Integer("doors", min=2, max=5),
        Integer("km", min=0, max=300_000),
        Category("brand", [f"b{i}" for i in range(8)]),
        String("city", ["ulm", "bonn", "trier"]),
        Boolean("used"),
        Hierarchy("place", {"EU": ["de", "fr", "it"], "US": ["ny", "ca"]}),
        Timestamp("at", min="2026-01-01T00:00:00Z", max="2026-12-31T00:00:00Z"),
    ]


def uniform_values(rng, attribute, n):
    """Random values of a domain, each as likely as any other."""
    lo, hi = attribute.domain
    if isinstance(attribute, String):
        return rng.choice([*map(float, range(len(attribute.vocabulary))), MAX], n)
    if isinstance(attribute, Number):
        return rng.uniform(lo, hi, n)
    return np.floor(rng.uniform(lo, hi + 1, n))


def random_boxes(rng, space, n):
    """Boxes between values of the space, of which some attributes aren't mentioned."""
    ends = np.stack([uniform_values(rng, one, 2 * n) for one in space], axis=1).reshape(2, n, -1)
    lo, hi = ends.min(axis=0), ends.max(axis=0)
    free = rng.random(lo.shape) < 0.4
    return Boxes.of(np.where(free, -np.inf, lo), np.where(free, np.inf, hi))


@examples(150)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6))
def test_the_weight_of_ranges_is_the_sum_over_their_cells(axes, bits, seed):
    rng = np.random.default_rng(seed)
    weights = [rng.integers(0, 3, rng.integers(1, 1 + (1 << bits))) * 1.0 for _ in range(axes)]
    grid = np.indices((1 << bits,) * axes).reshape(axes, -1).T
    each = np.ones(len(grid))
    for axis, some in enumerate(weights):
        each *= np.append(some, np.zeros((1 << bits) - len(some)))[grid[:, axis]]
    places = np.empty(len(grid), np.uint64)
    indexes_of(grid.astype(np.uint64), bits, turns_of(axes), places)
    along = np.empty(len(grid))
    along[places] = each
    starts, ends = np.sort(rng.integers(0, len(grid), (2, 20)), axis=0)
    sums = [np.append(0.0, np.cumsum(some)) for some in weights]
    found = np.empty(20)
    weight_of_ranges(
        starts.astype(np.uint64),
        ends.astype(np.uint64),
        bits,
        np.concatenate(sums),
        np.cumsum([0, *map(len, sums)]),
        found,
    )
    below = np.append(0.0, np.cumsum(along))
    assert found.tolist() == (below[ends + 1] - below[starts]).tolist()


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8, 10, 16])
def test_the_whole_space_is_one_range_and_all_of_it(bits):
    kinds = [*every_kind(), Number("free"), Integer("from", min=3), Timestamp("then")]
    for count in (1, 2, 3, 4):
        for first in range(len(kinds)):
            space = Space((kinds * 2)[first : first + count])
            table = Summary(space, bits=bits)
            assert table.coverage() == 0.0
            change = table.subscribe("all", "true").add
            assert len(change) == 1
            assert table.coverage() == 1.0
            assert table.may_match({})


def test_values_that_are_all_there_are_all_of_the_space_without_the_missing():
    space = Space([Category("brand", list("abcdefgh")), Number("price", min=0, max=10)])
    table = Summary(space, bits=10, max_ranges_per_subscription=1 << 14)
    table.subscribe("all", "brand in ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h')")
    assert table.coverage() == 1.0
    assert not table.may_match({"price": 3})
    half = Summary(space, bits=10, max_ranges_per_subscription=1 << 14)
    half.subscribe("half", "brand in ('a', 'b', 'g', 'h')")
    assert half.coverage() == pytest.approx(0.5)
    none = Summary(space, bits=10)
    none.subscribe("none", "brand is null")
    assert none.coverage() == 0.0


def test_cells_weigh_what_they_hold():
    assert weights_of(Integer("x", min=0, max=9), np.array([4.0, 9.0])).tolist() == [4, 5, 1]
    assert weights_of(Number("x", min=0, max=8), np.array([-1.0, 2.0])).tolist() == [0, 1, 3]
    assert weights_of(Number("x", min=5, max=5), np.array([2.0, 7.0])).tolist() == [0, 1, 0]
    assert weights_of(Number("x", min=5), np.array([2.0, 7.0])).tolist() == [0, 1, 1]
    words = String("x", ["a", "b"])
    assert weights_of(words, np.array([1.0, 2.0, 3.0, MAX])).tolist() == [1, 1, 0, 0, 1]


@examples(40)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 7), min_size=1, max_size=3, unique=True),
    st.integers(2, 10),
    st.sampled_from(["uniform", "quantiles", "bounds"]),
    st.integers(1, 40),
)
def test_the_share_is_what_random_values_of_the_space_tell(seed, kinds, bits, how, budget):
    rng = np.random.default_rng(seed)
    space = Space([every_kind()[kind] for kind in kinds])
    boxes = random_boxes(rng, space, 4)
    points = np.stack([uniform_values(rng, one, 20_000) for one in space], axis=1)
    cells = {
        "uniform": lambda: Cells.uniform(space, bits),
        "quantiles": lambda: Cells.quantiles(space, bits, points[:50] ** 0.9),
        "bounds": lambda: Cells.bounds(space, bits, boxes),
    }[how]()
    ranges, _ = within_budget(Summary.of(boxes, space, cells=cells).ranges(), budget)
    passed = ranges.contains_cells(cells.places(points)).mean()
    assert coverage_of(space, cells, ranges) == pytest.approx(passed, abs=0.02)


def test_settings_are_compared_by_what_they_let_through_not_by_cells_that_no_value_has():
    space = Space(every_kind()[:4])
    nobody = np.zeros((0, 4)), np.zeros(0, np.bool_)

    def best_of(boxes):
        order = ("price", "brand", "doors", "km")
        tried = [
            outcome(space, boxes, one, 10, *nobody)
            for one in to_try(order, max_attributes=4, sampled=False)
        ]
        return recommended(tried)

    everything = best_of(Boxes.of(np.full((1, 4), -np.inf), np.full((1, 4), np.inf)))
    assert (everything.coverage, everything.ranges, everything.all_ranges) == (1.0, 1, 1)
    assert everything.setting == Setting(("price",), 2, "uniform")
    rng = np.random.default_rng(5)
    boxes = random_boxes(rng, space, 3)
    best = best_of(boxes)
    points = np.stack([uniform_values(rng, one, 50_000) for one in space], axis=1)
    cells = best.setting.make_cells(space, points)
    exact = Summary.of(boxes, space, cells=cells).ranges()
    passed = within_budget(exact, 10)[0].contains_cells(cells.places(points)).mean()
    assert best.coverage == pytest.approx(passed, abs=0.01)


def test_no_ranges_hold_nothing():
    space = Space([Number("x", min=0, max=1)])
    nothing = Ranges(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
    assert coverage_of(space, Cells.uniform(space, 4), nothing) == 0.0


@given(st.data())
def test_ranges_cover_others_if_they_hold_all_of_their_places(data):
    def ranges_of(places):
        """The maximal ranges of a set of places."""
        breaks = [place for place in places if place - 1 not in places]
        ends = [place for place in places if place + 1 not in places]
        return Ranges(np.array(sorted(breaks), np.uint64), np.array(sorted(ends), np.uint64))

    one, other = (data.draw(st.sets(st.integers(0, 40), max_size=25)) for _ in range(2))
    left = difference(ranges_of(other), ranges_of(one))
    found = [range(int(a), int(b) + 1) for a, b in zip(*left, strict=True)]
    assert [place for some in found for place in some] == sorted(other - one)
    assert ranges_of(one).covers(ranges_of(other)) == (other <= one)
