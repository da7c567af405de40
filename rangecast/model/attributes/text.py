"""Attribute types with text values: category, string and hierarchy.

`attributes.base` describes attribute types and defines the others.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rangecast.errors import SpaceError, did_you_mean
from rangecast.kernels.arrays import F64
from rangecast.model.attributes.base import MISSING, Attribute, Boolean, Integer, Interval, Number
from rangecast.model.attributes.numbers import MAX
from rangecast.model.attributes.timestamps import Timestamp

OTHER = MAX
"""The coordinate of every string that no subscription mentions."""
_EMPTY = "this is an empty string; a missing value is null or None"


class _TextValued(Attribute):
    """Attribute with text values."""

    def _text(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self._reject(value, "must be a string")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise self._reject(value, "must be a string without lone surrogates") from None
        return value


class Category(_TextValued):
    """One value of a fixed list."""

    type = "category"

    def __init__(self, name: str, values: Sequence[str], *, source: str | None = None):
        super().__init__(name, source=source)
        self.values = _distinct(name, "values", values)
        self.codes = {value: float(code) for code, value in enumerate(self.values)}
        self.domain = 0.0, float(len(self.values) - 1)

    def definition(self) -> dict[str, Any]:
        return super().definition() | {"values": list(self.values)}

    def coordinate(self, value: Any) -> float:
        if value is None:
            return MISSING
        try:
            return self.codes[self._text(value)]
        except KeyError:
            hint = _EMPTY if value == "" else did_you_mean(value, self.values)
            raise self._reject(value, f"must be one of its listed values ({hint})") from None

    def value(self, coordinate: float) -> str:
        return self.values[int(coordinate)]


_GROWING = threading.Lock()
"""Held while a vocabulary grows: two threads never give two texts one code."""


def _new_lock() -> None:
    global _GROWING
    _GROWING = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)  # another thread may have held it


class String(_TextValued):
    """Free text. The vocabulary holds the texts that subscriptions mention; all others are `OTHER`.

    The vocabulary only grows, so coordinates stay valid. Any thread may add words while others
    read.
    """

    type = "string"

    def __init__(self, name: str, vocabulary: Sequence[str] = (), *, source: str | None = None):
        super().__init__(name, source=source)
        self.domain = 0.0, OTHER
        self.vocabulary = list(vocabulary)
        self.codes = {text: float(code) for code, text in enumerate(self.vocabulary)}

    def coordinate(self, value: Any) -> float:
        return MISSING if value is None else self.codes.get(self._text(value), OTHER)

    def value(self, coordinate: float) -> str | None:
        """Return the text of a coordinate; `None` for `OTHER`, any text outside the vocabulary."""
        return None if coordinate == OTHER else self.vocabulary[int(coordinate)]

    def equal(self, value: Any) -> Interval | None:
        code = self.number(self._text(value))
        return code, code

    def learn(self, words: Sequence[str]) -> bool:
        """Add words to the vocabulary; return whether each now has its index as its code."""
        with _GROWING:
            known = min(len(words), len(self.vocabulary))
            if self.vocabulary[:known] != list(words[:known]):
                return False
        # Another thread may add a word in between: then the order differs after all.
        return all(self.number(word) == code for code, word in enumerate(words[known:], known))

    def number(self, text: str) -> float:
        """Return the code of a text, adding it to the vocabulary if it is new."""
        code = self.codes.get(text)
        if code is None:
            with _GROWING:
                code = self.codes.get(text)
                if code is None:
                    code = float(len(self.vocabulary))
                    self.vocabulary.append(text)
                    self.codes[text] = code
        return code

    def numbers(self, texts: Sequence[str]) -> F64:
        """Return the codes of texts, as `number` does of one."""
        numbers = np.empty(len(texts))
        codes, vocabulary = self.codes, self.vocabulary
        with _GROWING:
            for at, text in enumerate(texts):
                code = codes.get(text)
                if code is None:
                    code = float(len(vocabulary))
                    vocabulary.append(text)
                    codes[text] = code
                numbers[at] = code
        return numbers


class Hierarchy(_TextValued):
    """Tree of concepts. A concept is the range of its leaves; the value of an event is a leaf."""

    type = "hierarchy"

    def __init__(
        self,
        name: str,
        tree: Mapping[str, Any] | Sequence[Any],
        *,
        source: str | None = None,
    ):
        super().__init__(name, source=source)
        if isinstance(tree, str):
            raise SpaceError(
                f"attribute {name!r}: tree must be given as tables and lists, such as "
                f"{{ EU = ['de', 'fr'] }}, not as a file name; given: {tree!r}"
            )
        self.tree = tree
        self.leaves: list[str] = []
        self.ranges: dict[str, Interval] = {}
        self._walk(tree)
        if not self.leaves:
            raise SpaceError(f"attribute {name!r}: the tree has no leaf")
        self.codes = {leaf: float(code) for code, leaf in enumerate(self.leaves)}
        self.domain = 0.0, float(len(self.leaves) - 1)

    def _walk(self, branch: Any) -> None:
        if isinstance(branch, Mapping):
            for concept, below in branch.items():
                first = len(self.leaves)
                self._walk(below)
                if len(self.leaves) == first:
                    raise SpaceError(f"attribute {self.name!r}: concept {concept!r} has no leaf")
                self._enter(concept, first)
        elif isinstance(branch, str):
            self.leaves.append(branch)
            self._enter(branch, len(self.leaves) - 1)
        elif isinstance(branch, Sequence):
            for below in branch:
                self._walk(below)
        else:
            raise SpaceError(
                f"attribute {self.name!r}: a tree consists of tables, lists and strings, such as "
                f"{{ EU = ['de', 'fr'] }}; given: {branch!r}"
            )

    def _enter(self, concept: str, first: int) -> None:
        if concept in self.ranges:
            raise SpaceError(f"attribute {self.name!r}: {concept!r} appears twice in the tree")
        self.ranges[concept] = float(first), float(len(self.leaves) - 1)

    def definition(self) -> dict[str, Any]:
        return super().definition() | {"tree": self.tree}

    def coordinate(self, value: Any) -> float:
        if value is None:
            return MISSING
        text = self._text(value)
        if text in self.codes:
            return self.codes[text]
        if text in self.ranges:
            raise self._reject(value, "must be a leaf of its tree; this is an inner concept")
        hint = _EMPTY if text == "" else did_you_mean(text, self.leaves)
        raise self._reject(value, f"must be a leaf of its tree ({hint})")

    def value(self, coordinate: float) -> str:
        return self.leaves[int(coordinate)]

    def equal(self, value: Any) -> Interval | None:
        text = self._text(value)
        if text not in self.ranges:
            hint = did_you_mean(text, list(self.ranges))
            raise self._reject(value, f"must be a concept or leaf of its tree ({hint})")
        return self.ranges[text]

    def concepts(self, lo: float, hi: float) -> Iterator[str]:
        """Yield the fewest concepts that together cover the leaves `lo` to `hi`."""
        start = lo
        while start <= hi:
            fitting = [c for c, (a, b) in self.ranges.items() if a == start and b <= hi]
            best = max(fitting, key=lambda concept: self.ranges[concept][1])
            yield best
            start = self.ranges[best][1] + 1


KINDS: dict[str, type[Attribute]] = {
    kind.type: kind for kind in (Number, Integer, Timestamp, Boolean, Category, String, Hierarchy)
}


def _distinct(name: str, what: str, values: Sequence[str]) -> tuple[str, ...]:
    if isinstance(values, str) or not all(isinstance(v, str) for v in values) or not values:
        raise SpaceError(f"attribute {name!r}: {what} must be a list of strings; given: {values!r}")
    if len(set(values)) < len(values):
        twice = {value for value, count in Counter(values).items() if count > 1}
        raise SpaceError(f"attribute {name!r}: {what} lists {sorted(twice)} more than once")
    return tuple(values)
