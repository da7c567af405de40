"""The line that ranges refer to: one stretch per word, which contains the cells of numbers.

Neighbours tell one another ranges of a Hilbert curve through cells of some attributes (paper 004).
Brokers number the words of a string attribute differently, so that such a curve can't speak of
them. A hash is the same everywhere: with `words`, the name of a string attribute, each of its words
has a stretch of the line by its hash, and each stretch is a curve of its own. Words that share a
stretch let through too much, never too little.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64, U64, Bool
from rangecast.merge.cells import Cells
from rangecast.merge.ranges import RangeSets, range_sets
from rangecast.model.attributes.base import MISSING
from rangecast.model.attributes.text import OTHER, String
from rangecast.model.boxes import Boxes
from rangecast.model.space import Space

_BITS = 12
"""Bits of the number of a stretch."""
_MISSING = (1 << _BITS) - 1
"""Stretch of events without a word."""
_MAX_WORDS = 16
"""Maximum words that a box on the curve may list."""
Words = Mapping[str, Sequence[str | None]]
"""The values of string attributes, event by event."""


@lru_cache(1 << 16)
def stretch_of(word: str | None) -> int:
    """Return the number of a word's stretch."""
    if word is None:
        return _MISSING
    digest = hashlib.blake2b(word.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") % _MISSING


class Curve:
    """Indexes of events and ranges of subscriptions on the line."""

    def __init__(self, space: Space, cells: Cells, words: str | None = None):
        cells.check(space)
        self.cells = cells
        self._words = words
        self._axis = -1
        if words is not None:
            self._axis = space.axis(words)
            attribute = space[words]
            if not isinstance(attribute, String):
                raise UsageError(f"words require a string attribute; {words!r} is {attribute}")
            if cells.width + _BITS > 64 or self._axis in cells.axes:
                raise UsageError(
                    f"with words, cells must be of other attributes and have at most {64 - _BITS} "
                    f"bits together; given: {cells.width} bits of attributes {cells.axes}"
                )
            self._vocabulary = attribute.vocabulary
        self.width = cells.width + (_BITS if words is not None else 0)
        self.top = (1 << self.width) - 1
        self.digest = cells.digest if words is None else f"{cells.digest}/{words}"

    def places(self, points: F64, words: Words | None) -> U64:
        """Return the indexes of events, (n, d), on the line."""
        places = self.cells.places(points)
        if self._words is None:
            return places
        assert words is not None
        stretches = np.array([stretch_of(word) for word in words[self._words]], np.uint64)
        return (stretches << np.uint64(self.cells.width)) | places

    def bears(self, boxes: Boxes) -> Bool:
        """Return which subscriptions bound all attributes of the curve: their ranges are small."""
        good = boxes.mentions[:, list(self.cells.axes)].all(axis=1)
        if self._words is not None:
            lo, hi = boxes.lo[:, self._axis], boxes.hi[:, self._axis]
            good &= (lo >= 0) & (hi < min(OTHER, MISSING)) & (hi - lo < _MAX_WORDS)
        return np.asarray(np.bincount(boxes.owner, ~good, boxes.rows) == 0)

    def ranges(self, boxes: Boxes, limit: int) -> RangeSets:
        """Return the ranges of subscriptions that fit the curve, one or more sets each."""
        if self._words is None:
            return range_sets(self.cells, boxes.lo, boxes.hi, boxes.owner, limit)
        by_box = range_sets(self.cells, boxes.lo, boxes.hi, np.arange(len(boxes.lo)), limit)
        first = boxes.lo[:, self._axis].astype(np.int64).tolist()
        last = boxes.hi[:, self._axis].astype(np.int64).tolist()
        box, stretches = [], []
        for index, (low, high) in enumerate(zip(first, last, strict=True)):
            for word in self._vocabulary[low : high + 1]:
                box.append(index)
                stretches.append(stretch_of(word))
        return _moved(by_box, np.array(box, np.int64), np.array(stretches, np.uint64), self.cells)


def _moved(sets: RangeSets, chosen: np.ndarray, stretches: U64, cells: Cells) -> RangeSets:
    """Return the chosen sets, shifted to their stretches of the line."""
    sizes = np.diff(sets.offsets)[chosen]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
    index = np.repeat(sets.offsets[chosen], sizes) + within
    begin = np.repeat(stretches << np.uint64(cells.width), sizes)
    return RangeSets(sets.starts[index] | begin, sets.ends[index] | begin, offsets)
