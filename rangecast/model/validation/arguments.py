"""Validation of other arguments: numbers, scores, weights.

A wrong type is rejected here, in the caller's terms, before it causes an error in a library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from operator import index
from typing import Any

import numpy as np

from rangecast.errors import UsageError, abbreviate
from rangecast.kernels.arrays import F64
from rangecast.model.space import Space

_NUMBERS = (int, float, Decimal, np.integer, np.floating)


def check_integer(name: str, value: Any, min_value: int = 1, max_value: int | None = None) -> int:
    """Validate an integer argument; return it as an `int`."""
    try:
        number = None if isinstance(value, bool | np.bool_) else index(value)
    except TypeError:
        number = None
    if number is None or number < min_value or (max_value is not None and number > max_value):
        expected = (
            f"at least {min_value}" if max_value is None else f"from {min_value} to {max_value}"
        )
        raise UsageError(
            f"{name} must be a whole number, {expected}\n"
            f"  given: {abbreviate(value)}\n"
            f"  hint: give an integer, such as {name}={_suggested(value, min_value, max_value)}"
        )
    return number


def check_finite(name: str, value: Any) -> float:
    """Validate a finite number; return it as a `float`."""
    number = _finite(value)
    if number is None:
        raise UsageError(
            f"{name} must be a finite number\n"
            f"  given: {type(value).__name__} {abbreviate(value)}\n"
            f"  hint: give a number, such as {name}=0.5"
        )
    return number


def score_of(value: Any) -> float:
    """Validate a score; return it as a `float`."""
    number = _finite(value)
    if number is None:
        raise UsageError(
            "a score must be a finite number\n"
            f"  given: {abbreviate(value)}\n"
            "  hint: give a number, such as score=0.5; higher scores rank first"
        )
    return number


def weights_of(space: Space, values: Any, before: F64 | None) -> F64 | None:
    """Update the weights (d,) `before` with the given values; `None` means all are 1."""
    if values is None:
        return before
    if not isinstance(values, Mapping):
        raise UsageError(
            "weights must be a dict from attributes to numbers\n"
            f"  given: {abbreviate(values)}\n"
            f"  hint: name the attributes, such as weights={{{space.names[0]!r}: 2}}"
        )
    weights = np.ones(len(space)) if before is None else before.copy()
    for name, value in values.items():
        number = _finite(value)
        if number is None or number < 0:
            raise UsageError(
                "a weight must be a finite number, 0 or more\n"
                f"  given: {abbreviate(value)} for {name!r}\n"
                "  hint: give 0 to ignore an attribute, and more for greater weight"
            )
        weights[space.axis(name)] = number
    return weights


def _finite(value: Any) -> float | None:
    """Return a finite number as a double; `None` if it is not one."""
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number + 0.0 if math.isfinite(number) else None  # -0.0 becomes 0.0


def _suggested(value: Any, min_value: int, max_value: int | None) -> int:
    """Return the integer that was probably meant."""
    try:
        meant = int(value)
    except (TypeError, ValueError, OverflowError):
        meant = 10
    return max(min_value, meant if max_value is None else min(meant, max_value))
