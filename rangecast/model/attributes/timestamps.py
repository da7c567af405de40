"""Timestamp attributes: dates, times, their text formats, and epoch numbers."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from rangecast.errors import SpaceError
from rangecast.model.attributes.base import (
    MISSING,
    Attribute,
    Boolean,
    Integer,
    Ordered,
    is_finite,
    quoted,
)
from rangecast.model.attributes.numbers import (
    double_at_least,
    double_at_most,
    is_number,
    read_number,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

FINER_THAN_MICROSECONDS = re.compile(r"[.,]([0-9]{7,})")
"""In the text of a moment."""

FARTHEST_ZONE = timedelta(days=1) - MICROSECOND
"""The farthest that a time zone may be from UTC."""
FIRST_MOMENT = (datetime.min.replace(tzinfo=UTC) - EPOCH - FARTHEST_ZONE) // MICROSECOND
LAST_MOMENT = (datetime.max.replace(tzinfo=UTC) - EPOCH + FARTHEST_ZONE) // MICROSECOND
"""Between these lies every moment that has a date in some zone."""

EPOCH_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""The microseconds of what numbers may count since 1970."""
EPOCH_NAMES = {1_000_000: "seconds", 1_000: "milliseconds", 1: "microseconds"}
_ISO = "an ISO 8601 timestamp such as '2026-01-31T09:30:00Z'"
_SECONDS = 1_769_851_800
"""The moment of `_ISO`, in seconds since 1970."""
_IN_YEARS = "must be in the years 1 to 9999"


class Timestamp(Ordered):
    """Timestamp in whole microseconds. Without a time zone it is read as UTC.

    epoch   unit of numeric timestamps: seconds "s", milliseconds "ms" or microseconds "us" since
            1970 in UTC; numbers in events must be integers
    """

    type = "timestamp"

    def __init__(
        self,
        name: str,
        *,
        min: Any = None,  # noqa: A002
        max: Any = None,  # noqa: A002
        epoch: str | None = None,
        source: str | None = None,
    ):
        if epoch is not None and epoch not in EPOCH_UNITS:
            raise SpaceError(
                f"attribute {name!r}: epoch is one of {', '.join(map(repr, EPOCH_UNITS))}; "
                f"given: {epoch!r}"
            )
        self.epoch = epoch
        super().__init__(name, min=min, max=max, source=source)

    def definition(self) -> dict[str, Any]:
        epoch = {} if self.epoch is None else {"epoch": self.epoch}
        return super().definition() | epoch

    def parse(self, text: str) -> Any:
        """Parse a cell of a CSV file; with an epoch, a numeric text is a number."""
        return read_number(text) if self.epoch is not None and is_number(text) else text

    def coordinate(self, value: Any) -> float:
        if value is None:
            return MISSING
        micros, exact = self._micros(value)
        if self.epoch is not None and _is_number(value) and value != int(value):
            raise self._reject(value, self._takes())
        if not exact:
            raise self._reject(value, "must be in whole microseconds")
        double = float(micros)
        if int(double) != micros:
            raise self._reject(
                value, "must be a timestamp that a double represents exactly in microseconds"
            )
        return self._in_domain(double, value)

    def _micros(self, value: Any) -> tuple[int, bool]:
        """Return a timestamp in microseconds, rounded down, and whether that is exact."""
        if is_datetime64(value):
            return self._micros_of_numpy(value)
        if self.epoch is not None and _is_number(value):
            return self._micros_of_number(value, EPOCH_UNITS[self.epoch])
        exact = not getattr(value, "nanosecond", 0)
        if isinstance(value, str):
            text, value = value, self._read(value)
            finer = FINER_THAN_MICROSECONDS.search(text)
            exact = not (finer and finer.group(1)[6:].strip("0"))
        if not isinstance(value, datetime) and isinstance(value, date):
            value = datetime(value.year, value.month, value.day)
        if not isinstance(value, datetime):
            hint = "; numbers require an epoch in the space" if _is_number(value) else ""
            raise self._reject(value, f"{self._takes()}{hint}")
        if value.tzinfo is None:
            value = value.replace(tzinfo=UTC)
        return int((value - EPOCH) // MICROSECOND), exact

    def _micros_of_number(self, value: Any, unit: int) -> tuple[int, bool]:
        if not is_finite(value):
            raise self._reject(value, "must be a finite number")
        micros = math.floor(Fraction(value) * unit)
        if not FIRST_MOMENT <= micros <= LAST_MOMENT:
            raise self._reject(value, f"{_IN_YEARS}; numbers count {EPOCH_NAMES[unit]} since 1970")
        return micros, micros == Fraction(value) * unit

    def _micros_of_numpy(self, value: Any) -> tuple[int, bool]:
        if abs(int(value.astype("datetime64[Y]").astype(int))) < 10_000:  # else it may overflow
            near = value.astype("datetime64[us]")
            micros = int(near.astype(int)) - bool(near > value)
            if FIRST_MOMENT <= micros <= LAST_MOMENT:
                return micros, bool(near == value)
        raise self._reject(value, _IN_YEARS)

    def _read(self, text: str) -> datetime:
        try:
            if text.strip().isdecimal():  # 20260131 may be anything
                raise ValueError
            return datetime.fromisoformat(text.strip())
        except ValueError:
            raise self._reject(text, self._takes()) from None

    def _takes(self) -> str:
        if self.epoch is None:
            return f"must be {_ISO}"
        unit = EPOCH_UNITS[self.epoch]
        example = _SECONDS * EPOCH_UNITS["s"] // unit
        return f"must be whole {EPOCH_NAMES[unit]} since 1970 such as {example}, or {_ISO}"

    def value(self, coordinate: float) -> datetime:
        return EPOCH + timedelta(microseconds=int(coordinate))

    def literal(self, coordinate: float) -> str:
        return quoted(self.value(coordinate).isoformat().replace("+00:00", "Z"))

    def at_least(self, value: Any, *, strict: bool = False) -> float:
        micros, exact = self._micros(value)
        return double_at_least(micros + (strict or not exact))

    def at_most(self, value: Any, *, strict: bool = False) -> float:
        micros, exact = self._micros(value)
        return double_at_most(micros - (strict and exact))


def is_whole(attribute: Attribute) -> bool:
    """Return whether an attribute's numbers are integers, so that a file's must not be rounded."""
    has_epoch = isinstance(attribute, Timestamp) and attribute.epoch is not None
    return has_epoch or isinstance(attribute, Integer | Boolean)


def is_datetime64(value: Any) -> bool:
    """Return whether a value is a NumPy datetime64."""
    return getattr(getattr(value, "dtype", None), "kind", None) == "M"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
