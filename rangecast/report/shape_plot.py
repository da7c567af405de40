"""A picture of a filter's shapes, and of the boxes that an index has of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from rangecast.errors import UsageError
from rangecast.kernels.arrays import F64
from rangecast.model.attributes.places import Place
from rangecast.model.filters.filter import Filter
from rangecast.model.shapes.exact.sphere import RADIUS
from rangecast.model.shapes.geometry import Circle, Corridor, Shape
from rangecast.model.shapes.words import literals_of
from rangecast.report.plots import COLOURS, plot

_STEPS = 180
"""Number of corners of a drawn circle."""
_FAR = 1e140
"""Bounds beyond are no bounds: the outside of a shape has such boxes, which aren't drawn."""


def draw_filter(wanted: Filter, path: Path) -> None:
    """Draw the shapes of a filter's first place; its boxes are dashed, those wholly inside filled.

    A corridor is drawn as its line. A circle on the earth is drawn on the sphere.
    """
    space = wanted.space
    named = {space.attributes[axis] for box in wanted.boxes for axis, *_ in box}
    place = next((drawn for drawn in space if isinstance(drawn, Place) and drawn in named), None)
    if place is None:
        raise UsageError("--plot draws the shapes of a filter, but this one has none")
    axes_of = [space.axis(axis.name) for axis in place.coordinates]
    word_axis = space.axis(place.name)
    lo, hi = wanted.arrays()
    words = dict.fromkeys(int(low) for low in lo[:, word_axis] if np.isfinite(low))
    literals = [drawn for word in words for drawn in literals_of(place, place.literal(word))]
    from matplotlib.collections import LineCollection, PolyCollection

    corners = np.stack([lo[:, axes_of], hi[:, axes_of]], axis=1)
    whole = (np.abs(corners) < _FAR).all(axis=(1, 2))
    is_full = (hi > lo)[:, word_axis]
    x, y = (axis.name for axis in place.coordinates)
    with plot(path, title=f"{len(lo):,} boxes", x=x, y=y, size=(7.0, 6.0)) as axes:
        axes.set_aspect("equal", adjustable="datalim")
        for full, style in ((True, COLOURS[2]), (False, "none")):
            rectangles = [_rectangle(*ends) for ends in corners[whole & (is_full == full)]]
            if rectangles:
                dashed: Any = {"edgecolors": COLOURS[5], "linestyles": "--"}
                axes.add_collection(
                    PolyCollection(rectangles, facecolors=style, alpha=0.35, **dashed)
                )
        for literal in literals:
            colour = COLOURS[7] if literal.negated else COLOURS[0]
            lines = _outlines(literal.shape, earth=place.earth)
            axes.add_collection(LineCollection(lines, colors=colour, linewidths=1.4))
        axes.autoscale_view()


def _rectangle(low: F64, high: F64) -> list[tuple[float, float]]:
    return [(low[0], low[1]), (high[0], low[1]), (high[0], high[1]), (low[0], high[1])]


def _outlines(shape: Shape, *, earth: bool) -> list[F64]:
    if isinstance(shape, Corridor):
        return list(shape.along.lines)
    if not isinstance(shape, Circle):
        return [ring for rings in shape.polygons for ring in rings]
    turn = np.linspace(0, 2 * math.pi, _STEPS + 1)
    if not earth:
        made = [shape.x + shape.radius * np.cos(turn), shape.y + shape.radius * np.sin(turn)]
        return [np.column_stack(made)]
    apart, latitude = shape.radius / RADIUS, math.radians(shape.y)
    north = math.cos(latitude) * math.sin(apart) * np.cos(turn)
    sine = north + math.sin(latitude) * math.cos(apart)
    east = np.arctan2(
        np.sin(turn) * math.sin(apart) * math.cos(latitude),
        math.cos(apart) - math.sin(latitude) * sine,
    )
    return [np.column_stack([shape.x + np.degrees(east), np.degrees(np.arcsin(sine))])]
