"""Crossings: subscriptions that an object's path meets between two events outside of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.kernels.jit import jit
from rangecast.model.attributes.places import Place
from rangecast.model.shapes.earth import unit_vectors
from rangecast.model.shapes.exact.sphere import RADIUS
from rangecast.model.shapes.verification.places import places_of
from rangecast.model.space import Space
from rangecast.track.geometry.accuracy import Accuracy
from rangecast.track.geometry.extents import Extents
from rangecast.track.geometry.paths import meets
from rangecast.track.rules import Rule, speed_of

STORED, NO_EVENT = -1, -2
"""The event before is the one that the state has; an event is ignored, so no path leads to it."""


class Paths(NamedTuple):
    """Columns of paths."""

    event: I64
    """The later event."""
    gap: I64
    """Microseconds since the earlier one."""
    start: F64
    """(paths, d) the earlier event."""
    end: F64
    radius: F64
    """Accuracy of the earlier event."""


@jit
def previous(order: I64, slots: I64, times: I64, last: I64, before: I64, newest: I64) -> None:
    """Write the preceding event of the same object for each event, and whether it is the newest.

    order   events by slot, then by arrival; an event that isn't later than the last one is ignored
    """
    latest, known = np.int64(0), np.int64(STORED)
    for at in range(len(order)):
        event = order[at]
        slot = slots[event]
        if at == 0 or slots[order[at - 1]] != slot:
            latest, known = last[slot], np.int64(STORED)
        if times[event] <= latest:
            before[event] = NO_EVENT
            continue
        before[event] = known
        if known >= 0:
            newest[known] = 0
        newest[event] = 1
        latest, known = times[event], event


def crossings(
    extents: Extents,
    accuracy: Accuracy | None,
    rule_of: Callable[[int], Rule],
    paths: Paths,
    inside: tuple[I64, I64],
) -> tuple[I64, I64]:
    """Return distinct pairs of a path and the number of a subscription that it meets.

    inside   pairs of a path and a subscription that matches one of its ends; these are left out
    """
    space = extents.space
    start, end = paths.start, _shortest_ends(space, paths.start, paths.end)
    speeds = _speeds(space, start, end, paths.gap)
    which, numbers = extents.meeting(np.minimum(start, end), np.maximum(start, end))
    outside = ~np.isin(_pairs(which, numbers), _pairs(*inside))
    which, numbers = which[outside], numbers[outside]
    places = places_of(space)
    crossings_ = []
    for path, number in dict.fromkeys(zip(which.tolist(), numbers.tolist(), strict=True)):
        rule = rule_of(number)
        if not rule.gap or paths.gap[path] > rule.gap:
            continue
        if rule.max_speed is not None and speeds[path] > speed_of(rule.max_speed, space):
            continue
        form = extents.form(number)
        if not meets(places, form, start[path], end[path]):
            continue
        if accuracy is None or not accuracy.is_unsure(form, start[path], paths.radius[path]):
            crossings_.append((path, number))
    pairs = np.array(crossings_, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _pairs(paths: I64, numbers: I64) -> I64:
    """Return each pair encoded as one number."""
    pairs: I64 = paths.astype(np.int64) << 40 | numbers
    return pairs


def _shortest_ends(space: Space, start: F64, end: F64) -> F64:
    """Return the end points of paths, with longitudes within half a turn of the start points."""
    moved = end.copy()
    for place in space:
        if isinstance(place, Place) and place.earth:
            x = space.axis(place.coordinates[0].name)
            with np.errstate(invalid="ignore"):
                turns = np.nan_to_num(np.round((end[:, x] - start[:, x]) / 360.0), posinf=0)
            moved[:, x] -= 360.0 * turns
    return moved


def _speeds(space: Space, start: F64, end: F64, gap: I64) -> F64:
    """Return the speed of each path per second; the highest one if there are several places."""
    speeds = np.zeros(len(gap))
    for place in space:
        if isinstance(place, Place):
            axes = [space.axis(coordinate.name) for coordinate in place.coordinates]
            with np.errstate(invalid="ignore"):
                if place.earth:
                    chord = unit_vectors(end[:, axes]) - unit_vectors(start[:, axes])
                    half = np.sqrt((chord**2).sum(axis=1)) / 2
                    length = 2 * RADIUS * np.arcsin(np.minimum(half, 1.0))
                else:
                    length = np.hypot(*(end[:, axes] - start[:, axes]).T)
            speeds = np.fmax(speeds, length / (gap / 1e6))
    return speeds
