"""Text conditions as regions of the filter algebra: ranges of their order, and conjunctions.

A short prefix is only a range. Any other condition is a conjunction within the range that it
implies.
"""

from __future__ import annotations

from collections.abc import Iterator

from rangecast.model.attributes.base import Interval, quoted
from rangecast.model.attributes.patterns import (
    LAST,
    ORDER_BYTES,
    Patterns,
    TextOrder,
    range_of_prefix,
)
from rangecast.model.filters.grammar import Condition
from rangecast.model.filters.lexer import name_text
from rangecast.model.filters.plain import MAX_LISTED
from rangecast.model.filters.regions import Product, Ranges, Region
from rangecast.model.space import Space
from rangecast.model.text.conditions import bounds_of, literal_of, read_literal, written

_WHOLE = 0.0, LAST
_BASE = 257
_MAX_PREFIXES = 1024


def region_of_text(space: Space, text: str, node: Condition, *, negated: bool) -> Region:
    """Return the region of a text condition."""
    axis, literal = literal_of(space, text, node, negated=negated)
    patterns = space.patterns[axis]
    attribute = space.attributes[patterns]
    assert isinstance(attribute, Patterns)
    asked = read_literal(attribute, literal)
    if asked.is_never:
        return []
    if asked.is_range and asked.bounds == _WHOLE:
        return [((axis, (space.attributes[axis].domain,)),)]
    order = space.axis(f"{attribute.of} order"), (asked.bounds,)
    if asked.is_range:
        return [(order,)]
    number = attribute.number(literal)
    word = patterns, ((number, number),)
    return [(word,) if asked.bounds == _WHOLE else tuple(sorted((word, order)))]


def is_long_list(space: Space, axis: int, values: list[str]) -> bool:
    """Return whether a list of values is verified as one condition, instead of becoming boxes."""
    return len(values) > MAX_LISTED and axis in space.patterns and len(set(values)) > MAX_LISTED


def without_implied(space: Space, product: Product) -> Product:
    """Remove the ranges that a product's conjunctions imply."""
    sets = dict(product)
    for axis in space.patterns.values():
        attribute = space.attributes[axis]
        assert isinstance(attribute, Patterns)
        order = space.axis(f"{attribute.of} order")
        if axis in sets and order in sets:
            words = [attribute.literal(number) for number, _ in sets[axis]]
            if all(sets[order] == (bounds_of(attribute, word),) for word in words):
                del sets[order]
    return tuple(sets.items())


def prefix_texts(attribute: TextOrder, ranges: Ranges) -> list[str] | None:
    """Return ranges as prefix conditions; `None` if they are not ranges of prefixes."""
    name = name_text(attribute.of or "")
    prefixes = prefixes_of(ranges)
    return prefixes and [f"{name} like {quoted(written([prefix]) + '%')}" for prefix in prefixes]


def prefixes_of(ranges: Ranges) -> list[str] | None:
    """Return the prefixes that make up ranges; `None` if the ranges are not of prefixes."""
    prefixes: list[str] = []
    for range_ in ranges:
        for prefix in _prefixes(range_):
            if prefix is None or len(prefixes) == _MAX_PREFIXES:
                return None
            prefixes.append(prefix)
    return prefixes


def _prefixes(range_: Interval) -> Iterator[str | None]:
    """Yield the prefixes that make up a range; `None` if there are none."""
    at, last = int(range_[0]), int(range_[1])
    while at <= last:
        size = next(
            (
                length
                for length in range(1, ORDER_BYTES + 1)
                if at % _BASE ** (ORDER_BYTES - length) == 0
                and at + _BASE ** (ORDER_BYTES - length) - 1 <= last
            ),
            0,
        )
        digits = [at // _BASE ** (ORDER_BYTES - 1 - position) % _BASE for position in range(size)]
        if not size or 0 in digits:
            yield None
            return
        try:
            prefix = bytes(digit - 1 for digit in digits).decode()
        except UnicodeDecodeError:
            yield None
            return
        yield prefix
        at = int(range_of_prefix(prefix.encode())[1]) + 1
