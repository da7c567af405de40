"""Shapes as plain data: polygons, circles and corridors, with WKT and GeoJSON conversion.

Corners are arrays (n, 2) of x and y, or of longitude and latitude. A ring ends where it starts.
Z and M coordinates are dropped. Rings may have either orientation.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from rangecast.errors import abbreviate
from rangecast.kernels.arrays import F64
from rangecast.model.shapes.exact.predicates import MAX_COORDINATE, MIN_COORDINATE
from rangecast.model.shapes.exact.rings import crossing

MAX_CORNERS = 100_000
"""Corners of one shape."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TOKEN = re.compile(rf"\s*(?:([A-Za-z]+)|({_NUMBER.pattern})|([(),]))")
_ONE_RING = re.compile(r"\s*(?i:polygon)\s*\(\s*\(([0-9+\-.eE,\s]*)\)\s*\)\s*")
_KINDS = ("polygon", "multipolygon", "linestring", "multilinestring")
_DEPTHS = {"linestring": 1, "polygon": 2, "multilinestring": 2, "multipolygon": 3}
_MAX_DEPTH = 8
_AREA_ERROR = 1e-15
"""More than the rounding of a term of an area, of differences with few digits lost."""


class ShapeError(ValueError):
    """Error for an invalid shape: the reason, the position in its text, and a hint."""

    def __init__(self, reason: str, at: int | None = None, hint: str = ""):
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.hint = hint


@dataclass(frozen=True, eq=False)
class Polygons:
    """One polygon or several: for each, its outer ring and its holes."""

    polygons: tuple[tuple[F64, ...], ...]
    source: str = ""
    """The WKT that it was read from, if it was."""

    @property
    def text(self) -> str:
        """Return the polygons as WKT."""
        if self.source:
            return self.source
        parts = [f"({', '.join(map(_ring_text, rings))})" for rings in self.polygons]
        if len(parts) == 1:
            return f"POLYGON {parts[0]}"
        return f"MULTIPOLYGON ({', '.join(parts)})"


@dataclass(frozen=True)
class Circle:
    """All points within a radius of a centre; the radius is in metres on the earth."""

    x: float
    y: float
    radius: float


@dataclass(frozen=True, eq=False)
class Lines:
    """Polylines, the axes of corridors."""

    lines: tuple[F64, ...]

    @property
    def text(self) -> str:
        """Return the lines as WKT."""
        parts = [_ring_text(line) for line in self.lines]
        if len(parts) == 1:
            return f"LINESTRING {parts[0]}"
        return f"MULTILINESTRING ({', '.join(parts)})"


@dataclass(frozen=True, eq=False)
class Corridor:
    """All points within a distance of a line; the width is in metres on the earth."""

    along: Lines
    width: float


Shape = Polygons | Circle | Corridor


def read_geometry(text: str) -> Polygons | Lines:
    """Parse the polygons or lines of a WKT or GeoJSON text."""
    if text.lstrip()[:1] in "{[":
        return _from_geojson(text)
    return _from_wkt(text)


def _from_wkt(text: str) -> Polygons | Lines:
    _check_corners(text.count(",") + 1)  # before any of them is read
    simple = _ONE_RING.fullmatch(text)
    if simple is not None:  # most polygons
        corners = [corner.split() for corner in simple[1].split(",")]
        are_numbers = all(_NUMBER.fullmatch(number) for corner in corners for number in corner)
        is_flat = are_numbers and all(len(corner) == 2 for corner in corners)
        if is_flat:
            ring = _ring([(float(x), float(y)) for x, y in corners])
            return Polygons(((ring,),), " ".join(text.split()))
    token = _TOKEN.match(text)
    kind = token[1].lower() if token and token[1] else ""
    if kind not in _KINDS:
        raise ShapeError(
            f"{abbreviate(text)} is not a shape",
            0,
            "give WKT such as 'POLYGON ((0 0, 10 0, 10 10, 0 0))', or GeoJSON",
        )
    assert token
    return _shape(kind, *_nested(text, token.end(), _DEPTHS[kind]))


