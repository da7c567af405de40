"""Distances of points from the borders of shapes, as `why` and `why_not` report them."""

from __future__ import annotations

import math

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.model.shapes.earth import unit_vectors
from rangecast.model.shapes.exact.sphere import (
    ellipsoid_distance,
    segment_distance,
    sphere_distance,
    unit_vector,
)
from rangecast.model.shapes.geometry import Circle, Corridor
from rangecast.model.shapes.verification.programs import (
    ELLIPSOID_CIRCLE,
    PLANE_CIRCLE,
    PLANE_CORRIDOR,
    PLANE_POLYGON,
    Literal,
)


def distance_to_border(literal: Literal, x: float, y: float) -> float:
    """Return the distance of a point from the border of a shape, in metres on the earth."""
    shape, earth = literal.shape, literal.kind not in (PLANE_POLYGON, PLANE_CIRCLE, PLANE_CORRIDOR)
    assert not isinstance(shape, np.ndarray)
    if isinstance(shape, Circle):
        if not earth:
            return abs(math.hypot(x - shape.x, y - shape.y) - shape.radius)
        measure = ellipsoid_distance if literal.kind == ELLIPSOID_CIRCLE else sphere_distance
        return abs(float(measure(shape.x, shape.y, x, y)) - shape.radius)
    lines = shape.along.lines if isinstance(shape, Corridor) else sum(shape.polygons, ())
    least = min(_distance_to_line(line, x, y, earth) for line in lines)
    return abs(least - shape.width) if isinstance(shape, Corridor) else least


def _distance_to_line(line: F64, x: float, y: float, earth: bool) -> float:
    if earth:
        px, py, pz = unit_vector(x, y)
        ends = unit_vectors(line)
        pairs = np.column_stack([ends[:-1], ends[1:]]).tolist()
        return min(
            float(segment_distance(ax, ay, az, bx, by, bz, px, py, pz))
            for ax, ay, az, bx, by, bz in pairs
        )
    start, step = line[:-1], np.diff(line, axis=0)
    length = (step**2).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        along = ((x - start[:, 0]) * step[:, 0] + (y - start[:, 1]) * step[:, 1]) / length
    along = np.clip(np.nan_to_num(along), 0, 1)
    foot = start + along[:, None] * step
    return float(np.hypot(x - foot[:, 0], y - foot[:, 1]).min())
