"""Exact predicates of plane geometry: orientation, point in polygon, circle.

A sign is taken from doubles where their error bound allows it (Shewchuk's filter), and otherwise
from the exact sum of products as an expansion of doubles. Exact for coordinates that are 0 or have
a magnitude from 1e-140 to 1e140, which `geometry` ensures. Kernels are compiled without fastmath,
and nothing here may be contracted to a fused multiply-add.
"""

from __future__ import annotations

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.kernels.jit import jit

OUTSIDE, BORDER, INSIDE = 0, 1, 2
MAX_COORDINATE, MIN_COORDINATE = 1e140, 1e-140
"""Magnitudes for which products of two coordinates neither overflow nor lose digits."""
_SPLIT = 134217729.0  # 2**27 + 1
ORIENTATION_ERROR = 3.3306690738754716e-16
_CIRCLE_ERROR = 1.5e-15


@jit
def add_product(a: float, b: float, terms: F64, filled: int) -> int:
    """Append the two doubles whose sum is exactly a * b."""
    product = a * b
    c = _SPLIT * a
    a_high = c - (c - a)
    a_low = a - a_high
    c = _SPLIT * b
    b_high = c - (c - b)
    b_low = b - b_high
    terms[filled] = a_low * b_low - (
        ((product - a_high * b_high) - a_low * b_high) - a_high * b_low
    )
    terms[filled + 1] = product
    return filled + 2


@jit
def sign_of_sum(terms: F64, count: int) -> int:
    """Return the sign of the exact sum of doubles, by growing an expansion."""
    expansion = np.zeros(count)
    length = 0
    for i in range(count):
        q = terms[i]
        kept = 0
        for j in range(length):
            e = expansion[j]
            total = q + e
            virtual = total - q
            error = (q - (total - virtual)) + (e - virtual)
            q = total
            if error != 0.0:
                expansion[kept] = error
                kept += 1
        if q != 0.0:
            expansion[kept] = q
            kept += 1
        length = kept
    if length == 0:
        return 0
    return 1 if expansion[length - 1] > 0.0 else -1


@jit
def _orientation_exactly(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> int:
    terms = np.empty(12)
    filled = add_product(ax, by, terms, 0)
    filled = add_product(-ax, cy, terms, filled)
    filled = add_product(-cx, by, terms, filled)
    filled = add_product(-ay, bx, terms, filled)
    filled = add_product(ay, cx, terms, filled)
    filled = add_product(cy, bx, terms, filled)
    return sign_of_sum(terms, filled)


@jit
def orientation(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> int:
    """Return 1 if c lies to the left of the line from a to b, -1 to the right, 0 on it."""
    left = (ax - cx) * (by - cy)
    right = (ay - cy) * (bx - cx)
    determinant = left - right
    if abs(determinant) > ORIENTATION_ERROR * (abs(left) + abs(right)):
        return 1 if determinant > 0.0 else -1
    if (cx == ax and cy == ay) or (cx == bx and cy == by):
        return 0
    return _orientation_exactly(ax, ay, bx, by, cx, cy)


@jit
def side_of_circle(x: float, y: float, cx: float, cy: float, radius: float) -> int:
    """Return 1 if a point lies outside a circle, -1 inside, 0 on it."""
    dx, dy = x - cx, y - cy
    distance, limit = dx * dx + dy * dy, radius * radius
    if abs(distance - limit) > _CIRCLE_ERROR * (x * x + y * y + cx * cx + cy * cy + limit):
        return 1 if distance > limit else -1
    terms = np.empty(14)
    filled = add_product(x, x, terms, 0)
    filled = add_product(-2.0 * x, cx, terms, filled)
    filled = add_product(cx, cx, terms, filled)
    filled = add_product(y, y, terms, filled)
    filled = add_product(-2.0 * y, cy, terms, filled)
    filled = add_product(cy, cy, terms, filled)
    filled = add_product(-radius, radius, terms, filled)
    return sign_of_sum(terms, filled)


@jit
def cross_edge(x1: float, y1: float, x2: float, y2: float, x: float, y: float) -> int:
    """Compare a point with an edge of a ring: BORDER (1), crossed by its ray (2), or neither (0).

    The ray goes to the right. The rule is half open in y: an edge includes its lower end and not
    its upper one, so that polygons that share an edge count it alike.
    """
    if (y1 <= y) != (y2 <= y):
        if x > x1 and x > x2:
            return 0
        if x < x1 and x < x2:
            return 2
        sign = orientation(x1, y1, x2, y2, x, y)
        if sign == 0:
            return 1
        return 2 if (sign > 0) == (y2 > y1) else 0
    if y1 == y and y2 == y:
        return 1 if min(x1, x2) <= x <= max(x1, x2) else 0
    if (y1 == y and x1 == x) or (y2 == y and x2 == x):
        return 1
    return 0


@jit
def locate(xs: F64, ys: F64, edges: I64, first: int, last: int, x: float, y: float) -> int:
    """Return the parity of the edges that a point's ray crosses, + 2 if it lies on one.

    edges   (n,) corner at which each edge starts; it ends at the next one
    """
    parity = border = 0
    for i in range(first, last):
        corner = edges[i]
        crossed = cross_edge(xs[corner], ys[corner], xs[corner + 1], ys[corner + 1], x, y)
        if crossed == 2:
            parity ^= 1
        elif crossed == 1:
            border = 2
    return parity + border
