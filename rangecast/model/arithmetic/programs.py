"""Stack-machine programs for comparisons, and the kernel that runs them.

A program is a sequence of pairs: an opcode, and an axis or constant where needed. The last opcode
compares the two remaining values. The deeper operand is evaluated first, so a condition of the
maximum size needs at most 8 stack slots, which are local variables.
"""

from __future__ import annotations

import math
from typing import Any

from rangecast.kernels.jit import jit

LOAD, CONSTANT = 0, 1
NEGATE, ABSOLUTE = 2, 3
ADD, SUBTRACT, MULTIPLY, DIVIDE, MINIMUM, MAXIMUM = 4, 5, 6, 7, 8, 9
SUBTRACT_FROM, DIVIDE_INTO = 10, 11
"""With the right operand below the left one."""
LESS, AT_MOST, GREATER, AT_LEAST, EQUAL, UNEQUAL = 12, 13, 14, 15, 16, 17


@jit
def operate(operation: int, x: float, y: float) -> float:
    """Apply a binary operation; a result that is not finite means undefined."""
    if operation == ADD:
        return x + y
    if operation == SUBTRACT:
        return x - y
    if operation == MULTIPLY:
        return x * y
    if operation == DIVIDE:
        return x / y
    if operation == MINIMUM:
        return min(x, y)
    if operation == MAXIMUM:
        return max(x, y)
    return y - x if operation == SUBTRACT_FROM else y / x


@jit
def compare(operation: int, x: float, y: float) -> bool:
    """Return whether a comparison of two values is true."""
    if operation == LESS:
        return x < y
    if operation == AT_MOST:
        return x <= y
    if operation == GREATER:
        return x > y
    if operation == AT_LEAST:
        return x >= y
    return (x == y) == (operation == EQUAL)


@jit
def sides(n: Any, first: int, last: int, points: Any, event: int) -> tuple[int, float, float]:
    """Return the comparison opcode of a program and the values of both sides; -1 if undefined.

    The program is n[first] to n[last - 1]; the event's coordinates start at points[event].
    """
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    for i in range(first, last - 2, 2):
        operation = int(n[i])
        if operation <= CONSTANT:
            s7, s6, s5, s4, s3, s2, s1 = s6, s5, s4, s3, s2, s1, s0
            s0 = n[i + 1] if operation == CONSTANT else points[event + int(n[i + 1])]
        elif operation == NEGATE:
            s0 = -s0
        elif operation == ABSOLUTE:
            s0 = abs(s0)
        else:
            s0 = operate(operation, s1, s0)
            s1, s2, s3, s4, s5, s6 = s2, s3, s4, s5, s6, s7
        if not math.isfinite(s0):
            return -1, s1, s0
    return int(n[last - 2]), s1, s0


@jit
def comparison_holds(n: Any, first: int, last: int, points: Any, event: int) -> bool:
    """Return whether a program matches an event."""
    operation, x, y = sides(n, first, last, points, event)
    return operation >= 0 and compare(operation, x, y)
