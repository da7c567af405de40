"""Attribute types, and how each maps a value to one float64 coordinate.

Coordinates are only compared, never computed with. This module, `timestamps` and `text` define the
attribute types on single values; `encoding` does the same on whole Arrow columns, and a property
test compares the two.

    kind        coordinate                           order    grid
    number      the nearest double                   yes      every double
    integer     itself, if a double represents it    yes      the integers that a double represents
    timestamp   microseconds since 1970 in UTC       yes      as integer
    boolean     0 or 1                               no       0, 1
    category    index in the list of values          no       0 .. n-1
    string      index in the vocabulary, or OTHER    no       0 .. n-1, OTHER
    hierarchy   leaf number, depth first             no       0 .. n-1; a concept is a range

A bound is also a coordinate: `at_least(5)` is the least coordinate of the grid that is not below 5,
so no later code has to handle open bounds.
"""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar

from rangecast.errors import InvalidValueError, SpaceError, abbreviate
from rangecast.model.attributes.field_paths import path_of
from rangecast.model.attributes.numbers import MAX, double_at_least, double_at_most, read_number

MISSING = math.inf
"""The coordinate of a value that an event doesn't have."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

Interval = tuple[float, float]


class NanMeaning(StrEnum):
    """Values of the option `nan`: NaN in events is an error, or a missing value."""

    ERROR = "error"
    MISSING = "missing"


class Attribute:
    """Named axis of a space."""

    type: ClassVar[str]
    ordered: ClassVar[bool] = False
    """Whether `<`, `<=`, `between` and the like make sense."""
    of: str | None = None
    """The attribute whose column of events it reads; `None`: it has one of its own."""

    def __init__(self, name: str, *, source: str | None = None):
        if not isinstance(name, str) or not name.strip():
            raise SpaceError(
                f"the name of an attribute must be a non-empty string; given: {name!r}"
            )
        self.name = name
        self.source = source
        """Where an event has its value, such as `$.order.total`; `None`: under its name."""
        self.path = None if source is None else path_of(name, source)
        self.domain: Interval = (-MAX, MAX)

    def definition(self) -> dict[str, Any]:
        """Return the attribute as a TOML table."""
        source = {} if self.source is None else {"source": self.source}
        return {"name": self.name, "type": self.type} | source

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attribute) and self.definition() == other.definition()

    def __hash__(self) -> int:
        return hash((self.type, self.name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def coordinate(self, value: Any) -> float:
        """Return the coordinate of an event's value; `None` is `MISSING`."""
        raise NotImplementedError

    def value(self, coordinate: float) -> Any:
        """Return the value of a coordinate; the inverse of `coordinate`."""
        raise NotImplementedError

    def parse(self, text: str) -> Any:
        """Parse a cell of a CSV file."""
        return text

    def literal(self, coordinate: float) -> str:
        """Return a coordinate as a literal of the filter language."""
        return quoted(str(self.value(coordinate)))

    def equal(self, value: Any) -> Interval | None:
        """Return the range of `x = value` for a subscription, or `None` if it can never match."""
        coordinate = self.coordinate(value)
        return coordinate, coordinate

    def at_least(self, value: Any, *, strict: bool = False) -> float:
        """Return the lower bound of `x >= value`, or `x > value` if strict, before clipping."""
        raise InvalidValueError(self._unordered())

    def at_most(self, value: Any, *, strict: bool = False) -> float:
        """Return the upper bound of `x <= value`, or `x < value` if strict, before clipping."""
        raise InvalidValueError(self._unordered())

    def _unordered(self) -> str:
        return f"{self.name!r} is a {self.type}, which has no order: use =, !=, in or not in"

    def _reject(self, value: Any, why: str) -> InvalidValueError:
        return InvalidValueError(f"{self.name!r} {why}", abbreviate(value))

    def clip(self, lo: float, hi: float) -> Interval | None:
        """Clip a range to the domain; return `None` if nothing is left."""
        lo, hi = max(lo, self.domain[0]), min(hi, self.domain[1])
        return (lo, hi) if lo <= hi else None


class Ordered(Attribute):
    """Ordered attribute, with an optional `min` and `max`."""

    ordered = True

    def __init__(
        self,
        name: str,
        *,
        min: Any = None,  # noqa: A002
        max: Any = None,  # noqa: A002
        source: str | None = None,
    ):
        super().__init__(name, source=source)
        try:
            lo = -MAX if min is None else self.coordinate(min)
            hi = MAX if max is None else self.coordinate(max)
        except InvalidValueError as error:
            raise SpaceError(f"attribute {name!r}: min and max: {error}") from None
        if lo > hi:
            raise SpaceError(f"attribute {name!r}: min {min!r} is above max {max!r}")
        self.domain = lo, hi

    def definition(self) -> dict[str, Any]:
        ends = {"min": self.domain[0], "max": self.domain[1]}
        return super().definition() | {k: self.value(v) for k, v in ends.items() if abs(v) != MAX}

    def _in_domain(self, coordinate: float, value: Any) -> float:
        lo, hi = self.domain
        if not lo <= coordinate <= hi:
            low = self.literal(lo) if lo != -MAX else "any"
            high = self.literal(hi) if hi != MAX else "any"
            raise self._reject(value, f"is outside its domain, {low} to {high}")
        return coordinate

    def equal(self, value: Any) -> Interval | None:
        return self.clip(self.at_least(value), self.at_most(value))


