"""Conversion of filters to ranges by a client, for its broker (paper 004, section 6.1).

Both must have the same cells, and the same numbers for words: a range over a string attribute
refers to words by number. So the client sends a digest of both, and the broker compares it with its
own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rangecast.merge.cells import Cells
from rangecast.merge.ranges import MAX_RANGES, Ranges, range_sets
from rangecast.model.attributes.text import String
from rangecast.model.space import Space
from rangecast.model.validation.inputs import as_filter, as_space, words_mentioned


class ConvertedFilter(NamedTuple):
    """A filter as ranges, with data to verify them by: see `Summary.subscribe_ranges`."""

    ranges: Ranges
    words: dict[str, int]
    """Number of words of each string attribute that the ranges refer to."""
    digest: str
    """Hash of the cells and of these words."""


def convert(
    filter: Any,  # noqa: A002
    space: Space,
    cells: Cells,
    *,
    max_ranges: int = MAX_RANGES,
) -> ConvertedFilter:
    """Return a filter, or its text, as at most `max_ranges` ranges of these cells."""
    lo, hi = as_filter(filter, as_space(space)).arrays()
    cells.check(space)
    sets = range_sets(cells, lo, hi, np.zeros(len(lo), np.int64), max_ranges)
    used = {space.names[axis] for axis in cells.axes}
    mentioned = words_mentioned(space, lo, hi)
    words = {name: count for name, count in mentioned.items() if name in used}
    return ConvertedFilter(sets.of(0), words, digest_of(cells, space, words))


def digest_of(cells: Cells, space: Space, words: Mapping[str, int]) -> str:
    """Return a hash of the cells and of this many words."""
    sha = hashlib.sha256(cells.digest.encode())
    for name, count in sorted(words.items()):
        attribute = space[name]
        known = attribute.vocabulary[:count] if isinstance(attribute, String) else []
        sha.update(repr((name, known)).encode())
    return sha.hexdigest()[:16]
