"""Formatting of boxes as a readable text that parses to the same boxes.

Boxes that differ on only one attribute are written as one conjunction. A set of ranges is written
both directly and as its complement, and the shorter text is used: `x != 5` rather than
`x < 5 or x > 5`, `symbol != 'A'` rather than a list of all others. A bound is written with `<` or
`<=`, whichever number is shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta, timezone
from math import inf
from typing import TYPE_CHECKING

from rangecast.model.attributes.base import Attribute, Interval, quoted
from rangecast.model.attributes.patterns import TextOrder
from rangecast.model.attributes.places import Place
from rangecast.model.attributes.residuals import FULL, Residual
from rangecast.model.attributes.text import OTHER, Hierarchy, String
from rangecast.model.attributes.timestamps import EPOCH, FARTHEST_ZONE
from rangecast.model.filters.lexer import name_text
from rangecast.model.filters.regions import (
    NULL,
    Product,
    Ranges,
    after,
    before,
    complement,
    joined,
)
from rangecast.model.filters.regions import boxes as disjoint
from rangecast.model.shapes.words import ShapeLiteral, literals_of
from rangecast.model.space import Space
from rangecast.model.text.regions import prefix_texts, without_implied

if TYPE_CHECKING:
    from rangecast.kernels.arrays import F64


Rewrite = Callable[[Place, ShapeLiteral], str]
"""(place, one of its literals) -> the text that is written for it."""


def text_of(
    space: Space,
    boxes: Sequence[Sequence[tuple[int, float, float]]],
    rewrite: Rewrite | None = None,
) -> str:
    """Return the text of boxes given as (axis, lo, hi) of the restricted attributes.

    rewrite   function that formats literals of places; by default they are unchanged
    """
    products: list[Product] = [tuple((axis, ((lo, hi),)) for axis, lo, hi in box) for box in boxes]
    if any(isinstance(attribute, Place) for attribute in space):
        products = without_covers(space, products)
    alternatives = []
    for product in joined(space.attributes, products):
        if space.patterns:
            product = without_implied(space, product)
        several = len(product) > 1
        parts = [
            _condition(space.attributes[axis], ranges, several, rewrite) for axis, ranges in product
        ]
        alternatives.append(" and ".join(parts) or "true")
    return " or ".join(alternatives)


def without_covers(space: Space, products: list[Product]) -> list[Product]:
    """Remove the bounds that a shape implies: those of its covering boxes."""
    left = dict.fromkeys(products)
    for product in products:
        for axis, ranges in product:
            place = space.attributes[axis]
            if not isinstance(place, Place) or product not in left:
                continue
            sides = [space.axis(coordinate.name) for coordinate in place.coordinates]
            rest = tuple(part for part in product if part[0] not in (*sides, axis))
            for cells in _implied(space, place, ranges, sides):
                number = ranges[0][0]
                covers = [
                    tuple(sorted([*rest, *cell, (axis, ((number, number + FULL * full),))]))
                    for cell, full in cells
                ]
                implied = disjoint(space.attributes, covers)
                if all(axis_ in left for axis_ in implied):
                    for axis_ in implied:
                        left.pop(axis_, None)
                    left[tuple(sorted([*rest, (axis, ((number, number),))]))] = None
                    break
    return list(left)


def _implied(
    space: Space, place: Place, ranges: Ranges, sides: list[int]
) -> Iterator[list[tuple[Product, bool]]]:
    """Yield the bounds that a conjunction implies: the cover of a literal, or the whole domain."""
    domains = [(a, (space.attributes[a].domain,)) for a in sides]
    for literal in literals_of(place, place.literal(ranges[0][0])):
        if literal.negated:
            yield [(tuple(domains), False)]
            continue
        cells: list[tuple[Product, bool]] = []
        for cell in literal.cover():
            bounds = (cell.x0, cell.x1), (cell.y0, cell.y1)
            clipped = [
                (a, space.attributes[a].clip(lo, hi))
                for a, (lo, hi) in zip(sides, bounds, strict=True)
            ]
            parts = tuple((a, (range_,)) for a, range_ in clipped if range_ is not None)
            if len(parts) == len(sides):
                cells.append((parts, cell.is_full))
        yield cells


def text_of_bounds(space: Space, lo: F64, hi: F64) -> str:
    """Return the text of boxes given as bounds, (boxes, d)."""
    boxes = []
    for low, high in zip(lo.tolist(), hi.tolist(), strict=True):
        bounds = enumerate(zip(low, high, strict=True))
        boxes.append([(axis, *both) for axis, both in bounds if both != (-inf, inf)])
    return text_of(space, boxes)


def _condition(
    attribute: Attribute, ranges: Ranges, in_conjunction: bool, rewrite: Rewrite | None
) -> str:
    """Return the text of a set of ranges, parenthesized if an `or` in it requires it."""
    if isinstance(attribute, Residual):
        words = [attribute.literal(number) for number, _ in ranges]
        if rewrite is not None and isinstance(attribute, Place):
            literals = [literals_of(attribute, word) for word in words]
            words = [
                " and ".join(rewrite(attribute, literal) for literal in literals_)
                for literals_ in literals
            ]
        text = " or ".join(words)
        return f"({text})" if in_conjunction and len(words) > 1 else text
    if isinstance(attribute, TextOrder) and (prefixes := prefix_texts(attribute, ranges)):
        text = " or ".join(prefixes)
        return f"({text})" if in_conjunction and len(prefixes) > 1 else text
    name = name_text(attribute.name)
    known = ranges[:-1] if ranges[-1] == NULL else ranges
    alternatives = [f"{name} is null"] if ranges[-1] == NULL else []
    if known == (attribute.domain,):
        alternatives.insert(0, f"{name} is not null")
    elif known:
        held = _ordered_texts if attribute.ordered else _listed_texts
        alternatives = [*held(attribute, name, known), *alternatives]
    text = " or ".join(alternatives)
    return f"({text})" if in_conjunction and len(alternatives) > 1 else text


def _listed_texts(attribute: Attribute, name: str, ranges: Ranges) -> list[str]:
    included = _among(name, "=", "in", _words(attribute, ranges))
    excluded = _among(name, "!=", "not in", _words(attribute, complement(attribute, ranges)))
    if isinstance(attribute, String):  # only one side of it can be listed
        return [excluded if ranges[-1][1] == OTHER else included]
    return [included if len(included) <= len(excluded) else excluded]


def _among(name: str, sign: str, word: str, literals: list[str]) -> str:
    if len(literals) == 1:
        return f"{name} {sign} {literals[0]}"
    return f"{name} {word} ({', '.join(literals)})"


def _words(attribute: Attribute, ranges: Ranges) -> list[str]:
    """Return the literals that together denote the ranges."""
    words: list[str] = []
    for lo, hi in ranges:
        if isinstance(attribute, Hierarchy):
            words.extend(map(quoted, attribute.concepts(lo, hi)))
        elif hi < OTHER:
            words.extend(attribute.literal(float(code)) for code in range(int(lo), int(hi) + 1))
    return words


def _ordered_texts(attribute: Attribute, name: str, ranges: Ranges) -> list[str]:
    """Return the alternatives of the shorter text: the ranges or their complement."""
    held = [_span(attribute, name, range_) for range_ in ranges if range_[0] != range_[1]]
    points = [_literal(attribute, lo) for lo, hi in ranges if lo == hi]
    if points:
        held.append(_among(name, "=", "in", points))
    if len(ranges) == 1:
        return held
    whole = ranges[0][0], ranges[-1][1]
    left_out = [_span(attribute, name, whole)] if whole != attribute.domain else []
    gaps = [gap for gap in complement(attribute, ranges) if whole[0] < gap[0] < whole[1]]
    left_out += [_outside(attribute, name, range_) for range_ in gaps if range_[0] != range_[1]]
    points = [_literal(attribute, lo) for lo, hi in gaps if lo == hi]
    if points:
        left_out.append(_among(name, "!=", "not in", points))
    excluded = " and ".join(left_out)
    # A `not (...)` is harder to read than its letters say.
    length = len(excluded) + len("not ") * excluded.count("not (")
    return held if len(" or ".join(held)) <= length else [excluded]


def _outside(attribute: Attribute, name: str, range_: Interval) -> str:
    text = _span(attribute, name, range_)
    between = f"{name} between "
    if text.startswith(between):
        return f"{name} not between {text[len(between) :]}"
    return f"not ({text})"


def _span(attribute: Attribute, name: str, range_: Interval) -> str:
    """Return the text of one range that is neither a point nor the whole domain."""
    lo, hi = range_
    if lo == attribute.domain[0]:
        return f"{name} {_end(attribute, hi, '<=', '<', after(attribute, hi))}"
    if hi == attribute.domain[1]:
        return f"{name} {_end(attribute, lo, '>=', '>', before(attribute, lo))}"
    low_sign, low = _end(attribute, lo, "<=", "<", before(attribute, lo)).split(" ", 1)
    high = _end(attribute, hi, "<=", "<", after(attribute, hi))
    if low_sign == "<=" and high.startswith("<="):
        return f"{name} between {low} and {high[3:]}"
    return f"{low} {low_sign} {name} {high}"


def _end(attribute: Attribute, end: float, closed: str, opened: str, neighbour: float) -> str:
    """Return an operator and a literal for one bound: `<= 4` unless `< 5` is shorter."""
    texts = []
    for sign, coordinate in ((closed, end), (opened, neighbour)):
        try:
            texts.append((sign, _literal(attribute, coordinate)))
        except OverflowError:  # a moment after the last year; its neighbour is in it
            continue
    # One digit less is no reason: `>= 1000` reads better than `> 999`.
    sign, literal = texts[-1] if len(texts[-1][1]) + 1 < len(texts[0][1]) else texts[0]
    return f"{sign} {literal}"


def _literal(attribute: Attribute, coordinate: float) -> str:
    try:
        return attribute.literal(coordinate)
    except OverflowError:
        # In the first and last days of the calendar a moment may have no date in UTC.
        zone = FARTHEST_ZONE if coordinate < 0 else -FARTHEST_ZONE
        moment = EPOCH + (timedelta(microseconds=int(coordinate)) + zone)
        return quoted(moment.replace(tzinfo=timezone(zone)).isoformat())
