"""What a caller gives to a live set beside filters and events: whole numbers, scores, weights.

A wrong type is told here, in the caller's words, before it becomes an error of a library inside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from operator import index
from typing import Any

import numpy as np

from rangecast.errors import UsageError, shown
from rangecast.kernels.arrays import F64
from rangecast.model.space import Space

_NUMBERS = (int, float, Decimal, np.integer, np.floating)


def whole(name: str, value: Any, least: int = 1) -> int:
    """Return an argument that is a whole number, as an `int`."""
    try:
        number = None if isinstance(value, bool | np.bool_) else index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise UsageError(
            f"{name} is a whole number, at least {least}\n"
            f"  given: {shown(value)}\n"
            f"  to do: give an integer, such as {name}={_suggested(value, least)}"
        )
    return number


def score_of(value: Any) -> float:
    """Return a score as a `float`."""
    number = _finite(value)
    if number is None:
        raise UsageError(
            "a score is a finite number\n"
            f"  given: {shown(value)}\n"
            "  to do: give a number, such as score=0.5; the higher, the better"
        )
    return number


def weights_of(space: Space, given: Any, before: F64 | None) -> F64 | None:
    """Return the weights (d,) that some given ones make of those before; `None`: all are 1."""
    if given is None:
        return before
    if not isinstance(given, Mapping):
        raise UsageError(
            "weights are a dict from attributes to numbers\n"
            f"  given: {shown(given)}\n"
            f"  to do: name the attributes, such as weights={{{space.names[0]!r}: 2}}"
        )
    weights = np.ones(len(space)) if before is None else before.copy()
    for name, value in given.items():
        number = _finite(value)
        if number is None or number < 0:
            raise UsageError(
                "a weight is a finite number, 0 or more\n"
                f"  given: {shown(value)} for {name!r}\n"
                "  to do: give 0 for an attribute that doesn't count, more for one that counts more"
            )
        weights[space.axis(name)] = number
    return weights


def _finite(value: Any) -> float | None:
    """Return a finite number as a double, `None` if it isn't one."""
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _suggested(value: Any, least: int) -> int:
    """Return the whole number that was probably meant."""
    try:
        return max(least, int(value))
    except (TypeError, ValueError, OverflowError):
        return max(least, 10)
