"""Filters that may still be rejected: nothing is learned of them until they are accepted.

A word that a filter mentions gets the next number of its attribute's vocabulary. A tentative space
notes new words, and the numbers that they would get; `is_settled_in` has them learned. If other
words have got the numbers meanwhile, the filters must be parsed again.
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
    """Words of a string attribute, and new ones; for filters, not for events."""

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
    """The same of a location."""


class _PointWords(_Words, Point):
    """The same of a point."""


class _ArithmeticWords(_Words, Arithmetic):
    """The same of arithmetic."""


class _PatternsWords(_Words, Patterns):
    """The same of the patterns of a text."""


_LIKE: dict[type[String], type[_Words]] = {
    Location: _LocationWords,
    Point: _PointWords,
    Arithmetic: _ArithmeticWords,
    Patterns: _PatternsWords,
}
"""Tentative words that are also of the host's own kind."""


class TentativeSpace(Space):
    """A space in which filters are read that may still be rejected."""

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
        """Whether filters mention words that the space doesn't know."""
        return any(word.vocabulary for word in self._words)

    def is_settled_in(self, space: Space) -> bool:
        """Learn the new words, if this is the space; return whether the boxes mean them there."""
        if self.host is not space:
            return False
        if self._is_settled is None:
            self._is_settled = all(word.settle() for word in self._words)
        return self._is_settled


class BoxesRead(NamedTuple):
    """The filters of several texts, as boxes that mean something once their space is settled."""

    space: TentativeSpace
    lo: F64
    hi: F64
    sizes: I64
    """Number of boxes of each."""


def parse_unless_rejected(text: str, space: Space) -> Filter:
    """Return the filter of a text; the words of one that is rejected aren't learned."""
    if isinstance(space, TentativeSpace) or not any(
        isinstance(attribute, String) for attribute in space
    ):
        return Filter.parse(text, space)
    own = TentativeSpace(space)
    filter_ = Filter.parse(text, own)
    return Filter(space, filter_.boxes) if own.is_settled_in(space) else Filter.parse(text, space)
