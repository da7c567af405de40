"""Memory against precision: the size and the false positives of a summary, by setting.

A setting consists of the attributes of a summary, its bits, and its kind of cells. A summary that
has too many ranges is joined over its cheapest gaps until it fits: the shortest, or those that the
fewest of some events lie in. Each setting is measured by its ranges, the share of the space that
they hold, and on sample events the false positives: events that pass the summary and no
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
"""Finer cells are not tried once a summary has this multiple of the maximum number of ranges."""
_NEARLY_ALL = 0.95
"""Pass rate from which a summary saves hardly anything."""


class Setting(NamedTuple):
    """Attributes, bits and cells of a summary."""

    attributes: tuple[str, ...]
    bits: int
    cells: str
    """Equal sizes (`uniform`), or quantiles of the sample events (`quantiles`)."""

    def make_cells(self, space: Space, points: F64) -> Cells:
        """Return the cells of the setting."""
        if self.cells == "uniform":
            return Cells.uniform(space, self.bits, self.attributes)
        return Cells.quantiles(space, self.bits, points, self.attributes)


class Outcome(NamedTuple):
    """Measurements of a setting."""

    setting: Setting
    all_ranges: int
    """Number of ranges before joining."""
    ranges: int
    gap: int
    """Largest gap closed to meet the maximum."""
    coverage: float
    passed: int
    """Sample events that pass the summary."""
    matched: int
    """Passing events that match a subscription."""
    events: int
    """Number of sample events."""

    @property
    def pass_rate(self) -> float:
        """Share of the sample events that pass; without a sample, of the space."""
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


class JoinedUnion(NamedTuple):
    """A union of subscriptions, joined to a maximum number of ranges."""

    cells: Cells
    ranges: Ranges
    all_ranges: int
    """Number of ranges before joining."""
    gap: int
    """Largest gap closed to meet the maximum."""

    def summary(self, space: Space) -> Summary:
        """Return a summary of exactly these ranges."""
        return Summary.of_ranges(self.ranges, space, cells=self.cells)


Union = Callable[[Cells], Ranges]
"""Function that returns the union of all subscriptions on some cells."""


def summed(
    space: Space,
    boxes: Boxes,
    setting: Setting,
    budget: int,
    points: F64,
    max_ranges_per_subscription: int = MAX_RANGES,
    union: Union | None = None,
    weighting_events: F64 | None = None,
) -> JoinedUnion:
    """Summarize the subscriptions; `points` are sample events for cells at quantiles.

    `weighting_events` determine the cost of closing a gap; by default, its length does.
    """
    cells = setting.make_cells(space, points)
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
    return JoinedUnion(cells, ranges, len(exact), gap)


def redundant(
    space: Space, boxes: Boxes, cells: Cells, max_ranges_per_subscription: int = MAX_RANGES
) -> Bool:
    """Return which subscriptions add nothing to the union of those before them."""
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
    """Summarize and measure; `matched` is whether each sample event matches a subscription."""
    cells, ranges, before, gap = summed(
        space, boxes, setting, budget, points, max_ranges_per_subscription, union, weighting_events
    )
    passed = ranges.contains_cells(cells.places(points))
    coverage = coverage_of(space, cells, ranges)
    counts = int(passed.sum()), int(matched.sum())
    return Outcome(setting, before, len(ranges), gap, coverage, *counts, len(points))


def recommended(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome with the fewest passing sample events, then the smallest.

    Without a sample, the one with the least coverage of the space.
    """
    if not outcomes:
        raise UsageError("there are no settings to try")
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
    """Events for measuring settings."""

    points: F64
    matched: Bool
    """Whether each event matches a subscription."""


class Recommendation(NamedTuple):
    """The recommended setting, and all that were tried."""

    best: Outcome
    summary: Summary
    """Summary with the recommended setting: to save, to send elsewhere, to query."""
    outcomes: list[Outcome]

    @property
    def is_worth_it(self) -> bool:
        """Whether the summary filters enough events to be worth its memory."""
        return self.best.pass_rate < _NEARLY_ALL

    @property
    def matches_nearly_all(self) -> bool:
        """Whether nearly all sample events match, so that no summary could help."""
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