def _nested(text: str, index: int, depth: int) -> tuple[Any, int]:
    """Parse nested lists of coordinates; return them with the number of coordinates per corner."""
    stack: list[list[Any]] = []
    root: list[Any] | None = None
    corner: list[float] = []
    size = 0

    def close_corner(at: int) -> None:
        nonlocal size
        if not corner:
            return
        if not 2 <= len(corner) <= 4 or len(stack) != depth:
            raise ShapeError("a corner must have two numbers, x and y", at)
        size = size or len(corner)
        if len(corner) != size:
            raise ShapeError("all corners must have the same number of coordinates", at)
        stack[-1].append((corner[0], corner[1]))
        corner.clear()

    while index < len(text):
        token = _TOKEN.match(text, index)
        if token is None:
            if text[index:].strip():
                raise ShapeError(f"{abbreviate(text[index:].strip())} can't be read", index)
            break
        word, number, mark = token.groups()
        at = token.end() - len(token[0].lstrip())
        if root is not None and not stack:
            raise ShapeError(f"unexpected text after the shape: {abbreviate(text[at:])}", at)
        if word:
            if word.lower() == "empty":
                raise ShapeError("the shape is empty", at)
            if word.lower() not in ("z", "m", "zm") or stack:
                raise ShapeError(f"the word {abbreviate(word)} has no meaning here", at)
        elif number:
            corner.append(float(number))
        elif mark == "(":
            opened: list[Any] = []
            if stack:
                stack[-1].append(opened)
            else:
                root = opened
            stack.append(opened)
            if len(stack) > depth:
                raise ShapeError("there are more parentheses than this shape type allows", at)
        else:
            close_corner(at)
            if mark == ")":
                if not stack:
                    raise ShapeError("unmatched closing parenthesis", at)
                stack.pop()
        index = token.end()
    if root is None or stack:
        raise ShapeError("unclosed parenthesis", len(text))
    return root, size


def _from_geojson(text: str) -> Polygons | Lines:
    try:
        geometry = json.loads(text)
    except (ValueError, RecursionError) as error:
        at = error.pos if isinstance(error, json.JSONDecodeError) else None
        raise ShapeError(f"not GeoJSON: {abbreviate(str(error))}", at) from None
    return from_geojson(geometry)


def from_geojson(geometry: Any) -> Polygons | Lines:
    """Return the polygons or lines of a GeoJSON geometry, or of a feature that has one."""
    for _ in range(_MAX_DEPTH):
        if isinstance(geometry, dict) and geometry.get("type") == "Feature":
            geometry = geometry.get("geometry")
    kind = str(geometry.get("type")).lower() if isinstance(geometry, dict) else ""
    if kind not in _KINDS:
        shown = geometry.get("type") if isinstance(geometry, dict) else geometry
        raise ShapeError(
            "GeoJSON must be a Polygon, a MultiPolygon, a LineString or a MultiLineString"
            f"; given: {abbreviate(shown)}"
        )
    nested = _as_corners(geometry.get("coordinates"), _DEPTHS[kind])
    return _shape(kind, nested, 2)


def _as_corners(value: Any, depth: int) -> list[Any]:
    if not isinstance(value, list):
        raise ShapeError(f"coordinates must be nested lists of numbers; given: {abbreviate(value)}")
    if depth > 1:
        return [_as_corners(part, depth - 1) for part in value]
    corners = []
    for corner in value:
        if not isinstance(corner, list) or len(corner) < 2 or not all(map(_is_number, corner)):
            raise ShapeError(f"a corner must be a list of two numbers; given: {abbreviate(corner)}")
        corners.append((float(corner[0]), float(corner[1])))
    return corners


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shape(kind: str, nested: Any, _size: int) -> Polygons | Lines:
    if kind == "polygon" or kind == "linestring":
        nested = [nested]
    corners = sum(map(len, nested)) if "line" in kind else sum(len(r) for p in nested for r in p)
    _check_corners(corners)
    if "line" in kind:
        return Lines(tuple(_line(part) for part in nested))
    if not nested:
        raise ShapeError("the shape is empty")
    return Polygons(tuple(_polygon(part) for part in nested))


