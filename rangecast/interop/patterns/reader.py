"""Patterns shared by EventBridge and SNS: JSON objects of fields, each a list of matchers.

A field matches if one matcher of its list does, a pattern if all its fields do; `$or` is a list of
patterns. A matcher is a value or an object with one operator.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Any

from rangecast.errors import abbreviate, did_you_mean
from rangecast.interop.rules import (
    AllOf,
    AnyOf,
    Kind,
    Rule,
    Test,
    UnsupportedRuleError,
    absent,
    like,
    present,
)
from rangecast.model.attributes.base import quoted
from rangecast.model.attributes.numbers import MAX

_ON_TEXTS = ("prefix", "suffix", "equals-ignore-case", "wildcard", "cidr")
_OPERATORS = ("exists", "numeric", "anything-but", *_ON_TEXTS)
_NUMERIC = {"<", "<=", ">", ">=", "="}


def pattern_rule(pattern: Any, *, nested: bool = True) -> Rule:
    """Return the rule of a pattern. Nested fields are named by their path, with dots."""
    if not isinstance(pattern, dict) or not pattern:
        raise UnsupportedRuleError(
            "", f"a pattern must be an object with fields; given: {abbreviate(pattern)}"
        )
    return AllOf(tuple(_fields(pattern, (), nested)))


def _fields(pattern: dict[str, Any], path: tuple[str, ...], nested: bool) -> Iterator[Rule]:
    for key, value in pattern.items():
        name = ".".join([*path, key])
        if key == "$or":
            patterns = _objects(value, name)
            yield AnyOf(
                tuple(AllOf(tuple(_fields(pattern_, path, nested))) for pattern_ in patterns)
            )
        elif "." in key and nested:
            reason = f"the name {key!r} has a dot, which separates nested fields"
            raise UnsupportedRuleError(name, reason)
        elif isinstance(value, dict) and value and nested:
            yield from _fields(value, (*path, key), nested)
        elif isinstance(value, list) and value:
            yield _field(name, value)
        else:
            wanted = "a list of matchers" + (", or an object of fields" if nested else "")
            raise UnsupportedRuleError(name, f"a field takes {wanted}; given: {abbreviate(value)}")


def _objects(value: Any, name: str) -> list[dict[str, Any]]:
    if isinstance(value, list) and value and all(isinstance(item, dict) and item for item in value):
        return value
    raise UnsupportedRuleError(name, f"$or takes a list of patterns; given: {abbreviate(value)}")


def _field(name: str, matchers: list[Any]) -> Rule:
    values = [
        matcher for matcher in matchers if not isinstance(matcher, dict) and matcher is not None
    ]
    parts: list[Rule] = []
    if values:
        parts.append(_equal(name, values))
    for matcher in matchers:
        if isinstance(matcher, dict):
            parts.append(_operator(name, matcher))
    if None in matchers and absent(name, name) not in parts:
        reason = (
            "null matches a field that is present and null, but not an absent field; here, both "
            'are a missing value. Write [null, {"exists": false}] to match both'
        )
        raise UnsupportedRuleError(name, reason)
    return AnyOf(tuple(parts)) if len(parts) > 1 else parts[0]


def _operator(name: str, matcher: dict[str, Any]) -> Test:
    if len(matcher) != 1:
        raise UnsupportedRuleError(
            name, f"a matcher must have exactly one operator; given: {abbreviate(matcher)}"
        )
    ((operator, argument),) = matcher.items()
    if operator not in _OPERATORS:
        hint = did_you_mean(operator, _OPERATORS)
        raise UnsupportedRuleError(name, f"unknown operator {operator!r}: {hint}")
    if operator == "exists":
        if not isinstance(argument, bool):
            raise UnsupportedRuleError(
                name, f"exists takes true or false; given: {abbreviate(argument)}"
            )
        return present(name, name) if argument else absent(name, name)
    if operator == "numeric":
        return Test(name, name, "number", bounds=_bounds(name, argument))
    if operator != "anything-but":
        words = _words(name, operator, argument)
        patterns: tuple[str, ...] = (_condition(operator, argument),)
        return Test(name, f"{name}: {operator}", "text", words=words, patterns=patterns)
    if not isinstance(argument, dict):
        values = argument if isinstance(argument, list) else [argument]
        return _equal(name, values, inverse=True)
    if len(argument) != 1 or not {*argument} <= {*_ON_TEXTS}:
        raise UnsupportedRuleError(
            name, f"anything-but takes one operator; given: {abbreviate(argument)}"
        )
    ((operator, texts),) = argument.items()
    alternatives = texts if isinstance(texts, list) else [texts]
    tests = [_words(name, operator, pattern) for pattern in alternatives]
    # A text that is no address is in no network there; here it is like a missing one.
    patterns = (
        ()
        if operator == "cidr"
        else tuple(_condition(operator, pattern) for pattern in alternatives)
    )
    return Test(
        name,
        f"{name}: anything-but {operator}",
        "text",
        words=lambda text: any(test(text) for test in tests),
        patterns=patterns,
        inverse=True,
    )


def _equal(name: str, values: list[Any], *, inverse: bool = False) -> Test:
    kinds = {kind_of(name, value) for value in values}
    if len(kinds) != 1:
        listed = "is empty" if not kinds else "has values of different types"
        raise UnsupportedRuleError(name, f"the list {listed}; an attribute has one type")
    return Test(name, name, kinds.pop(), values=tuple(values), inverse=inverse)


def kind_of(path: str, value: Any) -> Kind:
    """Return the type that a JSON value is compared as."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float) and abs(value) <= MAX:
        return "number"
    raise UnsupportedRuleError(
        path, f"takes a string, a number, true or false; given: {abbreviate(value)}"
    )


