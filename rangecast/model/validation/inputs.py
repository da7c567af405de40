"""Validation of filters and sets from callers against a space.

Coordinates on a string attribute are word numbers in the vocabulary of one space. So boxes of an
equal space are valid only as far as both vocabularies have the same words in the same order. A
filter can be re-encoded in the vocabulary of this space; arrays cannot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64
from rangecast.model.attributes.text import OTHER, String
from rangecast.model.boxes import Boxes
from rangecast.model.encoding.events import encode_events
from rangecast.model.encoding.subscriptions import (
    Replacements,
    encode_subscriptions,
    read_replacements,
    read_subscriptions,
)
from rangecast.model.filters.compile import MAX_BOXES
from rangecast.model.filters.filter import Filter
from rangecast.model.filters.tentative import parse_unless_rejected
from rangecast.model.io.rejected import RejectedTarget
from rangecast.model.simplest import simplest
from rangecast.model.space import Space

_SPLIT = 4
"""Boxes that one box may become in another vocabulary: `!=` splits at other places."""


def as_space(value: Any) -> Space:
    """Return a space unchanged; reject anything else."""
    if isinstance(value, Space):
        return value
    raise UsageError(
        f"expected a Space; given: {type(value).__name__} {value!r}\n"
        "  hint: Space.load(path) reads one from a file, Space([...]) creates one from attributes"
    )


def as_filter(value: Any, space: Space) -> Filter:
    """Return a filter of this space, from a text, a `Filter`, or bounds (lo, hi).

    A filter of an equal space is re-encoded in this one.
    """
    if isinstance(value, str):
        return parse_unless_rejected(value, space)
    if isinstance(value, Filter):
        if value.space is space:
            return value
        _check_equal(value.space, space, "the filter is")
        if _renumbered_attribute(value.space, space, *value.arrays()) is None:
            return Filter(space, value.boxes)
        return Filter.parse(str(value), space, max_boxes=max(MAX_BOXES, _SPLIT * len(value.boxes)))
    if isinstance(value, tuple) and len(value) == 2:
        return Filter.from_boxes(space, *value)
    raise UsageError(
        "a filter must be a string, a Filter, or a pair of bounds (lo, hi)\n"
        f"  given: {type(value).__name__} {value!r}\n"
        f'  hint: give a string, such as "{space.names[0]} is not null"'
    )


def as_boxes(
    value: Any,
    space: Space,
    rejected: RejectedTarget = None,
    id: str | None = None,  # noqa: A002
) -> Boxes:
    """Return a set of subscriptions of this space.

    The value is a file path; a table or DataFrame (Arrow, pandas, Polars), a list of dicts or a
    dict of columns, with the columns of a file; or `Boxes`, which have no rejected rows, and are
    normalized like filters. `id` is the column of the ids, if not `id`.
    """
    if isinstance(value, str | Path):
        return read_subscriptions(value, space, rejected=rejected, id=id)
    if not isinstance(value, Boxes):
        return encode_subscriptions(value, space, rejected=rejected, id=id)
    if value.space is None:  # plain coordinates: the caller's own business
        if value.dimensions != len(space):
            raise UsageError(
                f"boxes of {value.dimensions} attributes don't fit a space of {len(space)}"
            )
    elif value.space is not space:
        _check_equal(value.space, space, "the boxes are")
        name = _renumbered_attribute(value.space, space, value.lo, value.hi)
        if name is not None:
            raise UsageError(
                f"the boxes belong to an equal space that numbers the texts of {name!r} "
                "differently\n"
                "  hint: make the boxes with this space, or give the subscriptions as filters"
            )
    return simplest(value, space)


def as_replacements(value: Any, space: Space, rejected: RejectedTarget = None) -> Replacements:
    """Return replacement subscriptions, given as for `as_boxes`."""
    if isinstance(value, Boxes):
        return Replacements.of(as_boxes(value, space))
    return read_replacements(value, space, rejected)


def _check_equal(other: Space, space: Space, noun: str) -> None:
    if other != space:
        raise UsageError(
            f"{noun} of another space\n  given: {other}\n  expected: {space}\n"
            "  hint: make them with this space"
        )


def as_points(value: Any, space: Space) -> F64:
    """Return events of this space as coordinates, (events, d).

    The value is such an array, or a table, DataFrame, list of dicts or dict of columns.
    """
    if not isinstance(value, np.ndarray):
        return encode_events(value, space).points
    points = np.asarray(value, np.float64)
    if points.ndim != 2 or points.shape[1] != len(space) or np.isnan(points).any():
        raise UsageError(
            f"points must have the shape (events, {len(space)}) and contain no NaN; given: "
            f"{points.shape}"
        )
    return points


def words_mentioned(space: Space, lo: F64, hi: F64) -> dict[str, int]:
    """Return how many leading words of each string's vocabulary the bounds (boxes, d) refer to.

    Each box contains all later words, or none.
    """
    counts = {}
    for axis, attribute in enumerate(space):
        if isinstance(attribute, String):
            lows, highs = lo[:, axis], hi[:, axis]
            first = lows[lows < OTHER].max(initial=0)
            last = highs[highs < OTHER].max(initial=-1) + 1
            counts[attribute.name] = int(max(first, last))
    return counts


def _renumbered_attribute(other: Space, space: Space, lo: F64, hi: F64) -> str | None:
    """Return an attribute whose words have other numbers here than in an equal space, if any.

    Only words that the bounds refer to are compared. Those that this space lacks are added to it.
    """
    for name, count in words_mentioned(other, lo, hi).items():
        mine, theirs = space[name], other[name]
        assert isinstance(mine, String)
        assert isinstance(theirs, String)
        if not mine.learn(theirs.vocabulary[:count]):
            return name
    return None
