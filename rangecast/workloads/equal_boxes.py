"""The subscriptions and publications of paper 004, section 7.

Each attribute has 256 values. The lower bound of a range follows the chosen distribution on each
axis, the upper bound lies a fixed size above it. The paper's settings: 2, 3 and 4 attributes, 7
for Tables 2 and 3; size 2, 4 or 8; 20,000 .. 150,000 subscriptions; 10,000 publications, Zipfian
or uniform.

Where the paper is silent:
- A size of 4 covers 4 values: hi = lo + size - 1.
- Lower bounds are drawn from the values that leave room for the whole range.
- Zipfian: value v has a probability in proportion to (v + 1) ** -skew, on every axis alike; the
  skew is 1.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import I64
from rangecast.model.attributes.base import Integer
from rangecast.model.space import Space
from rangecast.workloads.base import Workload, box_table, event_table, numbered, takes, workload
from rangecast.workloads.draws import pick, stream, zipf

Distribution = Literal["zipf", "uniform"]


def _values(
    rng: np.random.Generator, shape: tuple[int, int], count: int, distribution: str, skew: float
) -> I64:
    return pick(rng, zipf(count, skew if distribution == "zipf" else 0.0), shape)


@workload("equal-boxes", source="paper 004, section 7")
def equal_boxes(
    seed: int,
    *,
    subscriptions: Annotated[int, takes("Number of subscriptions.", ge=0)] = 20_000,
    events: Annotated[int, takes("Number of publications.", ge=0)] = 10_000,
    attributes: Annotated[int, takes("Number of attributes.", ge=1)] = 3,
    domain: Annotated[int, takes("Values of each attribute.", ge=1)] = 256,
    size: Annotated[int, takes("Values that a range covers.", ge=1)] = 4,
    subscription_distribution: Annotated[
        Distribution, takes("How lower bounds are drawn.")
    ] = "zipf",
    event_distribution: Annotated[Distribution, takes("How publications are drawn.")] = "zipf",
    skew: Annotated[float, takes("Zipf skew of both.", ge=0)] = 1.0,
) -> Workload:
    """Small boxes of one size that crowd at the low values."""
    if size > domain:
        raise UsageError(f"a range of size {size} does not fit a domain of {domain} values")
    space = Space(Integer(name, min=0, max=domain - 1) for name in numbered("a", attributes))
    lo = _values(
        stream(seed, "mics/subscriptions"),
        (subscriptions, attributes),
        domain - size + 1,
        subscription_distribution,
        skew,
    )
    points = _values(
        stream(seed, "mics/events"), (events, attributes), domain, event_distribution, skew
    )
    tables = {
        "subscriptions": box_table(space.names, lo, lo + size - 1),
        "events": event_table(space.names, points),
    }
    return Workload("equal-boxes", space, tables)
