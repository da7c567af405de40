"""Conjunctions of a place: the literals that a box requires, as text and as shapes.

A literal is `within(position, SHAPE)`, `not within(position, SHAPE)` or
`distance(position, point(X, Y)) < LENGTH` with any comparison. Literals are joined by ` and `.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64
from rangecast.model.attributes.places import Location, Place
from rangecast.model.filters.lexer import name_text
from rangecast.model.shapes.bulk import Rings
from rangecast.model.shapes.cover import Cell, cover_earth, cover_plane
from rangecast.model.shapes.distances import distance_to_border
from rangecast.model.shapes.earth import cover_geodesic, on_earth
from rangecast.model.shapes.exact.predicates import MAX_COORDINATE
from rangecast.model.shapes.geometry import (
    Circle,
    Corridor,
    Polygons,
    Shape,
    ShapeError,
    check_rings,
    number_text,
)
from rangecast.model.shapes.syntax import Call, Length, read_call, read_length, shape_text
from rangecast.model.shapes.verification.programs import (
    BORDERS,
    CLOSED,
    EARTH_CORRIDOR,
    ELLIPSOID_CIRCLE,
    GEODESIC_POLYGON,
    OPEN,
    PLANE_CIRCLE,
    PLANE_CORRIDOR,
    PLANE_POLYGON,
    SPHERE_CIRCLE,
    STRAIGHT_POLYGON,
    Literal,
)

_DISTANCE = re.compile(r"(distance\(.*\)) (<=?|>=?) (.*)", re.DOTALL)
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
MAX_RADIUS = 15_000_000.0
"""Metres; beyond, distances on the ellipsoid don't converge everywhere."""


class ShapeLiteral(NamedTuple):
    """Literal of a filter: its text, its shape and how it is verified."""

    text: str
    shape: Shape
    kind: int
    negated: bool
    border: int

    def literal(self, x_axis: int, y_axis: int) -> Literal:
        """Return the literal in the form of programs."""
        return Literal(self.kind, self.shape, self.negated, self.border, x_axis, y_axis)

    def cover(self) -> list[Cell]:
        """Return the boxes that cover its shape."""
        if self.kind == GEODESIC_POLYGON:
            assert isinstance(self.shape, Polygons)
            return cover_geodesic(self.shape)
        return cover_plane(self.shape) if self.kind in _PLANE else cover_earth(self.shape)


_PLANE = (PLANE_POLYGON, PLANE_CIRCLE, PLANE_CORRIDOR)


def shape_literal(
    place: Place, call: Call, sign: str = "", length: Length | None = None, *, negated: bool = False
) -> ShapeLiteral:
    """Return the literal of a call; a distance has a comparison and a length."""
    name, border = name_text(place.name), BORDERS[place.border]
    shape = _checked(place, call.shape(length, earth=place.earth), call.geometry_at)
    kind = _kind(place, shape)
    if not sign:
        text = f"within({name}, {shape_text(shape, earth=place.earth)})"
        return ShapeLiteral(f"not {text}" if negated else text, shape, kind, negated, border)
    assert isinstance(shape, Circle)
    sign = _OPPOSITE[sign] if negated else sign
    unit = " m" if place.earth else ""
    point = f"point({number_text(shape.x)}, {number_text(shape.y)})"
    text = f"distance({name}, {point}) {sign} {number_text(shape.radius)}{unit}"
    border = OPEN if sign in ("<", ">=") else CLOSED
    return ShapeLiteral(text, shape, kind, sign[0] == ">", border)


def _kind(place: Place, shape: Shape) -> int:
    if not isinstance(place, Location):
        if isinstance(shape, Polygons):
            return PLANE_POLYGON
        return PLANE_CIRCLE if isinstance(shape, Circle) else PLANE_CORRIDOR
    if isinstance(shape, Polygons):
        return GEODESIC_POLYGON if place.edges == "geodesic" else STRAIGHT_POLYGON
    if isinstance(shape, Circle):
        return ELLIPSOID_CIRCLE if place.model == "wgs84" else SPHERE_CIRCLE
    return EARTH_CORRIDOR


