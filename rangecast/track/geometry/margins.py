"""Margins: widen the filter of a subscription for objects that are inside.

Ranges of numbers, circles and corridors grow. A polygon, or the outside of one, gets a corridor
along its border.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rangecast.errors import UsageError, abbreviate
from rangecast.kernels.arrays import F64
from rangecast.model.attributes.base import Integer, Number
from rangecast.model.attributes.numbers import MAX
from rangecast.model.attributes.places import Place
from rangecast.model.filters.compile import ANY_BOXES
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.formatting import text_of
from rangecast.model.filters.lexer import name_text
from rangecast.model.filters.regions import Box
from rangecast.model.shapes.exact.sphere import BAND, bounds_of_cap
from rangecast.model.shapes.geometry import (
    MAX_CORNERS,
    Circle,
    Corridor,
    Lines,
    Polygons,
    Shape,
    ShapeError,
    number_text,
)
from rangecast.model.shapes.syntax import read_length, shape_text
from rangecast.model.shapes.verification.programs import STRAIGHT_POLYGON
from rangecast.model.shapes.words import MAX_RADIUS, ShapeLiteral
from rangecast.model.space import Space
from rangecast.track.geometry.forms import plain_boxes

_EDGE = 0.01
"""Degrees of an edge that is straight in degrees, up to which it is a great circle to 3 cm."""

Margin = float | str
"""By how much a range or a shape is wider: a number, or on the earth a length such as "20 m"."""


def margin_of(space: Space, name: str, margin: Margin) -> float:
    """Return a margin as a number, in metres if the attribute is a location."""
    attribute = space.attributes[space.axis(name)]
    expected = "a positive number"
    if isinstance(attribute, Place) and attribute.earth:
        expected = "a length such as '20 m'"
        if isinstance(margin, str):
            try:
                length = read_length(margin).on(earth=True)
                if 0 < length < MAX_RADIUS:
                    return length
            except ShapeError:
                pass
    elif isinstance(attribute, Number | Integer | Place):
        if isinstance(margin, int | float) and not isinstance(margin, bool) and 0 < margin <= MAX:
            return float(margin)
    else:
        raise UsageError(
            f"margin is only for numbers and places; {name!r} is a {attribute.type}\n"
            "  hint: give a separate exit condition with until"
        )
    raise UsageError(f"margin of {name!r} must be {expected}; given: {abbreviate(margin)}")


def widened(space: Space, boxes: Sequence[Box], margins: Mapping[str, Margin]) -> Filter:
    """Return the filter of these boxes, widened by margins."""
    sizes = {name: margin_of(space, name, margin) for name, margin in margins.items()}
    made = Filter(space, tuple(boxes))
    places = {name for name in sizes if isinstance(space.attributes[space.axis(name)], Place)}
    if places:
        wider = [_coordinates(space, box, sizes) for box in plain_boxes(space, boxes)]
        text = text_of(
            space, wider, lambda place, literal: _literal(place, literal, sizes.get(place.name))
        )
        made = Filter.parse(text, space, max_boxes=ANY_BOXES)
    if len(places) == len(sizes):
        return made
    lo, hi = made.arrays()
    for name in sizes.keys() - places:
        axis = space.axis(name)
        known = np.isfinite(lo[:, axis])  # a side without a bound has none to move
        lo[known, axis] -= sizes[name]
        known = np.isfinite(hi[:, axis])
        hi[known, axis] += sizes[name]
    return Filter.from_boxes(space, lo, hi)


def _coordinates(space: Space, box: Box, sizes: Mapping[str, float]) -> Box:
    """Return a box with its ranges of place coordinates, if any, widened."""
    bounds = {axis: (lo, hi) for axis, lo, hi in box}
    for name, size in sizes.items():
        place = space.attributes[space.axis(name)]
        if not isinstance(place, Place):
            continue
        x, y = (space.axis(coordinate.name) for coordinate in place.coordinates)
        dx = dy = size
        if place.earth:
            low, high = bounds.get(y, (-90.0, 90.0))
            farthest = max(abs(low), abs(high)) if high < np.inf else 0.0
            west, east, south, north = bounds_of_cap(0.0, min(farthest, 90.0), size * (1 + BAND))
            dx, dy = (east - west) / 2, (north - south) / 2
        for axis, step in ((x, dx), (y, dy)):
            lo, hi = bounds.get(axis, (-np.inf, np.inf))
            inside = space.attributes[axis].clip(lo - step, hi + step)
            if axis in bounds and hi < np.inf and inside is not None:
                bounds[axis] = inside
    return tuple((axis, *bounds[axis]) for axis in sorted(bounds))


def _literal(place: Place, literal: ShapeLiteral, margin: float | None) -> str:
    """Return the text of a literal, widened by a margin."""
    if margin is None:
        return literal.text
    name, shape = name_text(place.name), literal.shape
    if isinstance(shape, Polygons):
        border = shape_text(Corridor(_border(literal.kind, shape), margin), earth=place.earth)
        return f"({literal.text} or within({name}, {border}))"
    size = shape.radius if isinstance(shape, Circle) else shape.width
    size += -margin if literal.negated else margin
    if size <= 0:
        return _any_position(place)
    wider = _sized(shape, min(size, MAX_RADIUS) if place.earth else size)
    if literal.text.startswith("distance("):
        head, sign, _ = literal.text.rsplit(" ", 2) if not place.earth else _parts(literal.text)
        unit = " m" if place.earth else ""
        return f"{head} {sign} {number_text(size)}{unit}"
    text = f"within({name}, {shape_text(wider, earth=place.earth)})"
    return f"not {text}" if literal.negated else text


def _parts(text: str) -> tuple[str, str, str]:
    """Split a distance condition into expression, operator and length without its unit."""
    head, sign, length, _ = text.rsplit(" ", 3)
    return head, sign, length


def _sized(shape: Shape, size: float) -> Circle | Corridor:
    if isinstance(shape, Circle):
        return Circle(shape.x, shape.y, size)
    assert isinstance(shape, Corridor)
    return Corridor(shape.along, size)


def _any_position(place: Place) -> str:
    """Return the filter that matches all events with a position."""
    x, y = (name_text(coordinate.name) for coordinate in place.coordinates)
    return f"({x} is not null and {y} is not null)"


def _border(kind: int, shape: Polygons) -> Lines:
    """Return the rings of a polygon as lines; edges straight in degrees are subdivided."""
    rings = [ring for rings in shape.polygons for ring in rings]
    if kind != STRAIGHT_POLYGON:
        return Lines(tuple(rings))
    longest = [np.abs(np.diff(ring, axis=0)).max(axis=1) for ring in rings]
    total = sum(float(np.ceil(length / _EDGE).sum()) for length in longest)
    step = _EDGE * max(1.0, 1.1 * total / MAX_CORNERS)
    return Lines(
        tuple(_cut(ring, length, step) for ring, length in zip(rings, longest, strict=True))
    )


def _cut(ring: F64, lengths: F64, step: float) -> F64:
    parts = [
        np.linspace(begin, end, max(1, math.ceil(length / step)), endpoint=False)
        for begin, end, length in zip(ring[:-1], ring[1:], lengths.tolist(), strict=True)
    ]
    return np.concatenate([*parts, ring[-1:]])
