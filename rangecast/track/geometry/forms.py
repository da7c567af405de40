"""Forms of filters for paths and accuracy: alternatives of ranges and shapes.

The boxes of a subscription include the bounds that its shapes imply; its *form* has only the
shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rangecast.model.attributes.places import Place
from rangecast.model.attributes.residuals import Residual
from rangecast.model.filters.formatting import without_covers
from rangecast.model.filters.regions import Box, Product, sparse
from rangecast.model.shapes.words import ShapeLiteral, literals_of
from rangecast.model.space import Space

Term = tuple[int, float, float]
"""An axis and the range of its coordinates."""


class ShapeConjunction(NamedTuple):
    """A conjunction of shape literals on one place."""

    axis: int
    """Axis of the place."""
    x: int
    y: int
    word: float
    literals: list[ShapeLiteral]
    earth: bool


class Alternative(NamedTuple):
    """A conjunction of ranges and shapes."""

    moving: list[Term]
    """Terms of attributes with an order: numbers, integers, timestamps."""
    fixed: list[Term]
    """Terms of all other attributes."""
    shapes: list[ShapeConjunction]
    arithmetic: list[Term]


def plain_boxes(space: Space, boxes: Sequence[Box]) -> list[Box]:
    """Return boxes without the bounds that their shapes imply."""
    products: list[Product] = [tuple((axis, ((lo, hi),)) for axis, lo, hi in box) for box in boxes]
    return [*sparse(without_covers(space, products))]


def form_of(space: Space, boxes: Sequence[Box]) -> list[Alternative]:
    """Return the alternatives of a subscription with these boxes."""
    alternatives = []
    for box in plain_boxes(space, boxes):
        made = Alternative([], [], [], [])
        for axis, lo, hi in box:
            attribute = space.attributes[axis]
            if isinstance(attribute, Place):
                x, y = (space.axis(coordinate.name) for coordinate in attribute.coordinates)
                literals = literals_of(attribute, attribute.literal(lo))
                made.shapes.append(ShapeConjunction(axis, x, y, lo, literals, attribute.earth))
            elif isinstance(attribute, Residual):
                made.arithmetic.append((axis, lo, hi))
            else:
                is_moving = attribute.ordered and attribute.of is None
                (made.moving if is_moving else made.fixed).append((axis, lo, hi))
        alternatives.append(made)
    return alternatives