def _bounds(name: str, value: Any) -> tuple[tuple[str, Any], ...]:
    good = isinstance(value, list) and value and len(value) % 2 == 0
    signs, numbers = (value[::2], value[1::2]) if good else ([], [])
    if not good or not all(isinstance(sign, str) and sign in _NUMERIC for sign in signs):
        expected = 'a list such as [">", 0, "<=", 5]'
        raise UnsupportedRuleError(name, f"numeric takes {expected}; given: {abbreviate(value)}")
    for number in numbers:
        if kind_of(name, number) != "number":
            raise UnsupportedRuleError(name, f"numeric takes numbers; given: {abbreviate(number)}")
    return tuple(zip(signs, numbers, strict=True))


def _words(name: str, operator: str, value: Any) -> Callable[[str], bool]:
    """Return the predicate of an operator on texts."""
    folded = operator in ("prefix", "suffix") and isinstance(value, dict)
    if folded and {*value} == {"equals-ignore-case"}:
        test = _words(name, operator, _folded(value["equals-ignore-case"]))
        return lambda text: test(_folded(text))
    if not isinstance(value, str):
        raise UnsupportedRuleError(name, f"{operator} takes a string; given: {abbreviate(value)}")
    if operator == "prefix":
        return lambda text: text.startswith(value)
    if operator == "suffix":
        return lambda text: text.endswith(value)
    if operator == "equals-ignore-case":
        return lambda text: _folded(text) == _folded(value)
    if operator == "wildcard":
        pattern = re.compile("".join(_piece(piece) for piece in _PIECES.findall(value)), re.DOTALL)
        return lambda text: pattern.fullmatch(text) is not None
    assert operator == "cidr"
    try:
        network = ipaddress.ip_network(value, strict=False)
    except ValueError as error:
        raise UnsupportedRuleError(name, f"cidr: {error}") from None
    return lambda text: _in_network(text, network)


def _condition(operator: str, value: Any) -> str:
    """Return a checked operator on texts as a condition of a filter."""
    ignores_case = operator == "equals-ignore-case" or isinstance(value, dict)
    if isinstance(value, dict):
        value = value["equals-ignore-case"]
    if operator == "cidr":
        return f"in cidr {quoted(str(ipaddress.ip_network(value, strict=False)))}"
    if operator == "wildcard":
        pieces = _PIECES.findall(value)
        return f"like {quoted(''.join(_sign(piece) for piece in pieces))}"
    before, after = "%" * (operator == "suffix"), "%" * (operator == "prefix")
    return like(value, before, after, ignores_case=ignores_case)


def _sign(piece: str) -> str:
    return "%" if piece == "*" else re.sub(r"([%_\\])", r"\\\1", piece[-1])


_PIECES = re.compile(r"\\[*\\]|.", re.DOTALL)


def _piece(piece: str) -> str:
    return ".*" if piece == "*" else re.escape(piece[-1])


def _folded(text: Any) -> Any:
    return text.lower() if isinstance(text, str) else text


def _in_network(text: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    try:
        return ipaddress.ip_address(text) in network
    except ValueError:
        return False
