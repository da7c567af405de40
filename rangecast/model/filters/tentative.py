"""Filters that may still be rejected, parsed without changing the vocabularies.

A word that a filter mentions gets the next number of its attribute's vocabulary. A tentative space
records new words and the numbers that they would get; `is_settled_in` adds them to the vocabulary.
If those numbers have been taken in the meantime, the filters must be parsed again.
"""

from __future__ import annotations

from typing import NamedTuple

from rangecast.kernels.arrays import F64, I64
from rangecast.model.attributes.patterns import Patterns
from rangecast.model.attributes.places import Location, Point
from rangecast.model.attributes.residuals import Arithmetic
from rangecast.model.attributes.text import String
from rangecast.model.filters.filter import Filter
from rangecast.model.space import Space


class _Words(String):
    """String attribute with tentative new words; for filters, not for events."""

    def __init__(self, host: String):
        vars(self).update(vars(host))
        self.codes, self.vocabulary = {}, []
        self._host = host
        self._first = len(host.vocabulary)

    def number(self, text: str) -> float:
        code = self._host.codes.get(text)
        if code is None or code >= self._first:  # others may be learned while this one is read
            code = self.codes.get(text)
            if code is None:
                code = self.codes[text] = float(self._first + len(self.vocabulary))
                self.vocabulary.append(text)
        return code

    def value(self, coordinate: float) -> str | None:
        if not self._first <= coordinate < self._first + len(self.vocabulary):
            return self._host.value(coordinate)
        return self.vocabulary[int(coordinate) - self._first]

    def settle(self) -> bool:
        return all(self._host.number(word) == code for word, code in self.codes.items())


class _LocationWords(_Words, Location):
    """Location attribute with a tentative vocabulary."""


class _PointWords(_Words, Point):
    """Point attribute with a tentative vocabulary."""


class _ArithmeticWords(_Words, Arithmetic):
    """Arithmetic attribute with a tentative vocabulary."""


class _PatternsWords(_Words, Patterns):
    """Pattern attribute with a tentative vocabulary."""


_LIKE: dict[type[String], type[_Words]] = {
    Location: _LocationWords,
    Point: _PointWords,
    Arithmetic: _ArithmeticWords,
    Patterns: _PatternsWords,
}
"""Tentative words that are also of the host's own kind."""


class TentativeSpace(Space):
    """Space for parsing filters that may still be rejected."""

    def __init__(self, host: Space):
        vars(self).update(vars(host))  # all was checked there
        attributes = [
            _LIKE.get(type(attribute), _Words)(attribute)
            if isinstance(attribute, String)
            else attribute
            for attribute in host
        ]
        self.attributes = tuple(attributes)
        self._words = [attribute for attribute in attributes if isinstance(attribute, _Words)]
        self.host = host
        self._is_settled: bool | None = None

    @property
    def has_news(self) -> bool:
        """Return whether filters mention words that are not in the space's vocabularies."""
        return any(word.vocabulary for word in self._words)

    def is_settled_in(self, space: Space) -> bool:
        """Add the new words if this is the host space; return whether the boxes are valid in it."""
        if self.host is not space:
            return False
        if self._is_settled is None:
            self._is_settled = all(word.settle() for word in self._words)
        return self._is_settled


class TentativeBoxes(NamedTuple):
    """Filters of several texts, as boxes that are valid once their space is settled."""

    space: TentativeSpace
    lo: F64
    hi: F64
    sizes: I64
    """Number of boxes of each."""


def parse_unless_rejected(text: str, space: Space) -> Filter:
    """Parse a text; if it is rejected, the vocabularies stay unchanged."""
    if isinstance(space, TentativeSpace) or not any(
        isinstance(attribute, String) for attribute in space
    ):
        return Filter.parse(text, space)
    own = TentativeSpace(space)
    filter_ = Filter.parse(text, own)
    return Filter(space, filter_.boxes) if own.is_settled_in(space) else Filter.parse(text, space)
