"""Accuracy: whether an event known only to a radius is clearly inside or outside a filter.

An event is *unsure* of a subscription if the filter matches some positions within the radius, but
not all.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from rangecast.errors import UsageError, abbreviate
from rangecast.kernels.arrays import F64, I64
from rangecast.model.attributes.base import Integer, Number
from rangecast.model.attributes.places import Place
from rangecast.model.shapes.distances import distance_to_border
from rangecast.model.shapes.exact.sphere import BAND, bounds_of_cap
from rangecast.model.shapes.verification.places import places_of, words_hold
from rangecast.model.space import Space
from rangecast.track.geometry.extents import Extents
from rangecast.track.geometry.forms import Alternative, ShapeConjunction, Term

Given = str | Mapping[str, str]
"""A column of events; or attribute -> column, where the attribute isn't the only place."""


class Accuracy:
    """Accuracy of one attribute of events: metres for a location, units for a point or number."""

    def __init__(self, space: Space, accuracy: Given):
        places = [located.name for located in space if isinstance(located, Place)]
        if isinstance(accuracy, str):
            if len(places) != 1:
                raise UsageError(
                    f"accuracy belongs to one attribute, but the space has {len(places)} places\n"
                    "  hint: name it: accuracy={'position': 'accuracy'}"
                )
            accuracy = {places[0]: accuracy}
        if not isinstance(accuracy, Mapping) or len(accuracy) != 1:
            raise UsageError(
                "accuracy must be a column, or an attribute and its column; "
                f"given: {abbreviate(accuracy)}"
            )
        ((name, self.column),) = accuracy.items()
        self.name = name
        self._space = space
        attribute = space.attributes[space.axis(name)]
        if not isinstance(attribute, Place | Number | Integer):
            raise UsageError(
                f"accuracy is only for numbers and places; {name!r} is a {attribute.type}"
            )
        self._earth = isinstance(attribute, Place) and attribute.earth
        coordinates = attribute.coordinates if isinstance(attribute, Place) else (attribute,)
        self._axes = [space.axis(located.name) for located in coordinates]
        self._place = space.axis(name) if isinstance(attribute, Place) else -1

    def definition(self) -> dict[str, str]:
        """Return the accuracy as plain data."""
        return {self.name: self.column}

    def radii(self, column: pa.Array) -> F64:
        """Return the accuracy of events; an event without one is exact."""
        try:
            radii: F64 = column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
            return np.nan_to_num(radii)
        except pa.ArrowInvalid:
            raise UsageError(f"{self.column!r} must be numeric; given: {column.type}") from None

    def unsure(self, extents: Extents, points: F64, radii: F64) -> tuple[I64, I64]:
        """Return the pairs of an event and a subscription that it is unsure of."""
        rows = np.flatnonzero((radii > 0) & np.isfinite(points[:, self._axes]).all(axis=1))
        low, high = points[rows].copy(), points[rows].copy()
        for index, row in enumerate(rows.tolist()):
            sides = self._sides(points[row], float(radii[row]))
            low[index, self._axes], high[index, self._axes] = sides
        which, numbers = extents.meeting(low, high)
        unsure_ = []
        for index, number in dict.fromkeys(zip(which.tolist(), numbers.tolist(), strict=True)):
            row = int(rows[index])
            if self.is_unsure(extents.form(number), points[row], float(radii[row])):
                unsure_.append((row, number))
        pairs = np.array(unsure_, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def _sides(self, point: F64, radius: float) -> tuple[list[float], list[float]]:
        """Return the smallest and largest coordinates within a radius."""
        values = point[self._axes].tolist()
        if self._earth:
            x, y = values
            west, east, south, north = bounds_of_cap(x, y, radius * (1 + BAND))
            return [west, south], [east, north]
        return [value - radius for value in values], [value + radius for value in values]

    def is_unsure(self, form: list[Alternative], point: F64, radius: float) -> bool:
        """Return whether a filter matches some but not all positions within a radius."""
        if not radius > 0:
            return False
        low, high = self._sides(point, radius)
        sides = {axis: (low[at], high[at]) for at, axis in enumerate(self._axes)}
        parts = [self._part(alternative, point, sides, radius) for alternative in form]
        return any(possible for possible, _ in parts) and not any(sure for _, sure in parts)

    def _part(
        self,
        alternative: Alternative,
        point: F64,
        sides: Mapping[int, tuple[float, float]],
        radius: float,
    ) -> tuple[bool, bool]:
        """Return whether an alternative matches somewhere within the radius, and everywhere."""
        possible = sure = True
        for axis, lo, hi in [*alternative.moving, *alternative.fixed]:
            low, high = sides.get(axis, (point[axis], point[axis]))
            possible = possible and low <= hi and high >= lo
            sure = sure and lo <= low and high <= hi
        for shape in alternative.shapes:
            is_possible, every = self._in_shape(
                shape, point, radius if shape.axis == self._place else 0.0
            )
            possible, sure = possible and is_possible, sure and every
        for term in alternative.arithmetic:
            held = self._holds(term, point)
            possible, sure = possible and held, sure and held
        return possible, possible and sure

    def _holds(self, term: Term, point: F64) -> bool:
        places = places_of(self._space)
        assert places is not None
        return bool(words_hold(places, term[0], np.array([term[1]]), point)[0])

    def _in_shape(self, shape: ShapeConjunction, point: F64, radius: float) -> tuple[bool, bool]:
        if not radius:
            held = self._holds((shape.axis, shape.word, shape.word), point)
            return held, held
        possible = sure = True
        place = self._space.attributes[shape.axis]
        assert isinstance(place, Place)
        x, y = float(point[shape.x]), float(point[shape.y])
        for literal in shape.literals:
            number = place.number(literal.text)
            held = self._holds((shape.axis, number, number), point)
            is_near = distance_to_border(literal.literal(shape.x, shape.y), x, y) <= radius
            possible, sure = possible and (held or is_near), sure and held and not is_near
        return possible, sure
