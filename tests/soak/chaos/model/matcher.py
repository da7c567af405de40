"""A plain matcher: filters are 'or's of 'and's of comparisons of a number attribute."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Any

_COMPARISON = re.compile(r"(\w+) (<=|>=|<|>|=) (-?[\d.]+)")
_OPERATORS = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
Filter = list[list[tuple[str, Any, float]]]


def parsed(text: str) -> Filter:
    """Read a filter."""
    return [[_comparison(one) for one in some.split(" and ")] for some in text.split(" or ")]


def _comparison(text: str) -> tuple[str, Any, float]:
    found = _COMPARISON.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"the model doesn't know the comparison {text[:80]!r}")
    return found[1], _OPERATORS[found[2]], float(found[3])


def matches(wanted: Filter, event: Mapping[str, Any]) -> bool:
    """Return whether an event is wanted; a value that is missing fulfils no comparison."""
    return any(
        all(
            _is_number(event.get(name)) and holds(event[name], value) for name, holds, value in some
        )
        for some in wanted
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
