"""Explain why a subscription matches an event or not, by box and attribute."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from rangecast.kernels.arrays import F64, Bool
from rangecast.model.arithmetic.explain import compared, lacks
from rangecast.model.attributes.base import Attribute, Integer, Number
from rangecast.model.attributes.field_paths import value_at
from rangecast.model.attributes.numbers import MAX
from rangecast.model.attributes.patterns import Patterns
from rangecast.model.attributes.places import Place
from rangecast.model.attributes.residuals import Arithmetic
from rangecast.model.attributes.timestamps import Timestamp
from rangecast.model.boxes import Boxes
from rangecast.model.filters.filter import Filter
from rangecast.model.shapes.geometry import number_text
from rangecast.model.shapes.verification.places import (
    Places,
    failed_distances,
    places_of,
    words_hold,
)
from rangecast.model.shapes.words import distance_text, literals_of
from rangecast.model.space import Space
from rangecast.model.text.explain import compared as compared_text
from rangecast.model.text.lacks import lacks_of_texts

C128 = npt.NDArray[np.complex128]
_DAY = 86_400e6
"""Microseconds; how far off a moment is counts beside them."""
_KILOMETRE = 1000.0
"""Metres; how far off a place on the earth is counts beside them."""


@dataclass(frozen=True)
class Line:
    """Comparison of one attribute of one box with an event."""

    attribute: str
    wanted: str
    """The range, as a filter would write it."""
    value: str
    holds: bool
    mentioned: bool
    distance: str
    """Distance of the value from the bound that it breaks, or from the nearer one it keeps."""


@dataclass(frozen=True, repr=False)
class Explanation:
    """Comparison of all boxes of a subscription with one event. `str` gives the verdict."""

    subscription: Any
    boxes: list[list[Line]]
    nearest: int
    """The place of the box that matches the event, or lacks least to match it (`lack_of`)."""

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        """Return the matching box, or the nearest one, as a table, for notebooks."""
        rows = "".join(
            f"<tr><td>{escape(line.wanted)}</td><td>{escape(line.value)}</td>"
            f"<td>{'in' if line.holds else 'OUT'}</td><td>{escape(line.distance)}</td></tr>"
            for line in self.boxes[self.nearest]
            if line.mentioned
        )
        return f"<p>{escape(self.verdict)}</p><table>{rows}</table>"

    @property
    def matches(self) -> bool:
        """Return whether at least one box contains the event."""
        return any(all(line.holds for line in box) for box in self.boxes)

    @property
    def verdict(self) -> str:
        """Return the verdict in one line."""
        name = self.subscription
        if self.matches:
            return f"{name} matches: the event meets every condition."
        which = " (nearest of its alternatives)" if len(self.boxes) > 1 else ""
        return f"{name} does not match{which}: {failures(self.boxes[self.nearest])}."


def failures(box: list[Line]) -> str:
    """Describe the conditions of a box that an event fails; empty if it matches."""
    return "; ".join(
        f"{line.wanted} fails at {line.value}" + f" ({line.distance})" * _is_named(line)
        for line in box
        if not line.holds
    )


def _is_named(line: Line) -> bool:
    """Return whether the distance of a line names what a text lacks."""
    return line.distance.startswith("lacks ")


def explain_match(
    space: Space, boxes: Boxes, row: int, point: F64, values: dict[str, Any]
) -> Explanation:
    """Compare one subscription with one event; `values` are the event's original values."""
    first, end = boxes.box_offsets[row : row + 2].tolist()
    lines = [
        [
            _line(space, axis, boxes.lo[box, axis], boxes.hi[box, axis], point[axis], values)
            for axis in range(len(space))
        ]
        for box in range(first, end)
    ]
    nearest = int(np.argmin(lack_of(space, boxes.lo[first:end], boxes.hi[first:end], point)))
    places = places_of(space)
    if places is not None:
        for number, box in enumerate(lines):
            _add_shapes(space, places, box, boxes.lo[first + number], point)
    return Explanation(boxes.ids[row].as_py(), lines, nearest)


def _add_shapes(space: Space, places: Places, lines: list[Line], lo: F64, point: F64) -> None:
    """Replace the bounds of covering boxes by the shapes that they cover."""
    for axis, sides in zip(places.axes, places.coordinates, strict=True):
        if lo[axis] == -math.inf:
            continue
        attribute = space.attributes[axis]
        if isinstance(attribute, Arithmetic):
            lines[axis] = _arithmetic_line(space, attribute, lo[axis], point)
            continue
        if isinstance(attribute, Patterns):
            word = attribute.literal(lo[axis])
            comparison = compared_text(attribute, word, float(point[axis]))
            name = attribute.of or attribute.name
            lines[axis] = Line(
                name, word, comparison.value, comparison.holds, True, comparison.lacking
            )
            continue
        assert isinstance(attribute, Place)
        x, y = sides
        word = attribute.literal(lo[axis])
        holds = bool(words_hold(places, axis, lo[axis : axis + 1], point)[0])
        at, distance = "(missing)", ""
        if np.isfinite(point[[x, y]]).all():
            at = f"{number_text(point[x])}, {number_text(point[y])}"
            distance = distance_text(literals_of(attribute, word), (x, y), point)
        lines[axis] = Line(attribute.name, word, at, holds, True, distance)
        for coordinate in (x, y):
            line = lines[coordinate]
            if line.holds or not holds:  # of a shape's box, not of the filter itself
                lines[coordinate] = replace(
                    line, wanted="(anything)", holds=True, mentioned=False, distance=""
                )


