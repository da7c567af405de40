"""Memory against precision: what a summary costs and lets through, for several settings.

A setting says which attributes a summary takes, how many bits, and how its cells are cut. A summary
that has more ranges than the budget is joined over its cheapest gaps until it fits: the shortest,
or those that the fewest of some events lie in. Measured are the ranges, the share of the space that
they hold, and on sample events the false positives: events that the summary lets through and no
subscription matches (paper 004, sections 5, 6.2 and 6.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, Bool
from rangecast.merge.cells import Cells, chosen_attributes
from rangecast.merge.measure import coverage_of
from rangecast.merge.ranges import MAX_RANGES, Ranges, union_of_boxes, within_budget
from rangecast.merge.summary import Summary
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space
from rangecast.model.validation.inputs import as_points

_BITS = (2, 3, 4, 5, 6, 8, 10)
_ENOUGH = 16
"""Finer cells are not tried once a summary has this many times the budget of ranges."""
_NEARLY_ALL = 0.95
"""A summary that lets this share through saves hardly anything."""


class Setting(NamedTuple):
    """Attributes, bits and cells of a summary."""

    attributes: tuple[str, ...]
    bits: int
    cells: str
    """Equal sizes (`uniform`), or quantiles of the sample events (`quantiles`)."""

    def made(self, space: Space, points: F64) -> Cells:
        """Return the cells."""
        if self.cells == "uniform":
            return Cells.uniform(space, self.bits, self.attributes)
        return Cells.quantiles(space, self.bits, points, self.attributes)


class Outcome(NamedTuple):
    """Measurements of a setting."""

    setting: Setting
    all_ranges: int
    """Without a budget."""
    ranges: int
    gap: int
    """Gaps up to this were closed to meet the budget."""
    coverage: float
    passed: int
    """Sample events that the summary lets through."""
    matched: int
    """Those that a subscription does match."""
    events: int
    """All sample events."""

    @property
    def pass_rate(self) -> float:
        """The share of the sample events that pass; without a sample, of the space."""
        return self.passed / self.events if self.events else self.coverage

    @property
    def false_positives(self) -> float:
        """Share of the passing events that match nothing."""
        return 1 - self.matched / self.passed if self.passed else 0.0


def settings(order: Sequence[str], *, max_attributes: int, sampled: bool) -> Iterator[Setting]:
    """Yield the settings to try: the best attributes 1 to `max_attributes`, coarse to fine."""
    for count in range(1, min(max_attributes, len(order)) + 1):
        for bits in _BITS:
            if bits * count <= 64:
                for cells in ("uniform", "quantiles") if sampled else ("uniform",):
                    yield Setting(tuple(order[:count]), bits, cells)


class Summed(NamedTuple):
    """Summary of subscriptions within a maximum of ranges."""

    cells: Cells
    ranges: Ranges
    all_ranges: int
    """Without a budget."""
    gap: int
    """Gaps up to this were closed to meet the budget."""

    def summary(self, space: Space) -> Summary:
        """Return a summary of just these ranges."""
        return Summary.of_ranges(self.ranges, space, cells=self.cells)


Union = Callable[[Cells], Ranges]
"""Sums all subscriptions up on some cells, wherever they are held."""


def summed(
    space: Space,
    boxes: Boxes,
    setting: Setting,
    budget: int,
    points: F64,
    max_ranges_per_subscription: int = MAX_RANGES,
    union: Union | None = None,
    weighting_events: F64 | None = None,
) -> Summed:
    """Sum up; `points` are sample events, which some cells are made from.

    `weighting_events` are the events that say what it costs to close a gap; without, its length
    does.
    """
    cells = setting.made(space, points)
    exact = (
        union_of_boxes(
            cells,
            boxes.lo,
            boxes.hi,
            boxes.owner,
            max_ranges_per_subscription=max_ranges_per_subscription,
        )
        if union is None
        else union(cells)
    )
    ranges, gap = within_budget(
        exact, budget, None if weighting_events is None else cells.places(weighting_events)
    )
    return Summed(cells, ranges, len(exact), gap)


def redundant(
    space: Space, boxes: Boxes, cells: Cells, max_ranges_per_subscription: int = MAX_RANGES
) -> Bool:
    """Return which subscriptions add nothing to those before: the sum is the same without them."""
    gained = (
        Summary(space, cells=cells, max_ranges_per_subscription=max_ranges_per_subscription)
        .subscribe_many(boxes)
        .add
    )
    return np.asarray(np.diff(gained.offsets) == 0)


def outcome(
    space: Space,
    boxes: Boxes,
    setting: Setting,
    budget: int,
    points: F64,
    matched: Bool,
    max_ranges_per_subscription: int = MAX_RANGES,
    union: Union | None = None,
    weighting_events: F64 | None = None,
) -> Outcome:
    """Sum up and measure; `matched` says which of the sample events a subscription matches."""
    cells, ranges, before, gap = summed(
        space, boxes, setting, budget, points, max_ranges_per_subscription, union, weighting_events
    )
    passed = ranges.contains_cells(cells.places(points))
    coverage = coverage_of(space, cells, ranges)
    counts = int(passed.sum()), int(matched.sum())
    return Outcome(setting, before, len(ranges), gap, coverage, *counts, len(points))


def recommended(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the one that lets the fewest sample events through; of equals the smallest.

    Without a sample it is the one that holds the least of the space.
    """
    if not outcomes:
        raise UsageError("no setting was tried")
    sampled = any(outcome.passed for outcome in outcomes)
    return min(
        outcomes,
        key=lambda outcome: (
            outcome.passed if sampled else outcome.coverage,
            outcome.ranges,
            len(outcome.setting.attributes),
            outcome.setting.bits,
        ),
    )


