"""Tuning: recommended settings of a summary, by their measured cost."""

from __future__ import annotations

import numpy as np
import pytest

from rangecast import Number, Space, UsageError
from rangecast.merge import (
    Cells,
    Summary,
    chosen_attributes,
)
from rangecast.merge.ranges import union_of_boxes
from rangecast.merge.tuning import Sample, Setting, outcome, recommend, recommended
from rangecast.merge.tuning import settings as to_try
from rangecast.model.boxes import Boxes
from tests.support.merge_options import zipf_and_uniform
from tests.support.summaries import matched

# ---- the trade


def test_a_summary_within_a_budget_is_measured_and_the_best_recommended():
    space, boxes, points = zipf_and_uniform(400, 3000, d=4, size=20)
    truth = matched(boxes, np.arange(400), points)
    order = chosen_attributes(boxes, space, 4, points)
    tried = [
        outcome(space, boxes, one, 50, points, truth)
        for one in to_try(order, max_attributes=2, sampled=True)
        if one.bits <= 6
    ]
    assert {one.setting.cells for one in tried} == {"uniform", "quantiles"}
    for one in tried:
        assert one.ranges <= min(50, one.all_ranges)
        assert (one.gap > 0) == (one.ranges < one.all_ranges)
        assert one.matched == truth.sum() <= one.passed
        assert 0 <= one.false_positives < 1
        assert 0 < one.coverage <= 1
    best = recommended(tried)
    assert best.passed == min(one.passed for one in tried)
    wide = [outcome(space, boxes, best.setting, b, points, truth).passed for b in (5, 50, 5000)]
    assert wide == sorted(wide, reverse=True)  # the slider from memory to precision
    with pytest.raises(UsageError, match="no setting"):
        recommended([])
    steps = []
    found = recommend(
        boxes, space, 50, Sample(points, truth), max_attributes=2, progress=steps.append
    )
    assert found.best == recommended(found.outcomes)
    assert len(steps) == len(found.outcomes) >= len(tried)
    assert len(found.summary.ranges()) == found.best.ranges
    passed = found.summary.may_match_many(points).sum()
    assert passed == found.best.passed <= best.passed
    assert found.best.pass_rate == passed / len(points)
    assert found.is_worth_it == (found.best.pass_rate < 0.95)
    blind = recommend(boxes, space, 50, max_attributes=1)
    assert blind.best.pass_rate == min(one.coverage for one in blind.outcomes)


def test_imperfect_merging_costs_traffic_that_is_measured():
    space, boxes, points = zipf_and_uniform(2000, 5000, size=2, event_distribution="uniform")
    truth = matched(boxes, np.arange(2000), points)
    ranges, passed = [], []
    for gap in (0, 4, 64, 4096):
        table = Summary.of(boxes, space, bits=8, gap=gap)
        held = table.may_match_many(points)
        assert (held >= truth).all()
        ranges.append(len(table.ranges()))
        passed.append(int(held.sum()))
    assert ranges == sorted(ranges, reverse=True)
    assert passed == sorted(passed)
    assert ranges[-1] < ranges[0] / 10


def test_no_boxes_and_no_events():
    space = Space([Number("x", min=0, max=1)])
    none = Boxes.of(np.zeros((0, 1)), np.zeros((0, 1)))
    cells = Cells.uniform(space, 4)
    assert not len(union_of_boxes(cells, none.lo, none.hi, none.owner))
    table = Summary.of(none, space, bits=4)
    assert not table.may_match_many(np.array([[0.5]])).any()
    assert not len(table.may_match_many(np.zeros((0, 1))))
    assert not table.ranges().contains_cells(cells.places(np.array([[0.5]]))).any()
    assert len(table.subscribe_many(none)) == 0
    assert not table.may_match({"x": 0.5})
    assert table.coverage() == 0.0
    nobody = np.zeros((0, 1)), np.zeros(0, np.bool_)
    assert outcome(space, none, Setting(("x",), 4, "uniform"), 3, *nobody).false_positives == 0
