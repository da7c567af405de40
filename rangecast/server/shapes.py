"""Shapes of the live set as GeoJSON, for drawing.

A feature is one shape of a subscription. A polygon is unchanged; a circle is a point, and a
corridor a line, each with a `radius`, so that no curve is approximated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from rangecast.errors import UsageError, did_you_mean
from rangecast.kernels.arrays import F64
from rangecast.model.attributes.places import Location, Place
from rangecast.model.boxes import Boxes
from rangecast.model.shapes.geometry import Circle, Lines, Polygons, Shape
from rangecast.model.shapes.words import literals_of
from rangecast.model.space import Space
from rangecast.server.explain import MAX_EXAMINED
from rangecast.server.state.space_index import SpaceIndex

MAX_CORNERS = 200_000
"""Corners of one page; the shape that exceeds it is the last one."""


def shapes_of(
    index: SpaceIndex,
    name: str = "",
    sessions: Collection[int] = (),
    first: int = 0,
    limit: int = 1000,
) -> dict[str, Any]:
    """Return a page of the subscriptions' shapes on a place attribute, in order of arrival.

    name      the place attribute; if empty, the first of the space
    sessions  session subscriptions, which are left out
    first     smallest subscription number to include
    limit     max number of subscriptions
    """
    space = index.engine.space
    place = _place(space, name)
    if place is None:
        return {"type": "FeatureCollection", "features": [], "place": None, "next": None}
    boxes = index.engine.boxes(MAX_EXAMINED)
    axis = space.axes[place.name]
    numbers = boxes.ids.to_numpy(zero_copy_only=False)
    has_shape = np.zeros(boxes.rows, np.bool_)
    has_shape[boxes.owner[boxes.mentions[:, axis]]] = True
    wanted = np.flatnonzero(has_shape & (numbers >= first) & ~np.isin(numbers, list(sessions)))
    wanted = wanted[np.argsort(numbers[wanted], kind="stable")]
    features: list[dict[str, Any]] = []
    corners = done = 0
    for row in wanted[:limit].tolist():
        subscription = index.ids[int(numbers[row])]
        for shape, negated in _shapes(place, boxes, axis, row):
            features.append(_feature(subscription, shape, negated))
            corners += _corners(shape)
        done += 1
        if corners > MAX_CORNERS:
            break
    more = str(int(numbers[wanted[done - 1]])) if done < len(wanted) else None
    return {
        "type": "FeatureCollection",
        "features": features,
        "place": _described(place),
        "next": more,
    }


def _place(space: Space, name: str) -> Place | None:
    places = [attribute for attribute in space if isinstance(attribute, Place)]
    if not name:
        return places[0] if places else None
    for place in places:
        if place.name == name:
            return place
    raise UsageError(f"no place {name!r}: {did_you_mean(name, [place.name for place in places])}")


def _described(place: Place) -> dict[str, Any]:
    definition = {key: value for key, value in place.definition().items() if key != "vocabulary"}
    if isinstance(place, Location):
        definition["x"], definition["y"] = definition.pop("longitude"), definition.pop("latitude")
    return definition


def _shapes(place: Place, boxes: Boxes, axis: int, row: int) -> Iterator[tuple[Shape, bool]]:
    """Yield each shape of a subscription once, and whether it is negated."""
    part = slice(boxes.box_offsets[row], boxes.box_offsets[row + 1])
    words = boxes.lo[part, axis][boxes.mentions[part, axis]]
    seen: set[str] = set()
    for word in np.unique(words.astype(np.int64)).tolist():
        for literal in literals_of(place, place.vocabulary[word]):
            if literal.text not in seen:
                seen.add(literal.text)
                yield literal.shape, literal.negated


def _feature(subscription: str | int, shape: Shape, negated: bool) -> dict[str, Any]:
    radius: float | None = None
    if isinstance(shape, Circle):
        radius = shape.radius
        geometry = {"type": "Point", "coordinates": [shape.x, shape.y]}
    elif isinstance(shape, Polygons):
        geometry = _joined("Polygon", [_lists(rings) for rings in shape.polygons])
    else:
        radius = shape.width
        geometry = _joined("LineString", _lists(shape.along.lines))
    properties = {"subscription": subscription, "negated": negated, "radius": radius}
    return {"type": "Feature", "properties": properties, "geometry": geometry}


def _joined(kind: str, parts: list[Any]) -> dict[str, Any]:
    if len(parts) == 1:
        return {"type": kind, "coordinates": parts[0]}
    return {"type": f"Multi{kind}", "coordinates": parts}


def _lists(arrays: tuple[F64, ...]) -> list[Any]:
    return [array.tolist() for array in arrays]


def _corners(shape: Shape) -> int:
    if isinstance(shape, Circle):
        return 1
    if isinstance(shape, Polygons):
        return sum(len(ring) for rings in shape.polygons for ring in rings)
    along: Lines = shape.along
    return sum(len(line) for line in along.lines)
