"""Combination of the weights of matching attributes into one score, for relaxed ranking.

Their sum, the least or the largest of them, or their product, which stops at the largest double. A
subscription's weights are taken in attribute order, so that every structure gets the same double.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from rangecast.errors import UsageError, choices_hint
from rangecast.kernels.arrays import F64
from rangecast.kernels.grid import MAX
from rangecast.kernels.jit import jit
from rangecast.model.boxes import Boxes
from rangecast.model.validation.flags import flag

Combine = Literal["sum", "min", "max", "product"]
COMBINATIONS: tuple[str, ...] = get_args(Combine)
SUM, MIN, LARGEST, PRODUCT = range(4)
"""Their numbers, which kernels are given."""


def check_combine(combine: str, *, relaxed: bool) -> None:
    """Reject unknown combinations, and any but the sum in exact ranking, which has no weights."""
    flag("relaxed", relaxed)
    if combine not in COMBINATIONS:
        raise UsageError(f"no combination {combine!r}: {choices_hint(combine, COMBINATIONS)}")
    if combine != "sum" and not relaxed:
        raise UsageError(
            f"weights are only combined in relaxed ranking; given: combine={combine!r}\n"
            "  hint: give relaxed=True (--relaxed in the shell) as well"
        )


def number_of(combine: str) -> int:
    """Return the number of a combination."""
    return COMBINATIONS.index(combine)


@jit
def initial_value(combine: int) -> float:
    """Return what there is before the first weight."""
    if combine == MIN:
        return np.inf
    return 1.0 if combine == PRODUCT else 0.0


@jit
def joined(combine: int, total: float, weight: float) -> float:
    """Return the total with one more weight."""
    if combine == SUM:
        return total + weight
    if combine == PRODUCT:
        return min(total * weight, MAX)
    return min(total, weight) if combine == MIN else max(total, weight)


@jit
def limit_of(combine: int, weights: F64) -> float:
    """Return what a combination of some of these weights, at least one, can be at most.

    Some product of them is the largest if it has all that are 1 or more; if none is, it is the
    largest weight itself, as the least of them and the largest are at most. Rounding keeps this
    true, as it keeps the order of two numbers that are multiplied by a third.
    """
    total = initial_value(combine)
    largest = 0.0
    for weight in weights:
        largest = max(largest, weight)
        if combine == SUM or (combine == PRODUCT and weight >= 1.0):
            total = joined(combine, total, weight)
    return total if combine == SUM or (combine == PRODUCT and largest >= 1.0) else largest


@jit
def _write_limits(combine: int, weights: F64, out: F64) -> None:
    for row in range(len(out)):
        out[row] = limit_of(combine, weights[row])


def limits_of(boxes: Boxes, combine: str) -> F64:
    """Return what each box can get at most."""
    weights = np.zeros(boxes.lo.shape)
    weight = 1.0 if boxes.weights is None else boxes.weights[boxes.owner]
    np.copyto(weights, weight, where=boxes.mentions)
    out = np.empty(len(weights))
    _write_limits(number_of(combine), weights, out)
    return out
