"""Exact numbers: their texts, and the doubles next to them."""

from __future__ import annotations

import math
import re
import sys
from decimal import Decimal

from rangecast.errors import ValueRefusedError

MAX = sys.float_info.max
"""Where a one-sided bound stops: the largest finite double."""

_NUMBER_TEXT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?\Z")
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+\Z")
_LONGEST_NUMBER = 400


def read_number(text: str) -> int | Decimal:
    """Return the exact value of a number's text; refuse what isn't one."""
    stripped = text.strip()
    if len(stripped) > _LONGEST_NUMBER or not _NUMBER_TEXT.match(stripped):
        raise ValueRefusedError(f"{text[:60]!r} is not a number{_comma(stripped)}")
    try:
        return int(stripped)
    except ValueError:
        value = Decimal(stripped)
    # Beyond this a floor would build an integer of a billion digits.
    if value and value.adjusted() > 400:
        raise ValueRefusedError(f"{text[:60]} is beyond the largest double, {MAX}")
    return value


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
    return -largest_carried(-value)
