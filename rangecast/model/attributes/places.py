"""Attributes with spatial conditions: a location on the earth, a point on a plane.

Such an attribute has three axes. Two are numbers: the coordinates of events. The third is the
attribute itself: its vocabulary holds the filters' conjunctions of shapes, numbered like the words
of a string, and events have no value there. An index sees only the boxes that cover the shapes;
the shapes are verified on the candidates (`rangecast.model.shapes`).

A conjunction is one or more literals joined by `and`, such as `not within(position, circle(...))`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from rangecast.errors import InvalidValueError, SpaceError
from rangecast.model.attributes.base import MISSING, Interval, Number
from rangecast.model.attributes.residuals import Residual

_AND = re.compile(r" and (?=(?:not )?(?:within|distance)\()")
_EDGES = ("straight", "geodesic")
_EARTHS = ("wgs84", "sphere")
_BORDERS = ("closed", "open", "once")


class Place(Residual):
    """Attribute with spatial conditions."""

    earth: ClassVar[bool]

    def __init__(
        self, name: str, axes: tuple[Number, Number], border: str, vocabulary: Sequence[str]
    ):
        super().__init__(name, vocabulary)
        if border not in _BORDERS:
            raise _not_one_of(name, "border", border, _BORDERS)
        self.coordinates: tuple[Number, Number] = axes
        """The two numbers that events have."""
        self.border = border
        """A point on the border is inside ("closed"), outside, or in one neighbour ("once")."""

    def coordinate(self, value: Any) -> float:
        if value is None:
            return MISSING
        x, y = (axis.name for axis in self.coordinates)
        raise self._reject(value, f"is a {self.type}: an event has it as {x!r} and {y!r}")

    def equal(self, value: Any) -> Interval | None:
        raise InvalidValueError(
            f"{self.name!r} is a {self.type}: use within({self.name}, ...) or "
            f"distance({self.name}, point(x, y)) < ..."
        )

    def literals_in(self, word: str) -> list[str]:
        return _AND.split(word)

    def columns_named(self, x: str, y: str) -> dict[str, str]:
        """Return the options of a definition that reads its coordinates from these columns."""
        keys = ("longitude", "latitude") if self.earth else ("x", "y")
        return dict(zip(keys, (x, y), strict=True))


class Location(Place):
    """Location on the earth, by longitude and latitude in degrees.

    edges    "straight" in degrees, as in GeoJSON, or "geodesic": along great circles
    earth    model for circles and distances: "wgs84", or the mean "sphere"
    border   whether a point on the border of a shape is inside ("closed"), outside ("open"), or in
             exactly one of the polygons that share it ("once")
    """

    type = "location"
    earth = True

    def __init__(
        self,
        name: str,
        *,
        longitude: str = "longitude",
        latitude: str = "latitude",
        edges: str = "straight",
        earth: str = "wgs84",
        border: str = "closed",
        vocabulary: Sequence[str] = (),
    ):
        axes = (
            _axis(name, "longitude", longitude, 180.0),
            _axis(name, "latitude", latitude, 90.0),
        )
        super().__init__(name, axes, border, vocabulary)
        if edges not in _EDGES:
            raise _not_one_of(name, "edges", edges, _EDGES)
        if earth not in _EARTHS:
            raise _not_one_of(name, "earth", earth, _EARTHS)
        self.edges, self.model = edges, earth
        self._columns = longitude, latitude

    def definition(self) -> dict[str, Any]:
        longitude, latitude = self._columns
        columns = {"longitude": longitude, "latitude": latitude, "edges": self.edges}
        return super().definition() | columns | {"earth": self.model, "border": self.border}


class Point(Place):
    """Point on a plane, by x and y; `border` works as for `Location`."""

    type = "point"
    earth = False

    def __init__(
        self,
        name: str,
        *,
        x: str = "x",
        y: str = "y",
        border: str = "closed",
        vocabulary: Sequence[str] = (),
    ):
        axes = _axis(name, "x", x, None), _axis(name, "y", y, None)
        super().__init__(name, axes, border, vocabulary)
        self._columns = x, y

    def definition(self) -> dict[str, Any]:
        x, y = self._columns
        return super().definition() | {"x": x, "y": y, "border": self.border}


def _axis(name: str, which: str, column: str, limit: float | None) -> Number:
    """Return the attribute of one coordinate: a column, or a path such as `$.position.lon`."""
    if not isinstance(column, str):
        raise SpaceError(
            f"attribute {name!r}: {which} must be the name of a column; given: {column!r}"
        )
    low, high = (None, None) if limit is None else (-limit, limit)
    if column.startswith("$"):
        return Number(f"{name}_{which}", min=low, max=high, source=column)
    return Number(column, min=low, max=high)


def _not_one_of(name: str, option: str, value: Any, choices: tuple[str, ...]) -> SpaceError:
    listed = ", ".join(repr(choice) for choice in choices)
    return SpaceError(f"attribute {name!r}: {option} is one of {listed}; given: {value!r}")
