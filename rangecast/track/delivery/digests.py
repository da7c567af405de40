"""Digests: transitions of an owner that are delivered together."""

from __future__ import annotations

from datetime import date, datetime
from typing import NamedTuple

from rangecast.model.sets.members import Id
from rangecast.track.delivery.notifications import Notification
from rangecast.track.delivery.policies import Digest
from rangecast.track.local_time import inner_moment, minutes_of, moment_at, weekdays_of, zone_of
from rangecast.track.moments import micros_of, moment_of
from rangecast.track.transitions import Transition

_FIRST_DAY, _LAST_DAY = date.min.toordinal() + 2, date.max.toordinal() - 2
"""Days on which every zone can show every time of day."""
_BEGIN, _END = micros_of(datetime.min), micros_of(datetime.max.replace(microsecond=0))


class ConsumerOwner(NamedTuple):
    """Owner of a policy that counts all subscriptions of a consumer."""

    name: Id


Owner = Id | ConsumerOwner
"""Owner of a policy: a subscription, or a consumer."""


class Window:
    """An open digest of transitions in [start, end), or without an end if it is closed by count."""

    def __init__(self, name: str, start: int, end: int | None):
        self.name, self.start, self.end = name, start, end
        self.transitions: list[Transition] = []


def window_around(at: int, digest: Digest) -> tuple[int, int]:
    """Return the digest times around a moment: the last one at or before it, and the next one.

    If the calendar has none any more, it is the first or the last moment of the calendar.
    """
    assert digest.at is not None
    minutes, days = minutes_of(digest.at), weekdays_of(digest.days)
    assert minutes is not None
    assert days is not None
    zone = zone_of(digest.zone)
    today = inner_moment(at).astimezone(zone).date().toordinal()
    first, last = max(today - 8, _FIRST_DAY), min(today + 8, _LAST_DAY)
    near = map(date.fromordinal, range(first, last + 1))
    times = [micros_of(moment_at(day, minutes, zone)) for day in near if day.weekday() in days]
    start = max((time for time in times if time <= at), default=_BEGIN)
    return start, min((time for time in times if time > at), default=_END)


def digest_of(owner: Owner, window: Window) -> Notification:
    """Return the notification of a digest."""
    last = window.transitions[-1].at if window.end is None else moment_of(window.end)
    whole = last, window.name, tuple(window.transitions)
    if isinstance(owner, ConsumerOwner):
        return Notification(None, *whole, owner.name)
    return Notification(owner, *whole)
