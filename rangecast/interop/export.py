"""Boxes as alternatives of terms, each about one attribute: the input of writers.

A term lists values or ranges of its attribute. Ends of ranges are written as `<` or `<=`,
whichever number is shorter: both mean the same double.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rangecast.interop.result import Rejection
from rangecast.interop.rules import UnsupportedRuleError
from rangecast.model.attributes.base import Attribute
from rangecast.model.attributes.patterns import TextOrder
from rangecast.model.attributes.places import Place
from rangecast.model.attributes.residuals import Arithmetic, Residual
from rangecast.model.attributes.text import OTHER, String
from rangecast.model.filters.formatting import without_covers
from rangecast.model.filters.regions import NULL, Product, after, before, complement, joined
from rangecast.model.space import Space
from rangecast.model.text.regions import prefixes_of
from rangecast.model.validation.inputs import as_boxes

Bound = tuple[str, Any]
"""An operator, `<`, `<=`, `>` or `>=`, and a value."""


@dataclass(frozen=True)
class Term:
    """Condition of an alternative on one attribute: on its value, on a missing value, or both."""

    attribute: Attribute
    missing: bool
    """Whether a missing value matches."""
    any_value: bool
    """Whether any value matches; then the other fields are empty."""
    values: tuple[Any, ...] = ()
    excluded: tuple[str, ...] = ()
    """Texts that don't match, while all others do."""
    spans: tuple[tuple[Bound, ...], ...] = ()
    """Ranges of an ordered attribute; single values are in `values`."""


@dataclass(frozen=True)
class ExportResult:
    """Subscriptions as rules of another system."""

    rules: dict[str, Any]
    """The rule of each subscription, by its id."""
    text: str
    """The rules as a file of that system."""
    unsupported: list[Rejection]
    """The subscriptions that the other system can't express exactly."""
    notes: list[str]
    """Parts that rules can't express: scores and weights."""


def export(
    value: Any,
    space: Space,
    rule_of: Callable[[list[list[Term]]], Any],
    write: Callable[[dict[str, Any]], str],
    *,
    takes_shapes: bool = False,
    takes_prefixes: bool = False,
) -> ExportResult:
    """Convert subscriptions to rules: `rule_of` makes a rule of alternatives, `write` the file."""
    boxes = as_boxes(value, space)
    rules: dict[str, Any] = {}
    unsupported = []
    first = boxes.box_offsets
    for row, id_ in enumerate(boxes.ids.to_pylist()):
        part = slice(first[row], first[row + 1])
        try:
            terms = alternatives(space, boxes.lo[part], boxes.hi[part])
            _reject_residuals(terms, takes_shapes=takes_shapes, takes_prefixes=takes_prefixes)
            rules[str(id_)] = rule_of(terms)
        except UnsupportedRuleError as error:
            unsupported.append(Rejection(str(id_), error.place, error.reason))
        except OverflowError:
            unsupported.append(
                Rejection(str(id_), "", "it has a timestamp outside the years 1 to 9999")
            )
    notes = []
    if np.any(boxes.scores) or (boxes.weights is not None and np.any(boxes.weights != 1)):
        notes.append("scores and weights have no counterpart and are left out")
    return ExportResult(rules, write(rules), unsupported, notes)


def _reject_residuals(
    alternatives: list[list[Term]], *, takes_shapes: bool, takes_prefixes: bool
) -> None:
    for terms in alternatives:
        for term in terms:
            is_prefix = isinstance(term.attribute, TextOrder) and takes_prefixes and term.values
            if term.attribute.of is not None and not is_prefix:
                reason = "text patterns have no counterpart there"
                raise UnsupportedRuleError(term.attribute.of, reason)
            if isinstance(term.attribute, Arithmetic):
                reason = "arithmetic has no counterpart there"
                raise UnsupportedRuleError(term.attribute.name, reason)
            if isinstance(term.attribute, Place) and not takes_shapes:
                raise UnsupportedRuleError(term.attribute.name, "shapes have no counterpart there")


def alternatives(space: Space, lo: Any, hi: Any) -> list[list[Term]]:
    """Return the alternatives of boxes; one without terms is always true."""
    products: list[Product] = []
    for low, high in zip(lo.tolist(), hi.tolist(), strict=True):
        bounds = enumerate(zip(low, high, strict=True))
        mentioned = [(axis, both) for axis, both in bounds if both != (-np.inf, np.inf)]
        products.append(tuple((axis, (both,)) for axis, both in mentioned))
    if any(isinstance(attribute, Place) for attribute in space):
        products = without_covers(space, products)
    region = joined(space.attributes, products)
    return [[_term(space.attributes[axis], ranges) for axis, ranges in box] for box in region]


def _term(attribute: Attribute, ranges: tuple[tuple[float, float], ...]) -> Term:
    if isinstance(attribute, Residual):
        return Term(attribute, False, False, tuple(attribute.literal(lo) for lo, _ in ranges))
    missing = ranges[-1] == NULL
    known = ranges[:-1] if missing else ranges
    if known == (attribute.domain,):
        return Term(attribute, missing, True)
    if isinstance(attribute, TextOrder):
        return Term(attribute, False, False, tuple(prefixes_of(ranges) or ()))
    if attribute.ordered:
        points = tuple(attribute.value(lo) for lo, hi in known if lo == hi)
        spans = tuple(tuple(_bounds(attribute, *value)) for value in known if value[0] != value[1])
        return Term(attribute, missing, False, points, (), spans)
    if isinstance(attribute, String) and known and known[-1][1] == OTHER:
        excluded = complement(attribute, known)
        return Term(attribute, missing, False, (), tuple(_listed(attribute, excluded)))
    return Term(attribute, missing, False, tuple(_listed(attribute, known)))


def _listed(attribute: Attribute, ranges: tuple[tuple[float, float], ...]) -> Iterator[Any]:
    for lo, hi in ranges:
        for code in range(int(lo), int(hi) + 1):
            yield attribute.value(float(code))


def _bounds(attribute: Attribute, lo: float, hi: float) -> Iterator[Bound]:
    if lo != attribute.domain[0]:
        yield _end(attribute, lo, ">=", ">", before(attribute, lo))
    if hi != attribute.domain[1]:
        yield _end(attribute, hi, "<=", "<", after(attribute, hi))


def _end(attribute: Attribute, end: float, closed: str, opened: str, neighbour: float) -> Bound:
    shorter = len(attribute.literal(neighbour)) + 1 < len(attribute.literal(end))
    if shorter and attribute.type != "integer":
        return opened, attribute.value(neighbour)
    return closed, attribute.value(end)


def plain_number(number: float) -> int | float:
    """Return a whole number as an integer: 5 rather than 5.0."""
    return int(number) if number == int(number) and abs(number) < 1e15 else number