def _arithmetic_line(space: Space, attribute: Arithmetic, number: float, point: F64) -> Line:
    """Compare the arithmetic of a box with an event."""
    word = attribute.literal(number)
    comparisons = compared(space, attribute, word, point)
    value = "; ".join(comparison.value for comparison in comparisons)
    asked = "; ".join(comparison.asked for comparison in comparisons if comparison.asked)
    return Line(
        attribute.name,
        word,
        value,
        all(comparison.holds for comparison in comparisons),
        True,
        asked,
    )


def nearest_misses(space: Space, boxes: Boxes, point: F64, most: int) -> list[int]:
    """Return the rows of the non-matching subscriptions nearest to a point, nearest first."""
    if not boxes.rows:
        return []
    lack = np.minimum.reduceat(lack_of(space, boxes.lo, boxes.hi, point), boxes.box_offsets[:-1])
    missed = np.flatnonzero(lack.real > 0)
    order = np.argsort(lack[missed], kind="stable")[:most]
    return [int(row) for row in missed[order]]


def lack_of(space: Space, lo: F64, hi: F64, point: F64) -> C128:
    """Return each box's distance from matching: failing attributes, then how far off they are.

    The result is complex, because NumPy orders complex numbers by real, then imaginary part. An
    attribute is off by gap / (gap + value), where value is at least 1 (a day for timestamps), so
    the closer of two bounds counts less. A text is off by the words that it lacks, n / (n + 1). An
    attribute without an order or a value is off by 1.
    """
    off = (lo > point) | (point > hi)
    share = np.ones(off.shape)
    places = places_of(space)
    if places is not None:
        _lack_shapes(places, off, share, lo, point, set(space.patterns.values()))
    for axis, attribute in enumerate(space):
        if isinstance(attribute, Number | Integer | Timestamp) and np.isfinite(point[axis]):
            outside = np.flatnonzero(off[:, axis])
            low, high, at = lo[outside, axis], hi[outside, axis], float(point[axis])
            bound = np.where(low > at, low, high)
            scale = _DAY if isinstance(attribute, Timestamp) else max(abs(at), 1.0)
            with np.errstate(invalid="ignore"):
                gap = np.abs(bound / 4 - at / 4)  # a quarter: the largest numbers don't overflow
                share[outside, axis] = np.nan_to_num(gap / (gap + scale / 4), nan=1.0)
    lack: C128 = off.sum(axis=1) + 1j * (share * off).sum(axis=1)
    return lack


def _lack_shapes(
    places: Places, off: Bool, share: F64, lo: F64, point: F64, texts: set[int]
) -> None:
    """Replace the lack of covering boxes by whether, and how far, a point is outside their shapes.

    texts   axes of text patterns, whose words are counted that a text lacks
    """
    for axis, sides in zip(places.axes, places.coordinates, strict=True):
        asking = np.flatnonzero(lo[:, axis] > -np.inf)
        if not len(asking):
            continue
        off[asking, axis] = ~words_hold(places, axis, lo[asking, axis], point)
        if not sides:
            measure = lacks_of_texts if axis in texts else lacks
            share[asking, axis] = measure(places, axis, lo[asking, axis], point)
            continue
        beside, xy = asking[off[asking, axis]], list(sides)
        if np.isfinite(point[xy]).all():
            is_earth, apart = failed_distances(places, axis, lo[beside, axis], point)
            scale = _KILOMETRE if is_earth else max(float(np.abs(point[xy]).max()), 1.0)
            with np.errstate(invalid="ignore"):
                share[beside, axis] = np.nan_to_num(apart / (apart + scale), nan=1.0)
        off[np.ix_(beside, xy)] = False


def _line(
    space: Space, axis: int, lo: float, hi: float, coordinate: float, values: dict[str, Any]
) -> Line:
    attribute = space.attributes[axis]
    mentioned = not (lo == -math.inf and hi == math.inf)
    path = attribute.path
    value = values.get(attribute.name) if path is None else value_at(values, path)
    return Line(
        attribute=attribute.of or attribute.name,
        wanted=_wanted(space, axis, lo, hi) if mentioned else "(anything)",
        value="(missing)" if coordinate == math.inf else str(value),
        holds=bool(lo <= coordinate <= hi),
        mentioned=mentioned,
        distance=_distance(attribute, lo, hi, coordinate) if mentioned else "",
    )


def _wanted(space: Space, axis: int, lo: float, hi: float) -> str:
    low, high = np.full(len(space), -np.inf), np.full(len(space), np.inf)
    low[axis], high[axis] = lo, hi
    return str(Filter.from_boxes(space, low, high))


def _distance(attribute: Attribute, lo: float, hi: float, coordinate: float) -> str:
    if not isinstance(attribute, Number | Integer | Timestamp) or math.inf in (coordinate, lo):
        return ""
    try:
        below, above = _gap(attribute, lo, coordinate), _gap(attribute, coordinate, hi)
    except OverflowError:  # beyond what Python's datetime can show
        return ""
    if coordinate < lo:
        return f"{-below} too low"
    if coordinate > hi:
        return f"{-above} too high"
    inside = [gap for gap, bound in ((below, lo), (above, hi)) if abs(bound) != MAX]
    return f"{min(inside)} inside" if inside else ""


def _gap(attribute: Attribute, start: float, end: float) -> Any:
    """Return the difference of two coordinates in the attribute's own unit."""
    if abs(start) == MAX or abs(end) == MAX:
        return math.inf
    if isinstance(attribute, Number):
        return float(f"{float(end) - float(start):.12g}")  # of floats: inf, without a warning
    return attribute.value(end) - attribute.value(start)
