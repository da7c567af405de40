"""Text attributes with patterns and words: one attribute, three axes.

A `Text` is a string whose own axis holds the values that subscriptions compare it with. Two more
axes read the same event column and are never written to files:

    <name> patterns   conditions such as `title like '%bike%'`, verified on candidates;
                      for an event, the handle of its text (`text_store`)
    <name> order      position of a text in UTF-8 order, by its first bytes, so that an
                      index can use the ranges of prefixes
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from rangecast.errors import InvalidValueError
from rangecast.kernels.arrays import F64, I64, U8
from rangecast.model.attributes.base import MISSING, Integer, Interval, Ordered
from rangecast.model.attributes.residuals import Residual
from rangecast.model.attributes.text import String
from rangecast.model.attributes.text_store import TEXTS

ORDER_BYTES = 6
"""Bytes of a text that are its place in the order."""
_BASE = 257
"""A byte, or the end of a text, which comes before all of them."""
_ONES = sum(_BASE**at for at in range(ORDER_BYTES))
_AND = re.compile(r"'[^']*+(?:''[^']*+)*+'|`[^`]*+(?:``[^`]*+)*+`| and ")


def order_of(data: bytes) -> float:
    """Return the position of a UTF-8 text in byte order, by its first bytes."""
    if len(data) == ORDER_BYTES:  # four times quicker than the loop
        a, b, c, d, e, f = data
        low = (d * _BASE + e) * _BASE + f
        return float(((a * _BASE + b) * _BASE + c) * _BASE**3 + low + _ONES)
    key = 0
    for at in range(ORDER_BYTES):
        key = key * _BASE + (data[at] + 1 if at < len(data) else 0)
    return float(key)


def orders_of(data: U8, starts: I64, ends: I64) -> F64:
    """Return the positions of UTF-8 texts in byte order, given their start and end offsets."""
    places = np.zeros(len(starts))
    if not len(data):
        return places
    for at in range(ORDER_BYTES):
        there = starts + at < ends
        byte = data[np.where(there, starts + at, 0)]
        places = places * _BASE + np.where(there, byte + 1.0, 0.0)
    return places


def range_of_prefix(prefix: bytes) -> Interval:
    """Return the range of texts with a prefix; only the first bytes of a long prefix count."""
    first = order_of(prefix)
    return first, first + _BASE ** max(ORDER_BYTES - len(prefix), 0) - 1


LAST = float(_BASE**ORDER_BYTES - 1)


class Patterns(Residual):
    """Text conditions that are verified on candidates: patterns, words, long lists."""

    type = "patterns"

    def __init__(self, text: Text, *, vocabulary: Sequence[str] = ()):
        super().__init__(f"{text.name} patterns", vocabulary)
        self.of = text.name
        self.path = text.path or (text.name,)

    def coordinate(self, value: Any) -> float:
        return MISSING if value is None else TEXTS.put(self._text(value))

    def equal(self, value: Any) -> Interval | None:
        raise InvalidValueError(
            f"{self.name!r} has no values of its own: write conditions on {self.of!r}"
        )

    def literals_in(self, word: str) -> list[str]:
        cuts = [mark.span() for mark in _AND.finditer(word) if mark[0] == " and "]
        starts, ends = [0, *(end for _, end in cuts)], [*(start for start, _ in cuts), len(word)]
        return [word[start:end] for start, end in zip(starts, ends, strict=True)]


class TextOrder(Ordered):
    """Position of a text in UTF-8 order."""

    type = "order"

    def __init__(self, text: Text):
        super().__init__(f"{text.name} order")
        self.of = text.name
        self.path = text.path or (text.name,)
        self.domain = 0.0, LAST

    def coordinate(self, value: Any) -> float:
        if value is None:
            return MISSING
        if not isinstance(value, str):
            raise self._reject(value, "must be a string")
        try:
            return order_of(value[:ORDER_BYTES].encode())
        except UnicodeEncodeError:
            raise self._reject(value, "must be a string without lone surrogates") from None

    def value(self, coordinate: float) -> int:
        return int(coordinate)

    def literal(self, coordinate: float) -> str:
        return str(int(coordinate))

    def at_least(self, value: Any, *, strict: bool = False) -> float:
        return _LINE.at_least(value, strict=strict)

    def at_most(self, value: Any, *, strict: bool = False) -> float:
        return _LINE.at_most(value, strict=strict)


_LINE = Integer("line")


class Text(String):
    """String that filters can also compare with patterns and words."""

    type = "text"

    def __init__(
        self,
        name: str,
        vocabulary: Sequence[str] = (),
        *,
        patterns: Sequence[str] = (),
        source: str | None = None,
    ):
        """Create the attribute.

        patterns   vocabulary of its pattern conditions, like `vocabulary` for the string itself
        """
        super().__init__(name, vocabulary, source=source)
        self.companions = Patterns(self, vocabulary=patterns), TextOrder(self)
