"""Where subscriptions go: shards of even size that most events miss, whatever the boxes are."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given

from rangecast.model.boxes import Boxes
from rangecast.spark.steps.shards import placing as module
from rangecast.spark.steps.shards.placing import _Bounds, _ranks, plan_shards
from rangecast.spark.subscriptions.packed_boxes import RowBoxes
from tests.support import adversarial, strategies
from tests.support.examples import examples

RANDOM = np.random.default_rng(4)


def hulls(boxes):
    return module.hulls(RowBoxes(boxes.lo, boxes.hi, np.diff(boxes.box_offsets)))


def placed(boxes, wanted, sample=None):
    placing = plan_shards(sample or boxes, wanted)
    shards = placing.shards_of(*hulls(boxes), np.arange(boxes.rows))
    assert ((shards >= 0) & (shards < placing.shards)).all()
    return placing, shards


def met_per_event(boxes, shards, count):
    """Return the mean number of hulls that contain an event."""
    events = RANDOM.random((500, boxes.dimensions))
    lo, hi = hulls(boxes)
    met = 0
    for shard in range(count):
        mine = shards == shard
        if mine.any():
            inside = (lo[mine].min(axis=0) <= events) & (events <= hi[mine].max(axis=0))
            met += inside.all(axis=1).sum()
    return met / len(events)


@examples(60)
@given(strategies.boxes_and_points())
def test_every_subscription_has_one_shard_and_always_the_same(case):
    boxes, _ = case
    placing, shards = placed(boxes, 5)
    for row in range(boxes.rows):
        lo, hi = hulls(boxes.take([row]))
        assert placing.shards_of(lo, hi, np.array([row])).tolist() == [shards[row]]


@pytest.mark.parametrize("name", adversarial.cases())
def test_on_adversarial_cases(name):
    boxes, _ = adversarial.cases()[name]
    placed(boxes, 7)
    placed(boxes, 7, sample=boxes.take(np.arange(min(1, boxes.rows))))


@pytest.mark.parametrize(("dimensions", "most"), [(1, 1.1), (2, 1.3), (4, 2.6)])
def test_small_boxes_are_cut_like_space(dimensions, most):
    n = 20_000
    centre = RANDOM.random((n, dimensions))
    half = (20 / n) ** (1 / dimensions) / 2 * RANDOM.random((n, dimensions))
    boxes = Boxes.of(centre - half, centre + half)
    placing, shards = placed(boxes, 16)
    assert placing.shards == 16
    sizes = np.bincount(shards, minlength=16)
    assert sizes.max() < 1.3 * sizes.min()
    assert met_per_event(boxes, shards, 16) < most


@pytest.mark.parametrize("wanted", [2, 3, 5, 6, 7, 11, 16])
def test_any_number_of_shards_is_of_even_size(wanted):
    """The largest shard decides the memory of a worker."""
    centre = RANDOM.random((20_000, 3))
    boxes = Boxes.of(centre - 0.01, centre + 0.01)
    placing, shards = placed(boxes, wanted)
    assert placing.shards == wanted
    assert np.bincount(shards).max() < 1.05 * boxes.rows / wanted


def test_few_of_many_attributes():
    """Cut by space, most boxes would be in most places: here an event misses most shards."""
    n, d = 20_000, 20
    lo, hi = np.full((n, d), -np.inf), np.full((n, d), np.inf)
    axes = np.argsort(RANDOM.random((n, d)), axis=1)[:, :4]
    begin = RANDOM.random((n, 4))
    np.put_along_axis(lo, axes, begin, 1)
    np.put_along_axis(hi, axes, begin + RANDOM.choice([0.02, 0.2, 0.4], (n, 4)), 1)
    boxes = Boxes.of(lo, hi)
    placing, shards = placed(boxes, 100, sample=boxes.take(np.arange(0, n, 4)))
    assert 80 <= placing.shards <= 120
    assert np.bincount(shards).max() < 5 * n / 100
    assert met_per_event(boxes, shards, placing.shards) < 0.5 * placing.shards


@pytest.mark.parametrize("width", [1.0, np.inf], ids=["all equal", "nothing mentioned"])
def test_what_nothing_tells_apart_is_dealt_out(width):
    same = np.full((4000, 3), width)
    placing, shards = placed(Boxes.of(-same, same), 8)
    assert placing.shards == 8
    assert np.bincount(shards, minlength=8).min() > 400


def test_the_hull_of_a_row_has_all_its_boxes():
    lo = RANDOM.random((6, 2))
    hi = lo + RANDOM.random((6, 2))
    for sizes in ([1] * 6, [2, 1, 3], [0, 2, 0, 4, 0]):
        found = module.hulls(RowBoxes(lo, hi, np.array(sizes)))
        begins = np.cumsum([0, *sizes])
        for row, (begin, end) in enumerate(pairwise(begins)):
            whole = [-np.inf] * 2 if begin == end else lo[begin:end].min(axis=0).tolist()
            assert found[0][row].tolist() == whole
            whole = [np.inf] * 2 if begin == end else hi[begin:end].max(axis=0).tolist()
            assert found[1][row].tolist() == whole


@pytest.mark.parametrize("wanted", [3, 40])
def test_a_subscription_goes_from_part_to_part_as_its_bounds_say(wanted):
    """Also of a set that is dealt out by attribute first, and longer than what is looked at."""
    lo = RANDOM.random((9000, 6))
    hi = lo + 0.01
    open_ = RANDOM.random(lo.shape) < 0.6
    lo[open_], hi[open_] = -np.inf, np.inf
    placing = plan_shards(Boxes.of(lo, hi), wanted)
    shards = placing.shards_of(lo, hi, np.arange(len(lo)))
    first, last = _ranks(placing.bounds, lo, hi)
    for row in range(0, len(lo), 7):
        node = 0
        while placing.nodes[node, 0] != module._SHARD:
            below = placing.below[placing.children[node] : placing.children[node + 1]]
            kind, axis, cut = placing.nodes[node].tolist()
            if kind == module._HALVES:
                node = below[int(first[row, axis] + last[row, axis] >= cut)]
            else:
                node = below[np.argmin(last[row] - first[row])]
        assert placing.nodes[node, 1] <= shards[row] < placing.nodes[node, 1:].sum()
    assert len(np.unique(shards)) == placing.shards


def test_hulls_are_counted_in_bounds():
    """Bounds below the start, and up to the end; repeated bounds and open ends as well."""
    rng = np.random.default_rng(4)
    most = np.finfo(float).max
    values = np.array([-np.inf, -most, *range(9), most, np.inf])
    lo, hi = np.sort(rng.choice(values, (2, 3000, 1)), axis=0)
    for known in (np.sort(rng.integers(0, 9, 12).astype(float)), np.empty(0)):
        first, last = _ranks(_Bounds(known, np.array([0, len(known)])), lo, hi)
        for row in range(len(lo)):
            if (lo[row, 0], hi[row, 0]) != (-np.inf, np.inf):
                assert first[row, 0] == (known < lo[row, 0]).sum()
                assert last[row, 0] == (known <= hi[row, 0]).sum()
