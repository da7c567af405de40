"""Benchmark: many attributes, of which each subscription mentions a few."""

from __future__ import annotations

from typing import Annotated

from rangecast.errors import UsageError
from rangecast.workloads.base import Workload, takes, unit_cube, workload
from rangecast.workloads.draws import mentions, placed, stream


@workload("sparse", source="our own benchmark")
def sparse(
    seed: int,
    *,
    subscriptions: Annotated[int, takes("Number of subscriptions.", ge=0)] = 100_000,
    events: Annotated[int, takes("Number of events.", ge=0)] = 10_000,
    attributes: Annotated[int, takes("Number of attributes.", ge=1)] = 20,
    mentioned: Annotated[int, takes("Attributes that each subscription mentions.", ge=1)] = 4,
    min_width: Annotated[float, takes("Least width of an interval.", ge=0, le=1)] = 0.1,
    max_width: Annotated[float, takes("Largest width of an interval.", ge=0, le=1)] = 0.3,
) -> Workload:
    """Many attributes, of which each subscription mentions a few."""
    if min_width > max_width:
        raise UsageError(f"min_width {min_width} is above max_width {max_width}")
    rng = stream(seed, "w6/subscriptions")
    shown = mentions(rng, subscriptions, attributes, mentioned)
    lo, hi = placed(rng, rng.uniform(min_width, max_width, shown.shape))
    return unit_cube("sparse", lo, hi, stream(seed, "w6/events"), events, shown)