def _checked(place: Place, shape: Shape, at: int) -> Shape:
    """Return a shape normalized for its plane or the earth; reject invalid ones."""
    geodesic = isinstance(place, Location) and place.edges == "geodesic"
    try:
        if isinstance(shape, Polygons):
            if not place.earth:
                check_rings(shape)
                return shape
            problem = on_earth(shape, geodesic=geodesic)
            assert isinstance(problem, Polygons)
            if not geodesic:
                check_rings(problem)
            return problem
        size = shape.radius if isinstance(shape, Circle) else shape.width
        if size > (MAX_RADIUS if place.earth else MAX_COORDINATE):
            most = f"{MAX_RADIUS / 1000:,.0f} km" if place.earth else f"{MAX_COORDINATE:g}"
            raise ShapeError(f"a length may be at most {most}; given: {number_text(size)}")
        if isinstance(shape, Corridor):
            if not place.earth:
                return shape
            along = on_earth(shape.along, geodesic=True)
            assert not isinstance(along, Polygons)
            return Corridor(along, shape.width)
        if place.earth and not (abs(shape.y) <= 90 and abs(shape.x) <= 360):
            raise ShapeError(
                "a place must have a longitude from -180 to 180 and a latitude from -90 to 90; "
                f"given: {number_text(shape.x)}, {number_text(shape.y)}",
                hint="longitude comes first",
            )
        return shape
    except ShapeError as error:
        raise ShapeError(error.reason, at if error.at is None else error.at, error.hint) from None


def literal_of_ring(place: Place, text: str, rings: Rings, ring: int) -> ShapeLiteral:
    """Return the literal of a ring that was read in a batch."""
    wkt = text[text.index("'") + 1 : -2]
    shape = Polygons(((rings.corners(ring),),), wkt)
    return ShapeLiteral(text, shape, _kind(place, shape), False, BORDERS[place.border])


def _in_batches(place: Place, text: str) -> ShapeLiteral | None:
    """Return a literal that was read in a batch, if it was and its program isn't made yet."""
    number = place.codes.get(text) if place.batches else None
    if number is None:
        return None
    for numbers, rings in place.batches:
        if numbers[0] <= number <= numbers[-1]:  # new words have ascending numbers
            for ring in np.flatnonzero(numbers == number)[:1].tolist():
                return literal_of_ring(place, text, rings, ring)
    return None


def literals_of(place: Place, word: str) -> list[ShapeLiteral]:
    """Parse a conjunction into its literals."""
    literals = []
    for text in place.literals_in(word):
        known = place.read.get(text) or _in_batches(place, text)
        if known is not None:
            literals.append(known)
            continue
        compared = _DISTANCE.fullmatch(text)
        if compared:
            call, length = read_call(compared[1]), read_length(compared[3])
            literals.append(shape_literal(place, call, compared[2], length))
        else:
            negated = text.startswith("not ")
            call = read_call(text.removeprefix("not "))
            literals.append(shape_literal(place, call, negated=negated))
    return literals


def distance_text(literals: list[ShapeLiteral], axes: tuple[int, int], point: F64) -> str:
    """Describe the distance of a point from the border of each literal's shape."""
    x, y = float(point[axes[0]]), float(point[axes[1]])
    shown = []
    for literal in literals:
        apart = distance_to_border(literal.literal(*axes), x, y)
        shown.append(_length_text(apart, earth=literal.kind not in _PLANE))
    return ", ".join(f"{text} from the border" for text in shown)


def _length_text(length: float, *, earth: bool) -> str:
    if not earth:
        return f"{length:.6g}"
    return f"{length:,.0f} m" if length < 10_000 else f"{length / 1000:,.1f} km"
