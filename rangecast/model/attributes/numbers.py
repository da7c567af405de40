"""Exact numbers: parsing, and the nearest representable doubles."""

from __future__ import annotations

import math
import re
import sys
from decimal import Decimal

from rangecast.errors import InvalidValueError

MAX = sys.float_info.max
"""Where a one-sided bound stops: the largest finite double."""

_NUMBER_TEXT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?\Z")
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+\Z")
_MAX_EXPONENT = 400
"""No double, and no integer of 64 bits, is as large as ten to this power, or as close to 0."""


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    return _NUMBER_TEXT.match(text.strip()) is not None


def read_number(text: str) -> int | Decimal:
    """Parse a number exactly; raise if the text is not a number."""
    stripped = text.strip()
    if not _NUMBER_TEXT.match(stripped):
        raise InvalidValueError(f"{text[:60]!r} is not a number{_comma(stripped)}")
    if len(stripped) <= _MAX_EXPONENT and stripped.lstrip("+-").isdecimal():
        return int(stripped)
    value = _decimal(stripped)
    if not value:
        return Decimal(0)
    # Beyond this a floor would build an integer of a billion digits.
    if value.adjusted() > _MAX_EXPONENT:
        raise InvalidValueError(f"{text[:60]} is beyond the largest double, {MAX}")
    if value.adjusted() < -_MAX_EXPONENT:  # its neighbours on every grid are the same
        value = Decimal((value.is_signed(), (1,), -_MAX_EXPONENT))
    return value


def _decimal(text: str) -> Decimal:
    """Parse a decimal exactly; clamp one that exceeds the range of `Decimal`."""
    mantissa, _, exponent = text.lower().partition("e")
    if len(exponent.lstrip("+-0")) > 15:
        exponent = f"{'-' * exponent.startswith('-')}{'9' * 15}"
    return Decimal(f"{mantissa}e{exponent or 0}")


def _comma(text: str) -> str:
    """Return a hint for a number written with commas."""
    if _GROUPED.match(text):
        return ": leave out the commas"
    return ": write a point instead of the comma" if _COMMA.match(text) else ""


def double_at_most(value: int) -> float:
    """Return the largest integer-valued double not above an integer."""
    try:
        double = float(value)
    except OverflowError:
        return MAX if value > 0 else -math.inf
    return math.nextafter(double, -math.inf) if int(double) > value else double


def double_at_least(value: int) -> float:
    """Return the smallest integer-valued double not below an integer."""
    return -double_at_most(-value) + 0.0  # -0.0 becomes 0.0
