"""Benchmark: few attributes, and a chosen number of matches per event.

An interval of width s lies anywhere in [0, 1], so that a uniform event falls into it with
probability s, and the expected number of matches is exact at any size.
"""

from __future__ import annotations

from typing import Annotated

from rangecast.errors import UsageError
from rangecast.workloads.base import Workload, takes, unit_cube, workload
from rangecast.workloads.draws import mentions, placed, stream


@workload("selective", source="our own benchmark")
def selective(
    seed: int,
    *,
    subscriptions: Annotated[int, takes("Number of subscriptions.", ge=0)] = 100_000,
    events: Annotated[int, takes("Number of events.", ge=0)] = 10_000,
    attributes: Annotated[int, takes("Number of attributes.", ge=1)] = 4,
    mentioned: Annotated[int, takes("Attributes that each subscription mentions.", ge=1)] = 4,
    matches: Annotated[float, takes("Expected matches per event.", gt=0)] = 100.0,
) -> Workload:
    """Selective boxes with a given number of matches per event."""
    if 0 < subscriptions < matches:
        raise UsageError(f"{subscriptions} subscriptions can't give {matches} matches per event")
    rng = stream(seed, "w2/subscriptions")
    shown = mentions(rng, subscriptions, attributes, mentioned)
    side = (matches / max(subscriptions, matches)) ** (1.0 / mentioned)
    # Widths vary by half, or by what [0, 1] leaves room for; their mean is the side either way.
    spread = min(0.5, (1.0 - side) / side)
    lo, hi = placed(rng, side * rng.uniform(1.0 - spread, 1.0 + spread, shown.shape))
    return unit_cube("selective", lo, hi, stream(seed, "w2/events"), events, shown)
