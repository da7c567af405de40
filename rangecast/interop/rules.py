"""A rule of another system as a tree of two-valued tests, and its conversion to a filter.

In other systems every test is true or false. So a negation is true for a missing value, unlike
here. Each test therefore states its result for a missing value, and a negation inverts that as
well: the resulting filter has the same result for every event.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from rangecast.model.attributes.base import quoted
from rangecast.model.attributes.places import Location
from rangecast.model.filters.lexer import name_text


class UnsupportedRuleError(Exception):
    """A part of a rule without an exact counterpart, with its path and the reason."""

    def __init__(self, path: str, reason: str):
        super().__init__(f"{path}: {reason}")
        self.place = path
        self.reason = reason


Kind = Literal["number", "integer", "text", "boolean", "moment", "location"]
"""Operand type of a test."""


@dataclass(frozen=True)
class Test:
    """A test of one field. Any value matches, unless there are values, bounds or words."""

    name: str
    place: str
    kind: Kind | None = None
    """`None`: the test is only about presence."""
    values: tuple[Any, ...] | None = None
    bounds: tuple[tuple[str, Any], ...] | None = None
    words: Callable[[str], bool] | None = None
    """Predicate on texts, such as a prefix, for attributes that list all their texts."""
    patterns: tuple[str, ...] = ()
    """Conditions on attributes of type text, without the name; any of them must hold. One that
    begins with `has` is on words."""
    shape: Callable[[Location], str] | None = None
    """Condition on a location, as a filter writes it."""
    inverse: bool = False
    """Whether the matching values are all the others."""
    missing: bool = False
    """Whether a missing value matches."""


@dataclass(frozen=True)
class AllOf:
    """Conjunction: matches if all parts match; without parts, always."""

    parts: tuple[Rule, ...]


@dataclass(frozen=True)
class AnyOf:
    """Disjunction: matches if at least one part matches; without parts, never."""

    parts: tuple[Rule, ...]


@dataclass(frozen=True)
class FilterText:
    """A condition that is already filter text, such as a shape."""

    text: str


Rule = Test | AllOf | AnyOf | FilterText


def present(name: str, path: str) -> Test:
    """Return the test that a field has a value."""
    return Test(name, path)


def absent(name: str, path: str) -> Test:
    """Return the test that a field has no value."""
    return negated_test(present(name, path))


def negated_test(test: Test) -> Test:
    """Return the negation of this test."""
    return replace(test, inverse=not test.inverse, missing=not test.missing)


def negated(rule: Rule) -> Rule:
    """Return the negation of this rule."""
    if isinstance(rule, Test):
        return negated_test(rule)
    if isinstance(rule, FilterText):
        raise UnsupportedRuleError("", "a shape can't be negated in this format")
    parts = tuple(negated(part) for part in rule.parts)
    return AnyOf(parts) if isinstance(rule, AllOf) else AllOf(parts)


def tests_of(rule: Rule) -> Iterator[Test]:
    """Yield every test of a rule."""
    if isinstance(rule, Test):
        yield rule
    elif not isinstance(rule, FilterText):
        for part in rule.parts:
            yield from tests_of(part)


def text_of(rule: Rule) -> str | bool:
    """Return the filter text, or whether the rule is always or never true."""
    if isinstance(rule, Test):
        return _test_text(rule)
    if isinstance(rule, FilterText):
        return rule.text
    stops = isinstance(rule, AnyOf)  # the truth of a part that decides all
    texts = [text_of(part) for part in rule.parts]
    if any(text is stops for text in texts):
        return stops
    left = list(dict.fromkeys(text for text in texts if isinstance(text, str)))
    if len(left) < 2:
        return left[0] if left else not stops
    return (" or " if stops else " and ").join(f"({text})" for text in left)


def _test_text(test: Test) -> str | bool:
    name = name_text(test.name)
    if test.values or test.bounds or test.words:
        text = _bounds_text(name, test) if test.bounds else _patterns_text(name, test)
        text = _values_text(name, test) if test.values else text
        return f"{text} or {name} is null" if test.missing else text
    passes = (test.values is None) != test.inverse  # an empty list of values is passed by none
    if passes == test.missing:
        return passes
    return f"{name} is not null" if passes else f"{name} is null"


def _values_text(name: str, test: Test) -> str:
    assert test.values
    listed = ", ".join(_literal(value) for value in test.values)
    return f"{name} {'not in' if test.inverse else 'in'} ({listed})"


def _patterns_text(name: str, test: Test) -> str:
    text = " or ".join(
        f"words({name}) {pattern}" if pattern.startswith("has ") else f"{name} {pattern}"
        for pattern in test.patterns
    )
    return f"not ({text})" if test.inverse else text


def coordinate_rule(test: Test, location: Location) -> Rule:
    """Rewrite a test of a location, or of its presence, as a rule about its coordinates."""
    longitude = location.coordinates[0].name
    if test.shape is None:
        return replace(test, name=longitude)
    text = test.shape(location)
    text = f"not ({text})" if test.inverse else text
    return FilterText(f"({text}) or {name_text(longitude)} is null" if test.missing else text)


def like(text: str, before: str = "", after: str = "", *, ignores_case: bool = False) -> str:
    """Return the condition that a text equals this one, between two wildcards."""
    escaped = re.sub(r"([%_\\])", r"\\\1", text)
    return f"like {quoted(before + escaped + after)}{' ignore case' * ignores_case}"


def _bounds_text(name: str, test: Test) -> str:
    assert test.bounds
    text = " and ".join(f"{name} {sign} {_literal(value)}" for sign, value in test.bounds)
    return f"not ({text})" if test.inverse else text


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value) if isinstance(value, str) else repr(value)
