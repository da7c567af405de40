"""Tolerances of relaxed ranking: an attribute counts by how near its value is to its range.

Inside its range an attribute counts its weight, as without a tolerance. Outside, at a distance
below the tolerance, it counts weight * (1 - distance / tolerance). So no contribution exceeds its
weight, and the bounds by which an index stops remain valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from rangecast.errors import UsageError, abbreviate
from rangecast.kernels.arrays import F64
from rangecast.kernels.grid import MAX
from rangecast.kernels.jit import jit
from rangecast.model.attributes.base import Attribute, Ordered
from rangecast.model.attributes.timestamps import MICROSECOND, Timestamp
from rangecast.model.boxes import frozen
from rangecast.model.space import Space

Tolerances = Mapping[str, float | timedelta]
"""Tolerance by attribute: a number, or for a timestamp a number of seconds or a timedelta."""
NO_TOLERANCES = frozen([], np.float64)
TOLERANT = ("auto", "slabs", "scan")
"""Names of the indexes that rank with tolerances."""
_HINT = "hint: give a positive number, such as"


def check_tolerances(tolerances: Tolerances | None, *, relaxed: bool, index: str = "auto") -> None:
    """Reject tolerances in exact ranking, and with an index that has none."""
    if not tolerances:
        return
    if not isinstance(tolerances, Mapping):
        raise UsageError(
            "tolerances are a dict from attributes to numbers; "
            f"given: {type(tolerances).__name__} {abbreviate(tolerances)}"
        )
    if not relaxed:
        raise UsageError(
            f"tolerances are for relaxed ranking; given: {', '.join(map(str, tolerances))}\n"
            "  hint: give relaxed=True (--relaxed in the shell) as well"
        )
    if index not in TOLERANT:
        raise not_tolerant(index)


def not_tolerant(index: str) -> UsageError:
    """Return the error of an index that has no tolerances."""
    return UsageError(
        f"tolerances are ranked by the index 'slabs' or 'scan'; given: {index!r}\n"
        "  hint: take 'auto'"
    )


def encode_tolerances(tolerances: Tolerances | None, space: Space) -> F64:
    """Return the tolerance of each axis of a space, 0 if it has none; read-only."""
    if not tolerances:
        return NO_TOLERANCES
    encoded = np.zeros(len(space))
    for name, value in tolerances.items():
        axis = space.axis(name)
        encoded[axis] = _distance(space.attributes[axis], value)
    return frozen(encoded, np.float64)


def _distance(attribute: Attribute, value: Any) -> float:
    """Return a tolerance as a difference of coordinates."""
    name = attribute.name
    if not isinstance(attribute, Ordered):
        raise UsageError(
            f"{name!r} is of type {attribute.type}, which has no distance\n"
            "  hint: tolerances are for numbers, integers and timestamps"
        )
    is_time = isinstance(attribute, Timestamp)
    if is_time and isinstance(value, timedelta):
        distance = value / MICROSECOND
    elif isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        distance = float(value) * (1e6 if is_time else 1.0)
    else:
        distance = np.nan
    if not 0 < distance <= MAX:
        unit = " of seconds, or a timedelta" if is_time else ""
        raise UsageError(
            f"the tolerance of {name!r} is a positive, finite number{unit}\n"
            f"  given: {abbreviate(value)}\n  {_HINT} {{{name!r}: 5}}"
        )
    return distance


def read_tolerances(texts: Sequence[str]) -> dict[str, float]:
    """Read tolerances written as ATTRIBUTE=NUMBER."""
    tolerances: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = np.nan
        if not name or np.isnan(value):
            raise UsageError(
                f"a tolerance is ATTRIBUTE=NUMBER; given: {abbreviate(text)}\n  {_HINT} price=5"
            )
        if name in tolerances:
            raise UsageError(f"two tolerances are given for {name!r}\n  hint: keep one of them")
        tolerances[name] = value
    return tolerances


def write_tolerances(tolerances: Tolerances) -> list[str]:
    """Write tolerances as `read_tolerances` reads them."""
    return [
        f"{name}={value.total_seconds() if isinstance(value, timedelta) else value}"
        for name, value in tolerances.items()
    ]


@jit
def share_of(value: float, lo: float, hi: float, tolerance: float) -> float:
    """Return the share of its weight that an attribute counts; 0 or less: it doesn't match."""
    if lo <= value <= hi:
        return 1.0
    if tolerance == 0.0:
        return 0.0
    gap = lo - value if value < lo else value - hi
    return 1.0 - gap / tolerance
