"""Our own benchmark workloads: what the papers leave out.

    w2    few attributes, selective: about as many matches an event as asked for, at any size
    w3    many attributes, wide: both ends of every interval uniform
    w6    many attributes, of which each subscription mentions a few

All are uniform on [0, 1] per attribute. An interval of width s lies anywhere in [0, 1], so that
a uniform event falls into it with probability s, and the expected number of matches is exact.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, Bool
from rangecast.model.attributes import Number
from rangecast.model.space import Space
from rangecast.workloads.base import Takes, Workload, box_table, event_table, numbered, workload
from rangecast.workloads.draws import stream


def _workload(
    name: str,
    seed: int,
    lo: F64,
    hi: F64,
    events: int,
    mentioned: Bool | None = None,
) -> Workload:
    space = Space(Number(name, min=0, max=1) for name in numbered("a", lo.shape[1]))
    points = stream(seed, f"{name}/events").random((events, len(space)))
    tables = {
        "subscriptions": box_table(space.names, lo, hi, mentioned=mentioned),
        "events": event_table(space.names, points),
    }
    return Workload(name, space, tables)


def _mentions(rng: np.random.Generator, rows: int, attributes: int, mentioned: int) -> Bool:
    """Return which attributes each row mentions: so many, any of them alike."""
    if mentioned > attributes:
        raise UsageError(f"{mentioned} attributes can't be mentioned: there are {attributes}")
    order = rng.random((rows, attributes)).argsort(axis=1).argsort(axis=1)
    return np.asarray(order < mentioned)


def _placed(rng: np.random.Generator, widths: F64) -> tuple[F64, F64]:
    """Return intervals of these widths, anywhere in [0, 1]."""
    lo = rng.random(widths.shape) * (1.0 - widths)
    return lo, np.minimum(lo + widths, 1.0)


@workload("w2", source="our own benchmark W2")
def w2(
    seed: int,
    *,
    subscriptions: Annotated[int, Takes("number of subscriptions", least=0)] = 100_000,
    events: Annotated[int, Takes("number of events", least=0)] = 10_000,
    attributes: Annotated[int, Takes("number of attributes", least=1)] = 4,
    mentioned: Annotated[int, Takes("attributes that each subscription mentions", least=1)] = 4,
    matches: Annotated[float, Takes("expected matches an event", above=0)] = 100.0,
) -> Workload:
    """Selective boxes with a given number of matches an event."""
    if 0 < subscriptions < matches:
        raise UsageError(f"{subscriptions} subscriptions can't give {matches} matches an event")
    rng = stream(seed, "w2/subscriptions")
    shown = _mentions(rng, subscriptions, attributes, mentioned)
    side = (matches / max(subscriptions, matches)) ** (1.0 / mentioned)
    # Widths vary by half, or by what [0, 1] leaves room for; their mean is the side either way.
    spread = min(0.5, (1.0 - side) / side)
    widths = side * rng.uniform(1.0 - spread, 1.0 + spread, shown.shape)
    lo, hi = _placed(rng, widths)
    return _workload("w2", seed, lo, hi, events, shown)


@workload("w3", source="our own benchmark W3")
def w3(
    seed: int,
    *,
    subscriptions: Annotated[int, Takes("number of subscriptions", least=0)] = 100_000,
    events: Annotated[int, Takes("number of events", least=0)] = 10_000,
    attributes: Annotated[int, Takes("number of attributes", least=1)] = 8,
) -> Workload:
    """Wide boxes: both ends of every interval are uniform."""
    ends = stream(seed, "w3/subscriptions").random((subscriptions, attributes, 2))
    ends.sort(axis=2)
    return _workload("w3", seed, ends[:, :, 0], ends[:, :, 1], events)


@workload("w6", source="our own benchmark W6")
def w6(
    seed: int,
    *,
    subscriptions: Annotated[int, Takes("number of subscriptions", least=0)] = 100_000,
    events: Annotated[int, Takes("number of events", least=0)] = 10_000,
    attributes: Annotated[int, Takes("number of attributes", least=1)] = 20,
    mentioned: Annotated[int, Takes("attributes that each subscription mentions", least=1)] = 4,
    least_width: Annotated[float, Takes("least width of an interval", least=0, most=1)] = 0.1,
    most_width: Annotated[float, Takes("largest width of an interval", least=0, most=1)] = 0.3,
) -> Workload:
    """Many attributes, of which each subscription mentions a few."""
    if least_width > most_width:
        raise UsageError(f"least_width {least_width} is above most_width {most_width}")
    rng = stream(seed, "w6/subscriptions")
    shown = _mentions(rng, subscriptions, attributes, mentioned)
    lo, hi = _placed(rng, rng.uniform(least_width, most_width, shown.shape))
    return _workload("w6", seed, lo, hi, events, shown)
