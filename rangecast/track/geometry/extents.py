"""Find subscriptions whose boxes intersect a query box.

A box [lo, hi] intersects another one, [from, to], if lo <= to and from <= hi on every axis. So it
is a subscription over points with twice as many axes, and any live set finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rangecast.kernels.arrays import F64, I64
from rangecast.match.live import match_live
from rangecast.model.attributes.base import MISSING, Number
from rangecast.model.attributes.places import Place
from rangecast.model.boxes import Boxes
from rangecast.model.filters.regions import Box
from rangecast.model.space import Space
from rangecast.track.geometry.forms import Alternative, form_of

if TYPE_CHECKING:
    from rangecast.engine import Engine

_LARGEST = np.finfo(np.float64).max


class Extents:
    """Boxes of subscriptions by number, and the forms of their filters."""

    def __init__(self, engine: Engine):
        self.space = engine.space
        self._axes = [axis for axis, attribute in enumerate(self.space) if attribute.ordered]
        self._longitudes = [
            self.space.axis(attribute.coordinates[0].name)
            for attribute in self.space
            if isinstance(attribute, Place) and attribute.earth
        ]
        names = [f"{end}_{axis}" for axis in self._axes for end in ("from", "to")]
        self._set = type(engine)(Space([Number(name) for name in names]))
        self._boxes: dict[int, Sequence[Box]] = {}
        """Of those whose form wasn't needed yet."""
        self._forms: dict[int, list[Alternative]] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._set

    def __len__(self) -> int:
        return len(self._set)

    def edit(self, removed: Iterable[int], added: Mapping[int, Sequence[Box]]) -> None:
        """Remove some subscriptions, then add others, given by their boxes."""
        gone = [number for number in removed if number in self._set]
        if gone:
            self._set.unsubscribe_many(gone)
            for number in gone:
                self._forms.pop(number, None)
                self._boxes.pop(number, None)
        if not added:
            return
        boxes = [box for boxes_of in added.values() for box in boxes_of]
        lo = np.full((len(boxes), 2 * len(self._axes)), -np.inf)
        hi = np.full(lo.shape, np.inf)
        positions = {axis: 2 * at for at, axis in enumerate(self._axes)}
        for row, box in enumerate(boxes):
            for axis, low, high in box:
                if axis in positions and low < MISSING:
                    hi[row, positions[axis]] = min(high, _LARGEST)
                    lo[row, positions[axis] + 1] = low
                    hi[row, positions[axis] + 1] = _LARGEST
        owner = np.repeat(np.arange(len(added)), [len(boxes_of) for boxes_of in added.values()])
        made = Boxes.of(lo, hi, owner=owner, ids=[*added], space=self._set.space)
        self._set.subscribe_many(made)
        self._boxes.update(added)

    def meeting(self, low: F64, high: F64) -> tuple[I64, I64]:
        """Return pairs of a query and a subscription whose boxes intersect, by query.

        low, high   (queries, d) the bounds of each query; a non-finite one meets no bounded axis.
                    Longitudes may exceed half a turn: the rest wraps around
        """
        which = np.arange(len(low))
        for axis in self._longitudes:
            for beyond, turn in ((low[:, axis] < -180.0, 360.0), (high[:, axis] > 180.0, -360.0)):
                shifted = np.flatnonzero(beyond & np.isfinite(low[:, axis] + high[:, axis]))
                if len(shifted):
                    which = np.concatenate([which, which[shifted]])
                    low, high = np.vstack([low, low[shifted]]), np.vstack([high, high[shifted]])
                    low[-len(shifted) :, axis] += turn
                    high[-len(shifted) :, axis] += turn
        points = np.empty((len(low), 2 * len(self._axes)))
        points[:, 0::2], points[:, 1::2] = low[:, self._axes], high[:, self._axes]
        lacking = ~np.isfinite(points)
        points[:, 0::2][lacking[:, 0::2] | lacking[:, 1::2]] = MISSING
        points[:, 1::2][lacking[:, 0::2] | lacking[:, 1::2]] = MISSING
        matches = match_live(self._set._view, points)
        numbers = self._set._view.rows.ids[matches.rows].astype(np.int64)
        return which[matches.events], numbers

    def form(self, number: int) -> list[Alternative]:
        """Return the form of a subscription."""
        form = self._forms.get(number)
        if form is None:
            form = self._forms[number] = form_of(self.space, self._boxes.pop(number))
        return form
