"""Benchmark: wide boxes on many attributes."""

from __future__ import annotations

from typing import Annotated

from rangecast.workloads.base import Workload, takes, unit_cube, workload
from rangecast.workloads.draws import mentions, stream


@workload("wide", source="our own benchmark")
def wide(
    seed: int,
    *,
    subscriptions: Annotated[int, takes("Number of subscriptions.", ge=0)] = 100_000,
    events: Annotated[int, takes("Number of events.", ge=0)] = 10_000,
    attributes: Annotated[int, takes("Number of attributes.", ge=1)] = 8,
    mentioned: Annotated[int, takes("Attributes that each subscription mentions.", ge=1)] = 8,
) -> Workload:
    """Wide boxes: both ends of every interval are uniform."""
    ends = stream(seed, "w3/subscriptions").random((subscriptions, attributes, 2))
    ends.sort(axis=2)
    shown = mentions(stream(seed, "wide/mentioned"), subscriptions, attributes, mentioned)
    return unit_cube("wide", ends[:, :, 0], ends[:, :, 1], stream(seed, "w3/events"), events, shown)
