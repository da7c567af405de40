"""Zones are closed boxes that tile the whole space of interests.

An interest is a point of that space: (l, r) for a range, lower and then upper bounds for a box.
Coordinates are compared and stepped to the next double, never added; so zones that touch are
exactly one double apart, and every point, an infinite one too, lies in exactly one of them.

Two rules say where messages go. A broker needs to know its own zones and the adjacent ones only.

*Route to a point.* From a zone, let q be its point nearest to the target. The next zone is, of the
adjacent ones whose nearest point is between q and the target on every axis and isn't q, the one
that is nearest. There always is one, and q only moves towards the target: no loops.

*Spread over a rectangle.* It begins at an entry, a point of the rectangle. Let q be the point of a
zone's part of the rectangle that is nearest to the entry. The zone's parent contains the point one
step from q towards the entry, on the first axis where the two differ. Both a zone and its parent
can work that out, so a zone hands the message on to its children, and each zone gets it once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64

Point = tuple[float, ...]


class Box(NamedTuple):
    """All points from `lo` to `hi`, both included."""

    lo: Point
    hi: Point

    @classmethod
    def everything(cls, dimensions: int) -> Box:
        """Return the whole space."""
        return cls((-math.inf,) * dimensions, (math.inf,) * dimensions)

    @classmethod
    def at(cls, point: Point) -> Box:
        """Return the box of one point."""
        return cls(point, point)

    def holds(self, point: Sequence[float]) -> bool:
        """Return whether it contains a point."""
        for a, x, b in zip(self.lo, point, self.hi, strict=True):  # noqa: SIM110 - runs most: no generator
            if not a <= x <= b:
                return False
        return True

    def meets(self, other: Box) -> bool:
        """Return whether the two have a point in common."""
        for a, b, c, d in zip(self.lo, self.hi, other.lo, other.hi, strict=True):
            if a > d or c > b:
                return False
        return True

    def within(self, other: Box) -> bool:
        """Return whether it lies in another box."""
        return other.holds(self.lo) and other.holds(self.hi)

    def common(self, other: Box) -> Box:
        """Return what two boxes that meet have in common."""
        return Box(
            tuple(map(max, self.lo, other.lo)),
            tuple(map(min, self.hi, other.hi)),
        )

    def nearest(self, point: Sequence[float]) -> Point:
        """Return its point nearest to another one."""
        return tuple(min(max(x, a), b) for a, x, b in zip(self.lo, point, self.hi, strict=True))

    def touches(self, other: Box) -> bool:
        """Return whether two boxes are adjacent: they share a face, or a part of one."""
        faces = 0
        for a, b, c, d in zip(self.lo, self.hi, other.lo, other.hi, strict=True):
            if a <= d and c <= b:
                continue
            if after(b) != c and after(d) != a:
                return False
            faces += 1
        return faces == 1

    def cut(self, axis: int, at: float) -> tuple[Box, Box]:
        """Return the parts below and from `at` on, which lies inside and not at the lower end."""
        hi, lo = list(self.hi), list(self.lo)
        hi[axis], lo[axis] = before(at), at
        return Box(self.lo, tuple(hi)), Box(tuple(lo), self.hi)

    def without(self, other: Box) -> list[Box]:
        """Return the part outside another box, as boxes that don't overlap."""
        if not self.meets(other):
            return [self]
        left, rest = [], self
        for axis, (low, high) in enumerate(zip(other.lo, other.hi, strict=True)):
            if rest.lo[axis] < low:
                part, rest = rest.cut(axis, low)
                left.append(part)
            if rest.hi[axis] > high:
                rest, part = rest.cut(axis, after(high))
                left.append(part)
        return left

    def joined(self, other: Box) -> Box | None:
        """Return the two as one box, if together they are one."""
        differing = [
            axis
            for axis in range(len(self.lo))
            if (self.lo[axis], self.hi[axis]) != (other.lo[axis], other.hi[axis])
        ]
        if len(differing) != 1 or not self.touches(other):
            return None
        return Box(tuple(map(min, self.lo, other.lo)), tuple(map(max, self.hi, other.hi)))


