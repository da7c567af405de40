"""Fast path for common filters: a conjunction of simple conditions, read without a parser.

    price < 20 and 1 <= size <= 5 and sector in ('tech', 'energy') and day between 3 and 9

A regular expression splits the text into conditions. Any text that has another form, can never
match or is invalid is left to `compile`, which raises the errors. A property test compares both.
"""

from __future__ import annotations

import math
import re
from typing import Any

from rangecast.errors import InvalidValueError
from rangecast.model.attributes.base import Attribute, Integer, Interval, Number
from rangecast.model.attributes.numbers import MAX, read_number
from rangecast.model.filters.lexer import KEYWORDS, QUOTES
from rangecast.model.filters.regions import Box, Ranges, boxes, intersection, size, sparse, union
from rangecast.model.space import Space

_VALUE = r"""[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.])
    |'[^']*+(?:''[^']*+)*+'|"[^"]*+(?:""[^"]*+)*+"|(?ai:true|false)(?!\w)"""
_VALUES = re.compile(_VALUE, re.VERBOSE)
_CONDITION = re.compile(
    rf"""\s*+
    (?:({_VALUE})\s*+(<=?+(?!>)|>=?+)\s*+)?+
    ([^\W\d]\w*+)\s*+
    (?: (<=?+(?!>)|>=?+|==?+)\s*+({_VALUE})
      | (?ai:between)(?!\w)\s*+({_VALUE})\s*+(?ai:and)(?!\w)\s*+({_VALUE})
      | (?ai:in)(?!\w)\s*+\(\s*+((?:{_VALUE})(?:\s*+,\s*+(?:{_VALUE}))*+)\s*+\)
    )?+\s*+
    (?:((?ai:and)(?!\w))|\Z)""",
    re.VERBOSE,
)
MAX_LISTED = 64
"""Values of a text that are boxes; a longer list is one condition that is verified."""
_DIGITS = 16
"""Below this many, an integer and its neighbours are doubles."""


def plain_boxes(space: Space, text: str, max_boxes: int) -> tuple[Box, ...] | None:
    """Return the boxes of a filter of the common form; `None` if it has another form."""
    conditions = _conditions(text)
    if conditions is None:
        return None
    axes = space.axes
    single: dict[int, Interval] = {}
    several: dict[int, list[Ranges]] = {}
    for condition in conditions:
        before, _, name, sign, value, *_ = condition
        axis = axes.get(name)
        if axis is None or name.lower() in KEYWORDS:
            return None
        attribute = space.attributes[axis]
        if axis in space.patterns and condition[7].count(",") >= MAX_LISTED:
            return None  # a list that is verified
        try:
            if sign and not before:  # by far the most of them
                range_ = range_of(attribute, sign, value)
                ranges: Ranges = () if range_ is None else (range_,)
            else:
                ranges = _ranges(attribute, condition)
        except (InvalidValueError, ValueError):
            return None
        if len(ranges) == 1:
            lo, hi = ranges[0]
            if axis in single:
                lo, hi = max(lo, single[axis][0]), min(hi, single[axis][1])
            if not lo <= hi:
                return None
            single[axis] = lo, hi
        elif ranges:
            several.setdefault(axis, []).append(ranges)
        else:
            return None
    if not several:
        return (tuple([(axis, *single[axis]) for axis in sorted(single)]),)
    for axis, range_ in single.items():
        several.setdefault(axis, []).append((range_,))
    product = tuple([(axis, intersection(several[axis])) for axis in sorted(several)])
    if not 0 < size(product) <= max_boxes:
        return None
    return sparse(boxes(space.attributes, [product]))


def _conditions(text: Any) -> list[tuple[str, ...]] | None:
    """Split a text into conditions, before any word is added to a vocabulary."""
    if not isinstance(text, str):
        return None
    conditions: list[tuple[str, ...]] = []
    at = 0
    while True:
        match = _CONDITION.match(text, at)
        if match is None:
            return None
        groups = match.groups("")
        conditions.append(groups)
        if not groups[-1]:
            return conditions
        at = match.end()


def _ranges(attribute: Attribute, condition: tuple[str, ...]) -> Ranges:
    """Return the ranges of a condition; empty if it does not have the common form."""
    before, turned, _, sign, value, first, last, listed, _ = condition
    if listed:
        words = () if before else _VALUES.findall(listed)
        ranges = [range_ for word in words if (range_ := attribute.equal(_value(word))) is not None]
        return union(attribute, ranges) if len(ranges) > 1 else tuple(ranges)
    if before and (first or sign[:1] not in ("", turned[0])):
        return ()
    ends = []
    if before:
        ends.append(range_of(attribute, (">" if turned[0] == "<" else "<") + turned[1:], before))
    if sign:
        ends.append(range_of(attribute, sign, value))
    if first:
        ends += range_of(attribute, ">=", first), range_of(attribute, "<=", last)
    ranges = [end for end in ends if end is not None]
    if len(ranges) != len(ends) or not ranges:
        return ()
    return ((max([lo for lo, _ in ranges]), min([hi for _, hi in ranges])),)


def range_of(attribute: Attribute, sign: str, literal: str) -> Interval | None:
    """Return the range of one comparison with a literal, in the domain; `None` if it is empty."""
    if sign[0] == "=":
        return attribute.equal(_value(literal))
    if not attribute.ordered:
        return None
    bound = _bound(attribute, sign, literal)
    lo, hi = attribute.domain
    return (max(lo, bound), hi) if sign[0] == ">" else (lo, min(hi, bound))


def _bound(attribute: Attribute, sign: str, word: str) -> float:
    """Return the bound that an operator and a value define."""
    kind = type(attribute)
    if kind is Number:
        double = float(word)
        if not -MAX <= double <= MAX:
            raise ValueError
        if len(sign) == 1:
            double = math.nextafter(double, math.inf if sign == ">" else -math.inf)
        return double + 0.0
    strict = len(sign) == 1
    if kind is Integer and len(word) < _DIGITS and word.lstrip("+-").isdecimal():
        return float(int(word) + (strict if sign[0] == ">" else -strict))
    if sign[0] == ">":
        return attribute.at_least(_value(word), strict=strict)
    return attribute.at_most(_value(word), strict=strict)


def _value(word: str) -> object:
    """Return the value of a literal; numbers are exact."""
    first = word[0]
    if first in QUOTES:
        return word[1:-1].replace(first * 2, first)
    return word.lower() == "true" if first in "tTfF" else read_number(word)
