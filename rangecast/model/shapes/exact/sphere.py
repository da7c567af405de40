"""Distances on the earth: chords of the mean sphere, and the inverse problem of the ellipsoid.

Distances are compared as squared chords between unit vectors, which lose no digits at small
distances and have no special case at the poles. With `earth = "wgs84"` the ellipsoid is used where
the sphere is not conclusive: within 0.7 percent of the radius (the two differ by at most 0.56).
"""

from __future__ import annotations

import math

from rangecast.kernels.jit import jit

RADIUS = 6_371_008.8
"""Mean radius of the earth in metres."""
_A, _F = 6_378_137.0, 1 / 298.257223563
_B = _A * (1 - _F)
BAND = 0.007
"""Share of a radius by which the sphere and the ellipsoid differ at most, with room to spare."""
_TURNS = 200
_CLOSE = 1e-12


@jit
def unit_vector(longitude: float, latitude: float) -> tuple[float, float, float]:
    """Return the unit vector of a position in degrees."""
    turn, tilt = math.radians(longitude), math.radians(latitude)
    level = math.cos(tilt)
    return level * math.cos(turn), level * math.sin(turn), math.sin(tilt)


@jit
def squared_chord(distance: float) -> float:
    """Return the squared chord of a distance in metres along the unit sphere."""
    half = math.sin(min(distance / RADIUS, math.pi) / 2)
    return 4 * half * half


@jit
def ellipsoid_distance(lon1: float, lat1: float, lon2: float, lat2: float) -> float:
    """Return the distance in metres between two positions on WGS84, by Vincenty's inverse formula.

    Accurate to about a millimetre. Nearly antipodal positions, where the formula does not converge,
    get the distance along the sphere.
    """
    turn = math.radians(lon2 - lon1)
    if turn > math.pi:
        turn -= 2 * math.pi
    elif turn < -math.pi:
        turn += 2 * math.pi
    u1 = math.atan((1 - _F) * math.tan(math.radians(lat1)))
    u2 = math.atan((1 - _F) * math.tan(math.radians(lat2)))
    sin1, cos1, sin2, cos2 = math.sin(u1), math.cos(u1), math.sin(u2), math.cos(u2)
    angle = turn
    for _ in range(_TURNS):
        sin_angle, cos_angle = math.sin(angle), math.cos(angle)
        across, along = cos2 * sin_angle, cos1 * sin2 - sin1 * cos2 * cos_angle
        sin_arc = math.sqrt(across * across + along * along)
        if sin_arc == 0.0:
            return 0.0
        cos_arc = sin1 * sin2 + cos1 * cos2 * cos_angle
        arc = math.atan2(sin_arc, cos_arc)
        sin_azimuth = cos1 * cos2 * sin_angle / sin_arc
        cos_squared = 1 - sin_azimuth * sin_azimuth
        middle = cos_arc - 2 * sin1 * sin2 / cos_squared if cos_squared > 0.0 else 0.0
        c = _F / 16 * cos_squared * (4 + _F * (4 - 3 * cos_squared))
        step = middle + c * cos_arc * (-1 + 2 * middle * middle)
        before = angle
        angle = turn + (1 - c) * _F * sin_azimuth * (arc + c * sin_arc * step)
        if abs(angle - before) < _CLOSE:
            squared = cos_squared * (_A * _A - _B * _B) / (_B * _B)
            a = 1 + squared / 16384 * (4096 + squared * (-768 + squared * (320 - 175 * squared)))
            b = squared / 1024 * (256 + squared * (-128 + squared * (74 - 47 * squared)))
            twice = -1 + 2 * middle * middle
            last = b / 6 * middle * (-3 + 4 * sin_arc * sin_arc) * (-3 + 4 * middle * middle)
            delta = b * sin_arc * (middle + b / 4 * (cos_arc * twice - last))
            return _B * a * (arc - delta)
    return sphere_distance(lon1, lat1, lon2, lat2)


@jit
def sphere_distance(lon1: float, lat1: float, lon2: float, lat2: float) -> float:
    """Return the distance in metres between two positions along the mean sphere."""
    x1, y1, z1 = unit_vector(lon1, lat1)
    x2, y2, z2 = unit_vector(lon2, lat2)
    chord = math.sqrt((x1 - x2) ** 2 + (y1 - y2) ** 2 + (z1 - z2) ** 2)
    return 2 * RADIUS * math.asin(min(chord / 2, 1.0))


@jit
def segment_distance(
    ax: float, ay: float, az: float, bx: float, by: float, bz: float, x: float, y: float, z: float
) -> float:
    """Return the distance in metres from a point to a great-circle segment, as unit vectors."""
    nx, ny, nz = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
    length = math.sqrt(nx * nx + ny * ny + nz * nz)
    if length > 1e-15:
        nx, ny, nz = nx / length, ny / length, nz / length
        # The foot of the point lies between both ends if it is on the inner side of both.
        from_a = (ny * az - nz * ay) * x + (nz * ax - nx * az) * y + (nx * ay - ny * ax) * z
        to_b = (ny * bz - nz * by) * x + (nz * bx - nx * bz) * y + (nx * by - ny * bx) * z
        if from_a >= 0.0 >= to_b:
            return RADIUS * abs(math.asin(max(-1.0, min(1.0, nx * x + ny * y + nz * z))))
    first = math.sqrt((x - ax) ** 2 + (y - ay) ** 2 + (z - az) ** 2)
    second = math.sqrt((x - bx) ** 2 + (y - by) ** 2 + (z - bz) ** 2)
    return 2 * RADIUS * math.asin(min(min(first, second) / 2, 1.0))


def bounds_of_cap(longitude: float, latitude: float, distance: float) -> tuple[float, ...]:
    """Return the bounds of all positions within a distance: west, east, south, north.

    They are rounded outwards; west may be below -180, east above 180.
    """
    arc = math.degrees(min(distance / RADIUS, math.pi)) * (1 + 1e-12) + 1e-9
    south, north = latitude - arc, latitude + arc
    if south <= -90 or north >= 90:
        return -180.0, 180.0, max(south, -90.0), min(north, 90.0)
    share = math.sin(math.radians(arc)) / math.cos(math.radians(latitude))
    half = math.degrees(math.asin(min(share, 1.0))) * (1 + 1e-12) + 1e-9
    return longitude - half, longitude + half, south, north
