"""Boxes as patterns of EventBridge and SNS; `reader` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rangecast.interop.export import Term, plain_number
from rangecast.interop.rules import UnsupportedRuleError


@dataclass(frozen=True)
class Limits:
    """Service name, largest number and decimals that its patterns allow."""

    service: str
    largest: float
    decimals: int


def pattern_of(alternatives: list[list[Term]], limits: Limits) -> dict[str, Any]:
    """Return the pattern of alternatives: one object, or `$or` of several."""
    patterns = [_pattern(terms, limits) for terms in alternatives]
    return patterns[0] if len(patterns) == 1 else {"$or": patterns}


def _pattern(terms: list[Term], limits: Limits) -> dict[str, Any]:
    if not terms:
        raise UnsupportedRuleError(
            "", f"it matches everything, but {limits.service} doesn't allow an empty pattern"
        )
    pattern: dict[str, Any] = {}
    for term in terms:
        name = term.attribute.of or term.attribute.name
        path = name.split(".")
        if not all(path) or "$or" in path:
            raise UnsupportedRuleError(name, f"{name!r} can't be a field name")
        inside = pattern
        for key in path[:-1]:
            inside = inside.setdefault(key, {})
            if not isinstance(inside, dict):
                raise UnsupportedRuleError(name, f"{key!r} is also a field with a value")
        if path[-1] in inside:
            raise UnsupportedRuleError(name, f"{path[-1]!r} is also a field with nested fields")
        inside[path[-1]] = _matchers(term, limits)
    return pattern


def _matchers(term: Term, limits: Limits) -> list[Any]:
    attribute = term.attribute
    if attribute.of is not None:
        return [{"prefix": prefix} for prefix in term.values]
    matchers: list[Any] = [{"exists": True}] if term.any_value else []
    if attribute.type == "timestamp" and (term.values or term.spans):
        reason = f"{limits.service} compares times as strings, which have no order"
        raise UnsupportedRuleError(attribute.name, reason)
    if attribute.ordered:
        ranges = [*term.spans, *((("=", value),) for value in term.values)]
        for bounds in ranges:
            parts = [
                part for sign, value in bounds for part in (sign, _number(term, value, limits))
            ]
            matchers.append({"numeric": parts})
    else:
        matchers.extend(term.values)
    if term.excluded:
        matchers.append({"anything-but": list(term.excluded)})
    if term.missing:
        matchers.append({"exists": False})
    return matchers


def _number(term: Term, value: float, limits: Limits) -> int | float:
    decimals = -int(Decimal(repr(value)).normalize().as_tuple().exponent)
    if abs(value) > limits.largest or decimals > limits.decimals:
        reason = (
            f"{limits.service} takes numbers up to {limits.largest:,.0f} with at most "
            f"{limits.decimals} decimals; given: {value!r}"
        )
        raise UnsupportedRuleError(term.attribute.name, reason)
    return plain_number(value)
