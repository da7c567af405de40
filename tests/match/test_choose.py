"""The choice of a structure: explained in one line, and the same answer whatever it is."""

import numpy as np
import pytest

from rangecast.errors import UsageError
from rangecast.match.choose import INDEXES, build, choose
from rangecast.match.ordered import stream_ordered
from rangecast.match.scan import Scan
from rangecast.model.boxes import Boxes
from tests.support.adversarial import cases

RNG = np.random.default_rng(11)


def small_integers(n=20_000):
    lo = RNG.integers(0, 200, (n, 2)).astype(float)
    return Boxes.of(lo, lo + RNG.integers(1, 20, (n, 2)))


def many_attributes(n=20_000, d=10):
    ends = np.sort(RNG.random((n, d, 2)), axis=-1)
    return Boxes.of(ends[..., 0], ends[..., 1])


def test_small_integer_domains_get_cell_lists_and_the_rest_slabs():
    assert choose(small_integers()).name == "cells"
    assert choose(many_attributes()).name == "slabs"
    assert choose(many_attributes(100)).name == "slabs"


def test_boxes_on_one_attribute_each_get_a_tree():
    lo = RNG.random((20_000, 3))
    free = RNG.random(lo.shape).argsort(axis=1) > 0
    boxes = Boxes.of(np.where(free, -np.inf, lo), np.where(free, np.inf, lo + 0.01))
    assert choose(boxes).name == "rtree"


def test_cell_lists_are_not_chosen_beyond_the_memory_allowed():
    assert choose(small_integers(), memory=100_000).name == "slabs"


@pytest.mark.parametrize("name", cases())
def test_every_set_gets_a_plan_in_one_line(name):
    boxes, _ = cases()[name]
    plan = choose(boxes)
    assert plan.name in INDEXES
    assert plan.why
    assert "\n" not in plan.why


def test_what_was_asked_for_is_taken():
    for name in INDEXES:
        assert choose(small_integers(10), name).name == name
        assert build(small_integers(10), name).name == name
    with pytest.raises(UsageError, match="no index 'slab': did you mean 'slabs'"):
        choose(small_integers(10), "slab")


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_come_in_order_whatever_the_structure_and_the_threads(index, threads):
    boxes = small_integers(500)
    points = RNG.integers(0, 220, (3000, 2)).astype(float)
    expected = Scan(boxes).match(points)
    counts, rows = [], []
    for first, matches in stream_ordered(build(boxes, index), points, threads):
        assert first == len(counts)
        counts += np.diff(matches.offsets).tolist()
        rows += matches.rows.tolist()
    assert counts == np.diff(expected.offsets).tolist()
    assert rows == expected.rows.tolist()