class Number(Ordered):
    """Real number, rounded to the nearest double in bounds and events alike."""

    type = "number"

    def coordinate(self, value: Any) -> float:
        return MISSING if value is None else self._in_domain(self._double(value), value)

    def _double(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise self._reject(value, "must be a number")
        try:
            double = float(value)
        except OverflowError:
            double = math.inf
        if not math.isfinite(double):
            raise self._reject(value, "must be a finite number")
        return double + 0.0  # -0.0 becomes 0.0

    def value(self, coordinate: float) -> float:
        return float(coordinate)

    def parse(self, text: str) -> Any:
        return read_number(text)

    def literal(self, coordinate: float) -> str:
        return repr(int(coordinate) if _plain_integer(coordinate) else float(coordinate))

    def at_least(self, value: Any, *, strict: bool = False) -> float:
        double = self._double(value)
        return math.nextafter(double, math.inf) + 0.0 if strict else double

    def at_most(self, value: Any, *, strict: bool = False) -> float:
        double = self._double(value)
        return math.nextafter(double, -math.inf) + 0.0 if strict else double


class Integer(Ordered):
    """64-bit integer that a double represents exactly."""

    type = "integer"

    def coordinate(self, value: Any) -> float:
        if value is None:
            return MISSING
        exact = self._exact(value)
        if exact != int(exact):
            raise self._reject(value, "must be a whole number")
        if not INT64_MIN <= exact <= INT64_MAX:
            raise self._reject(value, "must fit into 64 bits")
        double = float(exact)
        if int(double) != exact:
            raise self._reject(
                value, "must be an integer that a double represents exactly (up to 2^53)"
            )
        return self._in_domain(double + 0.0, value)

    def _exact(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise self._reject(value, "must be a whole number")
        if not is_finite(value):
            raise self._reject(value, "must be a finite number")
        return value

    def value(self, coordinate: float) -> int:
        return int(coordinate)

    def parse(self, text: str) -> Any:
        return read_number(text)

    def literal(self, coordinate: float) -> str:
        return str(int(coordinate))

    def at_least(self, value: Any, *, strict: bool = False) -> float:
        exact = self._exact(value)
        return double_at_least(math.floor(exact) + 1 if strict else math.ceil(exact))

    def at_most(self, value: Any, *, strict: bool = False) -> float:
        exact = self._exact(value)
        return double_at_most(math.ceil(exact) - 1 if strict else math.floor(exact))


class Boolean(Attribute):
    """Boolean: true or false."""

    type = "boolean"

    def __init__(self, name: str, *, source: str | None = None):
        super().__init__(name, source=source)
        self.domain = 0.0, 1.0

    def coordinate(self, value: Any) -> float:
        if value is None:
            return MISSING
        if isinstance(value, int | float | Decimal) and value in (0, 1):  # also true and false
            return float(value) + 0.0
        raise self._reject(value, "must be true or false")

    def value(self, coordinate: float) -> bool:
        return coordinate == 1.0

    def parse(self, text: str) -> Any:
        word = text.strip().casefold()
        if word in ("true", "false"):
            return word == "true"
        try:
            return read_number(text)
        except InvalidValueError:
            raise self._reject(text, "must be true or false") from None

    def literal(self, coordinate: float) -> str:
        return "true" if coordinate else "false"


def quoted(text: str) -> str:
    """Return a text as a quoted literal of the filter language."""
    return "'" + text.replace("'", "''") + "'"


def plain(value: Any) -> Any:
    """Convert a NumPy or pandas scalar to a Python value; NaT and NA become `None`.

    A NumPy datetime64 is kept, because it may be more precise than Python's datetime.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is Decimal:
        return math.nan if value.is_nan() else value  # a signalling one can't even be compared
    if kind.__name__ in ("NaTType", "NAType"):
        return None
    if not hasattr(value, "dtype") or getattr(value, "shape", None) != ():
        return value
    if value.dtype.kind in "mM":
        return None if value != value else value
    return value.item()


_PLAIN = frozenset((int, float, str, bool, datetime, date, type(None)))


def is_finite(value: Any) -> bool:
    """Return whether a number is finite as a double."""
    if isinstance(value, Decimal):
        return value.is_finite() and abs(value) <= MAX
    return isinstance(value, int) or math.isfinite(value)


def _plain_integer(coordinate: float) -> bool:
    return coordinate == int(coordinate) and abs(coordinate) < 1e15