def _check_corners(count: int) -> None:
    if count > MAX_CORNERS:
        raise ShapeError(
            f"a shape has at most {MAX_CORNERS:,} corners; given: {count:,}",
            hint="simplify it, or cut it into several shapes joined by or",
        )


def _polygon(rings: list[Any]) -> tuple[F64, ...]:
    if not rings:
        raise ShapeError("a polygon must have at least one ring")
    return tuple(_ring(corners) for corners in rings)


def _array(corners: Iterable[Any]) -> F64:
    made: F64 = np.array(list(corners), np.float64).reshape(-1, 2) + 0.0
    size = np.abs(made)
    bad = ~((size <= MAX_COORDINATE) & ((size >= MIN_COORDINATE) | (size == 0)))
    if bad.any():
        worst = float(made[bad][0])
        raise ShapeError(
            f"coordinates must be 0 or have a magnitude from {MIN_COORDINATE:g} to "
            f"{MAX_COORDINATE:g}; given: {worst!r}"
        )
    made.flags.writeable = False
    return made


def _line(corners: list[Any]) -> F64:
    made = _array(corners)
    if len(made) < 2:
        raise ShapeError("a line must have at least two corners")
    return made


def _ring(corners: list[Any]) -> F64:
    made = _array(corners)
    if len(made) < 4:
        raise ShapeError(
            "a ring must have at least three corners, and repeat the first one at its end"
        )
    if not np.array_equal(made[0], made[-1]):
        first, last = (tuple(corner) for corner in (made[0].tolist(), made[-1].tolist()))
        raise ShapeError(
            f"a ring must end where it begins; given: {first} and {last}",
            hint="repeat the first corner at the end",
        )
    moved = np.concatenate([[True], (made[1:] != made[:-1]).any(axis=1)])
    if not moved.all():
        made = np.ascontiguousarray(made[moved])
        made.flags.writeable = False
    if len(made) < 4:
        raise ShapeError("a ring must enclose an area: its corners are all the same or on one line")
    return made


def check_rings(polygons: Polygons) -> None:
    """Reject polygons whose edges cross or overlap."""
    for rings in polygons.polygons:
        corners = np.concatenate(rings)
        ends = np.cumsum([len(ring) for ring in rings])
        edges = crossing(corners[:, 0].copy(), corners[:, 1].copy(), ends.astype(np.int64))
        if edges[0] >= 0:
            first, other = (corners[i : i + 2].tolist() for i in edges)
            raise ShapeError(
                f"edges of a polygon cross or overlap: {_edge(first)} and {_edge(other)}",
                hint="cut it into polygons that don't cross themselves",
            )


def winds_left(ring: F64) -> bool:
    """Return whether the inside of a ring is on its left: it winds counterclockwise."""
    x, y = (ring - ring[0]).T
    forth, back = x[:-1] * y[1:], x[1:] * y[:-1]
    area = float(forth.sum() - back.sum())
    if abs(area) > _AREA_ERROR * len(ring) * float(np.abs(forth).sum() + np.abs(back).sum()):
        return area > 0
    corners = [(Fraction(x), Fraction(y)) for x, y in ring.tolist()]
    return sum(a * d - c * b for (a, b), (c, d) in pairwise(corners)) > 0


def _edge(corners: list[list[float]]) -> str:
    return " to ".join(f"({number_text(x)} {number_text(y)})" for x, y in corners)


def number_text(value: float) -> str:
    """Format a number for the text of a shape."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(float(value))


def _ring_text(ring: F64) -> str:
    corners = (f"{number_text(x)} {number_text(y)}" for x, y in ring.tolist())
    return f"({', '.join(corners)})"