class Sample(NamedTuple):
    """Events that settings are measured on."""

    points: F64
    matched: Bool
    """Which of them a subscription matches."""


class Recommendation(NamedTuple):
    """The setting to take, and all that were tried."""

    best: Outcome
    summary: Summary
    """The ranges that the best setting comes to: to save, to open elsewhere, to ask of events."""
    outcomes: list[Outcome]

    @property
    def is_worth_it(self) -> bool:
        """Whether the summary holds back enough to be worth its memory."""
        return self.best.pass_rate < _NEARLY_ALL

    @property
    def must_let_through(self) -> bool:
        """Whether subscriptions ask for nearly all sample events, so that nothing could help."""
        return self.best.events > 0 and self.best.matched >= _NEARLY_ALL * self.best.events


def recommend(
    boxes: Boxes,
    space: Space,
    max_ranges: int,
    sample: Sample | None = None,
    *,
    max_attributes: int = 4,
    max_ranges_per_subscription: int = MAX_RANGES,
    union: Union | None = None,
    weighting_events: Any = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Recommendation:
    """Try settings of up to `max_attributes` attributes and `max_ranges` ranges, and recommend one.

    sample             events to measure false positives on; without, the coverage decides
    max_ranges_per_subscription   upper limit of the ranges of one subscription
    union              computes the union of the boxes elsewhere, with the same limit
    weighting_events   typical events, as `Summary.may_match_many` takes them: gaps that few of
                       them lie in are closed first, instead of the shortest. Not those of
                       `sample`, or the measured pass rate is too low
    progress           called with 1 after each setting
    """
    nothing = Sample(np.zeros((0, len(space))), np.zeros(0, np.bool_))
    points, matched = sample or nothing
    order = chosen_attributes(boxes, space, len(space), points if len(points) else None)
    weights = None if weighting_events is None else as_points(weighting_events, space)
    outcomes: list[Outcome] = []
    done: set[tuple[tuple[str, ...], str]] = set()
    for setting in settings(order, max_attributes=max_attributes, sampled=len(points) > 0):
        if (setting.attributes, setting.cells) in done:
            continue
        how = (points, matched, max_ranges_per_subscription, union, weights)
        outcomes.append(outcome(space, boxes, setting, max_ranges, *how))
        progress(1)
        if outcomes[-1].all_ranges > _ENOUGH * max_ranges:
            done.add((setting.attributes, setting.cells))
    best = recommended(outcomes)
    tuned = summed(
        space, boxes, best.setting, max_ranges, points, max_ranges_per_subscription, union, weights
    )
    return Recommendation(best, tuned.summary(space), outcomes)
