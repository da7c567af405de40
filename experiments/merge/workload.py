"""Shared parts of the experiments of paper 004: equal boxes, 256 values per attribute, 8 bits."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from experiments.experiment import Results
from experiments.merge.linear import covered
from rangecast.kernels.arrays import Bool
from rangecast.merge.summary import Summary
from rangecast.workloads import Workload, generate

SIZES = {
    "tiny": (200, 400),
    "quick": (5_000, 10_000, 20_000),
    "full": (20_000, 60_000, 100_000, 150_000),
}
"""Numbers of subscriptions."""
NEW = {"tiny": 50, "quick": 500, "full": 1_000}
"""Subscriptions that come on top of these."""
PUBLICATIONS = {"tiny": 500, "quick": 10_000, "full": 10_000}
DIMENSIONS = (2, 3, 4)
DISTRIBUTIONS = ("zipf", "uniform")
EXACT = 1 << 14
"""Ranges of a subscription, where the paper sets no bound."""


@lru_cache(1)
def made(
    seed: int,
    n: int,
    attributes: int,
    width: int,
    subscriptions: str,
    events: str = "uniform",
    publications: int = 1,
) -> Workload:
    """Return subscriptions and publications."""
    return generate(
        "equal-boxes",
        seed=seed,
        subscriptions=n,
        events=publications,
        attributes=attributes,
        size=width,
        subscription_distribution=subscriptions,
        event_distribution=events,
    )


def filled(one: Workload, n: int, **options: Any) -> Summary:
    """Return the summary of the first n subscriptions."""
    return Summary.of(
        one.boxes.take(np.arange(n)),
        one.space,
        bits=8,
        max_ranges_per_subscription=EXACT,
        **options,
    )


@lru_cache(1)
def _truth(*data: Any) -> Bool:
    """Return whether a subscription holds each publication of the data that `made` makes."""
    one = made(*data)
    truth: Bool = np.empty(len(one.points), np.bool_)
    covered(one.boxes.lo, one.boxes.hi, one.points, one.points, truth)
    return truth


def passed(table: Summary, *data: Any, first: int = 0) -> tuple[int, int]:
    """Return how many publications, from the first one on, pass a summary, and how many should.

    data    what `made` takes
    """
    truth, held = _truth(*data), table.may_match_many(made(*data).points)
    assert (held >= truth).all(), "the summary lacks a publication that a subscription holds"
    return int(held[first:].sum()), int(truth[first:].sum())


def growth(results: Results, column: str, **given: Any) -> float:
    """Return how many times its first value the last one of a column is."""
    values = results.column(column, **given)
    return float(values[-1] / values[0])