def after(x: float) -> float:
    """Return the next double above; that of infinity is infinity."""
    return math.nextafter(x, math.inf)


def before(x: float) -> float:
    """Return the next double below."""
    return math.nextafter(x, -math.inf)


def left_of(box: Box, others: Iterable[Box]) -> list[Box]:
    """Return what of a box lies in none of the others."""
    left = [box]
    for other in others:
        left = [part for piece in left for part in piece.without(other)]
    return left


def distance(box: Box, point: Sequence[float], frame: Box) -> float:
    """Return how far a box is from a point, squared, in a frame that counts as 1 on every axis."""
    total = 0.0
    sides = zip(box.nearest(point), point, frame.lo, frame.hi, strict=True)
    for q, x, low, high in sides:
        width = high - low
        if width > 0:
            apart = (min(max(q, low), high) - min(max(x, low), high)) / width
            total += apart * apart
    return total


def next_zone(zone: Box, target: Point, adjacent: Iterable[Box], frame: Box) -> Box | None:
    """Return the zone that comes next on the way to a point; None if none is nearer."""
    q = zone.nearest(target)
    best: tuple[float, Box] | None = None
    for other in adjacent:
        p = other.nearest(target)
        if p == q or any(
            not min(a, x) <= b <= max(a, x) for a, b, x in zip(q, p, target, strict=True)
        ):
            continue
        nearest = distance(other, target, frame), other
        if best is None or nearest < best:
            best = nearest
    return None if best is None else best[1]


def entry_of(zone: Box, rectangle: Box) -> Point:
    """Return a point of a rectangle that is nearest to a zone."""
    return tuple(
        min(max(c, a), d) if c <= b else c
        for a, b, c, d in zip(zone.lo, zone.hi, rectangle.lo, rectangle.hi, strict=True)
    )


def parent_point(zone: Box, rectangle: Box, entry: Point) -> Point | None:
    """Return a point of the zone's parent in a spread; None for the zone where it begins."""
    q = zone.common(rectangle).nearest(entry)
    for axis, (x, to) in enumerate(zip(q, entry, strict=True)):
        if x != to:
            return (*q[:axis], math.nextafter(x, to), *q[axis + 1 :])
    return None


def _sides(box: Box, frame: Box) -> list[int]:
    """Return the axes by the length of a box within the frame, as a share of it, descending."""

    def share(axis: int) -> float:
        width = frame.hi[axis] - frame.lo[axis]
        low, high = max(box.lo[axis], frame.lo[axis]), min(box.hi[axis], frame.hi[axis])
        return (low - high) / width if width > 0 else 0.0

    return sorted(range(len(box.lo)), key=share)


def middle_cut(box: Box, frame: Box) -> tuple[int, float] | None:
    """Return axis and place of the cut that halves a box; None if the frame leaves no room."""
    for axis in _sides(box, frame):
        low, high = max(box.lo[axis], frame.lo[axis]), min(box.hi[axis], frame.hi[axis])
        at = low / 2 + high / 2
        if low < at <= high:
            return axis, at
    return None


def median_cut(box: Box, frame: Box, points: F64) -> tuple[int, float] | None:
    """Return axis and place of the cut that halves the points of a box; None: there is none.

    It crosses the longest side that leaves at least a quarter of the points on either side.
    """
    best: tuple[int, int, float] | None = None
    for axis in _sides(box, frame):
        values = points[:, axis]
        if not len(values):
            break
        at = np.partition(values, len(values) // 2)[len(values) // 2]
        if not (below := int((values < at).sum())):
            above = values[values > at]
            if not len(above):
                continue
            at = above.min()
            below = int((values < at).sum())
        least = min(below, len(values) - below)
        if 4 * least >= len(values):
            return axis, float(at)
        if best is None or least > best[0]:
            best = least, axis, float(at)
    return None if best is None else best[1:]
