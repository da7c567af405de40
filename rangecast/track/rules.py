"""Rules of subscriptions: how a stay begins, how it ends, and what is reported of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rangecast.errors import UsageError, choices_hint
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.regions import Box
from rangecast.model.space import Space
from rangecast.model.validation.inputs import as_filter
from rangecast.track.machine import ENDS, KEEPS, NONE, Rules
from rangecast.track.margins import Margin, margin_of, widened
from rangecast.track.moments import Length, length_of, text_of_length

FIRST = ("enter", "silent", "inside")
"""Reports of a first sighting inside; the place is its number in the kernel."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of a subscription, or of all that have none of their own.

    for_     how long an object must be inside before it enters, and outside before it exits
    dwell    how long a stay lasts until it is reported as `dwell`
    first    an object that is inside when it is first seen: "enter"; "silent": its stay begins
             unreported; "inside": it is reported as inside, not as a change
    margin   attribute -> by how much its ranges or shapes are wider for an object that is inside:
             a number, for a location a length such as "20 m"
    until    filter that ends a stay; until it matches, an object stays inside
    """

    for_: Length | None = None
    dwell: Length | None = None
    first: str = "enter"
    margin: Mapping[str, Margin] | None = None
    until: str | None = None
    _confirm: int = field(init=False, repr=False, compare=False)
    _dwell: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_confirm", length_of("for_", self.for_, min=0) or 0)
        object.__setattr__(self, "_dwell", length_of("dwell", self.dwell) or 0)
        if self.first not in FIRST:
            raise UsageError(
                f"first is one of {', '.join(map(repr, FIRST))}; given: {self.first!r}\n"
                f"  hint: {choices_hint(str(self.first), FIRST)}"
            )
        if self.margin is not None and self.until is not None:
            raise UsageError(
                "a rule has a margin or an until, not both\n"
                "  hint: write the margin into the filter of until"
            )

    @property
    def second(self) -> int:
        """Effect of the second condition on a stay."""
        return KEEPS if self.margin is not None else ENDS if self.until is not None else NONE

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """The rule as the kernel reads it."""
        return self._confirm, self._dwell, FIRST.index(self.first), self.second

    def definition(self) -> dict[str, Any]:
        """Return the fields that say something, as plain data."""
        margin = None if self.margin is None else dict(self.margin)
        given = {
            "for_": text_of_length(self._confirm or None),
            "dwell": text_of_length(self._dwell or None),
            "margin": margin,
            "until": self.until,
        }
        return {"first": self.first} | {k: v for k, v in given.items() if v is not None}


def second_condition(rule: Rule, space: Space, boxes: Sequence[Box]) -> Filter:
    """Return the condition that keeps or ends a stay of a subscription with these boxes."""
    if rule.until is not None:
        return as_filter(rule.until, space)
    return widened(space, boxes, rule.margin or {})


def check_rule(rule: Rule, space: Space) -> None:
    """Reject a margin that its attribute can't have, and a filter that can't be read."""
    for name, margin in (rule.margin or {}).items():
        margin_of(space, name, margin)
    if rule.until is not None:
        as_filter(rule.until, space)


def rule_table(default: Rule, by_subscription: Mapping[int, Rule]) -> Rules:
    """Return rules as the kernel reads them; `by_subscription` has the exceptions."""
    known = sorted(by_subscription)
    rows = [default.numbers, *(by_subscription[one].numbers for one in known)]
    confirm, dwell, first, second = np.array(rows, np.int64).T.copy()
    return Rules(np.array(known, np.int64), confirm, dwell, first, second)
