"""Attributes whose conditions are verified on the candidates of an index.

The vocabulary of such an attribute holds the filters' conjunctions, numbered like the words of a
string; events have no value for it. A conjunction is one or more literals joined by `and`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from rangecast.errors import InvalidValueError
from rangecast.kernels.arrays import F64
from rangecast.model.attributes.base import MISSING, Interval, Number
from rangecast.model.attributes.text import String

FULL = 0.5
"""A box in which word n always holds has the range n to n + FULL: it needs no test."""


class Pair(NamedTuple):
    """Two conjunctions of an attribute; the second lies inside the first."""

    axis: int
    outer: int
    inner: int


_MARKS = re.compile(r"`[^`]*`| and ")


class Residual(String):
    """Attribute whose conditions are verified on candidates."""

    coordinates: tuple[Number, ...] = ()
    """The numbers that all its words read."""

    def __init__(self, name: str, vocabulary: Sequence[str] = ()):
        super().__init__(name, vocabulary)
        self.read: dict[str, Any] = {}
        """Literals that were read already, by their text, until their programs are made."""
        self.batches: list[tuple[F64, Any]] = []
        """Batches of polygons that were read: the numbers of their words, and their rings."""

    def forget(self) -> None:
        """Release the literals that were read."""
        self.read.clear()
        self.batches.clear()

    def literal(self, coordinate: float) -> str:
        """Return the text of a conjunction by its number."""
        return str(self.value(coordinate))

    def literals_in(self, word: str) -> list[str]:
        """Split a conjunction into its literals."""
        raise NotImplementedError

    def both(self, first: str, second: str) -> str:
        """Return the conjunction of two conjunctions."""
        return " and ".join(sorted({*self.literals_in(first), *self.literals_in(second)}))


class Arithmetic(Residual):
    """Comparisons of arithmetic expressions, such as `price / mean > 1.05`."""

    type = "arithmetic"

    def __init__(self, name: str = "arithmetic", *, vocabulary: Sequence[str] = ()):
        super().__init__(name, vocabulary)

    def coordinate(self, value: Any) -> float:
        if value is None:
            return MISSING
        raise self._reject(value, "is arithmetic: events have no value for it")

    def equal(self, value: Any) -> Interval | None:
        raise InvalidValueError(
            f"{self.name!r} is arithmetic: compare numeric attributes with each other, as in "
            "price > mean"
        )

    def literals_in(self, word: str) -> list[str]:
        cuts = [mark.span() for mark in _MARKS.finditer(word) if mark[0] == " and "]
        starts, ends = [0, *(end for _, end in cuts)], [*(start for start, _ in cuts), len(word)]
        return [word[start:end] for start, end in zip(starts, ends, strict=True)]
