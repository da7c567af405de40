"""Polygons with geodesic edges: every sign is exact with respect to unit vectors in doubles.

A position is the unit vector of its degrees, computed by the same function for corners and events,
so that polygons with a shared corner have the same vector for it. Whether a meridian crosses an
edge, and on which side, are signs of determinants of such vectors. They are exact and therefore
consistent: of polygons that share their corners, exactly one contains a point.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.kernels.jit import jit
from rangecast.model.shapes.exact.predicates import (
    BORDER,
    INSIDE,
    OUTSIDE,
    add_product,
    orientation,
    sign_of_sum,
)
from rangecast.model.shapes.exact.sphere import unit_vector
from rangecast.model.shapes.verification.stripes import stripe_at

_ERROR = 2e-15
"""More than the rounding of a determinant of three unit vectors."""


@jit
def vector_of(longitude: float, latitude: float) -> tuple[float, float, float]:
    """Return the unit vector of a position; longitudes that differ by 360 degrees give the same."""
    if abs(longitude) > 540.0:
        longitude %= 360.0
    if longitude > 180.0:
        longitude -= 360.0
    elif longitude <= -180.0:
        longitude += 360.0
    return unit_vector(longitude, latitude)


@jit
def vectors_of(corners: F64) -> F64:
    """Return the unit vectors of corners, (n, 3)."""
    made = np.empty((len(corners), 3))
    for i in range(len(corners)):
        made[i, 0], made[i, 1], made[i, 2] = vector_of(corners[i, 0], corners[i, 1])
    return made


@jit
def _eastward(ax: float, ay: float, bx: float, by: float) -> int:
    """Return 1 if b lies less than half a turn east of a, -1 if west, else 0.

    It is 0 on the same and on the opposite meridian.
    """
    return orientation(ax, ay, bx, by, 0.0, 0.0)


@jit
def _add_triple(a: float, b: float, c: float, terms: F64, filled: int) -> int:
    """Append the four doubles whose sum is exactly a * b * c."""
    pair = np.empty(2)
    add_product(a, b, pair, 0)
    filled = add_product(pair[0], c, terms, filled)
    return add_product(pair[1], c, terms, filled)


@jit
def side_of_great_circle(
    ax: float,
    ay: float,
    az: float,
    bx: float,
    by: float,
    bz: float,
    x: float,
    y: float,
    z: float,
) -> int:
    """Return the sign of the determinant of three unit vectors: 1 if the last is left of a to b."""
    side = (ay * bz - az * by) * x + (az * bx - ax * bz) * y + (ax * by - ay * bx) * z
    if abs(side) > _ERROR:
        return 1 if side > 0.0 else -1
    terms = np.empty(24)
    filled = _add_triple(ay, bz, x, terms, 0)
    filled = _add_triple(-az, by, x, terms, filled)
    filled = _add_triple(az, bx, y, terms, filled)
    filled = _add_triple(-ax, bz, y, terms, filled)
    filled = _add_triple(ax, by, z, terms, filled)
    filled = _add_triple(-ay, bx, z, terms, filled)
    return sign_of_sum(terms, filled)


@jit
def _is_same(longitude: float, other: float) -> bool:
    return longitude == other or abs(longitude - other) == 360.0


@jit
def in_geodesic(p: Any, polygon: int, hull: int, x: float, y: float) -> int:
    """Locate a point by a ray along its meridian to the north.

    polygon, hull   start of the polygon's numbers, and of those of its stripes

    Returns OUTSIDE, BORDER or INSIDE, + 4 if parity says inside, + 8 times the edges visited. The
    rule is half open in longitude: an edge includes its western end and not its eastern one.
    """
    parity, vectors = p.polygons[polygon + 5], p.polygons[polygon + 6]
    on_border = False
    px, py, pz = vector_of(x, y)
    first, corners = p.polygons[polygon + 2], p.polygons[polygon + 3]
    stripe = stripe_at(p.hulls, hull, p.polygons[polygon + 7], x)
    begin = end = first
    if stripe >= 0:
        cell = p.polygons[polygon] + stripe
        begin, end = first + p.cells[cell], first + p.cells[cell + 1]
    for i in range(begin, end):
        corner = p.listed[i]
        c, v = 2 * (corners + corner), 3 * (vectors + corner)
        ax, ay, az = p.vectors[v], p.vectors[v + 1], p.vectors[v + 2]
        bx, by, bz = p.vectors[v + 3], p.vectors[v + 4], p.vectors[v + 5]
        y1, y2 = p.corners[c + 1], p.corners[c + 3]
        from_a, from_b = _eastward(ax, ay, px, py), _eastward(bx, by, px, py)
        if (from_a >= 0) != (from_b >= 0):
            turn = _eastward(ax, ay, bx, by)
            if (turn > 0) == (from_a >= 0) and turn != 0:
                side = side_of_great_circle(ax, ay, az, bx, by, bz, px, py, pz)
                if side == 0:
                    on_border = True
                elif (side < 0) == (turn > 0):
                    parity ^= 1
        if min(y1, y2) <= y <= max(y1, y2):
            at_a, at_b = _is_same(p.corners[c], x), _is_same(p.corners[c + 2], x)
            on_border |= (at_a and (at_b or y1 == y)) or (at_b and y2 == y)
    where = BORDER if on_border else INSIDE if parity else OUTSIDE
    return int(where + 4 * parity + 8 * (end - begin))
