"""Exact numbers: their texts, and the doubles next to them."""

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
    """Whether a text is that of a number."""
    return _NUMBER_TEXT.match(text.strip()) is not None


def read_number(text: str) -> int | Decimal:
    """Return the exact value of a number's text; reject what isn't one."""
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
    """Return a number exactly; one that a `Decimal` can't hold is as far out as it can hold."""
    mantissa, _, exponent = text.lower().partition("e")
    if len(exponent.lstrip("+-0")) > 15:
        exponent = f"{'-' * exponent.startswith('-')}{'9' * 15}"
    return Decimal(f"{mantissa}e{exponent or 0}")


def _comma(text: str) -> str:
    """Return what to do about a number that is written with commas."""
    if _GROUPED.match(text):
        return ": leave out the commas"
    return ": write a point instead of the comma" if _COMMA.match(text) else ""


def largest_carried(value: int) -> float:
    """Return the largest integer-valued double that is not above an integer."""
    try:
        carried = float(value)
    except OverflowError:
        return MAX if value > 0 else -math.inf
    return math.nextafter(carried, -math.inf) if int(carried) > value else carried


def smallest_carried(value: int) -> float:
    """Return the smallest integer-valued double that is not below an integer."""
    return -largest_carried(-value) + 0.0  # -0.0 becomes 0.0
