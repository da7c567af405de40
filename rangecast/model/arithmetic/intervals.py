"""Interval arithmetic: derive ranges of attributes from comparisons.

The forward pass computes the range of each instruction from the ranges of its operands. Rounding is
monotonic, so the ends of the operands' ranges give the exact ends of the result's range.
The backward pass narrows the operands by the range of the result. There the exact result may differ
from the rounded one by half an ulp, and the computed bound is itself rounded. Both are widened
outward by a whole ulp, so that no event is lost.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I64, Bool
from rangecast.kernels.jit import jit
from rangecast.model.arithmetic.programs import (
    ABSOLUTE,
    ADD,
    AT_LEAST,
    AT_MOST,
    CONSTANT,
    DIVIDE,
    DIVIDE_INTO,
    EQUAL,
    GREATER,
    LESS,
    LOAD,
    MAXIMUM,
    MINIMUM,
    MULTIPLY,
    NEGATE,
    SUBTRACT,
    SUBTRACT_FROM,
    UNEQUAL,
    operate,
)
from rangecast.model.attributes.numbers import MAX

EMPTY, BORDER, FULL = 0, 1, 2
"""A comparison holds for no event of a box, perhaps for some, or for all."""
_ROUNDS = 6
"""Rounds in which all comparisons narrow the ranges of a box, at most."""
_STEPS = 160
"""Steps of the longest program, and more."""


@jit
def _down(x: float) -> float:
    return float(np.nextafter(x, -np.inf))


@jit
def _up(x: float) -> float:
    return float(np.nextafter(x, np.inf))


@jit
def _forward_one(operation: int, a: float, b: float) -> tuple[float, float]:
    """Return the range of -x or abs(x) for x in [a, b]."""
    if operation == NEGATE:
        return -b, -a
    if a >= 0.0:
        return a, b
    return (-b, -a) if b <= 0.0 else (0.0, max(-a, b))


@jit
def _forward(operation: int, a: float, b: float, c: float, d: float) -> tuple[float, float, bool]:
    """Return the range of a result for x in [a, b], y in [c, d], and whether it may be undefined.

    The range may be infinite where a result is not finite.
    """
    if operation in (SUBTRACT_FROM, DIVIDE_INTO):
        a, b, c, d = c, d, a, b
        operation = SUBTRACT if operation == SUBTRACT_FROM else DIVIDE
    if operation == DIVIDE and c <= 0.0 <= d:
        if c == d:
            return np.inf, -np.inf, True
        return -np.inf, np.inf, True
    if operation == ADD:
        low, high = a + c, b + d
    elif operation == SUBTRACT:
        low, high = a - d, b - c
    elif operation == MINIMUM:
        low, high = min(a, c), min(b, d)
    elif operation == MAXIMUM:
        low, high = max(a, c), max(b, d)
    else:
        first, second = operate(operation, a, c), operate(operation, a, d)
        third, fourth = operate(operation, b, c), operate(operation, b, d)
        low = min(min(first, second), min(third, fourth))
        high = max(max(first, second), max(third, fourth))
    return low, high, low < -MAX or high > MAX


@jit
def _meet(low: F64, high: F64, at: int, lower: float, upper: float) -> None:
    """Intersect the range of an instruction with [lower, upper]; NaN bounds are ignored."""
    if lower > low[at]:
        low[at] = lower
    if upper < high[at]:
        high[at] = upper


@jit
def _quotient(z0: float, z1: float, y0: float, y1: float) -> tuple[float, float]:
    """Return a conservative range of z / y; the range of y does not contain 0."""
    if y0 <= 0.0 <= y1:
        return -np.inf, np.inf
    p, q, r, s = z0 / y0, z0 / y1, z1 / y0, z1 / y1
    return _down(min(min(p, q), min(r, s))), _up(max(max(p, q), max(r, s)))


@jit
def _times(x: float, y: float) -> float:
    """Multiply two range ends; an infinite end stands for finite values."""
    return 0.0 if x == 0.0 or y == 0.0 else x * y


@jit
def _product(z0: float, z1: float, y0: float, y1: float) -> tuple[float, float]:
    """Return a conservative range of z * y."""
    p, q, r, s = _times(z0, y0), _times(z0, y1), _times(z1, y0), _times(z1, y1)
    return _down(min(min(p, q), min(r, s))), _up(max(max(p, q), max(r, s)))


@jit
def _backward(operation: int, low: F64, high: F64, at: int, x: int, y: int) -> None:
    """Narrow the operands of an instruction by the range of its result."""
    if operation in (SUBTRACT_FROM, DIVIDE_INTO):
        x, y = y, x
        operation = SUBTRACT if operation == SUBTRACT_FROM else DIVIDE
    # The exact result may be half a step beside the rounded one.
    z0, z1 = _down(low[at]), _up(high[at])
    if operation == ADD:
        _meet(low, high, x, _down(z0 - high[y]), _up(z1 - low[y]))
        _meet(low, high, y, _down(z0 - high[x]), _up(z1 - low[x]))
    elif operation == SUBTRACT:
        _meet(low, high, x, _down(z0 + low[y]), _up(z1 + high[y]))
        _meet(low, high, y, _down(low[x] - z1), _up(high[x] - z0))
    elif operation == MULTIPLY:
        lower, upper = _quotient(z0, z1, low[y], high[y])
        _meet(low, high, x, lower, upper)
        lower, upper = _quotient(z0, z1, low[x], high[x])
        _meet(low, high, y, lower, upper)
    elif operation == DIVIDE:
        lower, upper = _product(z0, z1, low[y], high[y])
        _meet(low, high, x, lower, upper)
        if not z0 <= 0.0 <= z1:
            lower, upper = _quotient(low[x], high[x], z0, z1)
            _meet(low, high, y, lower, upper)
    elif operation == MINIMUM:
        _meet(low, high, x, low[at], high[at] if low[y] > high[at] else np.inf)
        _meet(low, high, y, low[at], high[at] if low[x] > high[at] else np.inf)
    elif operation == MAXIMUM:
        _meet(low, high, x, low[at] if high[y] < low[at] else -np.inf, high[at])
        _meet(low, high, y, low[at] if high[x] < low[at] else -np.inf, high[at])
    elif operation == NEGATE:
        _meet(low, high, x, -high[at], -low[at])
    else:
        _meet(low, high, x, -high[at], high[at])
        if low[at] > 0.0 and low[x] > -low[at]:
            _meet(low, high, x, low[at], np.inf)
        if low[at] > 0.0 and high[x] < low[at]:
            _meet(low, high, x, -np.inf, -low[at])


@jit
def _decided(comparison: int, a: float, b: float, c: float, d: float) -> int:
    """Return the outcome of comparing the interval [a, b] with [c, d]."""
    if comparison in (GREATER, AT_LEAST):
        a, b, c, d = c, d, a, b
        comparison = LESS if comparison == GREATER else AT_MOST
    if comparison == LESS:
        return FULL if b < c else EMPTY if a >= d else BORDER
    if comparison == AT_MOST:
        return FULL if b <= c else EMPTY if a > d else BORDER
    apart = b < c or d < a
    same = a == b == c == d
    if comparison == UNEQUAL:
        return FULL if apart else EMPTY if same else BORDER
    return EMPTY if apart else FULL if same else BORDER


@jit
def _narrow_sides(comparison: int, low: F64, high: F64, x: int, y: int) -> None:
    """Narrow both sides of a comparison by each other."""
    if comparison in (GREATER, AT_LEAST):
        x, y = y, x
        comparison = LESS if comparison == GREATER else AT_MOST
    if comparison == LESS:
        _meet(low, high, x, -np.inf, _down(high[y]))
        _meet(low, high, y, _up(low[x]), np.inf)
    elif comparison == AT_MOST:
        _meet(low, high, x, -np.inf, high[y])
        _meet(low, high, y, low[x], np.inf)
    elif comparison == EQUAL:
        _meet(low, high, x, low[y], high[y])
        _meet(low, high, y, low[x], high[x])


@jit
def _narrow(
    n: F64,
    first: int,
    last: int,
    lo: F64,
    hi: F64,
    whole: Bool,
    domains: F64,
    low: F64,
    high: F64,
    child: I64,
) -> int:
    """Narrow the box [lo, hi] by one program; return the program's outcome in the box.

    whole, domains   (d,), (d, 2) which attributes are integers, and their domains
    low, high, child scratch: range of each instruction, and its operands, (steps, 2)
    """
    stack = child[:, 2]
    depth, may_be_undefined = 0, False
    steps = (last - first) // 2 - 1
    for step in range(steps):
        operation = int(n[first + 2 * step])
        if operation <= CONSTANT:
            if operation == CONSTANT:
                low[step] = high[step] = n[first + 2 * step + 1]
            else:
                axis = int(n[first + 2 * step + 1])
                if lo[axis] == -np.inf and hi[axis] == np.inf:
                    may_be_undefined = True  # a missing value
                    lo[axis], hi[axis] = domains[axis, 0], domains[axis, 1]
                low[step], high[step] = lo[axis], min(hi[axis], MAX)
            stack[depth] = step
            depth += 1
        elif operation <= ABSOLUTE:
            x = child[step, 0] = stack[depth - 1]
            low[step], high[step] = _forward_one(operation, low[x], high[x])
            stack[depth - 1] = step
        else:
            x = child[step, 0] = stack[depth - 2]
            y = child[step, 1] = stack[depth - 1]
            lower, upper, undefined = _forward(operation, low[x], high[x], low[y], high[y])
            may_be_undefined |= undefined
            low[step], high[step] = max(lower, -MAX), min(upper, MAX)
            depth -= 1
            stack[depth - 1] = step
        if low[step] > high[step]:
            return EMPTY
    x, y = stack[0], stack[1]
    comparison = int(n[last - 2])
    decided = _decided(comparison, low[x], high[x], low[y], high[y])
    if decided == EMPTY or (decided == FULL and not may_be_undefined):
        return decided
    _narrow_sides(comparison, low, high, x, y)
    for step in range(steps - 1, -1, -1):
        if not low[step] <= high[step]:
            return EMPTY
        operation = int(n[first + 2 * step])
        if operation > CONSTANT:
            _backward(operation, low, high, step, child[step, 0], child[step, 1])
        elif operation == LOAD:
            axis = int(n[first + 2 * step + 1])
            lower, upper = low[step] + 0.0, high[step] + 0.0
            if whole[axis]:
                lower, upper = np.ceil(lower) + 0.0, np.floor(upper) + 0.0
            if lower > lo[axis]:
                lo[axis] = lower
            if upper < hi[axis]:
                hi[axis] = upper
            if lo[axis] > hi[axis]:
                return EMPTY
    return BORDER


@jit
def narrowed(n: F64, ends: I64, lo: F64, hi: F64, whole: Bool, domains: F64) -> int:
    """Narrow the box [lo, hi], (d,), by programs that must all match.

    Return their combined outcome in the original box.

    n, ends   concatenated programs; the start of each one, and the end of the last
    """
    low, high = np.empty(_STEPS), np.empty(_STEPS)
    child = np.empty((_STEPS, 3), np.int64)
    decided = FULL
    old_lo, old_hi = lo.copy(), hi.copy()
    for turn in range(_ROUNDS):
        for program in range(len(ends) - 1):
            first, last = ends[program], ends[program + 1]
            is_empty = _narrow(n, first, last, lo, hi, whole, domains, low, high, child)
            if is_empty == EMPTY:
                return EMPTY
            if turn == 0:  # later on the box is a smaller one
                decided = min(decided, is_empty)
        if decided == FULL or ((lo == old_lo).all() and (hi == old_hi).all()):
            break
        old_lo[:], old_hi[:] = lo, hi
    return decided
