"""Lengths of time and moments, in whole microseconds, and the timestamp that orders events."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from rangecast.errors import InvalidValueError, UsageError, abbreviate, did_you_mean
from rangecast.model.attributes.base import plain
from rangecast.model.attributes.timestamps import EPOCH, MICROSECOND, Timestamp
from rangecast.model.space import Space

_UNITS = {"ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_LENGTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|h|d)\s*")
_MAX_LENGTH = 100 * 366 * _UNITS["d"]
_MOMENT = Timestamp("time")
_FIRST = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND

Length = str | timedelta
"""Duration, as text ("30 s", "10 min", "1.5 h", "2 d") or a timedelta."""


def length_of(name: str, length: Length | None, *, min: int = 1) -> int | None:  # noqa: A002
    """Return a length of time in microseconds; `None` for `None`."""
    if length is None:
        return None
    micros = -1
    if isinstance(length, timedelta):
        micros = length // MICROSECOND
    elif isinstance(length, str) and (match := _LENGTH.fullmatch(length)):
        size = float(match[1]) * _UNITS[match[2]]
        micros = round(size) if size <= _MAX_LENGTH else -1
    if not min <= micros <= _MAX_LENGTH:
        raise UsageError(
            f"{name} must be a length of time, such as '30 s', '10 min', '1.5 h' or '2 d'\n"
            f"  given: {abbreviate(length)}\n"
            "  hint: write a number with a unit: ms, s, min, h or d"
        )
    return micros


def text_of_length(micros: int | None) -> str | None:
    """Return a length as text that `length_of` can parse, in the largest unit that fits."""
    if micros is None:
        return None
    for unit, size in reversed(_UNITS.items()):
        if micros % size == 0:
            return f"{micros // size} {unit}"
    return f"{micros // 1000}.{micros % 1000:03d} ms"


def micros_of(moment: Any) -> int:
    """Return a moment, given as a datetime or an ISO 8601 text, in microseconds since 1970."""
    if type(moment) is datetime and moment.tzinfo is UTC:
        return (moment - EPOCH) // MICROSECOND  # also if no double is exactly that
    if plain(moment) is None:
        given = abbreviate(moment)
        raise InvalidValueError(f"a time must be a datetime or an ISO 8601 string; given: {given}")
    return int(_MOMENT.coordinate(moment))


def moment_of(micros: int) -> datetime:
    """Return microseconds since 1970 as a moment in UTC: the first or last one if it is beyond."""
    return EPOCH + timedelta(microseconds=min(max(micros, _FIRST), _LAST))


def time_axis(space: Space, name: str) -> int:
    """Return the axis of the timestamp that orders events; reject other attributes."""
    if name in space.axes:
        axis = space.axis(name)
        if isinstance(space.attributes[axis], Timestamp):
            return axis
        problem = f"is a {space.attributes[axis].type}"
    else:
        known = [attribute.name for attribute in space if isinstance(attribute, Timestamp)]
        problem = f"isn't there: {did_you_mean(name, known)}" if known else "isn't there"
    raise UsageError(
        f"time must be a timestamp of the space; {name!r} {problem}\n"
        "  hint: give the space an attribute of type timestamp"
    )
