"""Shapes inside of shapes: what is decided is what shapely and rational numbers say."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
import shapely

from rangecast import FilterError, Location, Point, Space
from rangecast.model.filters.filter import Filter
from rangecast.model.shapes.containment import contains
from rangecast.model.shapes.words import literals_of


def literal(space: Space, text: str):
    """The one literal of a filter."""
    lo, _ = Filter.parse(text, space).arrays()
    axis = space.axis("place")
    place = space.attributes[axis]
    (found,) = literals_of(place, place.literal(lo[0, axis]))
    return found


def polygon(r: random.Random) -> shapely.Polygon:
    """A polygon of small whole numbers, often with a hole: borders are shared all the time."""
    while True:
        cx, cy, count = r.randint(2, 6), r.randint(2, 6), r.randint(3, 7)
        ring = []
        for corner in range(count):
            angle, size = 2 * math.pi * (corner + r.random() / 3) / count, r.choice([1, 2, 3, 4])
            ring.append((round(cx + size * math.cos(angle)), round(cy + size * math.sin(angle))))
        holes = []
        if r.random() < 0.4:
            x, y, side = r.randint(1, 7), r.randint(1, 7), r.choice([1, 2])
            holes = [[(x, y), (x + side, y), (x + side, y + side), (x, y + side)]]
        made = shapely.Polygon(ring, holes)
        if made.is_valid and made.area > 0:
            return made


def test_polygons_in_polygons():
    """Whole numbers: shapely's predicates are exact, and most pairs touch."""
    r = random.Random(1)
    seen = {True: 0, False: 0}
    for _ in range(250):
        space = Space([Point("place")])
        shapes = [polygon(r) for _ in range(4)]
        for made in (shapes[0].intersection(shapes[1]), shapes[2].union(shapes[3])):
            if made.geom_type == "Polygon" and made.area > 0:
                corners = shapely.get_coordinates(made)
                shapes += [made] if (corners == corners.round()).all() else []
        asked = []
        for shape in shapes:
            try:
                asked.append((shape, literal(space, f"within(place, '{shape.wkt}')")))
            except FilterError:  # a ring that touches itself
                continue
        for outer, one in asked:
            for inner, other in asked:
                expected = outer.covers(inner)
                assert contains(one, other) == expected, (outer.wkt, inner.wkt)
                seen[expected] += outer is not inner
    assert min(seen.values()) > 100


def test_a_shape_fills_a_hole_but_is_not_inside():
    space = Space([Point("place")])
    frame = "within(place, 'POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0), (3 3, 6 3, 6 6, 3 6, 3 3))')"
    filling = "within(place, 'POLYGON ((3 3, 6 3, 6 6, 3 6, 3 3))')"
    whole = "within(place, 'POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0))')"
    a, b, c = (literal(space, text) for text in (frame, filling, whole))
    found = {(x, y): contains(x, y) for x in (a, b, c) for y in (a, b, c) if x is not y}
    assert {pair for pair, holds in found.items() if holds} == {(c, a), (c, b)}


def test_one_bit_decides():
    space = Space([Point("place")])
    whole = literal(space, "within(place, 'POLYGON ((0 0, 0.9 0.3, 0.3 0.9, 0 0))')")
    x, y = 0.6, 0.6  # near the edge, where doubles can't be on it
    for _ in range(40):
        x = math.nextafter(x, 1.0)
        other = literal(
            space, f"within(place, 'POLYGON ((0.4 0.3, {x!r} {y!r}, 0.3 0.4, 0.4 0.3))')"
        )
        ax, ay, bx, by = map(Fraction, (0.9, 0.3, 0.3, 0.9))
        exact = (bx - ax) * (Fraction(y) - ay) - (by - ay) * (Fraction(x) - ax)
        assert contains(whole, other) == (exact >= 0)


def test_circles_on_a_plane():
    r = random.Random(3)
    space = Space([Point("place")])
    for _ in range(150):
        a, b = (
            (
                r.randint(0, 8),
                r.randint(0, 8),
                r.choice([1.0, 2.0, 5.0, 7.0, 0.1 * r.randint(1, 60)]),
            )
            for _ in range(2)
        )
        square = shapely.box(*sorted((r.randint(0, 4), r.randint(5, 9)))[:1] * 2, 9, 9)
        one, other = (
            literal(space, f"within(place, circle({x}, {y}, {s!r}))") for x, y, s in (a, b)
        )
        apart = (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2
        room = Fraction(a[2]) - Fraction(b[2])
        assert contains(one, other) == (room >= 0 and apart <= room**2)
        shape = literal(space, f"within(place, '{square.wkt}')")
        left, low, right, high = map(int, square.bounds)
        size = Fraction(b[2])
        inside = left <= b[0] - size and b[0] + size <= right
        inside &= low <= b[1] - size and b[1] + size <= high
        assert contains(shape, other) == inside
        corners = [(left, low), (right, low), (left, high), (right, high)]
        covered = all((x - a[0]) ** 2 + (y - a[1]) ** 2 <= Fraction(a[2]) ** 2 for x, y in corners)
        assert contains(one, shape) == covered


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("circle(13, 52, 5 km)", "circle(13, 52, 5 km)", True),
        ("circle(13, 52, 5 km)", "circle(13, 52, 4 km)", True),
        ("circle(13, 52, 4 km)", "circle(13, 52, 5 km)", False),
        ("circle(13, 52, 9 km)", "circle(13.01, 52, 5 km)", True),
        ("circle(13, 52, 9 km)", "circle(13.1, 52, 5 km)", False),
        ("buffer('LINESTRING (1 1, 2 2)', 5 km)", "buffer('LINESTRING (1 1, 2 2)', 4 km)", True),
        (
            "'POLYGON ((170 0, -170 0, -170 9, 170 9, 170 0))'",
            "'POLYGON ((-179 1, -175 1, -175 2, -179 1))'",
            True,
        ),
        (
            "'POLYGON ((170 0, -170 0, -170 9, 170 9, 170 0))'",
            "'POLYGON ((171 1, 175 1, 175 2, 171 1))'",
            True,
        ),
        (
            "'POLYGON ((170 0, -170 0, -170 9, 170 9, 170 0))'",
            "'POLYGON ((-171 1, -165 1, -165 2, -171 1))'",
            False,
        ),
        ("circle(13, 52, 900 km)", "'POLYGON ((13 52, 14 52, 14 53, 13 52))'", False),
    ],
)
def test_on_the_earth(outer, inner, expected):
    space = Space([Location("place")])
    a, b = (literal(space, f"within(place, {text})") for text in (outer, inner))
    assert contains(a, b) == expected
    c, d = (literal(space, f"not within(place, {text})") for text in (outer, inner))
    assert contains(d, c) == expected
    assert not contains(c, b)
