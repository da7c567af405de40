"""Delivery policies: which transitions are reported, when, and how many at once.

Each policy is independent of the others. They apply in a fixed order: repeats are dropped, then
transitions beyond the throttle; the rest is delivered at once or collected. Reminders join after
the first step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rangecast.errors import UsageError, abbreviate
from rangecast.track.local_time import minutes_of, weekdays_of, zone_of
from rangecast.track.moments import Length, length_of, text_of_length


@dataclass(frozen=True, slots=True)
class Digest:
    """Transitions of a subscription that are delivered together.

    at      local time of day, such as "08:00": a digest covers the time since the last one
    days    weekdays that have a digest, such as "Mon-Fri"; default: every day
    zone    IANA time zone of both
    count   number of transitions that make a digest, instead of a time
    """

    at: str | None = None
    days: str | None = None
    zone: str = "UTC"
    count: int | None = None

    def __post_init__(self) -> None:
        if (self.at is None) == (self.count is None):
            raise UsageError(
                "a digest requires either a time or a count\n"
                "  hint: Digest(at='08:00', zone='Europe/Berlin')"
            )
        if self.count is not None and (type(self.count) is not int or self.count < 1):
            raise UsageError(f"count must be a whole number, at least 1; given: {self.count!r}")
        if self.at is not None and (
            not isinstance(self.at, str) or minutes_of(self.at) in (None, 1440)
        ):
            raise UsageError(f"at must be a time such as '08:00'; given: {abbreviate(self.at)}")
        if weekdays_of(self.days) is None:
            raise UsageError(f"days must have the form 'Mon-Fri'; given: {abbreviate(self.days)}")
        zone_of(self.zone)

    def definition(self) -> dict[str, Any]:
        """Return the fields that are set, as plain data."""
        fields = {"at": self.at, "days": self.days, "count": self.count}
        zone = {"zone": self.zone} if self.at is not None else {}
        return {name: value for name, value in fields.items() if value is not None} | zone


@dataclass(frozen=True, slots=True)
class Policy:
    """Delivery policy of a subscription, or the default for those without one.

    deduplicate   drop a transition if one of the same kind, object and subscription was reported
                  less than this length of time before
    throttle      (number, length): report at most this number of transitions of an object in any
                  such length of time; drop the others
    renotify      report a stay again each time this length has passed since its enter
    digest        deliver transitions together
    """

    deduplicate: Length | None = None
    throttle: tuple[int, Length] | None = None
    renotify: Length | None = None
    digest: Digest | None = None
    _lengths: tuple[int, int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        number, period = 0, None
        if self.throttle is not None:
            try:
                number, period = self.throttle
            except (TypeError, ValueError):
                number = 0
            if type(number) is not int or number < 1 or period is None:
                raise UsageError(
                    f"throttle must be a number and a length of time, such as (3, '1 h')"
                    f"; given: {abbreviate(self.throttle)}"
                )
        lengths = (
            length_of("deduplicate", self.deduplicate) or 0,
            number,
            length_of("throttle", period) or 0,
            length_of("renotify", self.renotify) or 0,
        )
        object.__setattr__(self, "_lengths", lengths)
        if self.digest is not None and not isinstance(self.digest, Digest):
            raise UsageError(f"digest must be a Digest; given: {abbreviate(self.digest)}")

    @property
    def lengths(self) -> tuple[int, int, int, int]:
        """Lengths in microseconds: (deduplicate, number of throttle, throttle, renotify)."""
        return self._lengths

    def definition(self) -> dict[str, Any]:
        """Return the fields that are set, as plain data."""
        repeats, number, period, again = self._lengths
        fields = {
            "deduplicate": text_of_length(repeats or None),
            "throttle": [number, text_of_length(period)] if number else None,
            "renotify": text_of_length(again or None),
            "digest": None if self.digest is None else self.digest.definition(),
        }
        return {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def of(cls, definition: dict[str, Any]) -> Policy:
        """Return the policy of plain data, as returned by `definition`."""
        fields = dict(definition)
        digest = fields.pop("digest", None)
        throttle = fields.pop("throttle", None)
        return cls(
            **fields,
            throttle=None if throttle is None else tuple(throttle),
            digest=None if digest is None else Digest(**digest),
        )
