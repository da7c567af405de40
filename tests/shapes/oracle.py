"""Shapes in plain Python with exact numbers: what the kernels are compared with."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

Corner = tuple[float, float]
Ring = list[Corner]


def polygon_holds(rings: list[Ring], x: float, y: float, border: str) -> bool:
    """Return whether a polygon contains a point, by exact crossings of a ray to the right."""
    corners = [corner for ring in rings for corner in ring]
    px, py, *whole = _integers([x, y, *(value for corner in corners for value in corner)])
    inside = on_border = False
    at = 0
    for ring in rings:
        end = at + 2 * len(ring)
        for (x1, y1), (x2, y2) in pairwise(
            zip(whole[at:end:2], whole[at + 1 : end : 2], strict=True)
        ):
            side = (x2 - x1) * (py - y1) - (y2 - y1) * (px - x1)
            if side == 0:
                on_border |= min(x1, x2) <= px <= max(x1, x2) and min(y1, y2) <= py <= max(y1, y2)
            if (y1 <= py) != (y2 <= py):
                inside ^= side > 0 if y2 > y1 else side < 0
        at = end
    if border == "once":
        return inside
    return border == "closed" if on_border else inside


def _integers(values: list[float]) -> list[int]:
    """Return numbers times their common denominator: as exact as fractions, and much faster."""
    ratios = [value.as_integer_ratio() for value in values]
    common = max(below for _, below in ratios)  # all are powers of two
    return [above * (common // below) for above, below in ratios]


def circle_holds(cx: float, cy: float, radius: float, x: float, y: float, border: str) -> bool:
    """Return whether a circle on a plane contains a point."""
    apart = (Fraction(x) - Fraction(cx)) ** 2 + (Fraction(y) - Fraction(cy)) ** 2
    limit = Fraction(radius) ** 2
    return apart < limit or (apart == limit and border != "open")


def wkt(rings: list[Ring]) -> str:
    """The WKT of a polygon."""
    return f"POLYGON ({', '.join(ring_text(ring) for ring in rings)})"


def ring_text(ring: Ring) -> str:
    return f"({', '.join(f'{float(x)!r} {float(y)!r}' for x, y in ring)})"


Test = Callable[[Mapping[str, Any]], bool]


class Draw:
    """Random shapes whose coordinates often coincide."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def coordinate(self) -> float:
        r = self.random
        return r.choice([float(r.randint(0, 6)), r.uniform(0, 6), r.randint(0, 12) / 2])

    def ring(self) -> Ring:
        """A star around a centre; often on the grid of whole numbers."""
        r = self.random
        while True:
            count, cx, cy = r.randint(3, 9), self.coordinate(), self.coordinate()
            ring = []
            for corner in range(count):
                angle, size = 2 * math.pi * (corner + r.random() / 2) / count, r.choice([1, 1.5, 2])
                ring.append((cx + size * math.cos(angle), cy + size * math.sin(angle)))
            if r.random() < 0.5:
                ring = [(float(round(x)), float(round(y))) for x, y in ring]
            if len(set(ring)) > 2:
                return [*ring, ring[0]]

    def shape(self, border: str) -> tuple[str, Test]:
        """The text of a shape, and whether it holds an event."""
        r = self.random
        if r.random() < 0.6:
            rings = [self.ring()]
            text = f"within(place, '{wkt(rings)}')"
            return text, lambda event: polygon_holds(rings, event["x"], event["y"], border)
        cx, cy, radius = self.coordinate(), self.coordinate(), r.choice([0.5, 1.0, 2.5, 5.0])
        if r.random() < 0.5:
            text = f"within(place, circle({cx!r}, {cy!r}, {radius!r}))"
            return text, lambda event: circle_holds(cx, cy, radius, event["x"], event["y"], border)
        sign = r.choice(["<", "<=", ">", ">="])
        text = f"distance(place, point({cx!r}, {cy!r})) {sign} {radius!r}"
        edge = "open" if sign in ("<", ">=") else "closed"

        def far(event: Mapping[str, Any]) -> bool:
            near = circle_holds(cx, cy, radius, event["x"], event["y"], edge)
            return near == (sign[0] == "<")

        return text, far

    def event(self) -> dict[str, Any]:
        """An event that may lack any value."""
        r = self.random
        values = {"x": self.coordinate(), "y": self.coordinate(), "v": float(r.randint(0, 5))}
        return {name: value for name, value in values.items() if r.random() < 0.93}
