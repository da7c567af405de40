"""Local time: times of day in an IANA zone, and schedules such as `Mon-Fri 08:00-18:00`.

A clock time skipped by a clock change is the moment of the change. A clock time that occurs twice
is the first of the two.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from rangecast.errors import UsageError, abbreviate
from rangecast.kernels.arrays import I64, Bool
from rangecast.model.attributes.timestamps import EPOCH, MICROSECOND

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY, _MINUTE = 86_400_000_000, 60_000_000
_QUARTER = 15 * _MINUTE
"""Zones change their offset at whole quarters of an hour, with few exceptions."""
_FIRST = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
_LAST = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)
"""Python can't show moments beyond these in each zone; their offsets are those of these."""
_FIRST_MICROS, _LAST_MICROS = ((end - EPOCH) // MICROSECOND for end in (_FIRST, _LAST))
_TIME = re.compile(r"(\d{1,2}):(\d{2})")
_SCHEDULE = re.compile(
    r"\s*(?:(?P<days>[A-Za-z][A-Za-z,\-]*)\s+)?"
    r"(?P<begin>\d{1,2}:\d{2})\s*-\s*(?P<end>\d{1,2}:\d{2})\s+(?P<zone>[A-Za-z][\w/+\-]*)\s*"
)


def zone_of(name: Any) -> ZoneInfo:
    """Return an IANA time zone."""
    try:
        if not isinstance(name, str):
            raise ValueError
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(
            f"unknown time zone {abbreviate(name)}\n"
            "  hint: give an IANA name, such as 'Europe/Berlin' or 'UTC'"
        ) from None


def minutes_of(text: str) -> int | None:
    """Return the minutes since midnight of a clock time such as `08:30`; `None` if invalid."""
    match = _TIME.fullmatch(text)
    if match is None or int(match[2]) > 59 or int(match[1]) * 60 + int(match[2]) > 24 * 60:
        return None
    return int(match[1]) * 60 + int(match[2])


def moment_at(day: date, minutes: int, zone: ZoneInfo) -> datetime:
    """Return the moment, in UTC, of a clock time on a day."""
    shown = datetime.combine(day, time(), zone) + timedelta(minutes=minutes)
    before, after = (shown.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    if before <= after:  # for times that there are, once or twice
        return before
    low, high = after, before  # clocks go forward between both
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if _offset(middle, zone) == _offset(low, zone):
            low = middle
        else:
            high = middle
    return high


def _offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def weekdays_of(text: Any) -> frozenset[int] | None:
    """Return the weekdays of `Mon-Fri` or `Sat,Sun`, with Monday as 0; `None` if invalid."""
    if text is None:
        return frozenset(range(7))
    if not isinstance(text, str):
        return None
    if text.lower() == "daily":
        return frozenset(range(7))
    weekdays: set[int] = set()
    for part in text.lower().split(","):
        first, _, last = part.partition("-")
        if first not in DAYS or (last or first) not in DAYS:
            return None
        begin, end = DAYS.index(first), DAYS.index(last or first)
        weekdays |= {day % 7 for day in range(begin, end + 1 + 7 * (end < begin))}
    return frozenset(weekdays)


class Schedule:
    """Hours on some weekdays in a zone; hours past midnight belong to the day they begin."""

    def __init__(self, text: str):
        match = _SCHEDULE.fullmatch(text) if isinstance(text, str) else None
        days = weekdays_of(match["days"]) if match else None
        begin = minutes_of(match["begin"]) if match else None
        end = minutes_of(match["end"]) if match else None
        if match is None or days is None or begin is None or end is None or begin == end:
            raise UsageError(
                "a schedule must be days, hours and a time zone, such as "
                f"'Mon-Fri 08:00-18:00 Europe/Berlin'; given: {abbreviate(text)}\n"
                "  hint: days are Mon, Tue, ...; leave them out for every day; hours such as "
                "22:00-06:00 pass midnight"
            )
        self.text = text
        self._days, self._begin, self._end = days, begin, end
        self._zone = zone_of(match["zone"])

    def holds(self, micros: I64) -> Bool:
        """Return which moments the schedule includes."""
        quarters, places = np.unique(micros // _QUARTER, return_inverse=True)
        offsets = self._offsets(quarters * _QUARTER)
        changing = (offsets != self._offsets((quarters + 1) * _QUARTER - 1))[places]
        shifts = offsets[places]
        shifts[changing] = self._offsets(micros[changing])
        local = micros + shifts
        days, minutes = local // _DAY, local % _DAY // _MINUTE
        today, yesterday = self._includes(days), self._includes(days - 1)
        if self._begin < self._end:
            return today & (self._begin <= minutes) & (minutes < self._end)
        evening = today & (self._begin <= minutes)
        holds_: Bool = evening | (yesterday & (minutes < self._end))
        return holds_

    def _offsets(self, micros: I64) -> I64:
        """Return the offset from UTC at each moment, in microseconds."""
        moments = (inner_moment(each) for each in micros.tolist())
        return np.array([_offset(each, self._zone) // MICROSECOND for each in moments], np.int64)

    def _includes(self, days: I64) -> Bool:
        """Return which days, counted from 1970, the schedule includes; day 0 was a Thursday."""
        chosen: Bool = np.isin((days + 3) % 7, list(self._days))
        return chosen


def inner_moment(micros: int) -> datetime:
    """Return a moment, or the nearest one that every zone can show."""
    if micros < _FIRST_MICROS:
        return _FIRST
    return _LAST if micros > _LAST_MICROS else EPOCH + timedelta(microseconds=micros)
