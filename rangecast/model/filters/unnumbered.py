"""Parsing of filters before the words of strings are numbered.

Ranges of words refer to word numbers, which depend on all words of a set. To parse each text only
once, it is first parsed with provisional numbers: its words in order, with gaps between them and
before the first. Once all words of the set are numbered, the boxes get the final numbers. The
result equals that of parsing again if the final numbers have the same order and have gaps, too,
because all operations on ranges then behave the same. If some of them are adjacent, boxes may
merge: that is simple for a filter that only lists values; any other text is parsed again.
"""

from __future__ import annotations

import marshal
import re
from contextlib import suppress
from typing import Any

from rangecast.errors import FilterError
from rangecast.model.attributes.base import Interval
from rangecast.model.attributes.patterns import Patterns
from rangecast.model.attributes.places import Location, Point
from rangecast.model.attributes.residuals import FULL, Arithmetic, Residual
from rangecast.model.attributes.text import String
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.regions import Box, Region, boxes, union
from rangecast.model.space import Space

_QUOTED = re.compile(r"""'[^']*+(?:''[^']*+)*+'|"[^"]*+(?:""[^"]*+)*+\"""")
_ALTERNATIVES = re.compile(r"\b(?:or|not)\b|!|<>", re.IGNORECASE)
"""Without any of these, a filter is one set of ranges per attribute."""
_STEP = 4
"""From word to word: the places just before and just after a word are its own."""


class _Words(String):
    """String attribute with provisional word numbers, local to one text."""

    def __init__(self, name: str):
        super().__init__(name)
        self.mentioned: dict[str, float] = {}
        self.is_sure = True

    def begin(self, codes: dict[str, float]) -> None:
        self.codes = codes
        self.mentioned = {}
        self.is_sure = True

    def equal(self, value: Any) -> Interval | None:
        word = self._text(value)
        code = self.codes.get(word)
        if code is None:  # a quote in a comment: the words of the text were cut elsewhere
            self.is_sure = False
            code = 0.0
        self.mentioned[word] = code
        return code, code


class _Residual(Residual):
    """Residual attribute with provisional numbers, local to one text, in order of appearance."""

    mentioned: dict[str, float]
    is_sure = True

    def begin(self, _codes: dict[str, float]) -> None:
        self.mentioned = {}
        self.vocabulary = []

    def number(self, text: str) -> float:
        code = self.mentioned.get(text)
        if code is None:
            code = self.mentioned[text] = float(len(self.vocabulary) * _STEP + 2)
            self.vocabulary.append(text)
        return code

    def value(self, coordinate: float) -> str | None:
        return self.vocabulary[(int(coordinate) - 2) // _STEP]


class _Location(_Residual, Location):
    """Location attribute with provisional numbers."""


class _Point(_Residual, Point):
    """Point attribute with provisional numbers."""


class _Arithmetic(_Residual, Arithmetic):
    """Arithmetic attribute with provisional numbers."""


class _Patterns(_Residual, Patterns):
    """Pattern attribute with provisional numbers."""


_LIKE: dict[type[String], type[_Residual]] = {
    Location: _Location,
    Point: _Point,
    Arithmetic: _Arithmetic,
    Patterns: _Patterns,
}


def _first_words(attribute: String) -> _Words | _Residual:
    """Return a copy of an attribute with provisional numbers."""
    if not isinstance(attribute, Residual):
        return _Words(attribute.name)
    made: _Residual = object.__new__(_LIKE[type(attribute)])
    vars(made).update(vars(attribute))
    made.read, made.batches = {}, []
    made.begin({})
    return made


class ProvisionalParser:
    """Parses texts with provisional numbers, and collects the words that they mention."""

    def __init__(self, space: Space):
        self._words = {
            axis: _first_words(attribute)
            for axis, attribute in enumerate(space)
            if isinstance(attribute, String)
        }
        self._space = Space(
            [self._words.get(axis, attribute) for axis, attribute in enumerate(space)]
        )
        self._seen: set[tuple[int, str]] = set()
        self.new: list[tuple[int, str]] = []
        """Words that no earlier text mentioned, with their attributes' axes; the caller clears."""

    def read(self, text: Any) -> bytes | None:
        """Parse a text for `numbered`; `None` if it is rejected or must be parsed again."""
        if not isinstance(text, str):
            return None
        quoted = {word_[1:-1].replace(word_[0] * 2, word_[0]) for word_ in _QUOTED.findall(text)}
        codes = {word: number * _STEP + 2.0 for number, word in enumerate(sorted(quoted))}
        for word_ in self._words.values():
            word_.begin(codes)
        boxes: tuple[Box, ...] | None = None
        with suppress(FilterError):  # parsing it again raises the error
            boxes = Filter.parse(text, self._space).boxes
        words = []
        for axis, word_ in self._words.items():
            for word, code in sorted(word_.mentioned.items()):
                words.append((axis, code, word))
                if (axis, word) not in self._seen:
                    self._seen.add((axis, word))
                    self.new.append((axis, word))
        if boxes is None or not all(word_.is_sure for word_ in self._words.values()):
            return None
        is_plain = _ALTERNATIVES.search(text) is None
        for word_ in self._words.values():
            if isinstance(word_, _Residual):
                is_plain &= not word_.mentioned  # the boxes of a shape are no product of ranges
                word_.forget()
        return marshal.dumps((is_plain, words, boxes))


def numbered(read: bytes, space: Space) -> Filter | None:
    """Return a filter with the final numbers of `space`; `None` if it must be parsed again."""
    is_plain, words, boxes = marshal.loads(read)
    numbers: dict[int, dict[float, float]] = {}
    has_room = True
    last = -1.0
    for axis, code, word in words:
        attribute = space.attributes[axis]
        assert isinstance(attribute, String)
        number = attribute.codes[word]
        if axis not in numbers:
            numbers[axis] = {}
            last = -1.0
        if isinstance(attribute, Residual):  # two words never make one
            numbers[axis] |= {code: number, code + FULL: number + FULL}
            continue
        numbers[axis] |= {code - 1: number - 1, code: number, code + 1: number + 1}
        has_room &= number - last >= 2
        last = number
    if not words:
        return Filter(space, boxes)
    if has_room or (is_plain and len(boxes) == 1):
        return Filter(space, tuple([_box(box, numbers) for box in boxes]))
    return _listed(space, [_box(box, numbers) for box in boxes]) if is_plain else None


def _box(box: Box, numbers: dict[int, dict[float, float]]) -> Box:
    return tuple(
        [
            (axis, known.get(lo, lo), known.get(hi, hi))
            if (known := numbers.get(axis))
            else (axis, lo, hi)
            for axis, lo, hi in box
        ]
    )


def _listed(space: Space, sided: list[Box]) -> Filter:
    """Return the filter of all combinations of the ranges; adjacent ranges are merged."""
    sets: dict[int, set[Interval]] = {}
    for box in sided:
        for axis, lo, hi in box:
            sets.setdefault(axis, set()).add((lo, hi))
    attributes = space.attributes
    product = tuple((axis, union(attributes[axis], sets[axis])) for axis in sorted(sets))
    region: Region = boxes(attributes, [product])
    return Filter(space, tuple(tuple((a, *ranges[0]) for a, ranges in sides) for sides in region))
