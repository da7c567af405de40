"""Space cut into partitions: nothing is lost, loads are even, and copies stay few."""

import numpy as np
import pytest
from hypothesis import given

from rangecast.model.boxes import Boxes
from rangecast.spark.steps.curve_partition import MAX_PARTITIONS, cut_space
from tests.support import adversarial, strategies
from tests.support.examples import examples


def placed(cut, boxes):
    """The groups of each box."""
    box, part = cut.parts_of_boxes(boxes.lo, boxes.hi)
    assert len(set(zip(box.tolist(), part.tolist(), strict=True))) == len(box), "placed twice"
    groups = [set() for _ in boxes.lo]
    of_part, place = cut.groups_of_parts(part)
    for group, where in zip(of_part.tolist(), place.tolist(), strict=True):
        groups[box[where]].add(group)
    return groups


def check(boxes, events, **options):
    settings = {"scale": 1.0, "tasks": 4, "max_boxes": 5.0} | options
    cut = cut_space(boxes, events, **settings)
    groups = placed(cut, boxes)
    every = np.concatenate([events, boxes.lo, boxes.hi])
    every[every == -np.inf] = -np.finfo(np.float64).max
    deal = np.arange(len(every)) * 7919
    for point, group in zip(every, cut.groups_of_events(every, deal).tolist(), strict=True):
        holding = ((boxes.lo <= point) & (point <= boxes.hi)).all(axis=1)
        for box in np.flatnonzero(holding).tolist():
            assert group in groups[box], "an event would miss a box that holds it"
    return cut, groups


@examples(40)
@given(strategies.boxes_and_points())
def test_the_group_of_an_event_has_every_box_that_holds_it(case):
    check(*case)


@pytest.mark.parametrize("name", adversarial.cases())
def test_on_adversarial_cases(name):
    check(*adversarial.cases()[name])


def uniform(n, d=3, width=0.02):
    random = np.random.default_rng(5)
    centre = random.random((n, d))
    return Boxes.of(centre - width, centre + width), random.random((n, d))


def test_loads_are_even_and_no_group_is_too_large():
    boxes, events = uniform(4000)
    cut, groups = check(boxes, events, tasks=8, max_boxes=300.0)
    assert cut.partitions >= 8
    sizes = np.bincount([group for some in groups for group in some])
    assert sizes.max() <= 300
    assert sum(map(len, groups)) < 3 * len(groups)
    held = np.bincount(cut.groups_of_events(events, np.arange(len(events))))
    assert held.max() < 6 * held.mean()


def test_a_hot_spot_is_split_and_dealt_out():
    boxes, events = uniform(2000)
    events[:1500] = events[0]
    cut, _ = check(boxes, events, tasks=8, max_boxes=1e9)
    held = np.bincount(cut.groups_of_events(events, np.arange(len(events))))
    assert cut.groups > cut.partitions
    assert held.max() < 800


def test_boxes_that_go_everywhere_dont_make_ever_more_copies():
    boxes, events = uniform(2000)
    lo, hi = boxes.lo.copy(), boxes.hi.copy()
    lo[:600], hi[:600] = -np.inf, np.inf
    cut, groups = check(Boxes.of(lo, hi), events, tasks=8, max_boxes=10.0)
    assert cut.groups < MAX_PARTITIONS / 8
    assert sum(map(len, groups)) < 10 * len(groups)


def test_without_events_boxes_are_spread_all_the_same():
    boxes, events = uniform(2000)
    for some in (events[:0], events[:1]):
        _, groups = check(boxes, some, tasks=8, max_boxes=400.0)
        assert np.bincount([group for one in groups for group in one]).max() <= 400
