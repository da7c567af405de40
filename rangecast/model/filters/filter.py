"""Filters: a text such as `age >= 18 and city in ('Rome', 'Oslo')` as a small set of boxes.

A box lists only the attributes that it restricts, as (axis, lo, hi), ascending by axis. The boxes
of a filter are sorted, none lies inside another, and no two can be merged. An `or` gives several
boxes; the filter matches where any of them does.

Parsing: `grammar` (text to tree), `compile` (tree to region), `regions` (the algebra), or only
`plain` for most filters. `text` converts boxes back to text. docs/reference/filters.md describes
the language.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rangecast.errors import FilterError, UsageError
from rangecast.model.attributes.base import MISSING
from rangecast.model.attributes.text import OTHER, String
from rangecast.model.display import brief, cut
from rangecast.model.filters.compile import MAX_BOXES, region_of
from rangecast.model.filters.formatting import text_of
from rangecast.model.filters.plain import plain_boxes
from rangecast.model.filters.regions import (
    Box,
    Product,
    Region,
    absorbed,
    boxes,
    snapped,
    sparse,
    union,
)
from rangecast.model.space import Space

if TYPE_CHECKING:
    from rangecast.kernels.arrays import F64, I32

_MAX_LENGTH = 300
"""Characters of a filter that are shown."""


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """Condition of a subscription: a set of boxes in a space. `str` gives an equivalent text."""

    space: Space
    boxes: tuple[Box, ...]

    @classmethod
    def parse(cls, text: str, space: Space, *, max_boxes: int = MAX_BOXES) -> Filter:
        """Parse a text. More than `max_boxes` boxes are rejected."""
        boxes = plain_boxes(space, text, max_boxes)
        if boxes is None:
            boxes = sparse(region_of(space, text, max_boxes))
        return cls(space, boxes)

    @classmethod
    def from_boxes(cls, space: Space, lo: npt.ArrayLike, hi: npt.ArrayLike) -> Filter:
        """Return the filter of one box, shape (d,), or of several, (boxes, d).

        Bounds are snapped to the grid and clipped to the domain of their attribute. -inf to +inf
        means that the attribute is unrestricted.
        """
        lows = np.atleast_2d(np.asarray(lo, dtype=np.float64))
        highs = np.atleast_2d(np.asarray(hi, dtype=np.float64))
        if lows.shape != highs.shape or lows.shape[1:] != (len(space),):
            shapes = f"{lows.shape}, {highs.shape}"
            raise UsageError(
                f"lo and hi must have the shape (boxes, {len(space)}); given: {shapes}"
            )
        region: Region = []
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
            product = _product(space, low, high)
            if product is not None:
                region.append(product)
        if not region:
            raise FilterError(
                "a filter of these boxes can never match: they contain no valid value"
            )
        return cls(space, sparse(boxes(space.attributes, absorbed(region))))

    def arrays(self) -> tuple[F64, F64]:
        """Return the bounds, `lo` and `hi`, each (boxes, d)."""
        lo, hi, _ = boxes_of(self.space, [self])
        return lo, hi

    def __str__(self) -> str:
        return text_of(self.space, self.boxes)

    def __repr__(self) -> str:
        return f"Filter({brief(str(self), _MAX_LENGTH)})"

    def _repr_html_(self) -> str:
        """Return the filter's text, for notebooks."""
        return f"<code>{escape(cut(str(self), _MAX_LENGTH))}</code>"

    def __eq__(self, other: object) -> bool:
        # Boxes on strings are numbers of words in the vocabulary of one space.
        return isinstance(other, Filter) and self.space is other.space and self.boxes == other.boxes

    def __hash__(self) -> int:
        return hash(self.boxes)


def boxes_of(space: Space, filters: Iterable[Filter]) -> tuple[F64, F64, I32]:
    """Return the boxes of several filters: `lo` and `hi`, (boxes, d), and `owner`, (boxes,)."""
    owner: list[int] = []
    sizes: list[int] = []
    terms: list[tuple[int, float, float]] = []
    for row, filter_ in enumerate(filters):
        if filter_.space is not space and filter_.space != space:
            raise UsageError(
                f"filter {row} belongs to another space, {filter_.space}; expected {space}"
            )
        for box in filter_.boxes:
            owner.append(row)
            sizes.append(len(box))
            terms += box
    lo = np.full((len(owner), len(space)), -np.inf)
    hi = np.full((len(owner), len(space)), np.inf)
    axes, lows, highs = np.array(terms).reshape(-1, 3).T
    places = np.repeat(np.arange(len(owner)), sizes), axes.astype(np.intp)
    lo[places], hi[places] = lows, highs
    return lo, hi, np.asarray(owner, dtype=np.int32)


def _product(space: Space, low: Sequence[float], high: Sequence[float]) -> Product | None:
    """Return the bounds of a box as a product; `None` if the box is empty."""
    parts = []
    for axis, (attribute, lo, hi) in enumerate(zip(space, low, high, strict=True)):
        if not lo <= hi:
            raise UsageError(f"{attribute.name!r}: the range {lo} to {hi} is empty or contains NaN")
        if (lo, hi) == (-np.inf, np.inf):
            continue
        if isinstance(attribute, String):
            _check_words(attribute, lo, hi)
        ranges = union(attribute, snapped(attribute, lo, hi))
        if not ranges:
            return None
        parts.append((axis, ranges))
    return tuple(parts)


def _check_words(attribute: String, lo: float, hi: float) -> None:
    known = len(attribute.vocabulary)
    if (OTHER > hi >= known) or (MISSING > lo > known):
        raise UsageError(
            f"{attribute.name!r}: the range {lo} to {hi} refers to words outside its vocabulary "
            f"of {known:,} words; use the boxes with the space that they were made with"
        )
