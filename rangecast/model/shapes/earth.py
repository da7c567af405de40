"""Polygons and lines on the earth: longitude wrapping, poles, and geodesic edges.

Longitudes are unwrapped edge by edge: an edge goes the short way round, so one from 170 to -170
crosses the antimeridian. A ring in unwrapped longitudes is a ring on a plane, unless it goes round
a pole.
"""

from __future__ import annotations

import math

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.model.shapes.cover import Cell, wrapped
from rangecast.model.shapes.geometry import Lines, Polygons, ShapeError, number_text


def on_earth(shape: Polygons | Lines, *, geodesic: bool) -> Polygons | Lines:
    """Return a shape in degrees with unwrapped longitudes; reject invalid coordinates."""
    if isinstance(shape, Lines):
        return Lines(tuple(_shifted(_unwrapped(line)) for line in shape.lines))
    made = []
    for rings in shape.polygons:
        outer = _unwrapped(rings[0])
        _check_pole(outer, geodesic)
        outer = _shifted(outer)
        made.append((outer, *(_align_hole(outer, ring, geodesic) for ring in rings[1:])))
    return Polygons(tuple(made), shape.source)


def _check(corners: F64) -> None:
    longitude, latitude = np.abs(corners[:, 0]), np.abs(corners[:, 1])
    if (latitude > 90).any():
        x, y = corners[int(np.argmax(latitude > 90))].tolist()
        swapped = (longitude <= 90).all() and (latitude <= 180).all()
        raise ShapeError(
            f"latitudes must be between -90 and 90; given: ({number_text(x)} {number_text(y)})",
            hint="longitude comes first: are the coordinates swapped?" if swapped else "",
        )
    if (longitude > 360).any():
        x = float(corners[int(np.argmax(longitude > 360)), 0])
        raise ShapeError(f"longitudes must be between -180 and 180; given: {number_text(x)}")


def _unwrapped(corners: F64) -> F64:
    _check(corners)
    steps = np.diff(corners[:, 0])
    if (np.abs(steps) <= 180).all() or (np.abs(steps) == 360).any():
        # A whole turn in one edge is a frame around the map, given as on a plane.
        return corners
    short = steps - 360 * np.round(steps / 360)
    if (np.abs(short) == 180).any():
        raise ShapeError(
            "an edge of 180 degrees is ambiguous: it could run either way",
            hint="add a corner in between",
        )
    longitudes = corners[0, 0] + np.concatenate([[0.0], np.cumsum(short)])
    # Exactly the longitudes that were given, but for whole turns.
    turns = np.round((longitudes - corners[:, 0]) / 360)
    return np.column_stack([corners[:, 0] + 360 * turns, corners[:, 1]])


def _check_pole(ring: F64, geodesic: bool) -> None:
    if ring[0, 0] != ring[-1, 0] and not geodesic:
        raise ShapeError(
            "this ring goes round a pole, where straight edges in degrees have no inside",
            hint="end it at the pole and at the antimeridian, or use edges = 'geodesic'",
        )


def _shifted(corners: F64) -> F64:
    """Shift corners so that the least longitude is in [-180, 180)."""
    turns = math.floor((float(corners[:, 0].min()) + 180) / 360)
    moved = np.column_stack([corners[:, 0] - 360 * turns, corners[:, 1]]) + 0.0
    moved.flags.writeable = False
    return moved


def _align_hole(outer: F64, ring: F64, geodesic: bool) -> F64:
    """Shift the longitudes of a hole to those of its outer ring."""
    unwrapped = _unwrapped(ring)
    _check_pole(unwrapped, geodesic)
    low, high = float(outer[:, 0].min()), float(outer[:, 0].max())
    middle = (float(unwrapped[:, 0].min()) + float(unwrapped[:, 0].max())) / 2
    shifts = [shift for shift in (0.0, 360.0, -360.0) if low <= middle + shift <= high]
    moved = (
        np.column_stack([unwrapped[:, 0] + (shifts[0] if shifts else 0.0), unwrapped[:, 1]]) + 0.0
    )
    moved.flags.writeable = False
    return moved


def holds_north_pole(rings: tuple[F64, ...]) -> bool:
    """Return whether a polygon with geodesic edges contains the north pole.

    The inside of a ring round a pole is on its left, as in GeoJSON.
    """
    holds = False
    for ring in rings:
        turn = float(ring[-1, 0] - ring[0, 0])
        if turn:
            holds ^= turn > 0
    return holds


def cover_geodesic(shape: Polygons) -> list[Cell]:
    """Return the boxes that cover polygons with geodesic edges, which bulge towards the poles."""
    return [part for rings in shape.polygons for part in wrapped(_hull(rings))]


def _hull(rings: tuple[F64, ...]) -> Cell:
    outer = rings[0]
    (x0, y0), (x1, y1) = outer.min(axis=0).tolist(), outer.max(axis=0).tolist()
    if outer[0, 0] != outer[-1, 0]:
        north = float(outer[-1, 0] - outer[0, 0]) > 0
        low, high = (y0, 90.0) if north else (-90.0, y1)
        bulge = _bulge(outer)
        return Cell(-180.0, max(low - bulge, -90.0), 180.0, min(high + bulge, 90.0))
    bulge = _bulge(outer)
    slack = 1e-9
    return Cell(x0 - slack, max(y0 - bulge, -90.0), x1 + slack, min(y1 + bulge, 90.0))


def _bulge(ring: F64) -> float:
    """Return an upper bound, in degrees, of how far edges exceed the latitudes of their ends."""
    vectors = unit_vectors(ring)
    dots = np.clip((vectors[:-1] * vectors[1:]).sum(axis=1), -1, 1)
    longest = float(np.degrees(np.arccos(dots)).max())
    return min(longest / 2, 90.0) + 1e-9


def unit_vectors(corners: F64) -> F64:
    """Return the unit vectors of positions in degrees, (n, 3)."""
    turn, tilt = np.radians(corners[:, 0]), np.radians(corners[:, 1])
    level = np.cos(tilt)
    made: F64 = np.column_stack([level * np.cos(turn), level * np.sin(turn), np.sin(tilt)])
    return made
