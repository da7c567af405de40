"""Rules of subscriptions: how a stay begins and ends, and which transitions are reported."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rangecast.errors import UsageError, abbreviate, choices_hint
from rangecast.model.attributes.numbers import MAX
from rangecast.model.attributes.places import Place
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.regions import Box
from rangecast.model.space import Space
from rangecast.model.validation.inputs import as_filter
from rangecast.track.columns import Rules
from rangecast.track.geometry.margins import Margin, margin_of, widened
from rangecast.track.local_time import Schedule
from rangecast.track.machine import ENDS, KEEPS, NONE
from rangecast.track.moments import Length, length_of, text_of_length

_SPEED = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(m/s|km/h|mph|kn)\s*")
_SPEEDS = {"m/s": 1.0, "km/h": 1 / 3.6, "mph": 0.44704, "kn": 1852 / 3600}
FIRST = ("enter", "silent", "inside")
"""Reports of a first sighting inside; the place is its number in the kernel."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule of a subscription, or the default for those without one.

    for_     how long an object must be inside before it enters, and outside before it exits
    dwell    how long a stay lasts until it is reported as `dwell`
    first    an object that is inside when first seen: "enter"; "silent": its stay begins
             unreported; "inside": it is reported as inside, not as a change
    margin   attribute -> by how much its ranges or shapes are widened for an object that is inside:
             a number, or for a location a length such as "20 m"
    until    filter that ends a stay; until it matches, an object stays inside
    cross    max time between two events for their path to be checked: a `cross` is reported if both
             are outside and the path meets the filter
    max_speed   of a path: a faster one crosses nothing. "50 m/s" or "200 km/h" for a location, a
             number of units per second for a point
    schedule    local times at which the filter matches, as in "Mon-Fri 08:00-18:00 Europe/Berlin"
    """

    for_: Length | None = None
    dwell: Length | None = None
    first: str = "enter"
    margin: Mapping[str, Margin] | None = None
    until: str | None = None
    cross: Length | None = None
    max_speed: str | float | None = None
    schedule: str | None = None
    _confirm: int = field(init=False, repr=False, compare=False)
    _dwell: int = field(init=False, repr=False, compare=False)
    _gap: int = field(init=False, repr=False, compare=False)
    _hours: Schedule | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_confirm", length_of("for_", self.for_, min=0) or 0)
        object.__setattr__(self, "_dwell", length_of("dwell", self.dwell) or 0)
        object.__setattr__(self, "_gap", length_of("cross", self.cross) or 0)
        hours = None if self.schedule is None else Schedule(self.schedule)
        object.__setattr__(self, "_hours", hours)
        if self.max_speed is not None and not self._gap:
            raise UsageError(
                "max_speed requires cross\n  hint: give both: Rule(cross='5 min', ...)"
            )
        if self.first not in FIRST:
            raise UsageError(
                f"first is one of {', '.join(map(repr, FIRST))}; given: {self.first!r}\n"
                f"  hint: {choices_hint(str(self.first), FIRST)}"
            )
        if self.margin is not None and not isinstance(self.margin, Mapping):
            raise UsageError(
                f"margin must be a dict: attribute -> margin; given: {abbreviate(self.margin)}\n"
                "  hint: Rule(margin={'price': 0.5})"
            )
        if self.margin is not None and self.until is not None:
            raise UsageError(
                "a rule can have either margin or until\n"
                "  hint: include the margin in the filter of until"
            )

    @property
    def second(self) -> int:
        """Effect of `margin` or `until` on a stay; `NONE` if neither is set."""
        return KEEPS if self.margin is not None else ENDS if self.until is not None else NONE

    @property
    def gap(self) -> int:
        """Max duration of a path that is checked, in microseconds; 0: none is."""
        return self._gap

    @property
    def hours(self) -> Schedule | None:
        """The parsed schedule."""
        return self._hours

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """The rule in the form that the kernel reads."""
        return self._confirm, self._dwell, FIRST.index(self.first), self.second

    @classmethod
    def of(cls, definition: Mapping[str, Any]) -> Rule:
        """Create a rule from plain data: fields by name, with `for` instead of `for_`."""
        return cls(**{"for_" if name == "for" else name: each for name, each in definition.items()})

    def definition(self) -> dict[str, Any]:
        """Return the fields that are set, as plain data."""
        margin = None if self.margin is None else dict(self.margin)
        fields = {
            "for_": text_of_length(self._confirm or None),
            "dwell": text_of_length(self._dwell or None),
            "margin": margin,
            "until": self.until,
            "cross": text_of_length(self._gap or None),
            "max_speed": self.max_speed,
            "schedule": self.schedule,
        }
        return {"first": self.first} | {k: v for k, v in fields.items() if v is not None}


def second_condition(rule: Rule, space: Space, boxes: Sequence[Box]) -> Filter:
    """Return the condition that keeps or ends a stay of a subscription with these boxes."""
    if rule.until is not None:
        return as_filter(rule.until, space)
    return widened(space, boxes, rule.margin or {})


def check_rule(rule: Rule, space: Space) -> None:
    """Reject a margin that is invalid for its attribute, and an invalid filter."""
    for name, margin in (rule.margin or {}).items():
        margin_of(space, name, margin)
    if rule.until is not None:
        as_filter(rule.until, space)
    if rule.max_speed is not None:
        speed_of(rule.max_speed, space)


def speed_of(speed: str | float, space: Space) -> float:
    """Return a speed per second, in metres or in units of the plane."""
    places = [attribute for attribute in space if isinstance(attribute, Place)]
    match = _SPEED.fullmatch(speed) if isinstance(speed, str) else None
    on_earth = any(attribute.earth for attribute in places)
    value = 0.0
    if match and on_earth:
        value = float(match[1]) * _SPEEDS[match[2]]
    elif isinstance(speed, int | float) and not isinstance(speed, bool) and not on_earth:
        value = float(speed) if speed <= MAX else 0.0
    if not places or not 0 < value < np.inf:
        expected = "'200 km/h' or '50 m/s'" if on_earth else "units per second"
        raise UsageError(
            "max_speed must be given for a location, such as '200 km/h', or for a point, in units "
            f"per second\n  given: {abbreviate(speed)}, "
            f"expected: {expected if places else 'a space with one'}"
        )
    return value


def rule_table(default: Rule, by_subscription: Mapping[int, Rule]) -> Rules:
    """Return rules in the form that the kernel reads; `by_subscription` has the exceptions."""
    known = sorted(by_subscription)
    rows = [default.numbers, *(by_subscription[id_].numbers for id_ in known)]
    confirm, dwell, first, second = np.array(rows, np.int64).T.copy()
    return Rules(np.array(known, np.int64), confirm, dwell, first, second)
