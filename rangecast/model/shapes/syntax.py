"""Syntax of calls: `within(position, circle(13.4, 52.5, 5 km))`, `distance(...) < 5 km`.

within(NAME, SHAPE)
distance(NAME, point(X, Y))                      compared with a length
SHAPE: circle(X, Y, LENGTH) | 'WKT or GeoJSON' | buffer('WKT or GeoJSON of a line', LENGTH)
LENGTH: a number, on the earth with a unit: m, km, mi, nmi, ft, yd
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from rangecast.errors import abbreviate
from rangecast.model.shapes.geometry import (
    Circle,
    Corridor,
    Lines,
    Polygons,
    Shape,
    ShapeError,
    number_text,
    read_geometry,
)

UNITS = {"m": 1.0, "km": 1000.0, "mi": 1609.344, "nmi": 1852.0, "ft": 0.3048, "yd": 0.9144}
CALLS = ("within", "distance")
_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[^\W\d]\w*|`[^`]*(?:``[^`]*)*`)
    |(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<text>'[^']*(?:''[^']*)*'|"[^"]*(?:""[^"]*)*")
    |(?P<mark>[(),]))""",
    re.VERBOSE,
)


class Length(NamedTuple):
    """Number with a unit; without one on a plane."""

    value: float
    unit: str
    at: int

    def on(self, *, earth: bool) -> float:
        """Return the length in metres, or unchanged on a plane."""
        if earth and not self.unit:
            raise ShapeError(
                "a length on the earth needs a unit",
                self.at,
                f"write {number_text(self.value)} m or {number_text(self.value)} km",
            )
        if self.unit and not earth:
            raise ShapeError("a length on a plane has no unit", self.at)
        if self.value < 0:
            raise ShapeError("a length must not be negative", self.at)
        return self.value * UNITS.get(self.unit, 1.0)


@dataclass(frozen=True, eq=False)
class Call:
    """Parsed call: its attribute, function and arguments."""

    function: str
    attribute: str
    x: float = 0.0
    y: float = 0.0
    length: Length | None = None
    geometry: Polygons | Lines | None = None
    geometry_at: int = 0

    def shape(self, length: Length | None, *, earth: bool) -> Shape:
        """Return the shape of the call; `length` is the one that a distance is compared with."""
        length_ = self.length or length
        if isinstance(self.geometry, Polygons):
            return self.geometry
        assert length_ is not None
        if isinstance(self.geometry, Lines):
            return Corridor(self.geometry, length_.on(earth=earth))
        return Circle(self.x, self.y, length_.on(earth=earth))


class _Reader:
    def __init__(self, text: str):
        self.text = text
        self.place = 0
        self.at = 0
        self.kind = ""
        self.word = ""
        self.next()

    def next(self) -> None:
        """Advance to the next token."""
        token = _TOKEN.match(self.text, self.place)
        if token is None:
            rest = self.text[self.place :].strip()
            self.at = len(self.text) - len(self.text[self.place :].lstrip())
            if rest:
                raise ShapeError(f"{abbreviate(rest)} can't be read", self.at)
            self.kind, self.word = "end", ""
            return
        self.kind = str(token.lastgroup)
        self.word = token[self.kind]
        self.at = token.start(self.kind)
        self.place = token.end()

    def take(self, kind: str, word: str = "", what: str = "") -> str:
        """Consume a token of this kind; return its text."""
        if self.kind != kind or (word and self.word != word):
            shown = f"'{self.word}'" if self.word else "the end of the text"
            raise ShapeError(f"expected {what or repr(word)}, found {shown}", self.at)
        taken = self.word
        self.next()
        return taken

    def number(self, what: str) -> float:
        return float(self.take("number", what=what)) + 0.0

    def length(self) -> Length:
        at = self.at
        value = self.number("a length such as 5 km")
        unit = ""
        if self.kind == "name":
            unit = self.word.lower()
            if unit not in UNITS:
                units = ", ".join(UNITS)
                raise ShapeError(f"unknown unit {self.word!r}", self.at, f"units: {units}")
            self.next()
        return Length(value, unit, at)

    def quoted(self) -> tuple[str, int]:
        at = self.at
        text = self.take("text", what="a shape such as 'POLYGON ((0 0, 1 0, 1 1, 0 0))'")
        return text[1:-1].replace(text[0] * 2, text[0]), at + 1


def read_length(text: str) -> Length:
    """Parse a length such as `5 km`."""
    reader = _Reader(text)
    length = reader.length()
    reader.take("end", what="the end of the length")
    return length


def read_call(text: str) -> Call:
    """Parse a call; errors include the position in the text."""
    reader = _Reader(text)
    function = reader.take("name", what="within or distance").lower()
    reader.take("mark", "(")
    name = reader.take("name", what="the name of a location")
    name = name[1:-1].replace("``", "`") if name[0] == "`" else name
    reader.take("mark", ",")
    call = _distance(reader, name) if function == "distance" else _within(reader, name)
    reader.take("mark", ")")
    reader.take("end", what="the end of the call")
    return call


def _distance(reader: _Reader, name: str) -> Call:
    if reader.word.lower() != "point":
        raise ShapeError("a distance must be to a point(x, y)", reader.at)
    reader.next()
    reader.take("mark", "(")
    x = reader.number("a number")
    reader.take("mark", ",")
    y = reader.number("a number")
    reader.take("mark", ")")
    return Call("distance", name, x, y)


def _within(reader: _Reader, name: str) -> Call:
    at = reader.at
    if reader.kind == "text":
        geometry, at = _geometry(reader)
        if isinstance(geometry, Lines):
            raise ShapeError("a line has no inside", at, "use buffer('LINESTRING ...', 200 m)")
        return Call("within", name, geometry=geometry, geometry_at=at)
    shape = reader.take("name", what="circle(...), buffer(...) or a shape in quotes").lower()
    if shape not in ("circle", "buffer"):
        hint = "shapes: circle, buffer, 'POLYGON ...'"
        raise ShapeError(f"unknown shape {shape!r}", at, hint)
    reader.take("mark", "(")
    if shape == "circle":
        x = reader.number("a number")
        reader.take("mark", ",")
        y = reader.number("a number")
        reader.take("mark", ",")
        made = Call("within", name, x, y, reader.length())
    else:
        geometry, at = _geometry(reader)
        if isinstance(geometry, Polygons):
            raise ShapeError("buffer takes a line", at)
        reader.take("mark", ",")
        made = Call("within", name, length=reader.length(), geometry=geometry, geometry_at=at)
    reader.take("mark", ")")
    return made


def _geometry(reader: _Reader) -> tuple[Polygons | Lines, int]:
    text, at = reader.quoted()
    try:
        return read_geometry(text), at
    except ShapeError as error:
        position = at if error.at is None else at + error.at
        raise ShapeError(error.reason, position, error.hint) from None


def shape_text(shape: Shape, *, earth: bool) -> str:
    """Format a shape as an argument of `within`."""
    unit = " m" if earth else ""
    if isinstance(shape, Polygons):
        return f"'{shape.text}'"
    if isinstance(shape, Circle):
        center = f"{number_text(shape.x)}, {number_text(shape.y)}"
        return f"circle({center}, {number_text(shape.radius)}{unit})"
    return f"buffer('{shape.along.text}', {number_text(shape.width)}{unit})"
